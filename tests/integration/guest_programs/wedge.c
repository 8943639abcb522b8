// SPDX-License-Identifier: GPL-2.0
/*
 * Take every processor for ever: tasks of the highest real-time priority that
 * never yield, with the kernel's throttling switched off.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static void occupy(int cpu)
{
	struct sched_param param = { .sched_priority = 99 };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) ||
	    sched_setscheduler(0, SCHED_FIFO, &param)) {
		perror("occupy");
		return;
	}
	for (;;)
		;
}

int main(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int fd = open("/proc/sys/kernel/sched_rt_runtime_us", O_WRONLY);
	int cpu;

	if (fd < 0 || write(fd, "-1", 2) != 2)
		perror("sched_rt_runtime_us");
	puts("taking the machine");
	fflush(stdout);
	for (cpu = cpus - 1; cpu >= 0; cpu--)
		if (!cpu || !fork())
			occupy(cpu);
	return 1;
}
