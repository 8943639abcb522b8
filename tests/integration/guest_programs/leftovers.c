// SPDX-License-Identifier: GPL-2.0
/*
 * Leave the kernel in a state that spoils the next test: a probe that is
 * switched on, loopback down, a silent console.  "look" tells the state.
 */
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRACING	"/sys/kernel/tracing/"

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_APPEND);
	int failed = fd < 0 || write(fd, text, strlen(text)) < 0;

	if (failed)
		perror(path);
	close(fd);
	return failed;
}

static void show(const char *path)
{
	char text[512];
	int fd = open(path, O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	printf("%s: %s\n", strrchr(path, '/') + 1, text);
	close(fd);
}

int main(int argc, char **argv)
{
	struct ifreq lo = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &lo)) {
		perror("lo");
		return 1;
	}
	if (argc > 1 && !strcmp(argv[1], "look")) {
		show(TRACING "kprobe_events");
		show("/proc/sys/kernel/printk");
		printf("lo: %s\n", lo.ifr_flags & IFF_UP ? "up" : "down");
		return 0;
	}
	lo.ifr_flags &= ~IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &lo) ||
	    put(TRACING "kprobe_events", "p:ktest_left vfs_read") ||
	    put(TRACING "events/kprobes/ktest_left/enable", "1") ||
	    put("/proc/sys/kernel/printk", "1"))
		return 1;
	show(TRACING "kprobe_events");
	fflush(stdout);
	pause();
}
