#include "client/lib/link/conn.h"

#include "client/lib/base/debug.h"
#include "client/lib/base/error.h"
#include "client/lib/base/fd.h"
#include "client/lib/dsaio.h"
#include "client/lib/link/discover.h"
#include "proto/file_board.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/socket.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

#define CONNECT_TRIES 3 /* finds of a daemon that then hangs up */

/* A child of a fork has the socket open, too: a close alone would not end the session. */
static void socket_close(struct dsaio_conn *conn)
{
	if (conn->fd < 0)
		return;
	(void)shutdown(conn->fd, SHUT_RDWR); /* fails only if the daemon is gone */
	(void)close(conn->fd);		     /* a socket has nothing left to say */
	conn->fd = -1;
}

void conn_end(struct dsaio_conn *conn)
{
	atomic_store(&conn->is_broken, true);
	atomic_store(&conn->is_lost, true);
	atomic_store(&conn->n_gone, atomic_load(&conn->n_replaced) + 1);
	socket_close(conn);
}

static void board_unmap(struct dsaio_conn *conn)
{
	if (conn->file_board) /* our own mapping: cannot fail */
		(void)munmap((void *)conn->file_board, file_board_bytes(conn->facts.max_files));
}

void conn_close(struct dsaio_conn *conn)
{
	if (!conn)
		return;
	socket_close(conn);
	board_unmap(conn);
	conn_calls_deinit(conn);
	frame_writer_deinit(&conn->deferred);
	(void)pthread_cond_destroy(&conn->changed);
	(void)pthread_mutex_destroy(&conn->lock); /* nobody is in a call: cannot fail */
	free(conn);
}

CLEANUP_FUNCTION(struct dsaio_conn, conn_close)

int conn_map(int fd, size_t bytes, int protection, void **ret_map)
{
	struct stat st;
	void *map;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || (uint64_t)st.st_size < bytes)
		return -EPROTO; /* pages behind its end would raise SIGBUS */
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

/* Before Linux 6.5 the daemon cannot ask the socket for a pidfd: then we give it one. */
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

static int conn_map_board(struct dsaio_conn *conn, uint32_t max_files, int fd)
{
	void *map;
	int r;

	if (!max_files)
		return error_fail(-EPROTO,
				  "connect: what listens on %s gave no file board, as dsaiod does",
				  conn->path);
	r = conn_map(fd, file_board_bytes(max_files), PROT_READ | PROT_WRITE, &map);
	if (r < 0)
		return error_fail_errno(r, "connect: the daemon's file board");
	conn->facts.max_files = max_files;
	conn->file_board = map;
	return 0;
}

static int conn_hello(struct dsaio_conn *conn)
{
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = WIRE_REQUEST(HELLO, hello, &hello);
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	_cleanup_(closep) int pidfd = conn_pidfd(conn->fd);
	_cleanup_(closep) int board_fd = -1; /* the mapping holds it */
	int r;

	hello.version_min = CONN_VERSION_MIN;
	hello.version_max = CONN_VERSION_MAX;
	hello.features = CONN_FEATURES;
	hello.name = conn->name;
	hello.pid = (uint32_t)getpid();
	hello.library = (char *)(uintptr_t)DSAIO_VERSION; /* only read */
	/* A silent peer is an error, not a hang.  A daemon under systemd may be starting. */
	r = conn_call_while_alive(conn, "connect", &request, &pidfd, pidfd >= 0, &reply, &board_fd);
	if (r < 0)
		return r;
	if (reply->hello->version < CONN_VERSION_MIN || reply->hello->version > CONN_VERSION_MAX)
		r = error_fail(
			-EPROTONOSUPPORT,
			"hello: the daemon (%s) speaks protocol version %u, the client %u to "
			"%u: install a library and a daemon of the same release",
			reply->hello->daemon_version, reply->hello->version, CONN_VERSION_MIN,
			CONN_VERSION_MAX);
	else
		r = conn_map_board(conn, reply->hello->max_files, board_fd);
	if (r < 0)
		return r;
	conn->facts.features = reply->hello->features & CONN_FEATURES;
	conn->facts.started_nsec = reply->hello->started_nsec;
	conn->facts.client_pool_max = reply->hello->client_pool_max;
	conn->facts.max_entries = reply->hello->max_entries;
	conn->facts.spin_usec = reply->hello->spin_usec;
	(void)snprintf(conn->facts.daemon_version, sizeof(conn->facts.daemon_version), "%s",
		       reply->hello->daemon_version); /* cut is fine */
	conn->facts.gpu_path = reply->hello->gpu_path;
	(void)snprintf(conn->facts.gpu_why, sizeof(conn->facts.gpu_why), "%s",
		       reply->hello->gpu_why); /* cut is fine */
	(void)snprintf(conn->facts.log_place, sizeof(conn->facts.log_place), "%s",
		       reply->hello->log_place); /* the daemon's has the same size */
	return 0;
}

/*
 * The message so far is the daemon's, or of conn_hello(): it has the versions of the protocol.  An
 * update replaces a user's own daemon only after its last program.
 */
static int versions_fail(const struct found *found)
{
	bool is_own = !found->is_named && strcmp(found->path, SOCKET_SYSTEM) != 0;

	return error_fail(
		-EPROTONOSUPPORT,
		"connect: the daemon on %s and this library (version %s) have no protocol "
		"in common: %s%s",
		found->path, DSAIO_VERSION, dsaio_error(),
		is_own ? "; this daemon ends a minute after the last program that uses it, "
			 "and the next program starts a new one"
		       : "");
}

/*
 * Tries once to find a daemon and to say Hello.  -ENOTCONN: it has not answered as it should.  again: where that one
 * was, in the place of path.
 */
static int conn_try(const char *path, const char *name, const struct dsaio_conn *again,
		    struct found *found, struct dsaio_conn **ret_conn)
{
	_cleanup_(conn_closep) struct dsaio_conn *conn = calloc(1, sizeof(*conn));
	socklen_t peer_bytes = sizeof(conn->peer);
	int r;

	if (!conn)
		return error_fail_errno(-ENOMEM, "connect");
	conn->fd = -1;
	conn->silence.limit_msec = discover_wait_msec;
	conn_calls_init(conn);
	(void)pthread_mutex_init(&conn->lock, NULL); /* default attributes: cannot fail */
	(void)pthread_cond_init(&conn->changed, NULL);
	(void)snprintf(conn->name, sizeof(conn->name), "%s", name); /* the daemon cuts it, too */
	r = again ? discover_again(again->path, again->is_own, found) : discover(path, found);
	if (r < 0)
		return r;
	(void)strcpy(conn->path, found->path);
	conn->is_own = found->is_own;
	conn->fd = TAKE_FD(found->fd);
	if (getsockopt(conn->fd, SOL_SOCKET, SO_PEERCRED, &conn->peer, &peer_bytes) < 0 ||
	    fcntl(conn->fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
		return error_fail_errno(-errno, "connect: %s", found->path);
	if (found->is_own && conn->peer.uid != geteuid())
		return error_fail(-EPERM, "connect: what listens on %s belongs to uid %u",
				  found->path, conn->peer.uid);
	/* No other user's process gets what is handed over. */
	if (again && again->peer.uid != conn->peer.uid)
		return error_fail(-EACCES,
				  "what listens on %s belongs to user %u now, not to user %u",
				  found->path, conn->peer.uid, again->peer.uid);
	r = conn_hello(conn);
	if (r == -EPROTONOSUPPORT)
		return versions_fail(found);
	if (r < 0)
		return r;
	conn->silence.limit_msec = CONN_SILENT_MSEC;
	*ret_conn = TAKE_PTR(conn);
	return 0;
}

int conn_open(const char *path, const char *name, struct dsaio_conn **ret_conn)
{
	for (unsigned n_tries = 1;; n_tries++) {
		_cleanup_(found_deinit) struct found found = FOUND_NONE;
		int r = conn_try(path, name ? name : program_invocation_short_name, NULL, &found,
				 ret_conn);

		if (r == 0)
			debug_log("connect: dsaiod %s on %s, session begins",
				  (*ret_conn)->facts.daemon_version, (*ret_conn)->path);
		if (r != -ENOTCONN)
			return r;
		if (found.is_started)
			return discover_explain(&found);
		/* It may have been about to end, having had no client, or was killed: another look
		   finds a new one, or starts it, or that there is none. */
		if (n_tries == CONNECT_TRIES)
			return error_fail(-EPROTO,
					  "connect: what listens on %s did not answer as dsaiod "
					  "does: is it another program?",
					  found.path);
		debug_log("connect: %s: hung up before Hello was answered: looking again",
			  found.path);
	}
}

/* ---- another session ---- */

int conn_open_again(const struct dsaio_conn *conn, struct dsaio_conn **ret_next)
{
	_cleanup_(found_deinit) struct found found = FOUND_NONE;
	int r = conn_try(NULL, conn->name, conn, &found, ret_next);

	return r == -ENOTCONN && found.is_started ? discover_explain(&found) : r;
}

enum conn_end conn_end_read(struct dsaio_conn *conn)
{
	LOCKED(&conn->lock);

	conn_calls_receive(conn);
	return conn->is_on_purpose ? CONN_END_ON_PURPOSE
	       : conn->is_stop	   ? CONN_END_STOP
				   : CONN_END_CRASH;
}

void conn_attempt_begin(struct dsaio_conn *conn)
{
	LOCKED(&conn->lock);

	(void)atomic_fetch_add(&conn->attempt, 1);
	frame_writer_deinit(&conn->deferred);
	conn->deferred = (struct frame_writer){ 0 };
	conn->n_deferred = 0;
}

void conn_replace(struct dsaio_conn *conn, struct dsaio_conn *next)
{
	const uint32_t after = conn_session(conn) + 1;

	(void)pthread_mutex_lock(&conn->lock);
	conn_calls_stop(conn);
	conn_calls_deinit(conn);
	conn_calls_init(conn);
	conn->writer.queue = conn->deferred.queue; /* neither has descriptors */
	conn->writer.queued_bytes = conn->deferred.queued_bytes;
	conn->n_unawaited = next->n_unawaited + conn->n_deferred;
	if (conn->seq < next->seq)
		conn->seq = next->seq; /* a late answer must fit no call */
	conn->reader = next->reader;
	next->reader = (struct frame_reader){ 0 };
	conn->deferred = (struct frame_writer){ 0 };
	conn->n_deferred = 0;
	(void)dup3(next->fd, conn->fd, O_CLOEXEC); /* both are open: cannot fail */
	board_unmap(conn);
	conn->file_board = TAKE_PTR(next->file_board);
	conn->facts = next->facts;
	conn->peer = next->peer;
	conn->silence = (struct silence){ .limit_msec = conn->silence.limit_msec };
	if (conn_attempt(conn) < after)
		atomic_store(&conn->attempt, after);
	atomic_store(&conn->n_replaced, conn_attempt(conn));
	atomic_store(&conn->is_broken, false);
	conn_calls_send(conn);
	(void)pthread_cond_broadcast(&conn->changed);
	(void)pthread_mutex_unlock(&conn->lock);
	closep(&next->fd); /* not shut down: the session goes on */
	next->fd = -1;
	conn_close(next);
}

void conn_lose(struct dsaio_conn *conn, const char *why)
{
	LOCKED(&conn->lock);

	if (!conn->is_on_purpose)
		(void)snprintf(conn->end_text, sizeof(conn->end_text), "%s", why); /* cut is fine */
	atomic_store_explicit(&conn->is_lost, true, memory_order_release);
	(void)pthread_cond_broadcast(&conn->changed);
}

struct conn_facts conn_facts(struct dsaio_conn *conn)
{
	struct conn_facts facts;
	LOCKED(&conn->lock);

	facts = conn->facts;
	return facts;
}

int conn_sleep(struct dsaio_conn *conn, struct pollfd *fds, nfds_t n, const struct timespec *ts)
{
	int r;

	/* While it is away, its end is there all the time. */
	fds[0] = (struct pollfd){ .fd = conn_is_away(conn) ? -1 : conn->fd, .events = POLLRDHUP };
	r = ppoll(fds, n, ts, NULL);
	if (r > 0 && fds[0].revents)
		(void)conn_is_gone(conn); /* remembers it */
	return r;
}

/* ---- the file board ---- */

static bool has_word(const struct dsaio_conn *conn, uint32_t file)
{
	return file_board_index(file) <
	       file_board_bytes(conn->facts.max_files) / sizeof(conn->file_board[0]);
}

bool conn_file_idle(struct dsaio_conn *conn, uint32_t file)
{
	Wire__Request request = WIRE__REQUEST__INIT; /* an empty one: it is only refused */
	bool has, was_quiet;

	(void)pthread_mutex_lock(&conn->lock);
	has = has_word(conn, file);
	was_quiet = has && file_board_set_idle(conn->file_board, file);
	(void)pthread_mutex_unlock(&conn->lock);
	if (was_quiet)
		conn_post(conn, &request);
	return has;
}

bool conn_file_use(struct dsaio_conn *conn, uint32_t file)
{
	LOCKED(&conn->lock);

	return !has_word(conn, file) || file_board_take(conn->file_board, file, FILE_BOARD_USED);
}
