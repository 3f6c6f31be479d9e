/*
 * A client's connection: the control socket, Hello, then requests and their replies.
 *
 * A session lasts as long as its socket.  The connection lasts as long as its client: the struct keeps
 * its address, and its descriptor keeps its number.  So all parts of the library may hold the
 * pointer.  They sleep with conn_sleep().  Epoll descriptors that show the session's end get the
 * number again for each session (recover.c), since epoll(7) knows the socket behind it.
 *
 * Any thread may call conn_call().  Each call in progress has a record with its sequence number, and
 * the daemon may reply in any order, so a request that hangs delays no other.  One of the waiting
 * threads polls the socket for all; the others sleep on conditions.  Whoever reads a reply gives it
 * to the call that it belongs to.  When the polling thread has its own reply, another one polls.
 * conn->lock is held for moments only, never while a thread sleeps.
 *
 * Recovery.  A connection with on_gone outlives its daemon.  When the end of file has come, it is *away*:
 * on_gone() has been called once, calls wait, and calls that were under way are sent again in the next
 * session, since objects keep their ids.  io/recover.c makes the next session and hands over what the client
 * has; conn_replace() then takes it, or conn_lose() gives up.  Requests that end an object are of one session:
 * conn_call_in() and conn_post_in() do not send them in a session that the object was not handed over to, where
 * its id may be another's.  A thread that makes an object looks at conn_is_of() under the lock of the list
 * that recovery walks, when it adds it there.
 *
 * Only the end of file proves that the daemon is gone (conn_is_gone()).  A stream that stopped making
 * sense is shut down for writing; the daemon then ends the session, and its end of file comes.
 *
 * conn_call.c has the calls, silence.c decides when a daemon counts as stopped, conn.c has the rest.
 * dsaioctl links these objects too: it connects with dsaio_connect(), takes the connection with
 * client_conn() (client.h) and sends its Status with conn_call().
 */
#ifndef DSAIO_CLIENT_LIB_LINK_CONN_H
#define DSAIO_CLIENT_LIB_LINK_CONN_H

#include "client/lib/link/silence.h"
#include "proto/frame.h"
#include "proto/ring.h"
#include "proto/util/socket.h"
#include "proto/wire.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define CONN_VERSION_MIN 1u
#define CONN_VERSION_MAX 1u
#define CONN_FEATURES                                                                              \
	(RING_FEATURE_DEVICE | RING_FEATURE_DSYNC | RING_FEATURE_RECOVERY | RING_FEATURE_UNKNOWN | \
	 RING_FEATURE_QUIET)
#define CONN_NAME_BYTES 64u

/* A daemon that was asked and has said nothing for so long is taken for stopped. */
#define CONN_SILENT_MSEC 30000u

/* The daemon's messages, which end with what to do, have at most 480. */
#define CONN_TEXT_BYTES 512u

/* Facts from HelloReply. */
struct conn_facts {
	uint64_t features;
	uint64_t started_nsec; /* the daemon: another one has another */
	uint64_t client_pool_max;
	uint32_t max_entries;
	uint32_t spin_usec;
	uint32_t max_files;
	char daemon_version[64];
	Wire__GpuPath gpu_path; /* of ops on GPU memory, ... */
	char gpu_why[256];	/* ... and the daemon's reason */
	char log_place[256];	/* of the daemon */
};

struct dsaio_conn {
	int fd; /* not blocking */
	char path[SOCKET_PATH_BYTES];
	bool is_own;	   /* the user's own, which the library starts (discover.h) */
	struct ucred peer; /* the process that listens; its pid is 0 in another pid namespace */
	char name[CONN_NAME_BYTES];
	/* Called once when the end of file was seen, by any thread, without conn->lock; NULL: the end is for good. */
	void (*on_gone)(void *arg);
	void *arg;
	_Atomic bool is_lost;	/* for good */
	_Atomic bool is_broken; /* no request makes sense any more; the end of file will come */
	_Atomic uint32_t n_replaced; /* the number of the session */
	_Atomic uint32_t attempt;    /* of the session that objects are handed over to, or were */
	_Atomic uint32_t
		n_gone; /* more than n_replaced: the present session's end of file has come */

	pthread_mutex_t lock; /* of the rest of this group */
	uint64_t seq;
	struct frame_reader reader;
	struct frame_writer writer;
	struct list pending;  /* struct conn_pending: calls that wait for their replies */
	unsigned n_polling;   /* threads that poll the socket */
	uint64_t n_unawaited; /* requests sent whose replies nobody waits for, ... */
	uint64_t n_answered;  /* ... and how many of these were answered */
	/* Descriptors that keep places free for those that replies bring, as many as n_places_wanted. */
	int *places;
	unsigned n_places, n_places_wanted;
	pthread_cond_t changed;	      /* it is not away any more */
	struct frame_writer deferred; /* posts for the next session, ... */
	uint64_t n_deferred;	      /* ... and their number */
	struct silence silence;	      /* limit: CONN_SILENT_MSEC; shorter in tests */
	bool is_ended;		      /* nothing is read any more, for this reason: */
	char end_text[CONN_TEXT_BYTES];
	bool is_on_purpose; /* the daemon ended the session for that reason, or this library did */
	bool is_stop;	    /* the daemon stopped in order */
	struct conn_facts facts;
	_Atomic bool has_unlocked; /* the daemon could not lock some slab; relaxed: a fact alone */
	_Atomic uint32_t *file_board; /* words for max_files: proto/file_board.h */
};

/*
 * Connects and says Hello.  path: NULL: where a daemon is found, or started (discover.h).  name: of
 * the client, for status; NULL: the program's.
 * Returns 0 or as dsaio_connect(), with a message.
 */
int conn_open(const char *path, const char *name, struct dsaio_conn **ret_conn);
void conn_close(struct dsaio_conn *conn); /* NULL is fine */
/* Ends the session, and keeps the struct: every later call returns -ENOTCONN at once. */
void conn_end(struct dsaio_conn *conn);

/* ---- recovery: io/recover.c ---- */

/* As conn_open(), once, at the place where conn's daemon was, which is started again if it is the user's own. */
int conn_open_again(const struct dsaio_conn *conn, struct dsaio_conn **ret_next);

enum conn_end { CONN_END_CRASH, CONN_END_STOP, CONN_END_ON_PURPOSE };
/* It is away: reads the daemon's last words. */
enum conn_end conn_end_read(struct dsaio_conn *conn);

/*
 * Objects are handed over from now on, in conn_attempt().  Requests that wait for an earlier attempt's go.
 */
void conn_attempt_begin(struct dsaio_conn *conn);

/* The number that the session will have. */
static inline uint32_t conn_attempt(const struct dsaio_conn *conn)
{
	return atomic_load_explicit(&conn->attempt, memory_order_acquire);
}

/*
 * Takes the session of `next`, which it frees; calls that wait go on.  `next` is connected to the same path, since
 * other threads read conn->path without the lock.  Sleeps until no thread polls for the old session.
 */
void conn_replace(struct dsaio_conn *conn, struct dsaio_conn *next);

/* Calls that wait end with -ENOTCONN, and that reason. */
void conn_lose(struct dsaio_conn *conn, const char *why);

/* Is the object of that session still of use: was the daemon not seen to end since?  Under the lock of a list. */
static inline bool conn_is_of(const struct dsaio_conn *conn, uint32_t session);

/* The session in which this thread's last call was answered. */
uint32_t conn_answered_in(void);

/* This thread's calls do not wait while a connection is away: they end with -ENOTCONN. */
void conn_never_waits(void);

struct conn_facts conn_facts(struct dsaio_conn *conn);

/* As ppoll(2); the first of fds becomes the end of the session, which conn_was_gone() then knows. */
int conn_sleep(struct dsaio_conn *conn, struct pollfd *fds, nfds_t n, const struct timespec *ts);

/* Tells the daemon by the file board, and by a request if it does not look there, that the file is idle.  false: the
   board has no word for it. */
bool conn_file_idle(struct dsaio_conn *conn, uint32_t file);
/* An idle file is used again.  false: the daemon has closed it. */
bool conn_file_use(struct dsaio_conn *conn, uint32_t file);

/*
 * Sends a request (seq is filled in) with n_fds descriptors and waits for its reply.
 *
 * what: for the message ("file /x/y").  Takes the descriptors, also on error.
 * ret_reply: of wire__reply__free_unpacked(reply, NULL); it has the body that belongs to the
 *   request.  NULL: only the result matters.
 * ret_fds: room for as many descriptors as this kind of reply has, the caller's; NULL: they are closed.
 * Returns 0, the daemon's errno with its message, -ENOTCONN (the daemon is gone, or spoke
 * nonsense), -EMFILE (no room for the reply's descriptors: nothing was sent), -ENOMEM or
 * -EMSGSIZE.  Sleeps without limit, also while other calls are in progress.  Any thread, no lock
 * held but those above conn's.
 */
int conn_call(struct dsaio_conn *conn, const char *what, Wire__Request *request, const int *fds,
	      unsigned n_fds, Wire__Reply **ret_reply, int *ret_fds);

/*
 * The same, and the descriptors stay the caller's, but returns -ETIMEDOUT if the daemon is silent: it was asked, and no
 * reply of any kind came for CONN_SILENT_MSEC.  A daemon that answers is waited for without limit.
 * One that reads no further request, since as many as it reads from a client or a user hang, counts
 * as one that does not answer.
 */
int conn_call_while_alive(struct dsaio_conn *conn, const char *what, Wire__Request *request,
			  const int *fds, unsigned n_fds, Wire__Reply **ret_reply, int *ret_fds);

/*
 * Calls that end an object of that session.  Not sent, and 0, in a session that the object was not
 * handed over to.  While it is away, they are conn_post_in(), and return at once.
 * -ETIMEDOUT: no reply before the deadline (base/deadline.h): the connection ignores it when it comes; while_alive: as
 * above, without deadline.
 */
int conn_call_in(struct dsaio_conn *conn, const char *what, Wire__Request *request,
		 uint32_t session, bool while_alive, uint64_t deadline_nsec);

/*
 * conn_call() for recover.c: -ETIMEDOUT if there is no reply before the deadline.  -ENOTCONN also if the daemon is
 * stopping, or this process has no descriptors for those of the reply.  The fds stay the caller's.
 */
int conn_call_for(struct dsaio_conn *conn, const char *what, Wire__Request *request, const int *fds,
		  unsigned n_fds, uint64_t deadline_nsec, Wire__Reply **ret_reply, int *ret_fds);

/* Asks for any reply: false if the daemon is silent, as above, or gone. */
bool conn_answers(struct dsaio_conn *conn);

/*
 * Sends a request without descriptors whose reply nobody needs.  Never sleeps: what the socket does
 * not take now goes out with a later call.  A request is lost if there is no memory for it.
 */
void conn_post(struct dsaio_conn *conn, Wire__Request *request);
/* The same of one that ends an object of that session, as conn_call_in(): while it is away, in the next one. */
void conn_post_in(struct dsaio_conn *conn, Wire__Request *request, uint32_t session);

/*
 * Sleeps until more posts have been answered than were at an earlier call of conn_posts_answered(),
 * which may be so already.  false: no answer is to come.
 */
uint64_t conn_posts_answered(struct dsaio_conn *conn);
bool conn_await_post(struct dsaio_conn *conn, uint64_t n_answered);

/* For conn.c: no call is in progress, nor are there requests or replies; and frees what was. */
void conn_calls_init(struct dsaio_conn *conn);
void conn_calls_deinit(struct dsaio_conn *conn);
/* Reads what has come, and sends what waits.  Under the lock. */
void conn_calls_receive(struct dsaio_conn *conn);
void conn_calls_send(struct dsaio_conn *conn);
/* Ends all calls, and sleeps until no thread polls.  Under the lock, which is released meanwhile. */
void conn_calls_stop(struct dsaio_conn *conn);

/*
 * Maps a memfd of the daemon's, which has to have at least that many bytes; not for forked
 * children.  Returns 0, -EPROTO (it is too small), or what the kernel says.
 */
int conn_map(int fd, size_t bytes, int protection, void **ret_map);

/* Looks whether the end of file has come.  One system call until it has.  Any thread. */
bool conn_is_gone(struct dsaio_conn *conn);

/* Whether an earlier call found the daemon gone; makes no system call. */
static inline bool conn_was_gone(const struct dsaio_conn *conn)
{
	return atomic_load_explicit(&conn->n_gone, memory_order_acquire) >
	       atomic_load_explicit(&conn->n_replaced, memory_order_acquire);
}

static inline bool conn_was_lost(const struct dsaio_conn *conn)
{
	return atomic_load_explicit(&conn->is_lost, memory_order_acquire) ||
	       (!conn->on_gone && conn_was_gone(conn));
}

/* The daemon has gone away, and another one may come. */
static inline bool conn_is_away(const struct dsaio_conn *conn)
{
	return conn_was_gone(conn) && !conn_was_lost(conn);
}

static inline uint32_t conn_session(const struct dsaio_conn *conn)
{
	return atomic_load_explicit(&conn->n_replaced, memory_order_acquire);
}

static inline bool conn_is_of(const struct dsaio_conn *conn, uint32_t session)
{
	return conn_session(conn) == session && !conn_was_gone(conn);
}

/* Why it is, as far as that was said: the daemon's last words, or recovery's. */
void conn_why_gone(struct dsaio_conn *conn, char text[CONN_TEXT_BYTES]);
/* Whether the daemon has said that it ends this session on purpose.  It has sent that before it cancels ops. */
bool conn_is_ended_on_purpose(struct dsaio_conn *conn);
/* The message of a call that needs it.  Returns -ENOTCONN. */
int conn_fail_gone(struct dsaio_conn *conn, const char *what);

/* The daemon broke the protocol: asks it to end the session, for good.  Any thread. */
void conn_break(struct dsaio_conn *conn);

/*
 * Sleeps until the end of file of a broken session has come.  has_limit: for at most
 * CONN_SILENT_MSEC, once for all such waits of the session.  Returns whether it has come.
 */
bool conn_await_end(struct dsaio_conn *conn, bool has_limit);

static inline void wire_replyp(Wire__Reply **reply)
{
	if (*reply)
		wire__reply__free_unpacked(*reply, NULL);
}

#endif
