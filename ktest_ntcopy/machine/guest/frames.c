// SPDX-License-Identifier: GPL-2.0
/* The line to the host: frames out, requests in. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"

static size_t filled;
static union {
	struct ktest_header header;
	unsigned char bytes[sizeof(struct ktest_header) + KTEST_REQUEST_MAX];
} request;

static void wait_writable(void)
{
	struct pollfd pollfd = { .fd = agent.port, .events = POLLOUT };

	/* A port whose host side is closed polls as ready and takes nothing. */
	if (poll(&pollfd, 1, 1000) > 0 && pollfd.revents & POLLHUP)
		sleep_ms(50);
}

/* One write per frame: the driver keeps up to 32 KiB together. */
void send_frame(__u32 type, const void *fixed, size_t fixed_size,
		const void *rest, size_t rest_size)
{
	static unsigned char frame[sizeof(struct ktest_header) +
				   KTEST_REPLY_MAX];
	struct ktest_header header = { .token = agent.token, .type = type };
	size_t size, done = 0;
	ssize_t n;

	if (rest_size > KTEST_REPLY_MAX - fixed_size)
		rest_size = KTEST_REPLY_MAX - fixed_size;
	header.length = fixed_size + rest_size;
	memcpy(frame, &header, sizeof(header));
	memcpy(frame + sizeof(header), fixed, fixed_size);
	if (rest_size)
		memcpy(frame + sizeof(header) + fixed_size, rest, rest_size);
	size = sizeof(header) + header.length;

	while (done < size) {
		n = write(agent.port, frame + done, size - done);
		if (n > 0)
			done += n;
		else if (n < 0 && errno == EAGAIN)
			wait_writable();
		else if (n < 0 && errno != EINTR)
			sleep_ms(50);
	}
}

/*
 * Take what the port has.  Returns the header of a complete request, or NULL;
 * its payload follows it.  The host is trusted to send well-formed frames; a
 * malformed one means that both sides are lost, and the host will notice.
 */
struct ktest_header *receive(void)
{
	struct ktest_header *header = &request.header;
	size_t want = sizeof(*header);
	ssize_t n;

	for (;;) {
		if (filled >= sizeof(*header)) {
			if (header->length > KTEST_REQUEST_MAX)
				fatal("request of %u bytes", header->length);
			want = sizeof(*header) + header->length;
			if (filled == want)
				return header;
		}
		n = read(agent.port, request.bytes + filled, want - filled);
		if (n <= 0)
			return NULL;
		filled += n;
	}
}

void drop_request(void)
{
	filled = 0;
}

void answer_ping(struct ktest_header *header)
{
	struct ktest_pong pong = { 0 };

	if (header->length >= sizeof(struct ktest_ping))
		memcpy(&pong.sequence, header + 1, sizeof(pong.sequence));
	send_frame(KTEST_PONG, &pong, sizeof(pong), NULL, 0);
}

void send_exit(const struct ktest_exit *message, const char *note)
{
	send_frame(KTEST_EXIT, message, sizeof(*message), note,
		   strlen(note) + 1);
}

static char *next_string(char **at, char *end)
{
	char *string = *at;
	char *nul = memchr(string, '\0', end - string);

	if (!nul)
		return NULL;
	*at = nul + 1;
	return string;
}

static int next_strings(char **at, char *end, char **strings, __u32 count)
{
	__u32 i;

	if (count > KTEST_ARGS_MAX)
		return -1;
	for (i = 0; i < count; i++) {
		strings[i] = next_string(at, end);
		if (!strings[i])
			return -1;
	}
	strings[count] = NULL;
	return 0;
}

int parse_run(struct ktest_header *header, struct command *command)
{
	char *at = (char *)(header + 1);
	char *end = at + header->length;

	memset(&command->run, 0, sizeof(command->run));
	if (header->length < sizeof(command->run))
		return -1;
	memcpy(&command->run, at, sizeof(command->run));
	at += sizeof(command->run);
	command->root = next_string(&at, end);
	if (!command->root)
		return -1;
	command->cwd = next_string(&at, end);
	if (!command->cwd || !command->run.argc)
		return -1;
	if (next_strings(&at, end, command->argv, command->run.argc))
		return -1;
	return next_strings(&at, end, command->envp, command->run.envc);
}
