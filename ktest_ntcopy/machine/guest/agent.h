/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of the guest agent share. */
#ifndef KTEST_AGENT_H
#define KTEST_AGENT_H

#include <signal.h>
#include <stddef.h>
#include <stdnoreturn.h>

#include "protocol.h"

#define NSEC_PER_SEC	1000000000ULL
#define NSEC_PER_MSEC	1000000ULL
#define NOTE_MAX	512

struct command {
	struct ktest_run run;
	char *root;
	char *cwd;
	char *argv[KTEST_ARGS_MAX + 1];
	char *envp[KTEST_ARGS_MAX + 1];
};

/* Descriptors are opened at the start: commands cannot mount over them. */
struct agent {
	int port;
	int proc;	/* directory */
	int tracing;	/* directory */
	int null;
	int kmsg;
	__u32 token;
	__s64 clock_offset;	/* printk's clock minus CLOCK_BOOTTIME, ns */
	sigset_t unblocked;
};

extern struct agent agent;

/* base.c: time, files, giving up */
__u64 boottime(void);
__u64 stamp(void);
void sleep_ms(unsigned int ms);
noreturn void fatal(const char *format, ...);
int write_at(int dir, const char *path, const char *text);
size_t read_at(int dir, const char *path, char *text, size_t size);
int mount_at(const char *type, const char *target, unsigned long flags,
	     const char *options);
void reset_console_level(void);

/* setup.c: from an empty initramfs to a usable guest */
void set_up(void);
void bring_loopback_up(void);
void wait_for_port(void);
void mount_share(void);

/* speed.c */
__u64 measure_compute(void);
__u64 measure_kernel(void);

/* frames.c: the line to the host */
void send_frame(__u32 type, const void *fixed, size_t fixed_size,
		const void *rest, size_t rest_size);
struct ktest_header *receive(void);
void drop_request(void);
void answer_ping(struct ktest_header *header);
void send_exit(const struct ktest_exit *message, const char *note);
int parse_run(struct ktest_header *header, struct command *command);

/* child.c: between fork and exec */
noreturn void run_child(struct command *command, int output);

/* leaks.c: a command of its own */
int find_leaks(void);

/* job.c: one command from start to end */
void run(struct ktest_header *header);

#endif /* KTEST_AGENT_H */
