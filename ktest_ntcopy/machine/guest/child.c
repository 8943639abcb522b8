// SPDX-License-Identifier: GPL-2.0
/* What happens in a new process before it becomes the command. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"

#define STAGE_DIR	"/stage"

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

noreturn void run_child(struct command *command, int output)
{
	static const struct rlimit no_core = { .rlim_max = RLIM_INFINITY };
	const unsigned long flags = MS_NOSUID | MS_NODEV;

	if (dup2(agent.null, STDIN_FILENO) < 0 ||
	    dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
		_exit(126);
	setsid();
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_SETMASK, &agent.unblocked, NULL);
	write_at(agent.proc, "self/oom_score_adj", "500");
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
