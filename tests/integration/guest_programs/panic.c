// SPDX-License-Identifier: GPL-2.0
/*
 * End the kernel through sysrq: "c" panics, "b" resets the machine.  With
 * "stay" the kernel is told to do nothing more after its panic.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		perror(path);
}

int main(int argc, char **argv)
{
	puts("about to end");
	fflush(stdout);
	usleep(300000);		/* or the agent has no time to pass it on */
	if (argc > 2 && !strcmp(argv[2], "stay"))
		put("/proc/sys/kernel/panic", "0");
	put("/proc/sysrq-trigger", argc > 1 ? argv[1] : "c");
	return 1;
}
