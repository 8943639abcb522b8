// SPDX-License-Identifier: GPL-2.0
/*
 * Leave a process behind that holds the output open and ignores SIGTERM;
 * with "look" tell whether such a process is there.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int look(void)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	char path[300], text[64];
	int found = 0;
	ssize_t n;
	int fd;

	while (dir && (entry = readdir(dir))) {
		if (atoi(entry->d_name) < 2 || atoi(entry->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		fd = open(path, O_RDONLY);
		if (fd < 0)
			continue;
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
		text[n > 0 ? n : 0] = '\0';
		found += !strcmp(text, "daemon\n");
	}
	printf("%d left\n", found);
	return found;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "look"))
		return look();
	signal(SIGTERM, SIG_IGN);
	if (!fork()) {
		setsid();
		if (!fork())
			for (;;)
				pause();
		_exit(0);
	}
	puts("left a daemon");
	return 7;
}
