/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The protocols to send by, and connected pairs of sockets of each, over the
 * loopback device.
 */
#ifndef KSFT_TRANSPORT_H
#define KSFT_TRANSPORT_H

#include <errno.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP		262
#endif
#ifndef IPPROTO_UDPLITE
#define IPPROTO_UDPLITE		136
#endif
#ifndef VMADDR_CID_LOCAL
#define VMADDR_CID_LOCAL	1
#endif

#define KSFT_SOCKET_BUFFER	0x100000

struct ksft_transport {
	const char *absent;	/* what to say of a kernel that lacks it */
	int domain;
	int type;
	int protocol;
	bool mapped;		/* IPv4 through an IPv6 socket */
	size_t max;		/* longest message, 0 for a byte stream */
	int buffer;		/* SO_SNDBUF and SO_RCVBUF, 0 for a large one */
};

static const struct ksft_transport unix_stream = {
	.domain = AF_UNIX,
	.type = SOCK_STREAM,
	.absent = "CONFIG_UNIX is not set",
};

static const struct ksft_transport unix_dgram = {
	.domain = AF_UNIX,
	.type = SOCK_DGRAM,
	.max = 0x18000,
	.absent = "CONFIG_UNIX is not set",
};

static const struct ksft_transport unix_seqpacket = {
	.domain = AF_UNIX,
	.type = SOCK_SEQPACKET,
	.max = 0x18000,
	.absent = "CONFIG_UNIX is not set",
};

static const struct ksft_transport tcp4 = {
	.domain = AF_INET,
	.type = SOCK_STREAM,
	.absent = "CONFIG_INET is not set",
};

static const struct ksft_transport tcp6 = {
	.domain = AF_INET6,
	.type = SOCK_STREAM,
	.absent = "CONFIG_IPV6 is not set",
};

static const struct ksft_transport tcp_mapped = {
	.domain = AF_INET6,
	.type = SOCK_STREAM,
	.mapped = true,
	.absent = "CONFIG_IPV6 is not set",
};

static const struct ksft_transport udp4 = {
	.domain = AF_INET,
	.type = SOCK_DGRAM,
	.max = 65507,
	.absent = "CONFIG_INET is not set",
};

static const struct ksft_transport udp6 = {
	.domain = AF_INET6,
	.type = SOCK_DGRAM,
	.max = 65487,
	.absent = "CONFIG_IPV6 is not set",
};

static const struct ksft_transport udp_mapped = {
	.domain = AF_INET6,
	.type = SOCK_DGRAM,
	.mapped = true,
	.max = 65507,
	.absent = "CONFIG_IPV6 is not set",
};

static const struct ksft_transport udplite4 = {
	.domain = AF_INET,
	.type = SOCK_DGRAM,
	.protocol = IPPROTO_UDPLITE,
	.max = 65507,
	.absent = "this kernel has no UDP-Lite",
};

static const struct ksft_transport udplite6 = {
	.domain = AF_INET6,
	.type = SOCK_DGRAM,
	.protocol = IPPROTO_UDPLITE,
	.max = 65487,
	.absent = "this kernel has no UDP-Lite or CONFIG_IPV6 is not set",
};

static const struct ksft_transport mptcp4 = {
	.domain = AF_INET,
	.type = SOCK_STREAM,
	.protocol = IPPROTO_MPTCP,
	.absent = "CONFIG_MPTCP is not set",
};

static const struct ksft_transport mptcp6 = {
	.domain = AF_INET6,
	.type = SOCK_STREAM,
	.protocol = IPPROTO_MPTCP,
	.absent = "CONFIG_MPTCP_IPV6 is not set",
};

static const struct ksft_transport vsock_stream = {
	.domain = AF_VSOCK,
	.type = SOCK_STREAM,
	.absent = "CONFIG_VSOCKETS_LOOPBACK is not set",
};

static const struct ksft_transport vsock_seqpacket = {
	.domain = AF_VSOCK,
	.type = SOCK_SEQPACKET,
	.max = 0x18000,
	.absent = "CONFIG_VSOCKETS_LOOPBACK is not set",
};

union ksft_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_un un;
	struct sockaddr_vm vm;
};

/* The loopback address, any port; its length. */
static inline socklen_t ksft_loopback(const struct ksft_transport *via,
				      union ksft_addr *addr)
{
	memset(addr, 0, sizeof(*addr));
	addr->sa.sa_family = via->domain;
	switch (via->domain) {
	case AF_INET:
		addr->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return sizeof(addr->in);
	case AF_INET6:
		addr->in6.sin6_addr = in6addr_loopback;
		if (via->mapped) {
			memset(&addr->in6.sin6_addr, 0, 16);
			memset(&addr->in6.sin6_addr.s6_addr[10], 0xff, 2);
			addr->in6.sin6_addr.s6_addr[12] = 127;
			addr->in6.sin6_addr.s6_addr[15] = 1;
		}
		return sizeof(addr->in6);
	case AF_VSOCK:
		addr->vm.svm_cid = VMADDR_CID_LOCAL;
		addr->vm.svm_port = VMADDR_PORT_ANY;
		return sizeof(addr->vm);
	default:
		/* AF_UNIX: the kernel chooses a name. */
		return sizeof(sa_family_t);
	}
}

/* True if @error says that the kernel does not know the protocol. */
static inline bool ksft_no_transport(const struct ksft_transport *via,
				     int error)
{
	switch (error) {
	case EAFNOSUPPORT:
	case EPROTONOSUPPORT:
	case ESOCKTNOSUPPORT:
	case ENOPROTOOPT:
	case ENODEV:
		return true;
	case EADDRNOTAVAIL:
		/* A protocol family without its loopback address. */
		return via->domain != AF_INET;
	default:
		return false;
	}
}

/*
 * A socket with buffers that hold what the tests send before anybody reads,
 * as far as the limits of the system allow.  A message that got lost ends
 * in an error after a while and not in a hanging test.
 */
static inline int ksft_socket(const struct ksft_transport *via)
{
	struct timeval patience = { .tv_sec = 20 };
	int size = via->buffer ?: KSFT_SOCKET_BUFFER;
	int fd;

	fd = socket(via->domain, via->type | SOCK_CLOEXEC, via->protocol);
	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

/* Bind @fd to the loopback address and say where it came to be. */
static inline int ksft_bind(const struct ksft_transport *via, int fd,
			    union ksft_addr *addr, socklen_t *len)
{
	*len = ksft_loopback(via, addr);
	if (bind(fd, &addr->sa, *len))
		return -1;
	*len = sizeof(*addr);
	if (getsockname(fd, &addr->sa, len))
		return -1;
	if (via->domain == AF_VSOCK)
		addr->vm.svm_cid = VMADDR_CID_LOCAL;
	return 0;
}

static inline int ksft_pair_accepted(const struct ksft_transport *via,
				     int fd[2])
{
	union ksft_addr addr;
	socklen_t len;
	int listener;
	int ret = -1;
	int error;

	listener = ksft_socket(via);
	if (listener < 0)
		return -1;
	if (ksft_bind(via, listener, &addr, &len) || listen(listener, 1))
		goto out;
	fd[0] = ksft_socket(via);
	if (fd[0] < 0 || connect(fd[0], &addr.sa, len))
		goto out;
	fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ret = fd[1] < 0 ? -1 : 0;
out:
	error = errno;
	close(listener);
	errno = error;
	return ret;
}

static inline int ksft_pair_connected(const struct ksft_transport *via,
				      int fd[2])
{
	union ksft_addr addr[2];
	socklen_t len[2];
	int i;

	for (i = 0; i < 2; i++) {
		fd[i] = ksft_socket(via);
		if (fd[i] < 0 || ksft_bind(via, fd[i], &addr[i], &len[i]))
			return -1;
	}
	for (i = 0; i < 2; i++)
		if (connect(fd[i], &addr[!i].sa, len[!i]))
			return -1;
	return 0;
}

static inline void ksft_pair_close(int fd[2])
{
	int i;

	for (i = 0; i < 2; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	fd[0] = -1;
	fd[1] = -1;
}

/*
 * A connected pair: @fd[0] connected, @fd[1] was accepted, where the protocol
 * makes that difference.  0, or -1 with errno and nothing left open.
 */
static inline int ksft_pair_open(const struct ksft_transport *via, int fd[2])
{
	struct timeval patience = { .tv_sec = 20 };
	int error, ret;

	fd[0] = -1;
	fd[1] = -1;
	if (via->type == SOCK_DGRAM)
		ret = ksft_pair_connected(via, fd);
	else
		ret = ksft_pair_accepted(via, fd);
	if (ret) {
		error = errno;
		ksft_pair_close(fd);
		errno = error;
		return -1;
	}
	setsockopt(fd[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return 0;
}

#endif /* KSFT_TRANSPORT_H */
