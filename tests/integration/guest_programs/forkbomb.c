// SPDX-License-Identifier: GPL-2.0
/* Fork without end. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	signal(SIGTERM, SIG_IGN);
	puts("forking");
	fflush(stdout);
	for (;;)
		if (fork() < 0)
			usleep(1000);
}
