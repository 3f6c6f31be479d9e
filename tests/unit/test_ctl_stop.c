/* stop: one signal is enough, also while the daemon does not answer. */
#include "client/ctl/ui/stop.h"
#include "client/lib/link/conn.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#define LONG_MSEC 30000

/* Waits for an event at the daemon's end of the socket and returns it. */
static short end_of(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };
	int r;

	do
		r = poll(&p, 1, LONG_MSEC);
	while (r < 0 && errno == EINTR); /* the alarm's */
	return r == 1 ? p.revents : 0;
}

TEST(a_signal_sets_flag_status_and_descriptor)
{
	struct pollfd p;

	ck_assert_int_eq(stop_catch(SA_RESTART), 0);
	p = (struct pollfd){ .fd = stop_fd(), .events = POLLIN };
	ck_assert_int_eq(stop_signal(), 0);
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	(void)raise(SIGTERM);
	ck_assert_int_eq(stop_signal(), SIGTERM);
	ck_assert_int_eq(stop_status(), 143);
	ck_assert_int_eq(poll(&p, 1, 0), 1);
}

TEST(an_ignored_signal_stays_ignored)
{
	(void)signal(SIGHUP, SIG_IGN);
	ck_assert_int_eq(stop_catch(SA_RESTART), 0);
	(void)raise(SIGHUP);
	ck_assert_int_eq(stop_signal(), 0);
}

TEST(the_connection_is_shut_down_after_the_signal)
{
	struct dsaio_conn conn = { .fd = -1 };
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	ck_assert_int_eq(stop_catch(SA_RESTART), 0);
	conn.fd = fds[0];
	stop_hangs_up(&conn);
	(void)raise(SIGINT);
	ck_assert_int_ne(end_of(fds[1]) & POLLRDHUP, 0);
	ck_assert(conn.is_lost);
	stop_hangs_up(NULL);
	(void)close(fds[0]);
	/* One that is made afterwards is shut down at once. */
	(void)close(fds[1]);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	conn.fd = fds[0];
	stop_hangs_up(&conn);
	ck_assert_int_ne(end_of(fds[1]) & POLLRDHUP, 0);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

TEST_MAIN
