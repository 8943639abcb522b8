/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory of a chosen kind of page: base pages, transparent huge pages, huge
 * pages of hugetlbfs; and what the kernel says of the pages it is made of.
 */
#ifndef KSFT_PAGES_H
#define KSFT_PAGES_H

#include <errno.h>
#include <fcntl.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

#define KSFT_HUGE_POOL	"/proc/sys/vm/nr_hugepages"

/* Bits of /proc/kpageflags. */
#define KSFT_PAGE_ANON		0x1000ULL
#define KSFT_PAGE_HUGE		0x20000ULL
#define KSFT_PAGE_NOPAGE	0x100000ULL
#define KSFT_PAGE_THP		0x400000ULL

enum ksft_page_kind {
	KSFT_BASE,
	KSFT_THP,
	KSFT_HUGETLB,
};

/* Blocks of memory, each one page of its kind, between two holes. */
struct ksft_pages {
	enum ksft_page_kind kind;
	unsigned char *start;
	size_t block, nr;	/* bytes of a block, blocks */
	void *map;		/* with the holes */
	size_t mapped;
	int pool;		/* keeps other tests away from the huge pages */
	long pool_before;	/* huge pages there were */
	long pool_free;		/* free ones before the blocks took theirs */
};

/* A number of /proc/meminfo, in the unit given there; -1 without it. */
static inline long ksft_meminfo(const char *name)
{
	size_t len = strlen(name);
	char line[128];
	long value = -1;
	FILE *file;

	file = fopen("/proc/meminfo", "re");
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, len) && line[len] == ':')
			value = strtol(line + len + 1, NULL, 10);
	fclose(file);
	return value;
}

/* The size of a transparent huge page; 0 if there are none. */
static inline size_t ksft_thp_size(void)
{
	size_t size = 0;
	FILE *file;

	file = fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
		     "re");
	if (!file)
		return 0;
	if (fscanf(file, "%zu", &size) != 1)
		size = 0;
	fclose(file);
	return size;
}

/* One number of a file of numbers, of 64 bits each; all ones without it. */
static inline __u64 ksft_page_word(const char *path, __u64 index)
{
	__u64 word = ~0ULL;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return word;
	if (pread(fd, &word, sizeof(word), index * sizeof(word)) !=
	    sizeof(word))
		word = ~0ULL;
	close(fd);
	return word;
}

/* The number of the page frame at @at; 0 if it may not be known. */
static inline __u64 ksft_page_frame(const void *at)
{
	__u64 word = ksft_page_word("/proc/self/pagemap",
				    (uintptr_t)at / getpagesize());

	if (word == ~0ULL || !(word >> 63))
		return 0;
	return word & ((1ULL << 55) - 1);
}

/* What the kernel says of a page frame; all ones if it does not. */
static inline __u64 ksft_page_flags(__u64 frame)
{
	return ksft_page_word("/proc/kpageflags", frame);
}

/* How often a page frame is mapped; all ones if the kernel does not say. */
static inline __u64 ksft_page_mapped(__u64 frame)
{
	return ksft_page_word("/proc/kpagecount", frame);
}

/* True if @flags are those of a page of this kind. */
static inline bool ksft_page_is(enum ksft_page_kind kind, __u64 flags)
{
	const __u64 kinds = KSFT_PAGE_HUGE | KSFT_PAGE_THP;

	switch (kind) {
	case KSFT_BASE:
		return (flags & KSFT_PAGE_ANON) && !(flags & kinds);
	case KSFT_THP:
		return (flags & kinds) == KSFT_PAGE_THP;
	case KSFT_HUGETLB:
		return (flags & kinds) == KSFT_PAGE_HUGE;
	}
	return false;
}

/* Make the pool of huge pages have @need free ones.  NULL, or why not. */
static inline const char *ksft_pool_grow(struct ksft_pages *pages, long need)
{
	long free = ksft_meminfo("HugePages_Free");
	char text[24];

	if (free < 0)
		return "CONFIG_HUGETLBFS is not set";
	pages->pool_before = -1;
	pages->pool = open(KSFT_HUGE_POOL, O_RDWR | O_CLOEXEC);
	if (pages->pool >= 0) {
		flock(pages->pool, LOCK_EX);
		free = ksft_meminfo("HugePages_Free");
		pages->pool_before = ksft_meminfo("HugePages_Total");
	}
	pages->pool_free = free;
	if (free >= need)
		return NULL;
	if (pages->pool < 0)
		return "no huge pages, and only root may set " KSFT_HUGE_POOL;
	snprintf(text, sizeof(text), "%ld", pages->pool_before + need - free);
	if (write(pages->pool, text, strlen(text)) > 0)
		pages->pool_free = ksft_meminfo("HugePages_Free");
	return pages->pool_free < need ?
		"no memory for huge pages: set " KSFT_HUGE_POOL : NULL;
}

static inline void ksft_pool_shrink(struct ksft_pages *pages)
{
	char text[24];

	if (pages->pool <= 0)
		return;
	snprintf(text, sizeof(text), "%ld", pages->pool_before);
	if (pages->pool_before >= 0 &&
	    pwrite(pages->pool, text, strlen(text), 0) < 0)
		perror(KSFT_HUGE_POOL);
	close(pages->pool);
	pages->pool = 0;
}

/* Give the blocks back, and keep what else there is. */
static inline void ksft_pages_unmap(struct ksft_pages *pages)
{
	if (pages->map)
		munmap(pages->map, pages->mapped);
	pages->map = NULL;
	pages->start = NULL;
}

static inline void ksft_pages_close(struct ksft_pages *pages)
{
	ksft_pages_unmap(pages);
	ksft_pool_shrink(pages);
}

/* Back the blocks with pages.  NULL, or why that failed. */
static inline const char *ksft_pages_back(struct ksft_pages *pages)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	size_t i, size = pages->nr * pages->block;

	if (pages->kind == KSFT_HUGETLB)
		flags |= MAP_HUGETLB;
	if (mmap(pages->start, size, PROT_READ | PROT_WRITE, flags, -1, 0) ==
	    MAP_FAILED)
		return pages->kind == KSFT_HUGETLB ?
			"no huge pages: set " KSFT_HUGE_POOL : strerror(errno);
	if (pages->kind != KSFT_HUGETLB)
		madvise(pages->start, size, pages->kind == KSFT_THP ?
			MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	for (i = 0; i < pages->nr; i++)
		pages->start[i * pages->block] = 1;
	for (i = 0; i < pages->nr; i++) {
		unsigned char *at = pages->start + i * pages->block;
		__u64 flags = ksft_page_flags(ksft_page_frame(at));

		if (flags == ~0ULL || flags == KSFT_PAGE_NOPAGE)
			return "no CONFIG_PROC_PAGE_MONITOR, or not root";
		if (ksft_page_is(pages->kind, flags))
			continue;
		if (pages->kind != KSFT_THP)
			return "the kernel gave pages of another kind";
		if (madvise(at, pages->block, MADV_COLLAPSE) ||
		    !ksft_page_is(KSFT_THP,
				  ksft_page_flags(ksft_page_frame(at))))
			return "no memory for transparent huge pages";
	}
	return NULL;
}

/*
 * @nr adjacent blocks of pages of this kind, all of them present.  NULL, or
 * why there are none; the caller closes them in either case.
 */
static inline const char *ksft_pages_open(struct ksft_pages *pages,
					  enum ksft_page_kind kind, size_t nr)
{
	const char *missing = NULL;
	uintptr_t start;

	memset(pages, 0, sizeof(*pages));
	pages->kind = kind;
	pages->nr = nr;
	switch (kind) {
	case KSFT_BASE:
		pages->block = getpagesize();
		break;
	case KSFT_THP:
		pages->block = ksft_thp_size();
		if (!pages->block)
			return "CONFIG_TRANSPARENT_HUGEPAGE is not set";
		break;
	case KSFT_HUGETLB:
		missing = ksft_pool_grow(pages, nr);
		if (missing)
			return missing;
		pages->block = ksft_meminfo("Hugepagesize") * 1024;
		break;
	}

	/* A hole before and one behind, and what alignment may cost. */
	pages->mapped = (nr + 3) * pages->block;
	pages->map = mmap(NULL, pages->mapped, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pages->map == MAP_FAILED) {
		pages->map = NULL;
		return strerror(errno);
	}
	start = (uintptr_t)pages->map + 2 * pages->block - 1;
	pages->start = (void *)(start / pages->block * pages->block);
	return ksft_pages_back(pages);
}

#endif /* KSFT_PAGES_H */
