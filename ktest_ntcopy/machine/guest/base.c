// SPDX-License-Identifier: GPL-2.0
/* Time, small files, and how to give up. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

__u64 boottime(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

__u64 stamp(void)
{
	return boottime() + agent.clock_offset;
}

void sleep_ms(unsigned int ms)
{
	struct timespec ts = {
		.tv_sec = ms / 1000,
		.tv_nsec = ms % 1000 * NSEC_PER_MSEC,
	};

	nanosleep(&ts, NULL);
}

/* The host reads this on the console, turns it into an error and gives up. */
noreturn void fatal(const char *format, ...)
{
	char line[NOTE_MAX];
	va_list args;
	int length;
	int fd;

	length = snprintf(line, sizeof(line), "<2>" KTEST_FATAL_MARK);
	va_start(args, format);
	length += vsnprintf(line + length, sizeof(line) - length, format, args);
	va_end(args);
	if (length > (int)sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';	/* or printk waits for the rest of the line */
	line[length] = '\0';

	fd = agent.kmsg >= 0 ? agent.kmsg : open("/dev/kmsg", O_WRONLY);
	if (fd < 0 || write(fd, line, length) < 0)
		dprintf(STDERR_FILENO, "\n%s", line + 3);
	sleep_ms(200);
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

int write_at(int dir, const char *path, const char *text)
{
	int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, text, strlen(text));
	close(fd);
	return n < 0 ? -1 : 0;
}

size_t read_at(int dir, const char *path, char *text, size_t size)
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;

	if (fd >= 0) {
		n = read(fd, text, size - 1);
		close(fd);
	}
	if (n < 0)
		n = 0;
	text[n] = '\0';
	return n;
}

/* Everything of info level and above reaches the console. */
void reset_console_level(void)
{
	write_at(agent.proc, "sys/kernel/printk", "7");
}

int mount_at(const char *type, const char *target, unsigned long flags,
	     const char *options)
{
	if (mkdir(target, 0755) && errno != EEXIST)
		return -1;
	return mount(type, target, type, flags, options);
}
