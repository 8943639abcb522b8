// SPDX-License-Identifier: GPL-2.0
/* One command, from its start to the end of all it left behind. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

#define REAP_WAIT_NS	(10 * NSEC_PER_SEC)

static unsigned char chunk[KTEST_REPLY_MAX - sizeof(struct ktest_output)];

struct job {
	struct command *command;
	pid_t pid;
	int output;
	int status;
	int ended;
	__u64 sent;
	__u64 deadline;
	__u64 end;	/* when it ended or was ended, before clean-up */
	__u32 reason;	/* why we ended it, or 0 */
	char note[NOTE_MAX];
};

/* Send a piece, up to the limit.  Returns 0 when there is nothing to send. */
static int forward_output(struct job *job)
{
	__u64 limit = job->command->run.output_limit;
	struct ktest_output message = { .id = job->command->run.id };
	ssize_t n;

	n = read(job->output, chunk, sizeof(chunk));
	if (n <= 0)
		return 0;
	message.time = stamp();
	if ((__u64)n > limit - job->sent) {
		n = limit - job->sent;
		if (!job->reason)
			job->reason = KTEST_FLOOD;
	}
	if (n)
		send_frame(KTEST_OUTPUT, &message, sizeof(message), chunk, n);
	job->sent += n;
	return job->reason != KTEST_FLOOD;
}

/* Returns 1 while there are children. */
static int reap(struct job *job)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
		if (pid == job->pid) {
			job->status = status;
			job->ended = 1;
			if (!job->end)
				job->end = stamp();
		}
	}
	return !pid || errno != ECHILD;
}

struct process {
	char name[256];	/* number and name: 57 (hog) */
	char state;
	int parent;
};

static int look_at(int pid, struct process *process)
{
	char path[64], text[sizeof(process->name)], *end;

	snprintf(path, sizeof(path), "%d/stat", pid);
	read_at(agent.proc, path, text, sizeof(text));
	end = strrchr(text, ')');	/* a name may hold one */
	if (!end ||
	    sscanf(end + 1, " %c %d", &process->state, &process->parent) != 2)
		return -1;
	end[1] = '\0';
	snprintf(process->name, sizeof(process->name), "%s", text);
	return 0;
}

/* Where the command was when its time was over. */
static void describe(struct job *job)
{
	char path[64], where[128];
	struct process process;

	if (look_at(job->pid, &process))
		return;
	snprintf(path, sizeof(path), "%d/wchan", job->pid);
	if (!read_at(agent.proc, path, where, sizeof(where)) ||
	    !strcmp(where, "0"))
		snprintf(job->note, sizeof(job->note), "state %c",
			 process.state);
	else
		snprintf(job->note, sizeof(job->note), "state %c in %s",
			 process.state, where);
}

/* Count processes that are still there, and note one of them. */
static __u32 count_stuck(struct job *job)
{
	struct dirent *entry;
	struct process process;
	__u32 stuck = 0;
	DIR *dir = NULL;
	int fd;

	fd = openat(agent.proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		dir = fdopendir(fd);
	while (dir && (entry = readdir(dir))) {
		int pid = atoi(entry->d_name);

		/* Threads of the kernel are 2 and its children. */
		if (pid <= 2 || look_at(pid, &process) ||
		    process.parent == 2)
			continue;
		if (!stuck++)
			snprintf(job->note, sizeof(job->note),
				 "%s in state %c", process.name, process.state);
	}
	if (dir)
		closedir(dir);
	return stuck ? stuck : 1;	/* there is one, or we were not here */
}

/* A killed command cannot take its probes away; the next needs the names. */
static void remove_probes(void)
{
	char byte[2];
	int fd;

	if (!read_at(agent.tracing, "kprobe_events", byte, sizeof(byte)))
		return;
	write_at(agent.tracing, "events/kprobes/enable", "0");
	fd = openat(agent.tracing, "kprobe_events",
		    O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
}

/* End everything but this process.  Returns how many would not go. */
static __u32 clean_up(struct job *job)
{
	__u64 deadline = boottime() + REAP_WAIT_NS;
	unsigned int pause_ms = 0;
	struct ktest_header *header;

	for (;;) {
		kill(-1, SIGKILL);
		if (!reap(job))
			return 0;
		if (boottime() > deadline)
			break;
		/* Most are gone at once; do not let those cost a tick. */
		if (pause_ms)
			sleep_ms(pause_ms);
		else
			sched_yield();
		if (pause_ms < 20)
			pause_ms++;
		header = receive();
		if (header) {
			if (header->type == KTEST_PING)
				answer_ping(header);
			drop_request();
		}
	}
	return count_stuck(job);
}

static void wait_for_event(struct job *job)
{
	struct pollfd pollfds[] = {
		{ .fd = agent.port, .events = POLLIN },
		{ .fd = job->output, .events = POLLIN },
	};
	__u64 now = boottime();
	__u64 left = job->deadline > now ? job->deadline - now : 0;
	struct timespec ts = {
		.tv_sec = left / NSEC_PER_SEC,
		.tv_nsec = left % NSEC_PER_SEC,
	};
	struct ktest_header *header;

	/* A pipe that nobody can write to any more polls as ready for ever. */
	if (ppoll(pollfds, job->output < 0 ? 1 : 2, &ts, &agent.unblocked) < 0)
		return;
	if (job->output >= 0 && pollfds[1].revents) {
		if (!forward_output(job) && pollfds[1].revents == POLLHUP) {
			close(job->output);
			job->output = -1;
		}
	}
	if (pollfds[0].revents & POLLIN) {
		header = receive();
		if (header) {
			if (header->type == KTEST_PING)
				answer_ping(header);
			drop_request();
		}
	} else if (pollfds[0].revents) {
		sleep_ms(20);
	}
}

static void drain(struct job *job)
{
	if (job->output < 0 || job->reason == KTEST_FLOOD)
		return;
	while (forward_output(job))
		;
}

static void report(struct job *job, __u32 stuck)
{
	struct ktest_exit message = {
		.id = job->command->run.id,
		.reason = job->reason,
		.stuck = stuck,
		.time = job->end,
	};

	if (!message.reason && WIFSIGNALED(job->status)) {
		message.reason = KTEST_SIGNALED;
		message.value = WTERMSIG(job->status);
	} else if (!message.reason) {
		message.reason = KTEST_EXITED;
		message.value = WEXITSTATUS(job->status);
	}
	send_exit(&message, job->note);
}

static void refuse(__u32 id, const char *why)
{
	struct ktest_exit message = {
		.id = id,
		.reason = KTEST_REFUSED,
		.time = stamp(),
	};

	send_exit(&message, why);
	drop_request();
}

static void supervise(struct job *job)
{
	__u32 stuck;

	while (!job->ended && !job->reason) {
		wait_for_event(job);
		reap(job);
		if (!job->ended && !job->reason &&
		    boottime() >= job->deadline) {
			job->reason = KTEST_TIMEOUT;
			describe(job);
		}
	}
	if (!job->end)
		job->end = stamp();
	drain(job);
	stuck = clean_up(job);
	drain(job);
	if (job->output >= 0)
		close(job->output);
	reset_console_level();
	bring_loopback_up();
	remove_probes();
	report(job, stuck);
}

void run(struct ktest_header *header)
{
	static struct command command;
	struct job job = { .command = &command };
	struct ktest_started started;
	int fds[2];

	if (parse_run(header, &command)) {
		refuse(command.run.id, "malformed request");
		return;
	}
	if (pipe2(fds, O_CLOEXEC)) {
		refuse(command.run.id, strerror(errno));
		return;
	}
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	job.output = fds[0];
	job.deadline = boottime() + command.run.limit_ms * NSEC_PER_MSEC;
	started.id = command.run.id;
	started.time = stamp();
	job.pid = fork();
	if (!job.pid)
		run_child(&command, fds[1]);
	close(fds[1]);
	if (job.pid < 0) {
		refuse(command.run.id, strerror(errno));
		close(fds[0]);
		return;
	}
	drop_request();		/* the child has its own copy */
	started.pid = job.pid;
	send_frame(KTEST_STARTED, &started, sizeof(started), NULL, 0);
	supervise(&job);
}
