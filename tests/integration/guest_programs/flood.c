// SPDX-License-Identifier: GPL-2.0
/* Print without end. */
#include <string.h>
#include <unistd.h>

int main(void)
{
	char line[4096];

	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\n';
	for (;;)
		if (write(1, line, sizeof(line)) < 0)
			return 1;
}
