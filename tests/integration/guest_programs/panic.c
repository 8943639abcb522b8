// SPDX-License-Identifier: GPL-2.0
/* Panic the kernel. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	int fd = open("/proc/sysrq-trigger", O_WRONLY);

	puts("about to panic");
	fflush(stdout);
	if (fd < 0 || write(fd, "c", 1) != 1)
		perror("sysrq-trigger");
	return 1;
}
