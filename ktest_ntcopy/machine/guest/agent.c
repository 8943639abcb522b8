// SPDX-License-Identifier: GPL-2.0
/*
 * The first process of a test guest.
 *
 * Sets the guest up, then runs one command at a time for the host and tells
 * how it ended.  Being process 1 it cannot be killed or stopped by a signal.
 * It allocates no memory after the start, is locked in memory and has real
 * time priority, so that a command which eats memory, forks without end or
 * hogs the processors can still be ended.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"

struct agent agent = {
	.port = -1,
	.proc = -1,
	.tracing = -1,
	.null = -1,
	.kmsg = -1,
};

static void greet(struct ktest_header *header)
{
	struct ktest_hello hello = { 0 };
	struct ktest_ready ready = { .version = KTEST_VERSION };
	char text[3 * sizeof(((struct utsname *)0)->release)];
	struct utsname name;
	int length;

	if (header->length >= sizeof(hello))
		memcpy(&hello, header + 1, sizeof(hello));
	if (hello.version != KTEST_VERSION)
		fatal("host speaks protocol %u, agent %u", hello.version,
		      KTEST_VERSION);
	if (hello.flags & KTEST_HELLO_SHARE)
		mount_share();
	agent.token = header->token;
	uname(&name);
	length = snprintf(text, sizeof(text), "%s%c%s%c%s", name.release, 0,
			  name.version, 0, name.machine);
	ready.compute_ns = measure_compute();
	ready.kernel_ns = measure_kernel();
	ready.time = stamp();
	send_frame(KTEST_READY, &ready, sizeof(ready), text, length + 1);
}

static void serve(void)
{
	struct pollfd pollfd = { .fd = agent.port, .events = POLLIN };
	struct ktest_header *header;

	for (;;) {
		while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
			;
		header = receive();
		if (!header) {
			if (poll(&pollfd, 1, -1) > 0 &&
			    !(pollfd.revents & POLLIN))
				sleep_ms(20);
			continue;
		}
		switch (header->type) {
		case KTEST_HELLO:
			greet(header);
			drop_request();
			break;
		case KTEST_RUN:
			run(header);
			break;
		case KTEST_PING:
			answer_ping(header);
			drop_request();
			break;
		default:
			drop_request();
		}
	}
}

static void wake_up(int signal)
{
	(void)signal;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = wake_up };
	sigset_t child;

	if (getpid() != 1) {
		if (argc == 2 && !strcmp(argv[1], "leaks"))
			return find_leaks();
		dprintf(STDERR_FILENO, "%s: only runs as process 1\n",
			"ktest-agent");
		return 2;
	}
	umask(0);
	set_up();

	sigaction(SIGCHLD, &action, NULL);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &agent.unblocked);

	wait_for_port();
	serve();
}
