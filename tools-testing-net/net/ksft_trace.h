/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Read values where the kernel passes: at tracepoints, and at the entry of
 * and the return from its functions, for the calling thread alone.
 *
 * All events of a test write to one ring, so that their samples are in the
 * order in which they were taken.
 */
#ifndef KSFT_TRACE_H
#define KSFT_TRACE_H

#include <errno.h>
#include <linux/perf_event.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ksft_kprobe.h"

#define KSFT_TRACE_FIELDS	128
#define KSFT_TRACE_EVENTS	4
#define KSFT_TRACE_RING		(256 * 1024)	/* bytes, a power of two */
#define KSFT_TRACE_SAMPLE	4096

/* A value in the samples of an event. */
struct ksft_trace_field {
	char name[20];
	unsigned int offset, size;	/* bytes */
};

struct ksft_trace_event {
	struct ksft_kprobe probe;	/* of a tracepoint only the id is set */
	unsigned int nr;
	struct ksft_trace_field field[KSFT_TRACE_FIELDS];
};

struct ksft_trace {
	unsigned int nr;
	struct ksft_trace_event *event[KSFT_TRACE_EVENTS];
	int fd[KSFT_TRACE_EVENTS];
	struct perf_event_mmap_page *ring;
	size_t page;		/* the ring's data are behind its first page */
};

struct ksft_trace_sample {
	const struct ksft_trace_event *event;
	size_t size;
	unsigned char data[KSFT_TRACE_SAMPLE];
};

/*
 * Learn the fields of an event that the kernel has.  NULL, or what is
 * missing.
 */
static inline const char *ksft_trace_learn(struct ksft_trace_event *event,
					   const char *name)
{
	struct ksft_trace_field *field = event->field;
	char path[192], line[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/events/%s/format",
		 ksft_tracefs() ?: "", name);
	file = fopen(path, "re");
	if (!file)
		return "CONFIG_PERF_EVENTS is not set";
	event->probe.id = 0;
	event->nr = 0;
	while (fgets(line, sizeof(line), file)) {
		char *at = strchr(line, ';');
		unsigned int size, offset;
		char *start;

		if (!event->probe.id &&
		    sscanf(line, "ID: %llu", &event->probe.id) == 1)
			continue;
		if (!at || sscanf(at, "; offset:%u; size:%u;", &offset,
				  &size) != 2)
			continue;
		*at = '\0';
		/* Of the declaration the last word; an array has no value. */
		start = strrchr(line, ' ');
		if (!start || strchr(line, '[') ||
		    event->nr == KSFT_TRACE_FIELDS)
			continue;
		field[event->nr].offset = offset;
		field[event->nr].size = size;
		snprintf(field[event->nr++].name, sizeof(field->name), "%.19s",
			 start + 1);
	}
	fclose(file);
	return event->probe.id ? NULL : "its format tells no number";
}

/*
 * Define a probe with these values in its samples: @what is "p" for the
 * entry of the function, "r" for the return from it.  NULL, or why the kernel
 * refused.
 */
static inline const char *ksft_trace_define(struct ksft_trace_event *event,
					    const char *what,
					    const char *symbol,
					    const char *values)
{
	char command[4096];
	const char *missing;
	int ret;

	memset(event, 0, sizeof(*event));
	snprintf(event->probe.event, sizeof(event->probe.event),
		 KSFT_KPROBE_GROUP "%d/%s_%s", getpid(), what, symbol);
	ret = snprintf(command, sizeof(command), "%s:%s %s %s", what,
		       event->probe.event, symbol, values);
	if (ret >= (int)sizeof(command)) {
		event->probe.event[0] = '\0';
		return "more values than fit";
	}
	ret = ksft_kprobe_command(command);
	if (ret) {
		event->probe.event[0] = '\0';
		return ksft_kprobe_refusal(ret);
	}
	missing = ksft_trace_learn(event, event->probe.event);
	if (missing)
		ksft_kprobe_remove(&event->probe);
	return missing;
}

/* Let the calling thread's passes of @event be sampled; 0 or -errno. */
static inline int ksft_trace_add(struct ksft_trace *trace,
				 struct ksft_trace_event *event)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.config = event->probe.id,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_RAW,
	};
	void *map;
	int fd;

	if (trace->nr == KSFT_TRACE_EVENTS)
		return -ENOSPC;
	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1,
		     PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (!trace->nr) {
		trace->page = getpagesize();
		map = mmap(NULL, trace->page + KSFT_TRACE_RING,
			   PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (map != MAP_FAILED)
			trace->ring = map;
	} else if (!ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, trace->fd[0])) {
		map = trace->ring;
	} else {
		map = MAP_FAILED;
	}
	if (map == MAP_FAILED) {
		int error = errno;

		close(fd);
		return -error;
	}
	trace->event[trace->nr] = event;
	trace->fd[trace->nr++] = fd;
	return 0;
}

static inline void ksft_trace_close(struct ksft_trace *trace)
{
	unsigned int i;

	if (trace->ring)
		munmap(trace->ring, trace->page + KSFT_TRACE_RING);
	for (i = 0; i < trace->nr; i++) {
		close(trace->fd[i]);
		ksft_kprobe_remove(&trace->event[i]->probe);
	}
	memset(trace, 0, sizeof(*trace));
}

/* Copy from the ring, which may end in the middle. */
static inline void ksft_trace_copy(const struct ksft_trace *trace, __u64 from,
				   void *to, size_t len)
{
	const unsigned char *data = (unsigned char *)trace->ring + trace->page;
	size_t i;

	for (i = 0; i < len; i++)
		((unsigned char *)to)[i] = data[(from + i) % KSFT_TRACE_RING];
}

/*
 * The next sample: 1, 0 if there is none, -EOVERFLOW if some were lost or one
 * is longer than it may be.
 */
static inline int ksft_trace_next(struct ksft_trace *trace,
				  struct ksft_trace_sample *sample)
{
	__u64 head = __atomic_load_n(&trace->ring->data_head, __ATOMIC_ACQUIRE);
	__u64 at = trace->ring->data_tail;
	struct perf_event_header record;
	unsigned int i;
	__u16 id;
	__u32 size;
	int ret = 0;

	while (!ret && at != head) {
		ksft_trace_copy(trace, at, &record, sizeof(record));
		if (record.type == PERF_RECORD_LOST) {
			ret = -EOVERFLOW;
		} else if (record.type == PERF_RECORD_SAMPLE) {
			ksft_trace_copy(trace, at + sizeof(record), &size,
					sizeof(size));
			if (size > sizeof(sample->data))
				return -EOVERFLOW;
			ksft_trace_copy(trace,
					at + sizeof(record) + sizeof(size),
					sample->data, size);
			sample->size = size;
			sample->event = NULL;
			/* Every sample begins with the number of its event. */
			memcpy(&id, sample->data, sizeof(id));
			for (i = 0; i < trace->nr; i++)
				if (trace->event[i]->probe.id == id)
					sample->event = trace->event[i];
			ret = sample->event ? 1 : 0;
		}
		at += record.size;
	}
	__atomic_store_n(&trace->ring->data_tail, at, __ATOMIC_RELEASE);
	return ret;
}

/* The value of a sample's field, zero-extended; all ones if it has none. */
static inline __u64 ksft_trace_value(const struct ksft_trace_sample *sample,
				     const char *name)
{
	const struct ksft_trace_event *event = sample->event;
	unsigned int i;

	for (i = 0; i < event->nr; i++) {
		const struct ksft_trace_field *field = &event->field[i];
		const unsigned char *at = sample->data + field->offset;

		if (strcmp(field->name, name))
			continue;
		if (field->offset + field->size > sample->size)
			break;
		switch (field->size) {
		case 1:
			return *at;
		case 2:
			return *(const __u16 *)at;
		case 4:
			return *(const __u32 *)at;
		case 8:
			return *(const __u64 *)at;
		}
		break;
	}
	return ~0ULL;
}

#endif /* KSFT_TRACE_H */
