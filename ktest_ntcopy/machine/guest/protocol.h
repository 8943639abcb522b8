/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Frames between the host and the guest agent, over one virtio-serial port.
 *
 * Everything is little endian and naturally aligned.  A frame is a header
 * and LENGTH bytes of payload; the host chooses TOKEN at random, so that bytes
 * which somebody else pushes into the port are told from frames and skipped.
 * Strings end with NUL.  ktest_ntcopy/machine/channel.py is the other side.
 */
#ifndef KTEST_PROTOCOL_H
#define KTEST_PROTOCOL_H

#include <linux/types.h>

#define KTEST_PORT_NAME		"ktest.ctl"
#define KTEST_SHARE_TAG		"ktest.host"
#define KTEST_FATAL_MARK	"ktest-agent: fatal: "

#define KTEST_VERSION		1
#define KTEST_REQUEST_MAX	262144	/* payload, host to guest */
#define KTEST_REPLY_MAX		16384	/* payload, guest to host */
#define KTEST_ARGS_MAX		1024	/* arguments, and as many variables */

#define KTEST_HELLO_SHARE	1	/* mount host directory on /host */

enum ktest_type {
	KTEST_HELLO	= 1,	/* host: hello */
	KTEST_RUN	= 2,	/* host: run, root, cwd, arguments, variables */
	KTEST_PING	= 3,	/* host: ping */
	KTEST_READY	= 16,	/* guest: ready, release, version, machine */
	KTEST_STARTED	= 17,	/* guest: started */
	KTEST_OUTPUT	= 18,	/* guest: output, bytes */
	KTEST_EXIT	= 19,	/* guest: exit, note */
	KTEST_PONG	= 20,	/* guest: pong */
};

enum ktest_reason {
	KTEST_EXITED	= 1,	/* value: exit status */
	KTEST_SIGNALED	= 2,	/* value: signal */
	KTEST_TIMEOUT	= 3,
	KTEST_FLOOD	= 4,
	KTEST_REFUSED	= 5,	/* not started; note tells why */
};

struct ktest_header {
	__u32 token;
	__u32 length;
	__u32 type;
};

struct ktest_hello {
	__u32 version;
	__u32 flags;
};

struct ktest_run {
	__u64 limit_ms;
	__u64 output_limit;
	__u32 id;
	__u32 argc;
	__u32 envc;
	__u32 reserved;
};

struct ktest_ping {
	__u32 sequence;
};

/* All times are nanoseconds on the clock that printk stamps with. */
struct ktest_ready {
	__u64 time;
	__u64 compute_ns;	/* the fixed piece of arithmetic took this */
	__u64 kernel_ns;	/* the fixed set of system calls took this */
	__u32 version;
	__u32 reserved;
};

struct ktest_started {
	__u64 time;
	__u32 id;
	__u32 pid;
};

struct ktest_output {
	__u64 time;
	__u32 id;
	__u32 reserved;
};

struct ktest_exit {
	__u64 time;
	__u32 id;
	__u32 reason;
	__s32 value;
	__u32 stuck;		/* processes that survive SIGKILL */
};

struct ktest_pong {
	__u32 sequence;
};

#endif /* KTEST_PROTOCOL_H */
