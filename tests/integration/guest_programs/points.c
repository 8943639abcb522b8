// SPDX-License-Identifier: GPL-2.0
/* A test program whose only case, named after -r, ends as its name says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
	const char *name = argc > 2 ? argv[2] : "";
	const char *how = strrchr(name, '.') ? strrchr(name, '.') + 1 : name;

	printf("TAP version 13\n1..1\n");
	fflush(stdout);
	if (!strcmp(how, "fault"))
		*(volatile char *)mmap(NULL, 4096, PROT_NONE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 1;
	if (!strcmp(how, "panics")) {
		FILE *trigger = fopen("/proc/sysrq-trigger", "w");

		if (!trigger || fputs("c", trigger) < 0 || fclose(trigger))
			perror("sysrq-trigger");
		return 1;
	}
	while (!strcmp(how, "eats")) {
		char *p = malloc(4 << 20);

		if (p)
			memset(p, 1, 4 << 20);
	}
	if (!strcmp(how, "fails")) {
		fprintf(stderr, "# points.c:20:%s:Expected 1 (1) == 2 (2)\n",
			name);
		printf("not ok 1 %s\n", name);
		return 1;
	}
	if (!strcmp(how, "skips")) {
		printf("ok 1 %s # SKIP not on this kernel\n", name);
		return 4;
	}
	printf("ok 1 %s\n", name);
	return 0;
}
