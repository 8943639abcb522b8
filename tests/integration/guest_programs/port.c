// SPDX-License-Identifier: GPL-2.0
/*
 * Write garbage to the agent's line: by opening the device, which the kernel
 * refuses while the agent has it, and by taking the agent's own descriptors.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void try_open(void)
{
	glob_t found;
	size_t i;
	int fd;

	glob("/dev/vport*", 0, NULL, &found);
	for (i = 0; i < found.gl_pathc; i++) {
		fd = open(found.gl_pathv[i], O_RDWR);
		printf("open: %s\n", fd < 0 ? strerror(errno) : "opened");
	}
}

static void steal(void)
{
	static const char garbage[] = "\x01\x02\x03\xff garbage ok 1 fake\n";
	char path[64], target[128];
	int pidfd = syscall(SYS_pidfd_open, 1, 0);
	int i, fd;
	ssize_t n;

	for (i = 3; i < 32; i++) {
		snprintf(path, sizeof(path), "/proc/1/fd/%d", i);
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = '\0';
		if (!strstr(target, "vport"))
			continue;
		fd = syscall(SYS_pidfd_getfd, pidfd, i, 0);
		n = fd < 0 ? -1 : write(fd, garbage, sizeof(garbage));
		printf("stolen: %s\n", n < 0 ? strerror(errno) : "written");
	}
}

int main(void)
{
	try_open();
	steal();
	return 0;
}
