// SPDX-License-Identifier: GPL-2.0
/*
 * Claims that a case passed, as a test program would.  With "splat" the
 * kernel log gets a complaint first; with "exit" the status contradicts.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static const char splat[] =
		"<4>BUG: Bad page state in process claims  pfn:00001\n";
	const char *how = argc > 1 ? argv[1] : "";

	if (!strcmp(how, "splat")) {
		int fd = open("/dev/kmsg", O_WRONLY);

		if (fd < 0 || write(fd, splat, sizeof(splat) - 1) < 0)
			return 1;
	}
	printf("TAP version 13\n1..1\nok 1 claims.%s\n", how);
	return !strcmp(how, "exit");
}
