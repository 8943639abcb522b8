// SPDX-License-Identifier: GPL-2.0
/* reboot(2): "off", "restart", or "lie": claim a panic in the log first. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static const char lie[] = "<0>Kernel panic - not syncing: a lie\n";
	const char *how = argc > 1 ? argv[1] : "off";
	int fd;

	puts(how);
	fflush(stdout);
	if (!strcmp(how, "lie")) {
		fd = open("/dev/kmsg", O_WRONLY);
		if (fd < 0 || write(fd, lie, sizeof(lie) - 1) < 0)
			return 1;
	}
	reboot(strcmp(how, "restart") ? RB_POWER_OFF : RB_AUTOBOOT);
	return 1;
}
