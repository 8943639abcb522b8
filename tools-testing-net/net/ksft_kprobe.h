/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Count how often one thread enters a kernel function.
 *
 * A probe is a kprobe event defined through tracefs, a counter a perf event
 * on it that belongs to one thread.  Events carry the process id in their
 * group name, so that tests which run at the same time do not meet, and what
 * a killed test left behind is removed by the next one.
 */
#ifndef KSFT_KPROBE_H
#define KSFT_KPROBE_H

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <linux/types.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KSFT_KPROBE_GROUP	"ksft_"
#define KSFT_KPROBE_COUNTERS	16

struct ksft_kprobe {
	char event[96];			/* group/name */
	__u64 id;
	unsigned int nr;	/* counters handed out */
	int fd[KSFT_KPROBE_COUNTERS];
};

static inline const char *ksft_tracefs(void)
{
	static const char * const where[] = {
		"/sys/kernel/tracing", "/sys/kernel/debug/tracing",
	};
	char path[64];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/trace", where[i]);
		if (!access(path, F_OK) || errno == EACCES)
			return where[i];
	}
	return NULL;
}

/* One command to kprobe_events; 0 or a negative errno, -ENODEV if it is not. */
static inline int ksft_kprobe_command(const char *command)
{
	const char *tracefs = ksft_tracefs();
	char path[64];
	int fd, ret = 0;

	snprintf(path, sizeof(path), "%s/kprobe_events", tracefs ?: "");
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ENODEV : -errno;
	if (write(fd, command, strlen(command)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* Remove the events of processes that are gone, and older ones of ours. */
static inline void ksft_kprobe_sweep(void)
{
	const char *tracefs = ksft_tracefs();
	char line[512], command[128];
	FILE *file;

	snprintf(line, sizeof(line), "%s/kprobe_events", tracefs ?: "");
	file = fopen(line, "re");
	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		char *event = strstr(line, ":" KSFT_KPROBE_GROUP);
		int pid;

		if (!event ||
		    sscanf(event, ":" KSFT_KPROBE_GROUP "%d/", &pid) != 1)
			continue;
		if (pid != getpid() && (!kill(pid, 0) || errno != ESRCH))
			continue;
		event[strcspn(event, " ")] = '\0';
		snprintf(command, sizeof(command), "-%.100s", event);
		ksft_kprobe_command(command);
	}
	fclose(file);
}

/*
 * Take the probe away; counters opened on it are closed.  An event whose
 * last counter another CPU is still letting go of is busy for a moment.
 */
static inline void ksft_kprobe_remove(struct ksft_kprobe *probe)
{
	char command[128];
	unsigned int i;

	if (!probe->event[0])
		return;
	for (i = 0; i < probe->nr && i < KSFT_KPROBE_COUNTERS; i++)
		if (probe->fd[i] > 0)
			close(probe->fd[i]);
	snprintf(command, sizeof(command), "-:%s", probe->event);
	for (i = 0; i < 1000 && ksft_kprobe_command(command) == -EBUSY; i++)
		sched_yield();
	memset(probe, 0, sizeof(*probe));
}

/* Why kprobe_events said @error to a new event. */
static inline const char *ksft_kprobe_refusal(int error)
{
	switch (-error) {
	case ENODEV:
		if (!ksft_tracefs())
			return "tracefs is not mounted on /sys/kernel/tracing";
		return "CONFIG_KPROBE_EVENTS is not set";
	case EACCES:
	case EPERM:
		return "only root may define kprobe events";
	case EINVAL:
		return "CONFIG_KPROBE_EVENTS_ON_NOTRACE is not set";
	case ENOENT:
		return "there is no such symbol";
	default:
		return strerror(-error);
	}
}

/*
 * Define a probe on the entry of @symbol.  Returns NULL, or why the kernel
 * refused it.
 */
static inline const char *ksft_kprobe_define(struct ksft_kprobe *probe,
					     const char *symbol)
{
	char path[192], command[256];
	bool known = false;
	FILE *file;
	int ret;

	memset(probe, 0, sizeof(*probe));
	snprintf(probe->event, sizeof(probe->event), KSFT_KPROBE_GROUP "%d/%s",
		 getpid(), symbol);
	snprintf(command, sizeof(command), "p:%s %s", probe->event, symbol);
	ret = ksft_kprobe_command(command);
	if (ret) {
		probe->event[0] = '\0';
		return ksft_kprobe_refusal(ret);
	}

	snprintf(path, sizeof(path), "%s/events/%s/id", ksft_tracefs(),
		 probe->event);
	file = fopen(path, "re");
	if (file) {
		known = fscanf(file, "%llu", &probe->id) == 1;
		fclose(file);
	}
	if (known)
		return NULL;
	ksft_kprobe_remove(probe);
	return "CONFIG_PERF_EVENTS is not set";
}

/*
 * A counter of how often the calling thread passes the probe from now on.
 * It lives as long as the probe.  Returns its handle, or -1 with errno.
 */
static inline int ksft_kprobe_counter(struct ksft_kprobe *probe)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = probe->id,
	};
	unsigned int nr;
	int fd;

	nr = __atomic_fetch_add(&probe->nr, 1, __ATOMIC_SEQ_CST);
	if (nr >= KSFT_KPROBE_COUNTERS) {
		errno = ENOSPC;
		return -1;
	}
	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1,
		     PERF_FLAG_FD_CLOEXEC);
	probe->fd[nr] = fd;
	return fd;
}

/* How often the counter's thread has passed its probe so far. */
static inline __u64 ksft_kprobe_count(int counter)
{
	__u64 count;

	if (read(counter, &count, sizeof(count)) != sizeof(count))
		return ~0ULL;
	return count;
}

#endif /* KSFT_KPROBE_H */
