// SPDX-License-Identifier: GPL-2.0
/*
 * What the kernel has lost: kmemleak, where it is built in.  Runs as a command
 * of its own, "ktest-agent leaks".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"

#define KMEMLEAK	"/sys/kernel/debug/kmemleak"
#define AGE_MS		5500	/* younger objects are not looked at */
#define OFF		3	/* exit status: it is there and does not work */

/* kmemleak tells times in jiffies; the agent stamps what is printed here. */
static void print_jiffies(void)
{
	static char text[4096];
	char *found;

	read_at(AT_FDCWD, "/proc/timer_list", text, sizeof(text));
	found = strstr(text, "jiffies:");
	if (found)
		printf("jiffies %llu\n",
		       strtoull(found + strlen("jiffies:"), NULL, 10));
	fflush(stdout);
}

static bool scan(int fd)
{
	return write(fd, "scan", 4) == 4;
}

int find_leaks(void)
{
	int fd = open(KMEMLEAK, O_RDWR | O_CLOEXEC);
	char text[4096];
	ssize_t n;

	if (fd < 0)
		return 0;
	print_jiffies();
	sleep_ms(AGE_MS);
	print_jiffies();
	/* What was in a register or on its way the first time is not lost. */
	if (!scan(fd) || !scan(fd)) {
		printf("kmemleak does not work: %s\n", strerror(errno));
		return OFF;
	}
	while ((n = read(fd, text, sizeof(text))) > 0)
		fwrite(text, n, 1, stdout);
	return fflush(stdout) || n < 0 ? OFF : 0;
}
