#include "client/ctl/bench_stop.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
#define N_SIGNALS (sizeof(signals) / sizeof(signals[0]))

static volatile sig_atomic_t caught;
static int stop_fd = -1;

static void on_signal(int number)
{
	const uint64_t one = 1;
	int kept = errno;

	caught = number;
	(void)!write(stop_fd, &one, sizeof(one)); /* full: it is readable */
	errno = kept;
}

int bench_stop_catch(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	if (stop_fd < 0)
		stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stop_fd < 0)
		return -errno;
	for (size_t i = 0; i < N_SIGNALS; i++) {
		struct sigaction old;

		/* nohup's wish, and a shell's for what runs in the background, is left. */
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN)
			continue;
		if (sigaction(signals[i], &action, NULL) < 0)
			return -errno;
	}
	return 0;
}

int bench_stop_signal(void)
{
	return caught;
}

int bench_stop_status(void)
{
	return 128 + caught;
}

int bench_stop_fd(void)
{
	return stop_fd;
}

void bench_stop_ignore(void)
{
	for (size_t i = 0; i < N_SIGNALS; i++)
		(void)signal(signals[i], SIG_IGN);
}
