// SPDX-License-Identifier: GPL-2.0
/* Stop a child and wait for it for ever. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	pid_t pid = fork();

	if (!pid) {
		raise(SIGSTOP);
		_exit(0);
	}
	puts("waiting");
	fflush(stdout);
	waitpid(pid, NULL, 0);
	return 0;
}
