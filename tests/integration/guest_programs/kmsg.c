// SPDX-License-Identifier: GPL-2.0
/* Write very many lines into the kernel log, then end well. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int lines = argc > 1 ? atoi(argv[1]) : 10000;
	int switch_fd = open("/proc/sys/kernel/printk_devkmsg", O_WRONLY);
	int fd = open("/dev/kmsg", O_WRONLY);
	char line[128];
	int i, n;

	if (switch_fd < 0 || write(switch_fd, "on\n", 3) < 0 || fd < 0) {
		perror("kmsg");
		return 1;
	}
	for (i = 0; i < lines; i++) {
		n = snprintf(line, sizeof(line), "<4>flood line %d\n", i);
		if (write(fd, line, n) < 0) {
			perror("write");
			return 1;
		}
	}
	puts("written");
	return 0;
}
