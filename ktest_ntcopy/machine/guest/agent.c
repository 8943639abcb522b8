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
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "protocol.h"

#define NSEC_PER_SEC	1000000000ULL
#define NSEC_PER_MSEC	1000000ULL
#define PORT_DIR	"/sys/class/virtio-ports"
#define PORT_WAIT_NS	(5 * NSEC_PER_SEC)
#define REAP_WAIT_NS	(10 * NSEC_PER_SEC)
#define SHARE_DIR	"/host"
#define STAGE_DIR	"/stage"
#define NOTE_MAX	512

struct command {
	struct ktest_run run;
	char *root;
	char *cwd;
	char *argv[KTEST_ARGS_MAX + 1];
	char *envp[KTEST_ARGS_MAX + 1];
};

static struct {
	int port;
	int proc;	/* directory; commands cannot mount over it */
	int null;
	int kmsg;
	int tracing;	/* directory */
	__u32 token;
	__s64 clock_offset;	/* printk's clock minus CLOCK_BOOTTIME, ns */
	sigset_t unblocked;
	size_t filled;
	unsigned char request[sizeof(struct ktest_header) + KTEST_REQUEST_MAX];
	unsigned char chunk[KTEST_REPLY_MAX - sizeof(struct ktest_output)];
	struct command command;
} agent = { .port = -1, .proc = -1, .null = -1, .kmsg = -1,
	    .tracing = -1 };

static __u64 boottime(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static __u64 stamp(void)
{
	return boottime() + agent.clock_offset;
}

static void sleep_ms(unsigned int ms)
{
	struct timespec ts = {
		.tv_sec = ms / 1000,
		.tv_nsec = ms % 1000 * NSEC_PER_MSEC,
	};

	nanosleep(&ts, NULL);
}

/* The host reads this on the console, turns it into an error and gives up. */
static noreturn void fatal(const char *format, ...)
{
	char line[NOTE_MAX];
	va_list args;
	int length;
	int fd;

	length = snprintf(line, sizeof(line), "<2>" KTEST_FATAL_MARK);
	va_start(args, format);
	length += vsnprintf(line + length, sizeof(line) - length, format, args);
	va_end(args);
	if (length > (int)sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';	/* or printk waits for the rest of the line */
	line[length] = '\0';

	fd = agent.kmsg >= 0 ? agent.kmsg : open("/dev/kmsg", O_WRONLY);
	if (fd < 0 || write(fd, line, length) < 0)
		dprintf(STDERR_FILENO, "\n%s", line + 3);
	sleep_ms(200);
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

/* Files in /proc */

static int write_at(int dir, const char *path, const char *text)
{
	int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, text, strlen(text));
	close(fd);
	return n < 0 ? -1 : 0;
}

static int write_proc(const char *path, const char *text)
{
	return write_at(agent.proc, path, text);
}

static size_t read_at(int dir, const char *path, char *text, size_t size)
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;

	if (fd >= 0) {
		n = read(fd, text, size - 1);
		close(fd);
	}
	if (n < 0)
		n = 0;
	text[n] = '\0';
	return n;
}

static size_t read_proc(const char *path, char *text, size_t size)
{
	return read_at(agent.proc, path, text, size);
}

/* Everything of info level and above reaches the console. */
static void reset_console_level(void)
{
	write_proc("sys/kernel/printk", "7");
}

/* Setting up */

static int mount_at(const char *type, const char *target, unsigned long flags,
		    const char *options)
{
	if (mkdir(target, 0755) && errno != EEXIST)
		return -1;
	return mount(type, target, type, flags, options);
}

static void mount_file_systems(void)
{
	const unsigned long safe = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	if (mount_at("devtmpfs", "/dev", MS_NOSUID, "mode=0755"))
		fatal("cannot mount devtmpfs: %s (CONFIG_DEVTMPFS)",
		      strerror(errno));
	if (mount_at("proc", "/proc", safe, NULL))
		fatal("cannot mount proc: %s (CONFIG_PROC_FS)",
		      strerror(errno));
	if (mount_at("sysfs", "/sys", safe, NULL))
		fatal("cannot mount sysfs: %s (CONFIG_SYSFS)",
		      strerror(errno));
	if (mount_at("tmpfs", "/tmp", MS_NOSUID | MS_NODEV, "mode=1777"))
		fatal("cannot mount tmpfs: %s (CONFIG_TMPFS)",
		      strerror(errno));

	/* Nice to have: a test that needs one of these says so itself. */
	mount_at("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "ptmxmode=0666");
	mount_at("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
	mount("tracefs", "/sys/kernel/tracing", "tracefs", safe, NULL);
	mount("debugfs", "/sys/kernel/debug", "debugfs", safe, NULL);
	mount("bpf", "/sys/fs/bpf", "bpf", safe, NULL);
	if (symlink("/proc/self/fd", "/dev/fd") ||
	    symlink("/proc/self/fd/0", "/dev/stdin") ||
	    symlink("/proc/self/fd/1", "/dev/stdout") ||
	    symlink("/proc/self/fd/2", "/dev/stderr"))
		fatal("cannot make links in /dev: %s", strerror(errno));
}

static void open_files(void)
{
	agent.kmsg = open("/dev/kmsg", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	agent.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	agent.null = open("/dev/null", O_RDWR | O_CLOEXEC);
	agent.tracing = open("/sys/kernel/tracing",
			     O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (agent.proc < 0 || agent.null < 0)
		fatal("cannot open /proc or /dev/null: %s", strerror(errno));
}

/* A kernel without networking is no reason to refuse other tests. */
static void bring_loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	if (!ioctl(fd, SIOCGIFFLAGS, &request)) {
		request.ifr_flags |= IFF_UP;
		ioctl(fd, SIOCSIFFLAGS, &request);
	}
	close(fd);
}

static void protect_self(void)
{
	struct sched_param param = {
		.sched_priority = sched_get_priority_max(SCHED_FIFO),
	};

	/* None is vital, and each may be missing from a small kernel. */
	write_proc("self/oom_score_adj", "-1000");
	mlockall(MCL_CURRENT | MCL_FUTURE);
	sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param);
}

/*
 * Write a line to the kernel log, read it back and compare its time stamp
 * with our clock: then output and console lines can be put in order.
 */
static void synchronise_clock(void)
{
	static const char line[] = "<6>ktest-agent: clock mark\n";
	unsigned long long usec;
	char record[NOTE_MAX];
	__u64 before;
	ssize_t n;

	if (agent.kmsg < 0 || lseek(agent.kmsg, 0, SEEK_END) < 0)
		return;
	before = boottime();
	if (write(agent.kmsg, line, sizeof(line) - 1) < 0)
		return;
	n = read(agent.kmsg, record, sizeof(record) - 1);
	if (n <= 0)
		return;
	record[n] = '\0';
	if (strstr(record, "clock mark") &&
	    sscanf(record, "%*u,%*u,%llu", &usec) == 1)
		agent.clock_offset = (__s64)(usec * 1000 - before);
}

static int open_port(const char *entry)
{
	char path[PATH_MAX], text[64] = "";
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), PORT_DIR "/%s/name", entry);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	if (n <= 0)
		return -1;
	text[strcspn(text, "\n")] = '\0';
	if (strcmp(text, KTEST_PORT_NAME))
		return -1;
	snprintf(path, sizeof(path), "/dev/%s", entry);

	/*
	 * Blocking writes would make the driver spin until the host has
	 * taken the data, with interrupts off.
	 */
	return open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
}

static int find_port(void)
{
	struct dirent *entry;
	int fd = -1;
	DIR *dir;

	dir = opendir(PORT_DIR);
	if (!dir)
		fatal("no virtio-serial support (CONFIG_VIRTIO_CONSOLE)");
	while (fd < 0 && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			fd = open_port(entry->d_name);
	closedir(dir);
	return fd;
}

/* Ports appear some time after the driver has found the device. */
static void wait_for_port(void)
{
	__u64 deadline = boottime() + PORT_WAIT_NS;

	while ((agent.port = find_port()) < 0) {
		if (boottime() > deadline)
			fatal("no virtio port called %s (CONFIG_VIRTIO_PCI)",
			      KTEST_PORT_NAME);
		sleep_ms(2);
	}
}

/* How fast is this machine? */

static __u64 time_compute(void)
{
	static __u32 table[1024];
	__u64 start = boottime();
	__u32 x = 2463534242U;
	int i;

	for (i = 0; i < 100000; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		table[x % 1024] += x;
	}
	asm volatile("" : : "r"(table) : "memory");
	return boottime() - start;
}

static __u64 time_kernel(void)
{
	const size_t size = 8 * 4096;
	__u64 start = boottime();
	char byte = 0;
	int fds[2];
	size_t at;
	char *map;
	int i;

	if (pipe2(fds, O_CLOEXEC))
		return 0;
	for (i = 0; i < 100; i++)
		if (write(fds[1], &byte, 1) != 1 || read(fds[0], &byte, 1) != 1)
			break;
	close(fds[0]);
	close(fds[1]);
	for (i = 0; i < 10; i++) {
		map = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (map == MAP_FAILED)
			break;
		for (at = 0; at < size; at += 4096)
			map[at] = 1;
		munmap(map, size);
	}
	return boottime() - start;
}

/* The least of several: whatever disturbs a run only makes it longer. */
static __u64 fastest(__u64 (*timed)(void))
{
	__u64 best = ~0ULL;
	int i;

	for (i = 0; i < 6; i++) {
		__u64 ns = timed();

		if (ns < best)
			best = ns;
	}
	return best;
}

/* Frames */

static void wait_writable(void)
{
	struct pollfd pollfd = { .fd = agent.port, .events = POLLOUT };

	/* A port whose host side is closed polls as ready and takes nothing. */
	if (poll(&pollfd, 1, 1000) > 0 && pollfd.revents & POLLHUP)
		sleep_ms(50);
}

/* One write per frame: the driver keeps up to 32 KiB together. */
static void send_frame(__u32 type, const void *fixed, size_t fixed_size,
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
static struct ktest_header *receive(void)
{
	struct ktest_header *header = (void *)agent.request;
	size_t want = sizeof(*header);
	ssize_t n;

	for (;;) {
		if (agent.filled >= sizeof(*header)) {
			if (header->length > KTEST_REQUEST_MAX)
				fatal("request of %u bytes", header->length);
			want = sizeof(*header) + header->length;
			if (agent.filled == want)
				return header;
		}
		n = read(agent.port, agent.request + agent.filled,
			 want - agent.filled);
		if (n <= 0)
			return NULL;
		agent.filled += n;
	}
}

static void drop_request(void)
{
	agent.filled = 0;
}

static void answer_ping(struct ktest_header *header)
{
	struct ktest_pong pong = { 0 };

	if (header->length >= sizeof(struct ktest_ping))
		memcpy(&pong.sequence, header + 1, sizeof(pong.sequence));
	send_frame(KTEST_PONG, &pong, sizeof(pong), NULL, 0);
}

static void send_exit(__u32 id, __u32 reason, int value, __u32 stuck,
		      const char *note)
{
	struct ktest_exit message = {
		.id = id,
		.reason = reason,
		.value = value,
		.stuck = stuck,
		.time = stamp(),
	};

	send_frame(KTEST_EXIT, &message, sizeof(message), note,
		   strlen(note) + 1);
}

/* Requests */

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

static int parse_run(struct ktest_header *header, struct command *command)
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

/* In the child */

static noreturn void give_up(int status, const char *what)
{
	dprintf(STDERR_FILENO, "ktest-agent: %s: %s\n", what, strerror(errno));
	_exit(status);
}

static void bind_into(const char *source, const char *target)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), STAGE_DIR "/root%s", target);
	if (mount(source, path, NULL, MS_BIND | MS_REC, NULL))
		give_up(126, path);
}

/*
 * Make a writable copy-on-write view of a directory the root directory.  What
 * the command writes lies in a tmpfs and goes away with its mount namespace.
 */
static void enter_root(const char *root)
{
	char options[PATH_MAX + 128];

	if (mount_at("tmpfs", STAGE_DIR, 0, "mode=0755") ||
	    mkdir(STAGE_DIR "/upper", 0755) || mkdir(STAGE_DIR "/work", 0755) ||
	    mkdir(STAGE_DIR "/root", 0755))
		give_up(126, STAGE_DIR);
	snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s",
		 root, STAGE_DIR "/upper", STAGE_DIR "/work");
	if (mount("overlay", STAGE_DIR "/root", "overlay", 0, options))
		give_up(126, "overlay");
	bind_into("/dev", "/dev");
	bind_into("/proc", "/proc");
	bind_into("/sys", "/sys");
	if (chroot(STAGE_DIR "/root") || chdir("/"))
		give_up(126, root);
	mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
}

static noreturn void run_child(struct command *command, int output)
{
	static const struct rlimit no_core = { .rlim_max = RLIM_INFINITY };
	const unsigned long flags = MS_NOSUID | MS_NODEV;

	if (dup2(agent.null, STDIN_FILENO) < 0 ||
	    dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
		_exit(126);
	setsid();
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_SETMASK, &agent.unblocked, NULL);
	write_proc("self/oom_score_adj", "500");
	setrlimit(RLIMIT_CORE, &no_core);
	umask(022);

	/* What it mounts, and what it leaves in /tmp, goes away with it. */
	if (!unshare(CLONE_NEWNS)) {
		mount("tmpfs", "/tmp", "tmpfs", flags, "mode=1777");
		mount("tmpfs", "/dev/shm", "tmpfs", flags, "mode=1777");
	}
	if (strcmp(command->root, "/"))
		enter_root(command->root);
	if (chdir(command->cwd))
		give_up(126, command->cwd);
	environ = command->envp;
	execvp(command->argv[0], command->argv);
	give_up(errno == ENOENT ? 127 : 126, command->argv[0]);
}

/* In the parent */

struct job {
	struct command *command;
	pid_t pid;
	int output;
	int status;
	int ended;
	__u64 sent;
	__u64 deadline;
	__u32 reason;	/* why we ended it, or 0 */
	char note[NOTE_MAX];
};

/* Send what the pipe has, up to the limit.  Returns 0 when it is empty. */
static int forward_output(struct job *job)
{
	__u64 limit = job->command->run.output_limit;
	struct ktest_output message = { .id = job->command->run.id };
	ssize_t n;

	n = read(job->output, agent.chunk, sizeof(agent.chunk));
	if (n <= 0)
		return 0;
	message.time = stamp();
	if ((__u64)n > limit - job->sent) {
		n = limit - job->sent;
		if (!job->reason)
			job->reason = KTEST_FLOOD;
	}
	if (n)
		send_frame(KTEST_OUTPUT, &message, sizeof(message),
			   agent.chunk, n);
	job->sent += n;
	return !job->reason;
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
		}
	}
	return !pid || errno != ECHILD;
}

/* Where the command was when its time was over. */
static void describe(struct job *job)
{
	char path[64], text[NOTE_MAX / 2], *state;

	snprintf(path, sizeof(path), "%d/stat", job->pid);
	read_proc(path, text, sizeof(text));
	state = strrchr(text, ')');
	if (!state || strlen(state) < 3)
		return;
	snprintf(job->note, sizeof(job->note), "state %c", state[2]);
	snprintf(path, sizeof(path), "%d/wchan", job->pid);
	if (read_proc(path, text, sizeof(text)) && strcmp(text, "0"))
		snprintf(job->note + strlen(job->note),
			 sizeof(job->note) - strlen(job->note), " in %s", text);
}

/* Name one process that survived.  Threads of the kernel have no parent. */
static void describe_stuck(struct job *job, __u32 *stuck)
{
	struct dirent *entry;
	char text[256];
	char path[64];
	DIR *dir;
	int fd;

	fd = openat(agent.proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	*stuck = 1;
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	*stuck = 0;
	while ((entry = readdir(dir))) {
		char *tail;
		char state;
		int parent;
		int pid = atoi(entry->d_name);

		if (pid < 2)
			continue;
		snprintf(path, sizeof(path), "%d/stat", pid);
		read_proc(path, text, sizeof(text));
		tail = strrchr(text, ')');
		if (!tail || sscanf(tail + 1, " %c %d", &state, &parent) != 2 ||
		    !parent || parent == 2 || pid == 2)
			continue;
		tail[1] = '\0';
		if (!(*stuck)++)
			snprintf(job->note, sizeof(job->note),
				 "%s in state %c", text, state);
	}
	closedir(dir);
	if (!*stuck)
		*stuck = 1;
}

/* A killed command cannot take its probes away, and the next needs the names. */
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
	__u32 stuck;

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
	describe_stuck(job, &stuck);
	return stuck;
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
	__u32 reason = job->reason;
	int value = 0;

	if (!reason) {
		if (WIFSIGNALED(job->status)) {
			reason = KTEST_SIGNALED;
			value = WTERMSIG(job->status);
		} else {
			reason = KTEST_EXITED;
			value = WEXITSTATUS(job->status);
		}
	}
	send_exit(job->command->run.id, reason, value, stuck, job->note);
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

static void run(struct ktest_header *header)
{
	struct command *command = &agent.command;
	struct job job = { .command = command };
	struct ktest_started started;
	int fds[2];

	if (parse_run(header, command)) {
		send_exit(command->run.id, KTEST_REFUSED, 0, 0,
			  "malformed request");
		drop_request();
		return;
	}
	if (pipe2(fds, O_CLOEXEC)) {
		send_exit(command->run.id, KTEST_REFUSED, 0, 0,
			  strerror(errno));
		drop_request();
		return;
	}
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	job.output = fds[0];
	job.deadline = boottime() + command->run.limit_ms * NSEC_PER_MSEC;
	started.id = command->run.id;
	started.time = stamp();
	job.pid = fork();
	if (!job.pid)
		run_child(command, fds[1]);
	close(fds[1]);
	if (job.pid < 0) {
		send_exit(command->run.id, KTEST_REFUSED, 0, 0,
			  strerror(errno));
		close(fds[0]);
		drop_request();
		return;
	}
	drop_request();		/* the child has its own copy */
	started.pid = job.pid;
	send_frame(KTEST_STARTED, &started, sizeof(started), NULL, 0);
	supervise(&job);
}

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
	if (hello.flags & KTEST_HELLO_SHARE &&
	    (mkdir(SHARE_DIR, 0755) ||
	     mount(KTEST_SHARE_TAG, SHARE_DIR, "9p", MS_RDONLY,
		   "trans=virtio,version=9p2000.L,msize=262144,cache=loose")))
		fatal("cannot mount the host's directory: %s %s",
		      strerror(errno), "(CONFIG_9P_FS, CONFIG_NET_9P_VIRTIO)");
	agent.token = header->token;
	uname(&name);
	length = snprintf(text, sizeof(text), "%s%c%s%c%s", name.release, 0,
			  name.version, 0, name.machine);
	ready.compute_ns = fastest(time_compute);
	ready.kernel_ns = fastest(time_kernel);
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

int main(void)
{
	struct sigaction action = { .sa_handler = wake_up };
	sigset_t child;

	if (getpid() != 1) {
		dprintf(STDERR_FILENO, "%s: only runs as process 1\n",
			"ktest-agent");
		return 2;
	}
	umask(0);
	mount_file_systems();
	open_files();
	bring_loopback_up();
	protect_self();
	synchronise_clock();
	reset_console_level();

	sigaction(SIGCHLD, &action, NULL);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &agent.unblocked);

	wait_for_port();
	serve();
}
