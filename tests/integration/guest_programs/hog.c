// SPDX-License-Identifier: GPL-2.0
/* Eat all memory; with "child" let a child do so and report what became of it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void eat(void)
{
	const size_t size = 4 << 20;

	for (;;) {
		char *p = malloc(size);

		if (p)
			memset(p, 1, size);
	}
}

int main(int argc, char **argv)
{
	int status;
	pid_t pid;

	(void)argv;
	puts("eating");
	fflush(stdout);
	if (argc < 2)
		eat();
	pid = fork();
	if (!pid)
		eat();
	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
		return 1;
	printf("the child got signal %d\n", WTERMSIG(status));
	return 0;
}
