#include "client/lib/conn.h"

#include "client/lib/debug.h"
#include "client/lib/discover.h"
#include "client/lib/dsaio.h"
#include "client/lib/error.h"
#include "client/lib/fd.h"
#include "proto/cleanup.h"
#include "proto/file_board.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

#define ERRNO_MAX 4095	  /* the kernel's */
#define CONNECT_TURNS 3	  /* finds of a daemon that then hangs up */
#define HELLO_WAIT_SEC 30 /* a daemon under systemd may be starting */

static void conn_free(struct dsaio_conn *conn)
{
	if (!conn)
		return;
	if (conn->fd >= 0)
		(void)close(conn->fd); /* a socket has nothing left to say */
	if (conn->file_board)	       /* our own mapping: can not fail */
		(void)munmap((void *)conn->file_board, file_board_bytes(conn->max_files));
	frame_reader_deinit(&conn->reader);
	frame_writer_deinit(&conn->writer);
	(void)pthread_mutex_destroy(&conn->lock); /* nobody is in a call: can not fail */
	free(conn->path);
	free(conn->daemon_version);
	free(conn);
}

static void conn_freep(struct dsaio_conn **conn)
{
	conn_free(*conn);
}

void conn_close(struct dsaio_conn *conn)
{
	conn_free(conn);
}

bool conn_is_gone(struct dsaio_conn *conn)
{
	struct pollfd p = { .fd = conn->fd, .events = POLLRDHUP };

	if (conn_was_gone(conn))
		return true;
	if (poll(&p, 1, 0) <= 0 || !(p.revents & (POLLRDHUP | POLLHUP)))
		return false;
	/* release: who sees it sees also what the daemon published before it died */
	if (!atomic_exchange_explicit(&conn->is_gone, true, memory_order_release))
		debug_log("session: the daemon on %s has gone away", conn->path);
	return true;
}

void conn_break(struct dsaio_conn *conn)
{
	if (atomic_exchange(&conn->is_broken, true))
		return;
	/* It ends the session, then closes: its end of file stays the one proof. */
	(void)shutdown(conn->fd, SHUT_WR); /* fails only if the daemon is gone already */
}

void conn_await_end(struct dsaio_conn *conn)
{
	struct pollfd p = { .fd = conn->fd, .events = POLLRDHUP };

	while (!conn_is_gone(conn))
		(void)poll(&p, 1, -1); /* EINTR: looks again */
}

static int conn_lost(struct dsaio_conn *conn, const char *what, const char *why)
{
	conn_break(conn);
	if (conn_is_gone(conn))
		why = "the daemon has gone away";
	return error_fail(-ENOTCONN, "%s: %s (%s): start it again if need be, then connect again",
			  what, why, conn->path);
}

/* The reply's body that belongs to a request. */
static Wire__Reply__BodyCase reply_body(const Wire__Request *request)
{
	switch (request->body_case) {
	case WIRE__REQUEST__BODY_HELLO:
		return WIRE__REPLY__BODY_HELLO;
	case WIRE__REQUEST__BODY_SLAB_NEW:
		return WIRE__REPLY__BODY_SLAB_NEW;
	case WIRE__REQUEST__BODY_FILE_ADD:
		return WIRE__REPLY__BODY_FILE_ADD;
	case WIRE__REQUEST__BODY_HANDLE_OPEN:
		return WIRE__REPLY__BODY_HANDLE_OPEN;
	case WIRE__REQUEST__BODY_CHANNEL_OPEN:
		return WIRE__REPLY__BODY_CHANNEL_OPEN;
	case WIRE__REQUEST__BODY_SUBMIT:
		return WIRE__REPLY__BODY_SUBMIT;
	case WIRE__REQUEST__BODY_STATUS:
		return WIRE__REPLY__BODY_STATUS;
	case WIRE__REQUEST__BODY_SLAB_IMPORT:
		return WIRE__REPLY__BODY_SLAB_IMPORT;
	case WIRE__REQUEST__BODY_STORE_GET:
	case WIRE__REQUEST__BODY_PROFILE_SET:
		return WIRE__REPLY__BODY_STORE_GET;
	default:
		return WIRE__REPLY__BODY__NOT_SET;
	}
}

/* Descriptors that come with that reply. */
static unsigned reply_fds(const Wire__Request *request)
{
	switch (request->body_case) {
	case WIRE__REQUEST__BODY_HELLO:
	case WIRE__REQUEST__BODY_SLAB_NEW:
	case WIRE__REQUEST__BODY_HANDLE_OPEN:
	case WIRE__REQUEST__BODY_FILE_GET:
		return 1;
	case WIRE__REQUEST__BODY_CHANNEL_OPEN:
		return 3; /* rings, bell, board */
	default:
		return 0;
	}
}

static void close_all(const int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		(void)close(fds[i]); /* ours to close; nothing was written to them */
}

/*
 * The kernel drops descriptors that a process at its limit is sent, and nothing brings them back:
 * the stream would be lost.  So their places are taken before the request, and given up when the
 * reply is there.  Returns 0, or a negative errno with a sentence.
 */
static int places_take(struct dsaio_conn *conn, const char *what, unsigned n, int *ret_places)
{
	struct rlimit limit = { .rlim_cur = 0 };

	for (unsigned i = 0; i < n; i++) {
		ret_places[i] = fd_duplicate(conn->fd);
		if (ret_places[i] < 0) {
			int r = -errno;

			close_all(ret_places, i);
			if (r != -EMFILE)
				return error_fail_errno(r, "%s: a descriptor", what);
			(void)getrlimit(RLIMIT_NOFILE, &limit); /* can not fail */
			return error_fail(r,
					  "%s: this process has as many descriptors open as it "
					  "may (RLIMIT_NOFILE %ju): raise it (ulimit -n), or close "
					  "some",
					  what, (uintmax_t)limit.rlim_cur);
		}
	}
	return 0;
}

/* Only while greeting: later replies may take what they take. */
static int conn_silent(struct dsaio_conn *conn, const char *what)
{
	conn_break(conn);
	return error_fail(-ETIMEDOUT,
			  "%s: what listens on %s has not answered for %d s: is the daemon "
			  "stopped, or is it another program?",
			  what, conn->path, HELLO_WAIT_SEC);
}

/*
 * Returns 0, or -ETIMEDOUT while greeting.  Other threads that open files at that moment can still
 * be faster: the connection is lost then.
 */
static int places_give(struct dsaio_conn *conn, const char *what, const int *places, unsigned n)
{
	struct pollfd p = { .fd = conn->fd, .events = POLLIN };
	int r = 1;

	while (n && (r = poll(&p, 1, conn->wait_msec)) < 0 && errno == EINTR)
		;
	close_all(places, n);
	return r ? 0 : conn_silent(conn, what);
}

static int conn_send(struct dsaio_conn *conn, const char *what, Wire__Request *request,
		     const int *fds, unsigned n_fds)
{
	_cleanup_(freep) uint8_t *packed = NULL;
	size_t len;
	int r;

	request->seq = ++conn->seq;
	len = wire__request__get_packed_size(request);
	packed = malloc(len ? len : 1);
	if (!packed) {
		close_all(fds, n_fds);
		return error_fail_errno(-ENOMEM, "%s: request", what);
	}
	(void)wire__request__pack(request, packed);
	r = frame_queue(&conn->writer, packed, len, fds, n_fds);
	if (r < 0)
		return error_fail_errno(r, "%s: request of %zu bytes", what, len);
	do
		r = frame_flush(&conn->writer, conn->fd);
	while (r == -EINTR || r == -EAGAIN);
	return r < 0 ? conn_lost(conn, what, "the daemon hung up") : 0;
}

/* Receives the reply to the request that was sent last. */
static int conn_receive(struct dsaio_conn *conn, const char *what, Wire__Reply **ret_reply,
			struct frame *ret_frame)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	char text[160] = "";
	int r;

	do
		r = frame_read(&conn->reader, conn->fd, ret_frame, text, sizeof(text));
	while (r == -EINTR);
	if (r == -EAGAIN)
		return conn_silent(conn, what);
	if (r == -EPROTO)
		return conn_lost(conn, what, text);
	if (r <= 0)
		return conn_lost(conn, what, "the daemon hung up");
	reply = wire__reply__unpack(NULL, ret_frame->len, ret_frame->body);
	if (!reply)
		return conn_lost(conn, what, "the answer is no Reply: is it dsaiod?");
	if (reply->error > 0 || reply->error < -ERRNO_MAX)
		return conn_lost(conn, what, "the answer's error is none");
	if (reply->seq == 0 && reply->error < 0) { /* why it closes the connection */
		r = reply->error;
		conn_break(conn);
		return error_fail(r, "%s: %s", what, reply->text);
	}
	if (reply->seq != conn->seq)
		return conn_lost(conn, what, "the answer belongs to another request");
	*ret_reply = TAKE_PTR(reply);
	return 0;
}

int conn_map(int fd, size_t bytes, int protection, void **ret_map)
{
	struct stat st;
	void *map;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || (uint64_t)st.st_size < bytes)
		return -EPROTO; /* touching what is not there would be a SIGBUS */
	map = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	/* A forked child must not reach what is in it, nor keep it. */
	if (madvise(map, bytes, MADV_DONTFORK) < 0) {
		int r = -errno;

		(void)munmap(map, bytes);
		return r;
	}
	*ret_map = map;
	return 0;
}

int conn_call(struct dsaio_conn *conn, const char *what, Wire__Request *request, const int *fds,
	      unsigned n_fds, Wire__Reply **ret_reply, int *ret_fds, unsigned *ret_n_fds)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	_cleanup_(frame_deinit) struct frame frame = { .n_fds = 0 };
	_cleanup_(unlockp) pthread_mutex_t *locked = NULL;
	unsigned n_places = reply_fds(request);
	int places[FRAME_FDS_MAX], r;

	(void)pthread_mutex_lock(&conn->lock); /* a plain mutex: can not fail */
	locked = &conn->lock;
	if (atomic_load(&conn->is_broken)) {
		close_all(fds, n_fds);
		return conn_lost(conn, what, "the connection is broken");
	}
	r = places_take(conn, what, n_places, places);
	if (r < 0) {
		close_all(fds, n_fds);
		return r;
	}
	r = conn_send(conn, what, request, fds, n_fds);
	if (r < 0 && r != -ENOTCONN) {
		close_all(places, n_places);
		return r;
	}
	r = places_give(conn, what, places, n_places);
	if (r < 0)
		return r;
	/* Hung up: it may have said why before. */
	r = conn_receive(conn, what, &reply, &frame);
	if (r < 0)
		return r;
	if (reply->error < 0)
		return error_fail(reply->error, "%s",
				  reply->text && *reply->text ? reply->text
							      : strerror(-reply->error));
	if (reply->body_case != reply_body(request))
		return conn_lost(conn, what, "the answer does not fit the request");
	for (unsigned i = 0; i < frame.n_fds; i++) {
		frame.fds[i] = fd_above_stdio(frame.fds[i]);
		if (frame.fds[i] < 0)
			return conn_lost(conn, what, "this process may open no more descriptors");
	}
	if (ret_fds) {
		*ret_n_fds = frame.n_fds;
		for (unsigned i = 0; i < frame.n_fds; i++)
			ret_fds[i] = TAKE_FD(frame.fds[i]);
		frame.n_fds = 0;
	}
	if (ret_reply)
		*ret_reply = TAKE_PTR(reply);
	return 0;
}

/* Before Linux 6.5 the daemon can not ask the socket for a pidfd: then we give it one. */
static int conn_pidfd(int socket_fd)
{
	int fd = -1;
	socklen_t len = sizeof(fd);

	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0) {
		(void)close(fd); /* only asked whether there is such a thing */
		return -1;
	}
	if (errno != ENOPROTOOPT)
		return -1;
	/* -1: the socket alone has to do */
	return fd_above_stdio((int)syscall(SYS_pidfd_open, getpid(), 0));
}

static int conn_map_board(struct dsaio_conn *conn, uint32_t max_files, const int *fds,
			  unsigned n_fds)
{
	void *map;
	int r;

	if (n_fds != 1 || !max_files)
		return error_fail(-EPROTO,
				  "connect: what listens on %s gave no file board, as dsaiod does",
				  conn->path);
	r = conn_map(fds[0], file_board_bytes(max_files), PROT_READ | PROT_WRITE, &map);
	if (r < 0)
		return error_fail_errno(r, "connect: the daemon's file board");
	conn->max_files = max_files;
	conn->file_board = map;
	return 0;
}

static int conn_hello(struct dsaio_conn *conn)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__Hello hello = WIRE__HELLO__INIT;
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int pidfd = conn_pidfd(conn->fd);
	int fds[FRAME_FDS_MAX], r;
	unsigned n_fds = 0;

	hello.version_min = CONN_VERSION_MIN;
	hello.version_max = CONN_VERSION_MAX;
	hello.name = program_invocation_short_name;
	hello.pid = (uint32_t)getpid();
	request.body_case = WIRE__REQUEST__BODY_HELLO;
	request.hello = &hello;
	r = conn_call(conn, "connect", &request, &pidfd, pidfd >= 0, &reply, fds, &n_fds);
	if (r < 0)
		return r;
	if (reply->hello->version < CONN_VERSION_MIN || reply->hello->version > CONN_VERSION_MAX)
		r = error_fail(-EPROTONOSUPPORT,
			       "connect: the daemon on %s speaks protocol version %u, this "
			       "library %u to %u: install versions that fit",
			       conn->path, reply->hello->version, CONN_VERSION_MIN,
			       CONN_VERSION_MAX);
	else
		r = conn_map_board(conn, reply->hello->max_files, fds, n_fds);
	for (unsigned i = 0; i < n_fds; i++)
		closep(&fds[i]); /* the mapping holds it */
	if (r < 0)
		return r;
	conn->client_pool_max = reply->hello->client_pool_max;
	conn->max_entries = reply->hello->max_entries;
	conn->spin_usec = reply->hello->spin_usec;
	conn->daemon_version = strdup(reply->hello->daemon_version);
	return conn->daemon_version ? 0 : error_fail_errno(-ENOMEM, "connect");
}

/* With a limit: what does not speak is an error, not a hang. */
static int conn_greet(struct dsaio_conn *conn)
{
	const struct timeval wait = { .tv_sec = HELLO_WAIT_SEC }, none = { 0 };
	int r;

	/* Can not fail for a socket and such times. */
	(void)setsockopt(conn->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	conn->wait_msec = HELLO_WAIT_SEC * 1000;
	r = conn_hello(conn);
	conn->wait_msec = -1;
	(void)setsockopt(conn->fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
	return r;
}

/* One turn of finding a daemon and saying Hello.  -ENOTCONN: it has not answered as it should. */
static int conn_try(const char *path, struct found *found, struct dsaio_conn **ret_conn)
{
	_cleanup_(conn_freep) struct dsaio_conn *conn = calloc(1, sizeof(*conn));
	int r;

	if (!conn)
		return error_fail_errno(-ENOMEM, "connect");
	conn->fd = -1;
	frame_writer_init(&conn->writer);
	(void)pthread_mutex_init(&conn->lock, NULL); /* default attributes: can not fail */
	r = discover(path, found);
	if (r < 0)
		return r;
	conn->path = strdup(found->path);
	if (!conn->path)
		return error_fail_errno(-ENOMEM, "connect");
	conn->fd = TAKE_FD(found->fd);
	r = conn_greet(conn);
	if (r < 0)
		return r;
	*ret_conn = TAKE_PTR(conn);
	return 0;
}

int conn_open(const char *path, struct dsaio_conn **ret_conn)
{
	for (unsigned turn = 1;; turn++) {
		_cleanup_(found_deinit) struct found found = FOUND_NONE;
		int r = conn_try(path, &found, ret_conn);

		if (r == 0)
			debug_log("connect: dsaiod %s on %s, session begins",
				  (*ret_conn)->daemon_version, (*ret_conn)->path);
		if (r != -ENOTCONN)
			return r;
		if (found.is_started)
			return discover_explain(&found);
		/* It may have been about to end, having had no client: another look finds a new
		   one, or starts it. */
		if (found.is_named || turn == CONNECT_TURNS)
			return error_fail(-EPROTO,
					  "connect: what listens on %s did not answer as dsaiod "
					  "does: is it another program?",
					  found.path);
		debug_log("connect: %s: hung up before Hello was answered: looking again",
			  found.path);
	}
}
