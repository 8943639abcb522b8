// SPDX-License-Identifier: GPL-2.0
/* Stop process 1 with ptrace; keep it so, or with "leave" let go by ending. */
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	puts("attaching");
	fflush(stdout);
	sleep(1);
	if (ptrace(PTRACE_ATTACH, 1, NULL, NULL)) {
		perror("ptrace");
		return 1;
	}
	waitpid(1, NULL, 0);
	if (argc > 1 && !strcmp(argv[1], "leave"))
		return 6;
	for (;;)
		pause();
}
