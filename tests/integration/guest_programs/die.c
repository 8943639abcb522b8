// SPDX-License-Identifier: GPL-2.0
/* End by the signal whose number is given; 11 by a real fault. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int number = argc > 1 ? atoi(argv[1]) : SIGSEGV;

	if (number == SIGSEGV)
		*(char *)mmap(NULL, 4096, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 1;
	if (number == SIGABRT)
		abort();
	kill(getpid(), number);
	pause();
	return 1;
}
