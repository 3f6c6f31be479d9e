/*
 * The control socket: Hello, then one request and its reply at a time.
 *
 * Any thread may call conn_call(); a lock keeps requests apart.  Whether the daemon is gone is
 * told by the end of file alone (conn_is_gone()): a stream that stopped making sense is shut down
 * for writing, the daemon then ends the session and its end of file comes.
 *
 * dsaioctl links these objects too: it connects with dsaio_connect(), takes the connection with
 * client_conn() (client.h) and sends its Status with conn_call().
 */
#ifndef DSAIO_CLIENT_CONN_H
#define DSAIO_CLIENT_CONN_H

#include "proto/dsaio.pb-c.h"
#include "proto/frame.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define CONN_VERSION_MIN 1u
#define CONN_VERSION_MAX 1u

struct dsaio_conn {
	int fd;
	pthread_mutex_t lock; /* of all below but the flags */
	uint64_t seq;
	struct frame_reader reader;
	struct frame_writer writer;
	_Atomic bool is_broken; /* no request makes sense any more; the end of file will come */
	_Atomic bool is_gone;	/* it has come */
	int wait_msec;		/* for a reply: -1, but while greeting */
	char *path;

	/* from HelloReply */
	uint64_t client_pool_max;
	uint32_t max_entries;
	uint32_t spin_usec;
	uint32_t max_files;
	_Atomic uint32_t *file_board; /* words for max_files: proto/file_board.h */
	char *daemon_version;
};

/*
 * Connects and says Hello.  path: NULL: where a daemon is found, or started (discover.h).
 * Returns 0 or as dsaio_connect(), with a sentence.
 */
int conn_open(const char *path, struct dsaio_conn **ret_conn);
void conn_close(struct dsaio_conn *conn); /* NULL is fine */

/*
 * Sends a request (seq is filled in) with n_fds descriptors and waits for its reply.
 *
 * what: for the sentence ("file /x/y").  Takes the descriptors, also on error.
 * ret_reply: of wire__reply__free_unpacked(reply, NULL); it has the body that belongs to the
 *   request.  NULL: only the result matters.
 * ret_fds: room for FRAME_FDS_MAX descriptors, the caller's; NULL: none are expected.  The first
 *   *ret_n_fds are set.
 * Returns 0, the daemon's errno with its sentence, -ENOTCONN (the daemon is gone, or spoke
 * nonsense), -EMFILE (no room for the reply's descriptors: nothing was sent), -ENOMEM or
 * -EMSGSIZE.  Blocks.  Any thread, no lock held but those above conn's.
 */
int conn_call(struct dsaio_conn *conn, const char *what, Wire__Request *request, const int *fds,
	      unsigned n_fds, Wire__Reply **ret_reply, int *ret_fds, unsigned *ret_n_fds);

/*
 * Maps a memfd of the daemon's, which has to have at least that many bytes; not for forked
 * children.  Returns 0, -EPROTO (it is too small), or what the kernel says.
 */
int conn_map(int fd, size_t bytes, int protection, void **ret_map);

/* Looks whether the end of file has come.  One system call until it has.  Any thread. */
bool conn_is_gone(struct dsaio_conn *conn);

/* What was seen so far; no system call. */
static inline bool conn_was_gone(const struct dsaio_conn *conn)
{
	return atomic_load_explicit(&conn->is_gone, memory_order_acquire);
}

/* The daemon broke the protocol: asks it to end the session.  Any thread. */
void conn_break(struct dsaio_conn *conn);

/* Sleeps until the end of file has come. */
void conn_await_end(struct dsaio_conn *conn);

static inline void wire_replyp(Wire__Reply **reply)
{
	if (*reply)
		wire__reply__free_unpacked(*reply, NULL);
}

#endif
