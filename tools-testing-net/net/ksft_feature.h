/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a test needs to know about the kernel below it, and a network
 * namespace to run in.
 *
 * A kernel that lacks a feature is no failure, unless the caller says that
 * the feature must be there: KTEST_REQUIRE=name[,name...] in the environment
 * turns the skip into a failure.
 */
#ifndef KSFT_FEATURE_H
#define KSFT_FEATURE_H

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../kselftest_harness.h"
#include "ksft_kprobe.h"

/* True if /proc/kallsyms lists a function of exactly this name. */
static inline bool ksft_find_symbol(const char *symbol)
{
	size_t len = strlen(symbol);
	char line[1024];
	bool found;
	FILE *file;

	file = fopen("/proc/kallsyms", "re");
	if (!file)
		return false;
	setvbuf(file, NULL, _IOFBF, 1 << 16);

	found = false;
	while (!found && fgets(line, sizeof(line), file)) {
		/* An address, a letter, the name, and a module's name. */
		char *name = strchr(line, ' ');

		name = name ? strchr(name + 1, ' ') : NULL;
		found = name && !strncmp(name + 1, symbol, len) &&
			(name[len + 1] == '\n' || name[len + 1] == '\t');
	}
	fclose(file);
	return found;
}

/*
 * Where the tests of one program, each a process of its own, tell each other
 * what they know: a kernel lists a hundred thousand symbols, slowly.
 */
static int *ksft_symbol_memory;

static inline void __attribute__((constructor)) ksft_symbol_memory_map(void)
{
	void *map = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ksft_symbol_memory = map == MAP_FAILED ? NULL : map;
}

/*
 * The same, for a program that asks for one symbol again and again.  A kprobe
 * that the kernel accepts answers sooner than its list of symbols, but only
 * the list can say no: there are many reasons to refuse a kprobe.
 */
static inline bool ksft_has_symbol(const char *symbol)
{
	enum { ASK, YES, NO } *known = (void *)ksft_symbol_memory;
	struct ksft_kprobe probe;
	bool found;

	if (known && *known != ASK)
		return *known == YES;
	found = !ksft_kprobe_define(&probe, symbol);
	if (found)
		ksft_kprobe_remove(&probe);
	else
		found = ksft_find_symbol(symbol);
	if (known)
		*known = found ? YES : NO;
	return found;
}

/* True if the caller insists on @feature. */
static inline bool ksft_required(const char *feature)
{
	const char *at = getenv("KTEST_REQUIRE");
	size_t len = strlen(feature);

	while (at && *at) {
		if (!strncmp(at, feature, len) &&
		    (at[len] == ',' || at[len] == '\0'))
			return true;
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
	return false;
}

/*
 * End the test because the kernel or its configuration lacks something that
 * @feature is tested with: as a failure if the caller requires the feature,
 * as a skip otherwise.  The test returns after it.
 */
static inline void ksft_lacks(struct __test_metadata *_metadata,
			      const char *feature, const char *reason)
{
	ASSERT_FALSE(ksft_required(feature)) {
		TH_LOG("%s is required, but %s", feature, reason);
	}
	SKIP(return, "%s", reason);
}

/* Write @text to a file below /proc or /sys; 0 or a negative errno. */
static inline int ksft_write_file(const char *path, const char *text)
{
	int fd, ret = 0;

	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* Bring the loopback device up, with this MTU unless 0; 0 or -errno. */
static inline int ksft_loopback_up(int mtu)
{
	struct ifreq ifr = { .ifr_name = "lo" };
	int fd, ret;

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;

	ret = ioctl(fd, SIOCGIFFLAGS, &ifr);
	if (!ret && !(ifr.ifr_flags & IFF_UP)) {
		ifr.ifr_flags |= IFF_UP;
		ret = ioctl(fd, SIOCSIFFLAGS, &ifr);
	}
	if (!ret && mtu) {
		ifr.ifr_mtu = mtu;
		ret = ioctl(fd, SIOCSIFMTU, &ifr);
	}
	if (ret)
		ret = -errno;
	close(fd);
	return ret;
}

/*
 * Move to a network namespace of our own with its loopback device up.  Who
 * may not create one keeps the current one: loopback is up there.  Returns
 * true if the namespace is ours to configure.
 */
static inline bool ksft_own_netns(void)
{
	if (unshare(CLONE_NEWNET))
		return false;
	return !ksft_loopback_up(0);
}

#endif /* KSFT_FEATURE_H */
