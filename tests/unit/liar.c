// SPDX-License-Identifier: GPL-2.0
/*
 * A C library whose flagged sends are not like plain ones, and that is not to be
 * trusted in other things, for LD_PRELOAD.  LIE names what is wrong; the
 * conformance tests have to notice.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <time.h>
#include <linux/errqueue.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
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

/* What the error queue says of zerocopy calls. */
static void lie_about_completion(struct sock_extended_err *err)
{
	if (err->ee_origin != SO_EE_ORIGIN_ZEROCOPY)
		return;
	if (lies("completion-too-early"))
		err->ee_data++;
	if (lies("completion-skips-one"))
		err->ee_info = err->ee_data += 1;
	if (lies("never-copied"))
		err->ee_code = 0;
	if (lies("completion-is-an-error"))
		err->ee_errno = EIO;
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t (*real)(int fd, struct msghdr *msg, int flags);
	struct cmsghdr *cmsg;
	ssize_t got;

	real = (ssize_t (*)(int, struct msghdr *, int))
		dlsym(RTLD_NEXT, "recvmsg");
	got = real(fd, msg, flags);
	if (got < 0)
		return got;
	for (cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		if (flags & MSG_ERRQUEUE && cmsg->cmsg_level != SOL_SOCKET)
			lie_about_completion((void *)CMSG_DATA(cmsg));
		if (flags & MSG_ERRQUEUE || cmsg->cmsg_level != SOL_SOCKET)
			continue;
		if (lies("no-stamp") && cmsg->cmsg_type == 65)
			msg->msg_controllen = 0;
		if (lies("stamp-of-1970"))
			memset(CMSG_DATA(cmsg), 0, 8);
		if (lies("stamp-of-hardware") && cmsg->cmsg_len > CMSG_LEN(32))
			memset(CMSG_DATA(cmsg) + 32, 1, 1);
		if (lies("old-stamps-only") && cmsg->cmsg_type == 65)
			cmsg->cmsg_type = 37;
	}
	return got;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	int (*real)(int fd, int level, int name, const void *value,
		    socklen_t len);
	int ret;

	real = (int (*)(int, int, int, const void *, socklen_t))
		dlsym(RTLD_NEXT, "setsockopt");
	ret = real(fd, level, name, value, len);
	return ret < 0 && errno == EINVAL && lies("takes-any-bit") ? 0 : ret;
}

/* What ethtool says of features. */
int ioctl(int fd, unsigned long request, ...)
{
	int (*real)(int fd, unsigned long request, void *data);
	struct ethtool_gfeatures *features;
	va_list list;
	void *data;
	__u32 i;
	int ret;

	va_start(list, request);
	data = va_arg(list, void *);
	va_end(list);
	real = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
	if (request != SIOCETHTOOL)
		return real(fd, request, data);
	features = (void *)((struct ifreq *)data)->ifr_data;
	if (features->cmd == ETHTOOL_SFEATURES && lies("feature-is-stuck"))
		return 0;
	ret = real(fd, request, data);
	if (ret < 0 || features->cmd != ETHTOOL_GFEATURES)
		return ret;
	for (i = 0; i < features->size; i++) {
		if (lies("features-are-on"))
			features->features[i].active = ~0;
		if (lies("features-are-fixed"))
			features->features[i].never_changed = ~0;
		if (lies("loopback-offers-all"))
			features->features[i].available = ~0;
	}
	return ret;
}
