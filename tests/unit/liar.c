// SPDX-License-Identifier: GPL-2.0
/*
 * A C library whose flagged sends are not like plain ones, for LD_PRELOAD.  LIE
 * names what is wrong; the conformance tests have to notice.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static __thread int flagged_before;

static int lies(const char *lie)
{
	const char *chosen = getenv("LIE");

	return chosen && !strcmp(chosen, lie);
}

static ssize_t real_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t (*real)(int fd, const struct msghdr *msg, int flags);

	real = (ssize_t (*)(int, const struct msghdr *, int))
		dlsym(RTLD_NEXT, "sendmsg");
	return real(fd, msg, flags);
}

static size_t length_of(const struct msghdr *msg)
{
	size_t length = 0;
	size_t i;

	for (i = 0; i < msg->msg_iovlen; i++)
		length += msg->msg_iov[i].iov_len;
	return length;
}

/* A message of 63 bytes, all of which can be read, is sent with one changed. */
static ssize_t send_changed(int fd, const struct msghdr *msg, int flags)
{
	struct msghdr changed = *msg;
	struct iovec iov = { 0 };
	ssize_t sent;

	if (msg->msg_iovlen != 1 || msg->msg_iov[0].iov_len != 63)
		return real_sendmsg(fd, msg, flags);
	iov.iov_base = malloc(63);
	iov.iov_len = 63;
	memcpy(iov.iov_base, msg->msg_iov[0].iov_base, 63);
	((char *)iov.iov_base)[62] ^= 1;
	changed.msg_iov = &iov;
	sent = real_sendmsg(fd, &changed, flags);
	free(iov.iov_base);
	return sent;
}

/* Sends less than it was given, from one segment. */
static ssize_t send_less(int fd, const struct msghdr *msg, int flags)
{
	struct msghdr shorter = *msg;
	struct iovec iov;

	if (msg->msg_iovlen != 1 || msg->msg_iov[0].iov_len < 4096)
		return real_sendmsg(fd, msg, flags);
	iov = msg->msg_iov[0];
	iov.iov_len--;
	shorter.msg_iov = &iov;
	return real_sendmsg(fd, &shorter, flags);
}

static ssize_t lie_about(int fd, const struct msghdr *msg, int flags)
{
	ssize_t sent;

	if (lies("refuse")) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (lies("change"))
		return send_changed(fd, msg, flags);
	if (lies("short"))
		return send_less(fd, msg, flags);
	if (lies("drop")) {
		sent = send_less(fd, msg, flags);
		return sent < 0 ? sent : (ssize_t)length_of(msg);
	}
	if (lies("twice") && length_of(msg) == 64)
		real_sendmsg(fd, msg, flags);
	if (lies("no-control")) {
		struct msghdr bare = *msg;

		bare.msg_control = NULL;
		bare.msg_controllen = 0;
		return real_sendmsg(fd, &bare, flags);
	}
	sent = real_sendmsg(fd, msg, flags);
	if (sent < 0 && errno == EFAULT && lies("fault-is-invalid"))
		errno = EINVAL;
	if (sent < 0 && errno == EFAULT && lies("fault-is-success"))
		return length_of(msg);
	if (sent < 0 && errno == EAGAIN && lies("full-is-nobufs"))
		errno = ENOBUFS;
	if (sent < 0 && errno == EPIPE && lies("closed-is-reset"))
		errno = ECONNRESET;
	if (sent < 0 && errno == EMSGSIZE && lies("long-is-full"))
		errno = EAGAIN;
	return sent;
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (flags & FLAG) {
		flagged_before = 1;
		return lie_about(fd, msg, flags);
	}
	if (flagged_before && lies("sticky") && msg->msg_iovlen == 1)
		return send_less(fd, msg, flags);
	return real_sendmsg(fd, msg, flags);
}

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	struct iovec iov = { (void *)buf, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return sendmsg(fd, &msg, flags);
}

int sendmmsg(int fd, struct mmsghdr *vec, unsigned int len, int flags)
{
	unsigned int i;

	for (i = 0; i < len; i++) {
		ssize_t sent = sendmsg(fd, &vec[i].msg_hdr, flags);

		/* Goes on behind a message that failed. */
		if (sent < 0 && lies("batch-skips") && flags & FLAG && i)
			continue;
		if (sent < 0)
			break;
		vec[i].msg_len = sent;
	}
	return i ? (int)i : -1;
}
