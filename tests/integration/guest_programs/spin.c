// SPDX-License-Identifier: GPL-2.0
/* Never end, whatever signal comes; with "sleep" do so without using the CPU. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	sigset_t all;
	int i;

	for (i = 1; i < NSIG; i++)
		signal(i, SIG_IGN);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	puts("deaf");
	fflush(stdout);
	for (;;)
		if (argc > 1 && !strcmp(argv[1], "sleep"))
			pause();
}
