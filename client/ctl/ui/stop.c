#include "client/ctl/ui/stop.h"

#include "client/lib/link/conn.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* SIGPIPE: the reader of the output has gone away. */
static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
#define N_SIGNALS (sizeof(signals) / sizeof(signals[0]))

/* Time to end with the daemon's help.  A transfer of 8 MiB takes some 10 ms; 1 s is a guess. */
#define GRACE_SEC 1u

/* A command that waits for the daemon longer than this reports it. */
#define SILENT_WAIT_SEC 1u

static volatile sig_atomic_t caught, is_grace_over;
static char waiting_line[128]; /* of stop_wait_begin() */
static int event_fd = -1;
static struct dsaio_conn *_Atomic daemon_conns[2]; /* NULL: none */

static void on_signal(int number)
{
	const uint64_t one = 1;
	int saved = errno;

	if (!caught)
		(void)alarm(GRACE_SEC);
	caught = number;
	(void)!write(event_fd, &one, sizeof(one)); /* full: it is readable */
	errno = saved;
}

/* No other session is to come, and this one ends. */
static void hang_up(struct dsaio_conn *conn)
{
	atomic_store(&conn->is_lost, true);
	(void)shutdown(conn->fd, SHUT_RDWR); /* fails if the daemon is gone */
}

static void on_alarm(int number)
{
	int saved = errno;

	(void)number;
	if (caught) {
		is_grace_over = 1;
		for (unsigned i = 0; i < 2; i++) {
			struct dsaio_conn *conn = atomic_load(&daemon_conns[i]);

			if (conn)
				hang_up(conn);
		}
	} else {
		(void)!write(STDERR_FILENO, waiting_line, strlen(waiting_line));
	}
	errno = saved;
}

static int catch_alarm(void)
{
	const struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };

	return sigaction(SIGALRM, &action, NULL) < 0 ? -errno : 0;
}

void stop_wait_begin(const char *command)
{
	(void)snprintf(waiting_line, sizeof(waiting_line),
		       "dsaioctl: %s: waiting for the daemon's answer\n", command);
	if (catch_alarm() == 0)
		(void)alarm(SILENT_WAIT_SEC);
}

void stop_wait_end(void)
{
	(void)alarm(0);
	if (caught && !is_grace_over) /* the alarm was that of on_signal() */
		(void)alarm(GRACE_SEC);
}

int stop_catch(int sa_flags)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = sa_flags };

	if (event_fd < 0)
		event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (event_fd < 0)
		return -errno;
	if (catch_alarm() < 0)
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

void stop_hangs_up(struct dsaio_conn *conn)
{
	atomic_store(&daemon_conns[1], conn ? atomic_load(&daemon_conns[0]) : NULL);
	atomic_store(&daemon_conns[0], conn);
	if (conn && is_grace_over) /* the alarm came before */
		hang_up(conn);
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
