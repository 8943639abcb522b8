// SPDX-License-Identifier: GPL-2.0
/* How fast is this machine? */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent.h"

static __u64 time_compute(void)
{
	static __u32 table[1024];
	__u64 start = boottime();
	__u32 x = 2463534242U;
	int i;

	for (i = 0; i < 100000; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		table[x % 1024] += x;
	}
	asm volatile("" : : "r"(table) : "memory");
	return boottime() - start;
}

static __u64 time_kernel(void)
{
	const size_t size = 8 * 4096;
	__u64 start = boottime();
	char byte = 0;
	int fds[2];
	size_t at;
	char *map;
	int i;

	if (pipe2(fds, O_CLOEXEC))
		return 0;
	for (i = 0; i < 100; i++)
		if (write(fds[1], &byte, 1) != 1 || read(fds[0], &byte, 1) != 1)
			break;
	close(fds[0]);
	close(fds[1]);
	for (i = 0; i < 10; i++) {
		map = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (map == MAP_FAILED)
			break;
		for (at = 0; at < size; at += 4096)
			map[at] = 1;
		munmap(map, size);
	}
	return boottime() - start;
}

/* The least of several: whatever disturbs a run only makes it longer. */
static __u64 fastest(__u64 (*timed)(void))
{
	__u64 best = ~0ULL;
	int i;

	for (i = 0; i < 6; i++) {
		__u64 ns = timed();

		if (ns < best)
			best = ns;
	}
	return best;
}

__u64 measure_compute(void)
{
	return fastest(time_compute);
}

__u64 measure_kernel(void)
{
	return fastest(time_kernel);
}
