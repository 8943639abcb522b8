// SPDX-License-Identifier: GPL-2.0
/* Hide everything the agent could need below new mounts; or "look" for traces. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static const char * const places[] = {
	"/proc", "/sys", "/dev", "/tmp", "/bin", "/",
};

int main(int argc, char **argv)
{
	size_t i;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "look")) {
		if (!access("/tmp/trace", F_OK) || access("/proc/self", F_OK) ||
		    access("/dev/null", F_OK) || access("/sys/class", F_OK))
			return 1;
		return 0;
	}
	fd = open("/tmp/trace", O_CREAT | O_WRONLY, 0644);
	if (fd < 0)
		return 1;
	for (i = 0; i < sizeof(places) / sizeof(*places); i++)
		if (mount("none", places[i], "tmpfs", 0, NULL))
			printf("%s: %s\n", places[i], strerror(errno));
	puts("hidden");
	return 9;
}
