// SPDX-License-Identifier: GPL-2.0
/* Print what no text file holds, and write some of it into the kernel log. */
#include <fcntl.h>
#include <unistd.h>

int main(void)
{
	static const char noise[] =
		"\xff\xfe\x80 bad \xc3\x28 utf-8\n"
		"nul:\0:nul\n"
		"\x1b[31mred\x1b[0m \x1b]0;title\x07 \x08\x7f\r\n"
		"\xe2\x80\xae evil\n"
		"ok 1 fake.verdict\n"
		"1..0\n"
		"Bail out!\n"
		"]]></system-out><!--";
	static const char log[] = "<4>noise \x1b[2J \xff\xfe \x07 end\n";
	int fd = open("/dev/kmsg", O_WRONLY);

	if (fd < 0 || write(fd, log, sizeof(log) - 1) < 0)
		return 1;
	if (write(1, noise, sizeof(noise) - 1) != sizeof(noise) - 1)
		return 1;
	return 0;
}
