// SPDX-License-Identifier: GPL-2.0
/* Set the clock a year ahead, then far back, then never end. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += 365 * 86400;
	if (clock_settime(CLOCK_REALTIME, &ts))
		perror("clock_settime");
	ts.tv_sec = 86400;
	if (clock_settime(CLOCK_REALTIME, &ts))
		perror("clock_settime");
	puts("time travel");
	fflush(stdout);
	for (;;)
		pause();
}
