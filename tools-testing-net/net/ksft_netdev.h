/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Network devices to send by: created, addressed and configured by system
 * calls alone, so that neither ip nor ethtool need be there.
 *
 * A function acts on the network namespace of the calling thread, unless it
 * takes another one.  It returns 0 or a negative errno, unless it says so.
 */
#ifndef KSFT_NETDEV_H
#define KSFT_NETDEV_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/types.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ksft_feature.h"
#include "ksft_transport.h"

/* A message to the kernel, under construction. */
struct ksft_nl {
	struct nlmsghdr header;
	unsigned char rest[1000];
};

/* Begin a request whose fixed part is @fixed. */
static inline void ksft_nl_begin(struct ksft_nl *nl, int type, int flags,
				 const void *fixed, size_t len)
{
	memset(nl, 0, sizeof(*nl));
	nl->header.nlmsg_type = type;
	nl->header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	nl->header.nlmsg_len = NLMSG_SPACE(len);
	memcpy(NLMSG_DATA(&nl->header), fixed, len);
}

/* Append an attribute; where it begins, for ksft_nl_nest_end(). */
static inline struct rtattr *ksft_nl_put(struct ksft_nl *nl, int type,
					 const void *data, size_t len)
{
	struct rtattr *attr;

	attr = (void *)((char *)nl + NLMSG_ALIGN(nl->header.nlmsg_len));
	if ((char *)attr + RTA_SPACE(len) > (char *)(nl + 1))
		abort();
	attr->rta_type = type;
	attr->rta_len = RTA_LENGTH(len);
	if (len)
		memcpy(RTA_DATA(attr), data, len);
	nl->header.nlmsg_len = (char *)attr + RTA_SPACE(len) - (char *)nl;
	return attr;
}

static inline void ksft_nl_put_u32(struct ksft_nl *nl, int type, __u32 value)
{
	ksft_nl_put(nl, type, &value, sizeof(value));
}

static inline void ksft_nl_put_text(struct ksft_nl *nl, int type,
				    const char *text)
{
	ksft_nl_put(nl, type, text, strlen(text) + 1);
}

/* All that was appended since @attr, and what it has itself, is inside it. */
static inline void ksft_nl_nest_end(struct ksft_nl *nl, struct rtattr *attr)
{
	attr->rta_len = (char *)nl + nl->header.nlmsg_len - (char *)attr;
}

/* Send the request and fetch the first message of the answer. */
static inline int ksft_nl_ask(struct ksft_nl *nl, struct ksft_nl *answer)
{
	ssize_t got;
	int fd, ret;

	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return -errno;
	memset(answer, 0, sizeof(*answer));
	ret = send(fd, nl, nl->header.nlmsg_len, 0) < 0 ? -errno : 0;
	if (!ret) {
		got = recv(fd, answer, sizeof(*answer), 0);
		if (got < 0)
			ret = -errno;
		else if (got < (ssize_t)sizeof(struct nlmsgerr))
			ret = -EPROTO;
	}
	close(fd);
	return ret;
}

/* Send the request; what the kernel says to it. */
static inline int ksft_nl_do(struct ksft_nl *nl)
{
	struct ksft_nl answer;
	int ret;

	ret = ksft_nl_ask(nl, &answer);
	if (ret)
		return ret;
	if (answer.header.nlmsg_type != NLMSG_ERROR)
		return -EPROTO;
	return ((struct nlmsgerr *)NLMSG_DATA(&answer.header))->error;
}

/* The namespace that the calling thread is in; a descriptor, or -errno. */
static inline int ksft_netns_current(void)
{
	int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static inline int ksft_netns_enter(int netns)
{
	return setns(netns, CLONE_NEWNET) ? -errno : 0;
}

/*
 * Let the devices of this namespace have IPv6, whatever it inherited, and
 * link-local addresses that can be used at once: without one they ask nobody
 * on the link where to send to.  A kernel without IPv6 has none of this.
 */
static inline void ksft_netns_ipv6(void)
{
	static const char * const setting[][2] = {
		{ "/proc/sys/net/ipv6/conf/all/disable_ipv6", "0" },
		{ "/proc/sys/net/ipv6/conf/all/accept_dad", "0" },
		{ "/proc/sys/net/ipv6/conf/default/accept_dad", "0" },
	};
	unsigned int i;

	for (i = 0; i < 3; i++)
		ksft_write_file(setting[i][0], setting[i][1]);
}

/*
 * A new namespace with its loopback device up.  The calling thread stays
 * where it is.  A descriptor, or -errno: -EPERM for all but root.
 */
static inline int ksft_netns_new(void)
{
	int home, netns, ret;

	home = ksft_netns_current();
	if (home < 0)
		return home;
	if (unshare(CLONE_NEWNET)) {
		ret = -errno;
		close(home);
		return ret;
	}
	ksft_netns_ipv6();
	netns = ksft_netns_current();
	ret = ksft_loopback_up(0);
	if (netns >= 0 && ret) {
		close(netns);
		netns = ret;
	}
	ret = ksft_netns_enter(home);
	close(home);
	if (netns >= 0 && ret) {
		close(netns);
		return ret;
	}
	return netns;
}

/*
 * A pair of devices of one name, one here and one in the namespace @away.
 * -EOPNOTSUPP if the kernel has no CONFIG_VETH.
 */
static inline int ksft_veth_add(const char *name, int away)
{
	struct ifinfomsg link = { .ifi_family = AF_UNSPEC };
	struct rtattr *info, *data, *peer;
	struct ksft_nl nl;

	ksft_nl_begin(&nl, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link,
		      sizeof(link));
	ksft_nl_put_text(&nl, IFLA_IFNAME, name);
	info = ksft_nl_put(&nl, IFLA_LINKINFO, NULL, 0);
	ksft_nl_put_text(&nl, IFLA_INFO_KIND, "veth");
	data = ksft_nl_put(&nl, IFLA_INFO_DATA, NULL, 0);
	peer = ksft_nl_put(&nl, VETH_INFO_PEER, &link, sizeof(link));
	ksft_nl_put_text(&nl, IFLA_IFNAME, name);
	ksft_nl_put_u32(&nl, IFLA_NET_NS_FD, away);
	ksft_nl_nest_end(&nl, peer);
	ksft_nl_nest_end(&nl, data);
	ksft_nl_nest_end(&nl, info);
	return ksft_nl_do(&nl);
}

/*
 * A device that needs no more than its kind, such as a dummy.  -EOPNOTSUPP
 * if the kernel does not have that kind.
 */
static inline int ksft_link_add(const char *name, const char *kind)
{
	struct ifinfomsg link = { .ifi_family = AF_UNSPEC };
	struct rtattr *info;
	struct ksft_nl nl;

	ksft_nl_begin(&nl, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link,
		      sizeof(link));
	ksft_nl_put_text(&nl, IFLA_IFNAME, name);
	info = ksft_nl_put(&nl, IFLA_LINKINFO, NULL, 0);
	ksft_nl_put_text(&nl, IFLA_INFO_KIND, kind);
	ksft_nl_nest_end(&nl, info);
	return ksft_nl_do(&nl);
}

static inline int ksft_link_del(const char *name)
{
	struct ifinfomsg link = { .ifi_index = if_nametoindex(name) };
	struct ksft_nl nl;

	if (!link.ifi_index)
		return -ENODEV;
	ksft_nl_begin(&nl, RTM_DELLINK, 0, &link, sizeof(link));
	return ksft_nl_do(&nl);
}

/* Ask the device @name; the request's other fields are the caller's. */
static inline int ksft_link_ioctl(const char *name, unsigned long request,
				  struct ifreq *ifr)
{
	int fd, ret;

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", name);
	ret = ioctl(fd, request, ifr);
	if (ret < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static inline int ksft_link_set_up(const char *name, bool up)
{
	struct ifreq ifr = {};
	int ret;

	ret = ksft_link_ioctl(name, SIOCGIFFLAGS, &ifr);
	if (ret)
		return ret;
	ifr.ifr_flags &= ~IFF_UP;
	if (up)
		ifr.ifr_flags |= IFF_UP;
	return ksft_link_ioctl(name, SIOCSIFFLAGS, &ifr);
}

static inline int ksft_link_up(const char *name)
{
	return ksft_link_set_up(name, true);
}

static inline int ksft_link_down(const char *name)
{
	return ksft_link_set_up(name, false);
}

/* Set the MTU, bytes. */
static inline int ksft_link_mtu(const char *name, int mtu)
{
	struct ifreq ifr = { .ifr_mtu = mtu };

	return ksft_link_ioctl(name, SIOCSIFMTU, &ifr);
}

/* An address as text: its family, with its bytes in @bytes. */
static inline int ksft_addr_parse(const char *text, void *bytes)
{
	int family = strchr(text, ':') ? AF_INET6 : AF_INET;

	if (inet_pton(family, text, bytes) != 1)
		abort();
	return family;
}

static inline size_t ksft_addr_size(int family)
{
	return family == AF_INET ? 4 : 16;
}

/*
 * Wait until packets to an address of this namespace's come in: IPv6 enters
 * the route that makes it local behind the back of who adds the address.
 * -ETIME if that takes 10 seconds.
 */
static inline int ksft_addr_wait(const void *bytes)
{
	struct rtmsg route = { .rtm_family = AF_INET6, .rtm_dst_len = 128 };
	struct timespec nap = { .tv_nsec = 1000000 };
	struct ksft_nl nl, answer;
	struct rtmsg *found;
	int i, ret;

	for (i = 0; i < 10000; i++) {
		ksft_nl_begin(&nl, RTM_GETROUTE, 0, &route, sizeof(route));
		nl.header.nlmsg_flags = NLM_F_REQUEST;
		ksft_nl_put(&nl, RTA_DST, bytes, 16);
		ret = ksft_nl_ask(&nl, &answer);
		if (ret)
			return ret;
		found = NLMSG_DATA(&answer.header);
		if (answer.header.nlmsg_type == RTM_NEWROUTE &&
		    found->rtm_type == RTN_LOCAL)
			return 0;
		nanosleep(&nap, NULL);
	}
	return -ETIME;
}

/* An address that can be used at once, for a device that is up. */
static inline int ksft_addr_add(const char *name, const char *address,
				int prefix)
{
	struct ifaddrmsg addr = {
		.ifa_prefixlen = prefix,
		.ifa_flags = IFA_F_NODAD,
		.ifa_index = if_nametoindex(name),
	};
	unsigned char bytes[16];
	struct ksft_nl nl;
	size_t size;
	int ret;

	addr.ifa_family = ksft_addr_parse(address, bytes);
	size = ksft_addr_size(addr.ifa_family);
	ksft_nl_begin(&nl, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &addr,
		      sizeof(addr));
	ksft_nl_put(&nl, IFA_LOCAL, bytes, size);
	ksft_nl_put(&nl, IFA_ADDRESS, bytes, size);
	ret = ksft_nl_do(&nl);
	if (ret || addr.ifa_family == AF_INET)
		return ret;
	return ksft_addr_wait(bytes);
}

/*
 * Enter (RTM_NEWROUTE) or remove (RTM_DELROUTE) the route by the device
 * @name to @to/@prefix, by the gateway @via unless that is NULL.
 */
static inline int ksft_route(int what, const char *name, const char *to,
			     int prefix, const char *via)
{
	struct rtmsg route = {
		.rtm_dst_len = prefix,
		.rtm_table = RT_TABLE_MAIN,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = via ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK,
		.rtm_type = RTN_UNICAST,
	};
	unsigned char bytes[16];
	struct ksft_nl nl;
	int flags = 0;
	size_t size;

	route.rtm_family = ksft_addr_parse(to, bytes);
	size = ksft_addr_size(route.rtm_family);
	if (what == RTM_NEWROUTE)
		flags = NLM_F_CREATE | NLM_F_REPLACE;
	ksft_nl_begin(&nl, what, flags, &route, sizeof(route));
	ksft_nl_put(&nl, RTA_DST, bytes, size);
	ksft_nl_put_u32(&nl, RTA_OIF, if_nametoindex(name));
	if (via) {
		ksft_addr_parse(via, bytes);
		ksft_nl_put(&nl, RTA_GATEWAY, bytes, size);
	}
	return ksft_nl_do(&nl);
}

/* One ethtool command, its structure at @data; as the ioctl, or -errno. */
static inline int ksft_ethtool(const char *name, void *data)
{
	struct ifreq ifr = { .ifr_data = data };

	return ksft_link_ioctl(name, SIOCETHTOOL, &ifr);
}

/*
 * Wait until the device has a carrier and transmits; -ETIME if that takes 10
 * seconds.  To be asked for its link makes the kernel carry out at once what
 * the link's last change had left to be done within a second.
 */
static inline int ksft_link_wait(const char *name)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	int i, ret;

	for (i = 0; i < 10000; i++) {
		struct ethtool_value link = { .cmd = ETHTOOL_GLINK };

		ret = ksft_ethtool(name, &link);
		/* A device without a link, such as a dummy, always has one. */
		if (ret == -EOPNOTSUPP)
			return 0;
		if (ret || link.data)
			return ret;
		nanosleep(&nap, NULL);
	}
	return -ETIME;
}

#define KSFT_FEATURE_BLOCKS	4	/* of 32 features */

/*
 * The number of the device feature @feature on this kernel, by the kernel's
 * own list of their names.  -ENOENT if the kernel does not know it.
 */
static inline int ksft_netdev_feature(const char *name, const char *feature)
{
	struct {
		struct ethtool_sset_info info;
		__u32 nr;
	} set = {
		.info.cmd = ETHTOOL_GSSET_INFO,
		.info.sset_mask = 1ULL << ETH_SS_FEATURES,
	};
	struct ethtool_gstrings *names;
	unsigned int i;
	int ret;

	ret = ksft_ethtool(name, &set);
	if (ret < 0)
		return ret;
	if (!set.info.sset_mask || set.nr > 32 * KSFT_FEATURE_BLOCKS)
		return -EPROTO;
	names = calloc(1, sizeof(*names) + set.nr * ETH_GSTRING_LEN);
	if (!names)
		return -ENOMEM;
	names->cmd = ETHTOOL_GSTRINGS;
	names->string_set = ETH_SS_FEATURES;
	names->len = set.nr;
	ret = ksft_ethtool(name, names);
	if (ret >= 0)
		ret = -ENOENT;
	for (i = 0; ret == -ENOENT && i < names->len; i++)
		if (!strncmp((char *)names->data + i * ETH_GSTRING_LEN,
			     feature, ETH_GSTRING_LEN))
			ret = i;
	free(names);
	return ret;
}

/* What a device says of one feature. */
struct ksft_netdev_state {
	bool offered;		/* a user may switch it */
	bool wanted;		/* a user, or the default, asks for it */
	bool active;
	bool fixed;		/* no device of this kind ever changes it */
};

struct ksft_netdev_features {
	struct ethtool_gfeatures head;
	struct ethtool_get_features_block block[KSFT_FEATURE_BLOCKS];
};

static inline int ksft_netdev_features(const char *name,
				       struct ksft_netdev_features *get)
{
	memset(get, 0, sizeof(*get));
	get->head.cmd = ETHTOOL_GFEATURES;
	get->head.size = KSFT_FEATURE_BLOCKS;
	return ksft_ethtool(name, get);
}

static inline int ksft_netdev_state(const char *name, const char *feature,
				    struct ksft_netdev_state *state)
{
	struct ethtool_get_features_block *block;
	struct ksft_netdev_features get;
	int nr, ret;
	__u32 bit;

	nr = ksft_netdev_feature(name, feature);
	if (nr < 0)
		return nr;
	ret = ksft_netdev_features(name, &get);
	if (ret < 0)
		return ret;
	block = &get.block[nr / 32];
	bit = 1U << nr % 32;
	state->offered = block->available & bit;
	state->wanted = block->requested & bit;
	state->active = block->active & bit;
	state->fixed = block->never_changed & bit;
	return 0;
}

/* All features that are on, by number. */
static inline int ksft_netdev_active(const char *name,
				     __u32 active[KSFT_FEATURE_BLOCKS])
{
	struct ksft_netdev_features get;
	int i, ret;

	ret = ksft_netdev_features(name, &get);
	for (i = 0; i < KSFT_FEATURE_BLOCKS; i++)
		active[i] = get.block[i].active;
	return ret;
}

/*
 * Ask for a feature or for its absence.  Returns what the kernel says to it:
 * 0, or ETHTOOL_F_UNSUPPORTED if the device does not offer it, ETHTOOL_F_WISH
 * if it will not have it now; or -errno.
 */
static inline int ksft_netdev_switch(const char *name, const char *feature,
				     bool on)
{
	struct {
		struct ethtool_sfeatures head;
		struct ethtool_set_features_block block[KSFT_FEATURE_BLOCKS];
	} set = {
		.head.cmd = ETHTOOL_SFEATURES,
	};
	int nr;

	nr = ksft_netdev_feature(name, feature);
	if (nr < 0)
		return nr;
	/* The kernel takes as many blocks as it has, no more and no less. */
	set.head.size = nr / 32 + 1;
	set.block[nr / 32].valid = 1U << nr % 32;
	set.block[nr / 32].requested = on ? 1U << nr % 32 : 0;
	while (set.head.size <= KSFT_FEATURE_BLOCKS) {
		int ret = ksft_ethtool(name, &set);

		if (ret != -EINVAL)
			return ret;
		set.head.size++;
	}
	return -EINVAL;
}

/*
 * Two namespaces and links between them.  The thread that opened them lives
 * in the first; link number n has a device "veth<n>" in either, and addresses
 * of its own: KSFT_NETS_V4 and KSFT_NETS_V6, with n and 1 or 2 for the end.
 */
#define KSFT_NETS_LINKS		4
#define KSFT_NETS_V4		"192.0.2.%d"		/* 16 * n + end */
#define KSFT_NETS_V6		"2001:db8:0:%x::%x"	/* n, end */

struct ksft_nets {
	int netns[2];
};

/* The name of the device of link @link. */
static inline const char *ksft_nets_device(unsigned int link)
{
	static const char * const name[KSFT_NETS_LINKS] = {
		"veth0", "veth1", "veth2", "veth3",
	};

	return name[link];
}

static inline void ksft_nets_close(struct ksft_nets *nets)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (nets->netns[i] > 0)
			close(nets->netns[i]);
		nets->netns[i] = -1;
	}
}

/*
 * Two new namespaces; the calling thread moves to the first.  -EPERM for all
 * but root, -EINVAL without CONFIG_NET_NS.
 */
static inline int ksft_nets_open(struct ksft_nets *nets)
{
	int i, ret;

	nets->netns[0] = -1;
	nets->netns[1] = -1;
	for (i = 0; i < 2; i++) {
		nets->netns[i] = ksft_netns_new();
		if (nets->netns[i] < 0)
			goto fail;
	}
	ret = ksft_netns_enter(nets->netns[0]);
	if (!ret)
		return 0;
	nets->netns[1] = ret;
fail:
	ret = nets->netns[0] < 0 ? nets->netns[0] : nets->netns[1];
	ksft_nets_close(nets);
	return ret;
}

/* The address of end @end (0 or 1) of link @link as text. */
static inline void ksft_nets_text(int family, unsigned int link, int end,
				  char text[INET6_ADDRSTRLEN])
{
	if (family == AF_INET6)
		snprintf(text, INET6_ADDRSTRLEN, KSFT_NETS_V6, link, end + 1);
	else
		snprintf(text, INET6_ADDRSTRLEN, KSFT_NETS_V4,
			 16 * link + end + 1);
}

/* The same as an address to bind or to connect to, any port; its length. */
static inline socklen_t ksft_nets_address(const struct ksft_transport *via,
					  unsigned int link, int end,
					  union ksft_addr *addr)
{
	char text[INET6_ADDRSTRLEN];
	socklen_t len;

	/* The family, and of a mapped address what is before the address. */
	len = ksft_loopback(via, addr);
	ksft_nets_text(via->mapped ? AF_INET : via->domain, link, end, text);
	if (via->mapped)
		ksft_addr_parse(text, &addr->in6.sin6_addr.s6_addr[12]);
	else if (via->domain == AF_INET6)
		ksft_addr_parse(text, &addr->in6.sin6_addr);
	else
		ksft_addr_parse(text, &addr->in.sin_addr);
	return len;
}

/* True if the system has IPv6 at all. */
static inline bool ksft_has_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

/* Give end @end of a link its addresses. */
static inline int ksft_nets_configure(unsigned int link, int end)
{
	const char *name = ksft_nets_device(link);
	char text[INET6_ADDRSTRLEN];
	int ret;

	ret = ksft_link_wait(name);
	if (ret)
		return ret;
	ksft_nets_text(AF_INET, link, end, text);
	ret = ksft_addr_add(name, text, 28);
	if (ret || !ksft_has_ipv6())
		return ret;
	ksft_nets_text(AF_INET6, link, end, text);
	return ksft_addr_add(name, text, 64);
}

/*
 * Create link @link, up and with its addresses.  -EOPNOTSUPP if the kernel
 * has no CONFIG_VETH.
 */
static inline int ksft_nets_link(const struct ksft_nets *nets,
				 unsigned int link)
{
	const char *name = ksft_nets_device(link);
	int back, end, ret;

	ret = ksft_veth_add(name, nets->netns[1]);
	if (!ret)
		ret = ksft_link_up(name);
	for (end = 1; !ret && end >= 0; end--) {
		ret = ksft_netns_enter(nets->netns[end]);
		if (!ret)
			ret = ksft_link_up(name);
		if (!ret)
			ret = ksft_nets_configure(link, end);
	}
	back = ksft_netns_enter(nets->netns[0]);
	return ret ?: back;
}

/* A socket in namespace @end, bound to its end of the link; -1 with errno. */
static inline int ksft_nets_socket(const struct ksft_nets *nets,
				   const struct ksft_transport *via,
				   unsigned int link, int end)
{
	union ksft_addr addr;
	socklen_t len;
	int error, fd;

	error = -ksft_netns_enter(nets->netns[end]);
	fd = error ? -1 : ksft_socket(via);
	if (!error && fd < 0)
		error = errno;
	len = ksft_nets_address(via, link, end, &addr);
	if (fd >= 0 && bind(fd, &addr.sa, len)) {
		error = errno;
		close(fd);
		fd = -1;
	}
	ksft_netns_enter(nets->netns[0]);
	errno = error;
	return fd;
}

/* Connect @fd to the address that @to is bound to. */
static inline int ksft_nets_connect(int fd, int to)
{
	union ksft_addr addr;
	socklen_t len = sizeof(addr);

	if (getsockname(to, &addr.sa, &len))
		return -1;
	return connect(fd, &addr.sa, len);
}

/*
 * As ksft_pair_open(), over a link: @fd[0] is in the first namespace and
 * connected, @fd[1] is in the second and was accepted.
 */
static inline int ksft_nets_pair(const struct ksft_nets *nets,
				 const struct ksft_transport *via,
				 unsigned int link, int fd[2])
{
	struct timeval patience = { .tv_sec = 20 };
	int to, error;

	fd[0] = ksft_nets_socket(nets, via, link, 0);
	to = ksft_nets_socket(nets, via, link, 1);
	fd[1] = to;
	if (fd[0] < 0 || to < 0)
		goto fail;
	if (via->type != SOCK_DGRAM && listen(to, 1))
		goto fail;
	if (ksft_nets_connect(fd[0], to))
		goto fail;
	if (via->type == SOCK_DGRAM) {
		if (ksft_nets_connect(fd[1], fd[0]))
			goto fail;
		return 0;
	}
	fd[1] = accept4(to, NULL, NULL, SOCK_CLOEXEC);
	if (fd[1] < 0) {
		fd[1] = to;
		goto fail;
	}
	close(to);
	setsockopt(fd[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return 0;
fail:
	error = errno;
	ksft_pair_close(fd);
	errno = error;
	return -1;
}

#endif /* KSFT_NETDEV_H */
