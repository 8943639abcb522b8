// SPDX-License-Identifier: GPL-2.0
/* Show what a command gets: arguments, directory, environment, descriptors. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char text[PATH_MAX];
	struct sigaction action;
	sigset_t blocked;
	int ignored = 0, masked = 0, open_fds = 0;
	int i, fd;

	for (i = 1; i < argc; i++)
		printf("arg %s\n", argv[i]);
	printf("cwd %s\n", getcwd(text, sizeof(text)));
	printf("env %s\n", getenv("KTEST_X") ? getenv("KTEST_X") : "-");
	printf("stdin %zd\n", read(0, text, sizeof(text)));
	printf("leader %d\n", getsid(0) == getpid());
	sigprocmask(SIG_BLOCK, NULL, &blocked);
	for (i = 1; i < NSIG; i++) {
		ignored += !sigaction(i, NULL, &action) &&
			   action.sa_handler != SIG_DFL;
		masked += sigismember(&blocked, i) == 1;
	}
	printf("signals %d %d\n", ignored, masked);
	for (i = 3; i < 64; i++)
		open_fds += fcntl(i, F_GETFD) >= 0;
	printf("descriptors %d\n", open_fds);
	memset(text, 0, sizeof(text));
	fd = open("/proc/self/oom_score_adj", O_RDONLY);
	if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
		printf("oom %s", text);
	fflush(stdout);
	fprintf(stderr, "to stderr\n");
	printf("to stdout\n");
	return 3;
}
