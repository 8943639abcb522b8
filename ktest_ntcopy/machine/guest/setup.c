// SPDX-License-Identifier: GPL-2.0
/* Make a usable guest out of an empty initramfs. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"

#define PORT_DIR	"/sys/class/virtio-ports"
#define PORT_WAIT_NS	(5 * NSEC_PER_SEC)
#define SHARE_DIR	"/host"

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
void bring_loopback_up(void)
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

	/* Neither is vital, and each may be missing from a small kernel. */
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
void wait_for_port(void)
{
	__u64 deadline = boottime() + PORT_WAIT_NS;

	while ((agent.port = find_port()) < 0) {
		if (boottime() > deadline)
			fatal("no virtio port called %s (CONFIG_VIRTIO_PCI)",
			      KTEST_PORT_NAME);
		sleep_ms(2);
	}
}

void mount_share(void)
{
	const char *options =
		"trans=virtio,version=9p2000.L,msize=262144,cache=loose";

	if ((mkdir(SHARE_DIR, 0755) && errno != EEXIST) ||
	    mount(KTEST_SHARE_TAG, SHARE_DIR, "9p", MS_RDONLY, options))
		fatal("cannot mount the host's directory: %s %s",
		      strerror(errno), "(CONFIG_9P_FS, CONFIG_NET_9P_VIRTIO)");
}

void set_up(void)
{
	mount_file_systems();
	open_files();
	bring_loopback_up();
	protect_self();
	synchronise_clock();
	reset_console_level();
}
