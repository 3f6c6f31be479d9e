#include "daemon/control/connection.h"
#include "proto/util/cleanup.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct event_base *base;
static struct run_queue queue;
static struct run_owner owner;
static struct connection connection;
static int peer_fd;
static bool may_read;
static unsigned n_frames, n_garbage, n_lost, n_closed;
static int n_unread;

static bool on_may_read(const struct connection *c)
{
	(void)c;
	return may_read && !n_lost;
}

static void on_frame(struct connection *c, struct frame *frame)
{
	(void)c;
	(void)frame;
	n_frames++;
}

static void on_garbage(struct connection *c, const char *why)
{
	(void)why;
	n_garbage++;
	connection_stop(c);
}

static void on_lost(struct connection *c, const char *why)
{
	(void)why;
	n_lost++;
	connection_stop(c);
}

static void close_all(struct connection *c, const int *fds, unsigned n_fds)
{
	(void)c;
	for (unsigned i = 0; i < n_fds; i++) {
		if (fds[i] < 0)
			continue;
		(void)close(fds[i]);
		n_closed++;
	}
}

static void on_unread(struct connection *c, int n)
{
	(void)c;
	n_unread += n;
}

static const struct connection_ops ops = { .may_read = on_may_read,
					   .on_frame = on_frame,
					   .on_garbage = on_garbage,
					   .on_lost = on_lost,
					   .close_fds = close_all,
					   .close_reply_fds = close_all,
					   .on_unread = on_unread };

static bool serve(struct run_entry *entry)
{
	return connection_serve(container_of(entry, struct connection, run_entry));
}

static void run(void)
{
	for (int i = 0; i < 20; i++)
		(void)event_base_loop(base, EVLOOP_NONBLOCK);
}

static void setup(void)
{
	struct error error;
	int fds[2];

	may_read = true;
	n_frames = n_garbage = n_lost = n_closed = 0;
	n_unread = 0;
	base = event_base_new();
	ck_assert_int_eq(run_queue_init(&queue, base, serve), 0);
	owner = (struct run_owner){ 0 };
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	connection_init(&connection, &ops);
	ck_assert_int_eq(connection_start(&connection, fds[0], base, &queue, &owner, &error), 0);
	peer_fd = fds[1];
}

static void teardown(void)
{
	int fd = connection.fd;

	connection_deinit(&connection);
	run_queue_deinit(&queue);
	event_base_free(base);
	(void)close(fd);
	if (peer_fd >= 0)
		(void)close(peer_fd);
}

static void send_frame(const int *fds, unsigned n_fds)
{
	struct frame_writer writer = { 0 };

	ck_assert_int_eq(frame_queue(&writer, "x", 1, fds, n_fds), 0);
	ck_assert_int_eq(frame_flush(&writer, peer_fd), 0);
	frame_writer_deinit(&writer);
}

TEST(each_frame_is_served_and_descriptors_that_are_left_are_closed)
{
	int fd = open("/dev/null", O_RDONLY);

	send_frame(NULL, 0);
	send_frame(&fd, 1);
	run();
	ck_assert_uint_eq(n_frames, 2);
	ck_assert_uint_eq(n_closed, 1);
	ck_assert_uint_eq(n_lost, 0);
}

TEST(while_its_owner_may_not_read_requests_stay_in_the_socket)
{
	int n_bytes = 0;

	may_read = false;
	send_frame(NULL, 0);
	run();
	ck_assert_uint_eq(n_frames, 0);
	ck_assert(!connection.is_reading);
	ck_assert_int_eq(recv(connection.fd, &n_bytes, 1, MSG_PEEK), 1);
	may_read = true;
	connection_resume(&connection);
	run();
	ck_assert_uint_eq(n_frames, 1);
}

/* The epoll descriptor of base: readable if the next wait would return at once. */
static int epoll_fd(void)
{
	char path[32], target[32];

	for (int fd = 0; fd < 1024; fd++) {
		ssize_t n;

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = 0;
		if (strcmp(target, "anon_inode:[eventpoll]") == 0)
			return fd;
	}
	ck_abort_msg("libevent has no epoll descriptor");
	return -1;
}

static void check_sleeps(void)
{
	struct pollfd pollfd = { .fd = epoll_fd(), .events = POLLIN };

	ck_assert_int_eq(poll(&pollfd, 1, 0), 0);
}

static const struct {
	const char *what;
	bool has_unread; /* a reply */
	bool has_unsent; /* replies, too: the socket is full */
	bool is_half;	 /* shutdown(2) for writing only */
	bool is_early;	 /* before the pause */
} peer_ends[] = {
	{ "closed", false, false, false, false },
	{ "closed before the pause", false, false, false, true },
	{ "closed, a reply is unread", true, false, false, false },
	{ "closed before the pause, a reply is unread", true, false, false, true },
	{ "closed, the socket is full", true, true, false, false },
	{ "closed before the pause, the socket is full", true, true, false, true },
	{ "half-closed", false, false, true, false },
	{ "half-closed before the pause", false, false, true, true },
	{ "half-closed, a reply is unread", true, false, true, false },
	{ "half-closed, the socket is full", true, true, true, false },
};

static void end_peer(bool is_half)
{
	if (is_half) {
		ck_assert_int_eq(shutdown(peer_fd, SHUT_WR), 0);
		return;
	}
	(void)close(peer_fd);
	peer_fd = -1;
}

TEST_TABLE(the_end_of_the_peer_is_a_loss_while_its_owner_may_not_read, peer_ends)
{
	static char body[65536];

	may_read = false;
	send_frame(NULL, 0);
	if (peer_ends[_i].has_unread)
		ck_assert_int_eq(connection_send(&connection, "x", 1, NULL, 0), 0);
	for (int i = 0; peer_ends[_i].has_unsent && i < 16; i++)
		ck_assert_int_eq(connection_send(&connection, body, sizeof(body), NULL, 0), 0);
	if (!peer_ends[_i].is_early) {
		run();
		ck_assert_msg(!connection.is_reading, "%s", peer_ends[_i].what);
		ck_assert_uint_eq(n_lost, 0);
		check_sleeps();
	}
	end_peer(peer_ends[_i].is_half);
	run();
	ck_assert_msg(n_lost == 1, "%s: %u losses", peer_ends[_i].what, n_lost);
	ck_assert_uint_eq(n_frames, 0);
	check_sleeps();
}

TEST(requests_that_wait_do_not_keep_the_loop_awake)
{
	static char body[65536], sink[65536];

	may_read = false;
	send_frame(NULL, 0);
	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(connection_send(&connection, body, sizeof(body), NULL, 0), 0);
	run();
	check_sleeps();
	while (read(peer_fd, sink, sizeof(sink)) > 0)
		run();
	ck_assert_uint_eq(connection.writer.queued_bytes, 0); /* no event waits for room any more */
	send_frame(NULL, 0);
	run();
	check_sleeps();
	ck_assert_uint_eq(n_frames, 0);
	may_read = true;
	connection_resume(&connection);
	run();
	ck_assert_uint_eq(n_frames, 2);
	check_sleeps();
}

TEST(a_connection_that_its_owner_stops_watches_no_end)
{
	may_read = false;
	send_frame(NULL, 0);
	ck_assert_int_eq(connection_send(&connection, "x", 1, NULL, 0), 0);
	run();
	connection_stop(&connection); /* as when a session ends */
	end_peer(false);
	run();
	ck_assert_uint_eq(n_lost, 0);
	check_sleeps();
}

TEST(a_pause_that_is_over_reads_to_the_end_of_the_peer)
{
	may_read = false;
	send_frame(NULL, 0);
	run();
	may_read = true;
	connection_resume(&connection);
	end_peer(false);
	run();
	ck_assert_uint_eq(n_frames, 1);
	ck_assert_uint_eq(n_lost, 1);
	check_sleeps();
}

TEST(bytes_that_are_no_frame_are_reported_once)
{
	ck_assert_int_eq(write(peer_fd, "GET / HTTP/1.0\r\n\r\n", 18), 18);
	run();
	ck_assert_uint_eq(n_garbage, 1);
	ck_assert_uint_eq(n_frames, 0);
}

TEST(the_end_of_the_peer_is_a_loss_and_makes_it_mute)
{
	int fd;

	(void)close(peer_fd);
	peer_fd = -1;
	run();
	ck_assert_uint_eq(n_lost, 1);
	fd = open("/dev/null", O_RDONLY);
	ck_assert_int_eq(connection_send(&connection, "x", 1, &fd, 1), 0);
	ck_assert_uint_eq(n_closed, 1); /* the reply is dropped, its descriptor is not leaked */
}

TEST(a_full_socket_keeps_replies_until_the_peer_reads)
{
	static char body[65536];
	char sink[65536];
	size_t total = 0;
	ssize_t n;

	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(connection_send(&connection, body, sizeof(body), NULL, 0), 0);
	ck_assert_uint_gt(connection.writer.queued_bytes, 0);
	while ((n = read(peer_fd, sink, sizeof(sink))) > 0) {
		total += (size_t)n;
		run();
	}
	ck_assert_uint_eq(connection.writer.queued_bytes, 0);
	ck_assert_uint_eq(total, 16 * (sizeof(body) + FRAME_HEADER_BYTES));
}

static void send_reply_fds(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int fd = open("/dev/null", O_RDONLY);

		ck_assert_int_eq(connection_send(&connection, "x", 1, &fd, 1), 0);
	}
}

TEST(descriptors_of_replies_are_unread_until_the_socket_is_empty)
{
	char sink[FRAME_HEADER_BYTES + 1];

	send_reply_fds(2);
	ck_assert_int_eq(connection_send(&connection, "x", 1, NULL, 0), 0);
	while (evtimer_pending(connection.retry_event, NULL)) /* from then on by an event */
		ck_assert_int_eq(event_base_loop(base, EVLOOP_ONCE), 0);
	run();
	check_sleeps();
	ck_assert_int_eq(n_unread, 2);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(n_unread, 2);
		ck_assert_int_eq(read(peer_fd, sink, sizeof(sink)), (ssize_t)sizeof(sink));
		run();
	}
	ck_assert_int_eq(n_unread, 0);
	check_sleeps();
	send_reply_fds(1);
	ck_assert_int_eq(n_unread, 1);
	ck_assert_int_eq(read(peer_fd, sink, sizeof(sink)), (ssize_t)sizeof(sink));
	send_frame(NULL, 0); /* the next request shows that the reply was read */
	run();
	ck_assert_int_eq(n_unread, 0);
	send_reply_fds(1);
	ck_assert_int_eq(n_unread, 1);
	connection_stop(&connection);
	connection_mute(&connection);
	ck_assert_int_eq(n_unread, 1); /* it was sent */
	end_peer(false);
	run();
	ck_assert_int_eq(n_unread, 0);
	check_sleeps();
}

TEST(descriptors_of_replies_that_are_dropped_are_not_unread)
{
	static char body[65536];

	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(connection_send(&connection, body, sizeof(body), NULL, 0), 0);
	send_reply_fds(3);
	ck_assert_int_eq(n_unread, 3);
	end_peer(false);
	run();
	ck_assert_uint_eq(n_lost, 1);
	connection_mute(&connection);
	ck_assert_int_eq(n_unread, 0);
	ck_assert_uint_eq(n_closed, 3);
}

TEST(only_a_pidfd_is_watched_and_only_one)
{
	int other = open("/dev/null", O_RDONLY);
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	bool has_one = connection.pidfd >= 0; /* by SO_PEERPIDFD */

	if (pidfd < 0 && errno == ENOSYS) {
		puts("skip only_a_pidfd_is_watched_and_only_one: valgrind does not know "
		     "pidfd_open(2)");
		return;
	}
	ck_assert_int_ge(pidfd, 0);
	if (!has_one) {
		ck_assert_int_eq(connection_watch_pidfd(&connection, other), -EINVAL);
		ck_assert_int_eq(connection_watch_pidfd(&connection, pidfd), 0);
		pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	}
	ck_assert_int_eq(connection_watch_pidfd(&connection, pidfd), -EEXIST);
	connection_unwatch(&connection);
	(void)close(pidfd);
	(void)close(other);
}

static const struct {
	const char *what;
	size_t n_before; /* bytes without descriptors */
	bool has_fd;	 /* then one byte with a descriptor */
	int flags;
} unread[] = {
	{ "nothing", 0, false, 0 },
	{ "one byte", 1, false, 0 },
	{ "more bytes than are read at once", 100000, false, 0 },
	{ "a descriptor", 0, true, 0 },
	{ "a descriptor out of band", 0, true, MSG_OOB },
	{ "a descriptor behind one byte", 1, true, 0 },
	{ "a descriptor behind many bytes", 100000, true, 0 },
};

TEST_TABLE(unread_descriptors_are_seen_and_kept_and_all_before_them_is_dropped, unread)
{
	static const char bytes[100000];
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int fds[2], ends[2], n_left;
	struct pollfd end;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	ck_assert_int_eq(pipe(ends), 0);
	if (unread[_i].n_before)
		ck_assert_int_eq(send(fds[0], bytes, unread[_i].n_before, MSG_DONTWAIT),
				 (ssize_t)unread[_i].n_before);
	if (unread[_i].has_fd) {
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &ends[1], sizeof(int));
		ck_assert_int_eq(sendmsg(fds[0], &msg, unread[_i].flags), 1);
	}
	(void)close(ends[1]);

	ck_assert_msg(connection_has_unread_fds(fds[1]) == unread[_i].has_fd, "%s",
		      unread[_i].what);
	end = (struct pollfd){ .fd = ends[0] };
	ck_assert_int_eq(poll(&end, 1, 0), !unread[_i].has_fd); /* this thread closes none */
	ck_assert_int_eq(ioctl(fds[1], FIONREAD, &n_left), 0);
	if (!unread[_i].has_fd)
		ck_assert_int_eq(n_left, 0);
	ck_assert_int_eq(send(fds[0], "x", 1, MSG_NOSIGNAL), -1); /* nothing more comes */
	(void)close(fds[0]);
	(void)close(fds[1]);
	(void)close(ends[0]);
}

FIXTURE(setup, teardown)
TEST_MAIN
