// SPDX-License-Identifier: GPL-2.0
/*
 * Count what one send() costs, in ticks of the time stamp counter.
 *
 * In a machine whose virtual time advances by one nanosecond per instruction
 * (QEMU: -icount shift=0) the counter counts instructions, so that the figure
 * is exact and repeatable.  On other machines it is time.
 *
 * Prints one line per transport, size and flag:
 *	transport size flags minimum median
 */
#include <arpa/inet.h>
#include <error.h>
#include <errno.h>
#include <linux/types.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <x86intrin.h>

#ifndef MSG_NTCOPY
#error "define MSG_NTCOPY as the feature file has it"
#endif

#define ROUNDS		300

static char payload[65536];
static char sink[65536];

static void loopback_up(void)
{
	struct ifreq ifr = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (ioctl(fd, SIOCGIFFLAGS, &ifr) == 0) {
		ifr.ifr_flags |= IFF_UP;
		ioctl(fd, SIOCSIFFLAGS, &ifr);
	}
	close(fd);
}

static void inet_pair(int type, int *fds)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(addr);
	int one = 1;
	int listener;

	listener = socket(AF_INET, type, 0);
	fds[0] = socket(AF_INET, type, 0);
	if (bind(listener, (void *)&addr, len) ||
	    getsockname(listener, (void *)&addr, &len))
		error(1, errno, "bind");
	if (type == SOCK_STREAM && listen(listener, 1))
		error(1, errno, "listen");
	if (connect(fds[0], (void *)&addr, len))
		error(1, errno, "connect");
	if (type == SOCK_STREAM) {
		fds[1] = accept(listener, NULL, NULL);
		close(listener);
		setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &one,
			   sizeof(one));
		setsockopt(fds[1], IPPROTO_TCP, TCP_QUICKACK, &one,
			   sizeof(one));
	} else {
		fds[1] = listener;
	}
}

static int by_value(const void *a, const void *b)
{
	__u64 x = *(const __u64 *)a, y = *(const __u64 *)b;

	return x < y ? -1 : x > y;
}

static void measure(const char *name, int *fds, size_t size, int flags)
{
	static __u64 cost[ROUNDS];
	__u64 start;
	size_t got;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		start = __rdtsc();
		if (send(fds[0], payload, size, flags) != (ssize_t)size)
			error(1, errno, "send %s %zu", name, size);
		cost[i] = __rdtsc() - start;
		for (got = 0; got < size; )
			got += recv(fds[1], sink, sizeof(sink), 0);
	}
	qsort(cost, ROUNDS, sizeof(*cost), by_value);
	printf("%s %zu %s %llu %llu\n", name, size,
	       flags ? "MSG_NTCOPY" : "plain",
	       (unsigned long long)cost[0],
	       (unsigned long long)cost[ROUNDS / 2]);
}

int main(void)
{
	static const size_t sizes[] = { 1, 64, 1024, 16384 };
	int unix_fds[2], udp_fds[2], tcp_fds[2];
	size_t i;

	loopback_up();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, unix_fds))
		error(1, errno, "socketpair");
	inet_pair(SOCK_DGRAM, udp_fds);
	inet_pair(SOCK_STREAM, tcp_fds);
	memset(payload, 'x', sizeof(payload));

	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		measure("unix", unix_fds, sizes[i], 0);
		measure("udp", udp_fds, sizes[i], 0);
		measure("tcp", tcp_fds, sizes[i], 0);
		measure("unix", unix_fds, sizes[i], MSG_NTCOPY);
		measure("udp", udp_fds, sizes[i], MSG_NTCOPY);
		measure("tcp", tcp_fds, sizes[i], MSG_NTCOPY);
	}
	return 0;
}
