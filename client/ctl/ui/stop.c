#include "client/ctl/ui/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* SIGPIPE: whoever read the output is gone. */
static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
#define N_SIGNALS (sizeof(signals) / sizeof(signals[0]))

static volatile sig_atomic_t caught;
static int event_fd = -1;

static void on_signal(int number)
{
	const uint64_t one = 1;
	int kept = errno;

	caught = number;
	(void)!write(event_fd, &one, sizeof(one)); /* full: it is readable */
	errno = kept;
}

int stop_catch(int sa_flags)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = sa_flags };

	if (event_fd < 0)
		event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (event_fd < 0)
		return -errno;
	for (size_t i = 0; i < N_SIGNALS; i++) {
		struct sigaction old;

		/* nohup ignores some, and a shell does for commands in the background. */
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN)
			continue;
		if (sigaction(signals[i], &action, NULL) < 0)
			return -errno;
	}
	return 0;
}

int stop_signal(void)
{
	return caught;
}

int stop_status(void)
{
	return 128 + caught;
}

int stop_fd(void)
{
	return event_fd;
}

void stop_ignore(void)
{
	for (size_t i = 0; i < N_SIGNALS; i++)
		(void)signal(signals[i], SIG_IGN);
}

int stop_end(int status)
{
	if (!caught)
		return status;
	(void)fflush(NULL); /* ctl_flush() reported what could not be written */
	(void)signal(caught, SIG_DFL);
	(void)raise(caught);
	return stop_status(); /* only if the signal is blocked */
}
