// SPDX-License-Identifier: GPL-2.0
/* Overwrite the program of process 1 in memory. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
	unsigned long start, end, at;
	char trap[4096];
	char kind[8];
	int fd = open("/proc/1/mem", O_RDWR);
	FILE *maps = fopen("/proc/1/maps", "r");

	if (fd < 0 || !maps) {
		perror("/proc/1");
		return 1;
	}
	puts("overwriting");
	fflush(stdout);
	memset(trap, 0xcc, sizeof(trap));
	while (fscanf(maps, "%lx-%lx %7s%*[^\n]", &start, &end, kind) == 3)
		if (kind[2] == 'x' && end < 0x7f0000000000UL)
			for (at = start; at < end; at += sizeof(trap))
				if (pwrite(fd, trap, sizeof(trap), at) < 0)
					perror("pwrite");
	return 0;
}
