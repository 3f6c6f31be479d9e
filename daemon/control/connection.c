#include "daemon/control/connection.h"

#include "daemon/base/event.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* How long one connection's requests are served before those of another one: a guess. */
#define SERVE_NSEC 250000u

static void connection_lost_for(struct connection *connection, const char *why)
{
	connection->is_mute |= !why;
	connection->ops->on_lost(connection, why);
	connection->is_mute = true;
}

static void connection_lost(struct connection *connection)
{
	connection_lost_for(connection, NULL);
}

/* ---- replies ---- */

static void connection_count_unread(struct connection *connection, int n)
{
	connection->n_unread_fds += (unsigned)n;
	connection->ops->on_unread(connection, n);
}

static void connection_look_unread(struct connection *connection)
{
	int n_bytes;

	if (!connection->n_unread_fds || connection->writer.n_queued_fds)
		return;
	/* While the kernel reports that the last message was read, it still counts 1 byte. */
	if (ioctl(connection->fd, SIOCOUTQ, &n_bytes) < 0 || n_bytes <= 1)
		connection_count_unread(connection, -(int)connection->n_unread_fds);
}

/* From now on an event reports each reply that the peer reads. */
static void connection_watch_unread(struct connection *connection)
{
	if (connection->n_unread_fds)
		(void)event_add(connection->write_event,
				NULL); /* cannot fail, like the read event */
}

static void connection_flush(struct connection *connection)
{
	static const struct timeval retry = { .tv_usec = 10000 };
	uint64_t since_nsec = wakes_begin();
	int r = connection->is_mute ? 0 : frame_flush(&connection->writer, connection->fd);

	if (wakes_end(&connection->wakes, since_nsec))
		connection_lost_for(connection, WAKES_WHY);
	if (r == -ETOOMANYREFS && event_add(connection->retry_event, &retry) == 0)
		return; /* too many descriptors of this uid are in flight: the timer tries again */
	if (r < 0 && r != -EAGAIN)
		connection_lost(connection);
	connection_look_unread(connection);
	if (r == -EAGAIN)
		(void)event_add(connection->write_event,
				NULL); /* cannot fail, like the read event */
	else if (!connection->n_unread_fds)
		(void)event_del(connection->write_event); /* fine if it is not added */
	else if (!event_pending(connection->write_event, EV_WRITE, NULL) &&
		 evtimer_add(connection->retry_event, &retry) < 0) /* by then most have read */
		connection_watch_unread(connection);
	connection_resume(connection);
}

static void on_writable(EVENT_ARG(arg))
{
	connection_flush(arg);
}

static void on_retry(EVENT_ARG(arg))
{
	connection_look_unread(arg);
	connection_watch_unread(arg);
	connection_flush(arg);
}

static void close_reply_fds(struct frame_writer *writer, const int *fds, unsigned n_fds)
{
	struct connection *connection = container_of(writer, struct connection, writer);

	connection->ops->close_reply_fds(connection, fds, n_fds);
}

int connection_send(struct connection *connection, const void *body, size_t len, const int *fds,
		    unsigned n_fds)
{
	int r;

	if (connection->is_mute) {
		connection->ops->close_reply_fds(connection, fds, n_fds);
		return 0;
	}
	r = frame_queue(&connection->writer, body, len, fds, n_fds);
	if (r < 0)
		return r;
	if (n_fds)
		connection_count_unread(connection, (int)n_fds);
	connection_flush(connection);
	return 0;
}

void connection_mute(struct connection *connection)
{
	frame_writer_deinit(&connection->writer);
	connection->is_mute = true;
	connection_look_unread(connection);
	connection_watch_unread(connection);
}

/* ---- requests ---- */

void connection_resume(struct connection *connection)
{
	if (connection->is_reading || !connection->ops->may_read(connection))
		return;
	connection->is_reading = true;
	run_queue_add(connection->run_queue,
		      &connection->run_entry); /* requests may wait: no event repeats */
}

/* A socket with unread requests shows the peer's end only to those who ask for it. */
static bool peer_has_ended(const struct connection *connection)
{
	struct pollfd end = { .fd = connection->fd, .events = POLLRDHUP };

	return poll(&end, 1, 0) > 0; /* POLLERR and POLLHUP are always asked for */
}

/* Requests wait in the socket. */
static void connection_pause(struct connection *connection)
{
	if (!connection->is_reading)
		return;
	connection->is_reading = false;
	connection_watch_unread(connection);
	if (peer_has_ended(connection)) /* its event may have come before the pause */
		connection_lost(connection);
}

void connection_stop(struct connection *connection)
{
	connection->is_reading = false;
	if (connection->read_event)
		(void)event_del(connection->read_event); /* fine if it is not added */
}

bool connection_serve(struct connection *connection)
{
	uint64_t end_nsec = clock_nsec() + SERVE_NSEC;

	connection_look_unread(connection);
	while (connection->ops->may_read(connection)) {
		struct frame frame;
		char why[ERROR_TEXT_BYTES];
		uint64_t since_nsec = wakes_begin();
		int r = frame_read(&connection->reader, connection->fd, &frame, why, sizeof(why));
		bool is_costly = wakes_end(&connection->wakes, since_nsec);

		if (r == -EPROTO) {
			connection->ops->on_garbage(connection, why);
			return false;
		}
		if (r <= 0 && r != -EAGAIN) { /* the end; a reset if the peer left data unread */
			connection_lost(connection);
			return false;
		}
		if (r > 0) {
			connection->ops->on_frame(connection, &frame);
			connection->ops->close_fds(connection, frame.fds, frame.n_fds);
		}
		/* The peer is woken when there is room for its requests, or for pieces of them. */
		if (is_costly)
			connection_lost_for(connection, WAKES_WHY);
		if (is_costly || r == -EAGAIN)
			return false;
		if (clock_nsec() >= end_nsec)
			return true;
	}
	connection_pause(connection);
	return false;
}

static void on_readable(EVENT_ARG(arg))
{
	struct connection *connection = arg;

	if (connection->is_reading)
		run_queue_add(connection->run_queue, &connection->run_entry);
	else if (peer_has_ended(connection))
		connection_lost(connection);
}

bool connection_has_ended(int fd)
{
	char byte;

	/* As in connection_start(): else a byte with MSG_OOB is skipped. */
	return setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &(int){ 1 }, sizeof(int)) == 0 &&
	       recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

bool connection_has_unread_fds(int fd)
{
	char bytes[16384];
	struct iovec iov = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	ssize_t n;

	(void)shutdown(fd, SHUT_RD); /* of a connected socket: cannot fail */
	/* As in connection_start(): else a byte with MSG_OOB is skipped. */
	if (setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &(int){ 1 }, sizeof(int)) < 0)
		return true;
	for (;;) {
		struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

		/* There is no room for descriptors: the kernel says that it has some, and keeps them. */
		n = recvmsg(fd, &msg, MSG_PEEK | MSG_DONTWAIT);
		if (n <= 0)
			return n < 0 && errno != EAGAIN && errno != ECONNRESET;
		if (msg.msg_flags & MSG_CTRUNC)
			return true;
		if (recv(fd, bytes, (size_t)n, MSG_DONTWAIT) != n)
			return true;
	}
}

/* ---- the client's process ---- */

static void on_death(EVENT_ARG(arg))
{
	connection_lost(arg); /* a forked child may keep the socket open without reading from it */
}

static int watch(struct connection *connection, struct event_base *base, int pidfd)
{
	_cleanup_(event_freep) struct event *event = event_new(base, pidfd, EV_READ, on_death,
							       connection);

	if (!event || event_add(event, NULL) < 0)
		return -ENOMEM;
	connection->pid_event = TAKE_PTR(event);
	connection->pidfd = pidfd;
	return 0;
}

/* Only a pidfd is watched: epoll may call the file system of another kind of file, and hang there. */
static bool is_pidfd(int fd)
{
	char path[32], target[32];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return false;
	target[n] = 0;
	return strcmp(target, "anon_inode:[pidfd]") == 0;
}

int connection_watch_pidfd(struct connection *connection, int pidfd)
{
	if (connection->pidfd >= 0)
		return -EEXIST;
	if (!is_pidfd(pidfd))
		return -EINVAL;
	return watch(connection, event_get_base(connection->read_event), pidfd);
}

bool connection_has_peer(const struct connection *connection)
{
	struct pollfd ends[] = {
		{ .fd = connection->fd, .events = POLLRDHUP },
		{ .fd = connection->pidfd, .events = POLLIN }, /* -1 is ignored */
	};

	return poll(ends, 2, 0) <= 0; /* -1: a signal */
}

void connection_unwatch(struct connection *connection)
{
	if (connection->pid_event)
		(void)event_del(connection->pid_event); /* fine if it is not added */
}

/* ---- start and end ---- */

void connection_init(struct connection *connection, const struct connection_ops *ops)
{
	*connection = (struct connection){ .ops = ops, .fd = -1, .pidfd = -1 };
	connection->writer.close_fds = close_reply_fds;
}

int connection_start(struct connection *connection, int fd, struct event_base *base,
		     struct run_queue *run_queue, struct run_owner *owner, struct error *error)
{
	_cleanup_(closep) int pidfd = -1;
	socklen_t len = sizeof(pidfd);

	/* Otherwise recvmsg(2) skips a byte with MSG_OOB, and closes the descriptors with it here. */
	if (setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &(int){ 1 }, sizeof(int)) < 0)
		return error_set(error, -errno, "connection: SO_OOBINLINE");
	connection->run_queue = run_queue;
	connection->run_entry.owner = owner;
	/*
	 * Edge-triggered: what no callback consumes, such as requests in a pause or the error of a peer
	 * that left replies unread, must not wake this thread again and again.
	 */
	connection->read_event = event_new(base, fd, EV_READ | EV_PERSIST | EV_ET, on_readable,
					   connection);
	connection->write_event = event_new(base, fd, EV_WRITE | EV_PERSIST | EV_ET, on_writable,
					    connection);
	connection->retry_event = evtimer_new(base, on_retry, connection);
	if (!connection->read_event || !connection->write_event || !connection->retry_event)
		return error_set(error, -ENOMEM, "connection: events");
	/* Fails before Linux 6.5.  The client may send a pidfd instead. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0 &&
	    watch(connection, base, pidfd) < 0)
		return error_set(error, -ENOMEM, "connection: pidfd event");
	TAKE_FD(pidfd); /* the connection has it */
	if (event_add(connection->read_event, NULL) < 0)
		return error_set(error, -ENOMEM, "connection: event");
	connection->is_reading = true;
	connection->fd = fd;
	return 0;
}

void connection_deinit(struct connection *connection)
{
	event_freep(&connection->read_event);
	event_freep(&connection->write_event);
	event_freep(&connection->retry_event);
	event_freep(&connection->pid_event);
	closep(&connection->pidfd);
	frame_reader_deinit(&connection->reader);
	frame_writer_deinit(&connection->writer);
}
