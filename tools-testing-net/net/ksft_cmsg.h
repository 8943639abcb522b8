/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a receive call reports in control messages, in a form that can be
 * held against a list of what it should report.
 */
#ifndef KSFT_CMSG_H
#define KSFT_CMSG_H

#include <errno.h>
#include <linux/types.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "../kselftest_harness.h"

#define KSFT_CMSG_MAX		8
#define KSFT_CMSG_BUFFER	512
#define KSFT_CMSG_TIMES		3	/* those of SCM_TIMESTAMPING */

/* One control message. */
struct ksft_cmsg {
	int level;
	int type;
	size_t len;		/* bytes behind its header */
	unsigned int stamps;	/* bit n is set: time number n is not zero */
	__u32 number;		/* of a message that is no time */
	__s64 when;		/* its first time that is not zero, in ns */
};

/* All that one receive call told, in its order. */
struct ksft_cmsgs {
	size_t nr;
	int flags;		/* msg_flags */
	size_t len;		/* msg_controllen */
	struct ksft_cmsg at[KSFT_CMSG_MAX];
};

/*
 * Seconds and what follows them, and how many nanoseconds the latter counts;
 * 0 for a message that carries no time.
 */
static inline int ksft_cmsg_unit(const struct ksft_cmsg *cmsg, size_t *word)
{
	*word = sizeof(__s64);
	if (cmsg->level != SOL_SOCKET)
		return 0;
	switch (cmsg->type) {
	case SO_TIMESTAMP_OLD:
		*word = sizeof(long);
		return 1000;
	case SO_TIMESTAMPNS_OLD:
	case SO_TIMESTAMPING_OLD:
		*word = sizeof(long);
		return 1;
	case SO_TIMESTAMP_NEW:
		return 1000;
	case SO_TIMESTAMPNS_NEW:
	case SO_TIMESTAMPING_NEW:
		return 1;
	default:
		return 0;
	}
}

static inline __s64 ksft_cmsg_word(const unsigned char *data, size_t word)
{
	__s64 wide;
	long narrow;

	if (word == sizeof(wide)) {
		memcpy(&wide, data, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, data, sizeof(narrow));
	return narrow;
}

static inline void ksft_cmsg_read(struct ksft_cmsg *cmsg,
				  const struct cmsghdr *header)
{
	const unsigned char *data = CMSG_DATA(header);
	size_t word, at;
	int unit, i;

	memset(cmsg, 0, sizeof(*cmsg));
	cmsg->level = header->cmsg_level;
	cmsg->type = header->cmsg_type;
	cmsg->len = header->cmsg_len - CMSG_LEN(0);
	unit = ksft_cmsg_unit(cmsg, &word);
	if (!unit) {
		if (cmsg->len >= sizeof(cmsg->number))
			memcpy(&cmsg->number, data, sizeof(cmsg->number));
		return;
	}
	for (i = 0; i < KSFT_CMSG_TIMES; i++) {
		__s64 when;

		at = 2 * word * i;
		if (at + 2 * word > cmsg->len)
			break;
		when = ksft_cmsg_word(data + at, word) * 1000000000LL +
		       ksft_cmsg_word(data + at + word, word) * unit;
		if (!when)
			continue;
		cmsg->stamps |= 1U << i;
		if (!cmsg->when)
			cmsg->when = when;
	}
}

/* The control messages of @msg, as a receive call left it. */
static inline void ksft_cmsgs_read(struct ksft_cmsgs *got, struct msghdr *msg)
{
	struct cmsghdr *header;

	memset(got, 0, sizeof(*got));
	got->flags = msg->msg_flags;
	got->len = msg->msg_controllen;
	for (header = CMSG_FIRSTHDR(msg); header;
	     header = CMSG_NXTHDR(msg, header)) {
		if (got->nr == KSFT_CMSG_MAX)
			break;
		ksft_cmsg_read(&got->at[got->nr], header);
		got->nr++;
	}
}

/*
 * recvmsg() of up to @len bytes, with room for @room bytes of control
 * messages, or without any for 0.
 */
static inline ssize_t ksft_cmsgs_receive(int fd, void *data, size_t len,
					 size_t room, int flags,
					 struct ksft_cmsgs *got)
{
	union {
		char buffer[KSFT_CMSG_BUFFER];
		struct cmsghdr aligned;
	} control;
	struct iovec iov = { .iov_base = data, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t ret;

	if (room) {
		msg.msg_control = control.buffer;
		msg.msg_controllen = room;
	}
	memset(&control, 0, sizeof(control));
	ret = recvmsg(fd, &msg, flags);
	if (ret >= 0)
		ksft_cmsgs_read(got, &msg);
	return ret;
}

/* @got is @want, up to its first NULL, and nothing else. */
static inline void ksft_cmsgs_expect(struct __test_metadata *_metadata,
				     const struct ksft_cmsg * const want[],
				     const struct ksft_cmsgs *got,
				     const char *what)
{
	size_t nr = 0, i;

	while (want[nr])
		nr++;
	EXPECT_EQ(nr, got->nr) {
		TH_LOG("%s: so many control messages came", what);
	}
	for (i = 0; i < nr || i < got->nr; i++) {
		const struct ksft_cmsg *cmsg = &got->at[i];

		if (i >= nr) {
			TH_LOG("%s: unexpected: level %d, type %d", what,
			       cmsg->level, cmsg->type);
			continue;
		}
		if (i >= got->nr) {
			TH_LOG("%s: missing: level %d, type %d", what,
			       want[i]->level, want[i]->type);
			continue;
		}
		EXPECT_EQ(want[i]->level, cmsg->level) {
			TH_LOG("%s: level of message %zu", what, i);
		}
		EXPECT_EQ(want[i]->type, cmsg->type) {
			TH_LOG("%s: type of message %zu", what, i);
		}
		EXPECT_EQ(want[i]->len, cmsg->len) {
			TH_LOG("%s: size of message %zu", what, i);
		}
		EXPECT_EQ(want[i]->stamps, cmsg->stamps) {
			TH_LOG("%s: times in message %zu", what, i);
		}
		EXPECT_EQ(want[i]->number, cmsg->number) {
			TH_LOG("%s: number in message %zu", what, i);
		}
	}
}

#endif /* KSFT_CMSG_H */
