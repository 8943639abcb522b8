// SPDX-License-Identifier: GPL-2.0
/*
 * Run the kernel's msg_zerocopy test between two network namespaces, as
 * msg_zerocopy.sh does, in a guest that has no shell, ip or sysctl.
 *
 *	zerocopy_pair PROGRAM 4|6 tcp|udp SECONDS LIMIT MODE...
 *
 * A MODE is "copy", or an option of PROGRAM's such as "-z".  For each one it
 * prints "mode MODE" and lets the sender print what it counted.  The receiver
 * is there before the sender starts and is ended when that is done.
 */
#include <error.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "ksft_netdev.h"

#define LINK		0
#define MTU		65535	/* as msg_zerocopy.sh has it */
#define OPTMEM		"1000000"
#define PORT		"8000"	/* PROGRAM's own default */
#define PORT_HEX	":1F40 "

static struct ksft_nets nets;
static char text[2][INET6_ADDRSTRLEN];

static void must(const char *what, int ret)
{
	if (ret < 0)
		error(1, -ret, "%s", what);
}

static void set_up(int family)
{
	int end;

	must("namespaces", ksft_nets_open(&nets));
	must("veth", ksft_nets_link(&nets, LINK));
	for (end = 1; end >= 0; end--) {
		must("setns", ksft_netns_enter(nets.netns[end]));
		must("mtu", ksft_link_mtu(ksft_nets_device(LINK), MTU));
		must("optmem_max",
		     ksft_write_file("/proc/sys/net/core/optmem_max", OPTMEM));
		ksft_nets_text(family, LINK, end, text[end]);
	}
}

static pid_t start(int end, char **argv)
{
	pid_t pid = fork();

	if (pid < 0)
		error(1, errno, "fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	must("setns", ksft_netns_enter(nets.netns[end]));
	execv(argv[0], argv);
	error(127, errno, "%s", argv[0]);
	return -1;
}

/* True if somebody in this namespace waits at the port. */
static bool is_open(const char *test, const char *family)
{
	const char *state = strcmp(test, "tcp") ? " 07 " : " 0A ";
	char path[64], line[512];
	bool found = false;
	FILE *table;
	char *port;

	snprintf(path, sizeof(path), "/proc/thread-self/net/%s%s", test,
		 *family == '6' ? "6" : "");
	table = fopen(path, "r");
	if (!table)
		error(1, errno, "%s", path);
	while (!found && fgets(line, sizeof(line), table)) {
		port = strstr(line, PORT_HEX);
		/* The local address comes first; then the other, the state. */
		found = port && strstr(port, state);
	}
	fclose(table);
	return found;
}

static void wait_for(pid_t receiver, const char *test, const char *family)
{
	struct timespec nap = { .tv_nsec = 2000000 };
	int i;

	must("setns", ksft_netns_enter(nets.netns[1]));
	for (i = 0; i < 10000; i++) {
		if (is_open(test, family))
			return;
		if (waitpid(receiver, NULL, WNOHANG))
			error(1, 0, "the receiver ended");
		nanosleep(&nap, NULL);
	}
	error(1, 0, "the receiver does not open its port");
}

static void run(char **args, const char *mode)
{
	const char *family = args[1], *test = args[2];
	char ip[] = { '-', *family, 0 };
	char *tx[15] = { args[0], ip, "-t", args[3], "-l", args[4], "-C", "0",
		       "-S", text[0], "-D", text[1] };
	char *rx[13] = { args[0], ip, "-t", "3600", "-C", "1",
		       "-S", text[0], "-D", text[1], "-r", args[2] };
	pid_t receiver, sender;
	int status, at = 12;

	printf("mode %s\n", mode);
	fflush(stdout);
	if (strcmp(mode, "copy"))
		tx[at++] = (char *)mode;
	tx[at] = args[2];

	receiver = start(1, rx);
	wait_for(receiver, test, family);
	sender = start(0, tx);
	if (waitpid(sender, &status, 0) != sender)
		error(1, errno, "waitpid");
	kill(receiver, SIGKILL);
	waitpid(receiver, NULL, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		error(1, 0, "the sender failed in mode %s", mode);
}

int main(int argc, char **argv)
{
	int i;

	if (argc < 7)
		error(2, 0, "PROGRAM 4|6 tcp|udp SECONDS LIMIT MODE...");
	set_up(*argv[2] == '6' ? AF_INET6 : AF_INET);
	for (i = 6; i < argc; i++)
		run(&argv[1], argv[i]);
	return 0;
}
