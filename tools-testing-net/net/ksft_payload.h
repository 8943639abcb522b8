/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Payloads whose every byte tells where it belongs, in memory that ends at a
 * hole on either side.
 */
#ifndef KSFT_PAYLOAD_H
#define KSFT_PAYLOAD_H

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * Memory between two pages that nobody may touch: a copy that reads a byte
 * too many, before or behind, faults.
 */
struct ksft_arena {
	unsigned char *start;
	size_t size;		/* bytes, whole pages */
};

static inline int ksft_arena_open(struct ksft_arena *arena, size_t size)
{
	size_t page = getpagesize();
	unsigned char *map;

	size = (size + page - 1) / page * page;
	map = mmap(NULL, size + 2 * page, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return -errno;
	if (mprotect(map + page, size, PROT_READ | PROT_WRITE)) {
		munmap(map, size + 2 * page);
		return -errno;
	}
	arena->start = map + page;
	arena->size = size;
	return 0;
}

static inline void ksft_arena_close(struct ksft_arena *arena)
{
	size_t page = getpagesize();

	if (arena->start)
		munmap(arena->start - page, arena->size + 2 * page);
	arena->start = NULL;
}

/* The last @len bytes before the hole. */
static inline unsigned char *ksft_arena_tail(const struct ksft_arena *arena,
					     size_t len)
{
	return arena->start + arena->size - len;
}

/* Byte @at of the payload number @seed. */
static inline unsigned char ksft_payload_byte(unsigned int seed, size_t at)
{
	return seed * 37 + at + (at >> 8) * 101 + (at >> 16) * 57;
}

/* Make @data the bytes of the payload from byte @from on. */
static inline void ksft_payload_fill(unsigned char *data, size_t from,
				     size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		data[i] = ksft_payload_byte(seed, from + i);
}

/* The first byte of the payload that @data, which starts at @from, lacks. */
static inline ssize_t ksft_payload_differs(const unsigned char *data,
					   size_t from, size_t len,
					   unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (data[i] != ksft_payload_byte(seed, from + i))
			return from + i;
	return -1;
}

/*
 * Read a byte stream until @len bytes came or it ended.  The bytes read, or
 * -1 with errno.
 */
static inline ssize_t ksft_read_stream(int fd, void *data, size_t len)
{
	size_t got = 0;
	ssize_t ret;

	while (got < len) {
		ret = recv(fd, (char *)data + got, len - got, 0);
		if (ret < 0 && errno == EINTR)
			continue;
		if (ret < 0)
			return -1;
		if (!ret)
			break;
		got += ret;
	}
	return got;
}

#endif /* KSFT_PAYLOAD_H */
