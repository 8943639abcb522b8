// SPDX-License-Identifier: GPL-2.0
/* Send every signal to process 1, then kill everything that can be killed. */
#include <signal.h>
#include <stdio.h>

int main(void)
{
	int i;

	for (i = 1; i < NSIG; i++)
		kill(1, i);
	kill(1, SIGSTOP);
	kill(1, SIGKILL);
	kill(-1, SIGSTOP);
	kill(-1, SIGKILL);
	puts("still here");
	return 5;
}
