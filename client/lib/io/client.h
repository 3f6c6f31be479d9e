/*
 * A client: its connection, and the list of all objects that the program opened through it.
 *
 * The guard is a word in a page of its own with MADV_WIPEONFORK.  It tells a forked child from the
 * process that connected.  Each public call checks it before any lock or ring (client_check()).
 *
 * Handles and files are in the client's lists.  An op may be the last user of a file and end while
 * locks are held.  Its file then goes on the garbage list.  Public calls empty that list when they
 * hold no lock (client_collect()), and never sleep there, since the file is not their business.
 *
 * Lock order: a thread takes a lock only while it holds none but those above it in this list.
 *   view.lock           one thread goes on with a view, and may wait for its ops
 *   recovery.objects    handles are gone through
 *   handle.open_lock    a channel is being made
 *   the consumer role   of a handle (wait.h): not a mutex, but waited for like one
 *   inode.lock          the open ops of an inode, its known size
 *   channel.submit_lock the submitter's side of a ring
 *   buffers.grow_lock   a slab is being made
 *   bounce.lock         jobs for the library's thread
 *   gpu.import_lock     GPU memory is being imported or released
 *   slots.lock          bounce memory
 *   copiers.lock        queued copies
 *   handle.lock         op objects, ended ops, counters, waiters
 *   buffers.lock        slabs and pieces
 *   gpu.lock            GPU memory, and files that cuFile takes
 *   files.lock          the file cache, descriptors of files
 *   client.lock         the lists here
 *   conn.lock           calls in progress; not held while a thread waits for its reply
 *   recovery.lock       the thread that reconnects
 * No thread waits for an op while it holds any of the others.
 */
#ifndef DSAIO_CLIENT_LIB_IO_CLIENT_H
#define DSAIO_CLIENT_LIB_IO_CLIENT_H

#include "client/lib/base/error.h"
#include "client/lib/dsaio.h"
#include "client/lib/io/cache.h"
#include "client/lib/link/conn.h"
#include "client/lib/memory/buffer.h"
#include "client/lib/memory/gpu_memory.h"
#include "proto/util/cleanup.h"
#include "proto/util/list.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

/* In the order in which dsaio_disconnect() closes them. */
enum client_object_kind { CLIENT_HANDLE, CLIENT_VIEW, CLIENT_FILE, N_CLIENT_OBJECT_KINDS };

/* The part of a handle or a file that its client knows. */
struct client_object {
	enum client_object_kind kind;
	/* The client is closed: ends what the object does.  Frees and removes it, unless the program
	   holds it.  Sends no message that the session's end implies.  Returns 0, or an op's error, with a
	   message. */
	int (*on_disconnect)(struct client_object *object);
	struct list_node node; /* client.lock */
};

/* The state that all files of a client share: file.c. */
struct client_files {
	pthread_mutex_t lock; /* protects this struct and the fields of files marked so */
	struct cache cache;
	struct dsaio_file *_Atomic garbage; /* read without the lock as a hint */
	uint32_t n;	       /* descriptions that the daemon has: one or two per file */
	uint32_t n_fds;	       /* descriptors of files kept open here */
	uint32_t n_fds_wanted; /* limit on n_fds */
};

/* recover.c */
struct recovery {
	uint64_t timeout_nsec; /* 0: it does not reconnect */
	/* Held while handles are gone through, and while one goes: above all locks of the list. */
	pthread_mutex_t objects;
	pthread_mutex_t lock; /* of the rest; below all others */
	pthread_t thread;
	pthread_cond_t stopping;
	bool has_thread, is_running, is_wanted, is_stopping;
};

struct dsaio_client {
	const _Atomic uint32_t *guard; /* CLIENT_GUARD; 0 in a forked child */
	struct dsaio_conn *conn;       /* for its whole life */
	uint32_t spin_usec;	       /* default limit of a wait's spinning */
	unsigned n_cpus;	       /* in the process's affinity mask when it connected */
	pthread_mutex_t lock;
	int state_fd;	    /* dsaio_client_fd(); -1: not asked for yet; client.lock */
	int state_event_fd; /* the same: rung when the daemon is back, or lost for good */
	struct list objects[N_CLIENT_OBJECT_KINDS]; /* newest first */
	struct recovery recovery;
	struct buffers buffers;
	struct gpu_memory gpu;
	struct client_bounce *bounce; /* bounce.c */
	_Atomic int poke_fd;	      /* an eventfd that wakes bounce.c's thread; 0: no thread */
	struct client_files files;
	/* Set by dsaio_disconnect(), when no other call runs. */
	bool is_disconnected;
	_Atomic uint32_t n_left;    /* objects that the program still holds; see client_left() */
	struct list_node left_node; /* client.c: in the list of all such clients */
	_Atomic uint64_t
		n_failed; /* writes that have failed; relaxed: inode.c and dsaio_submit() */
	uint64_t forgotten_failed; /* the largest `failed` of inodes that went; client.lock */
	void *inodes;		   /* inode.c: tsearch(3) tree; client.lock */
};

#define CLIENT_GUARD 0x64736169u
#define CLIENT_STATE_EVENTS (EPOLLRDHUP | EPOLLET) /* of the control socket, in state_fd */

static inline bool client_is_forked(const struct dsaio_client *client)
{
	/* relaxed: written before the client was handed out, wiped only by fork */
	return atomic_load_explicit(client->guard, memory_order_relaxed) != CLIENT_GUARD;
}

/* Returns 0, -EINVAL for NULL, or -EPERM in a forked child, with a message. */
int client_check(const struct dsaio_client *client, const char *function);

/* Returns 0, or -ENOTCONN with a message if the daemon's end was seen. */
int client_check_alive(const struct dsaio_client *client, const char *function);

/* Both, and -EINVAL if that argument is NULL. */
int client_check_call(const struct dsaio_client *client, const char *function, const void *argument,
		      const char *what);

/* An argument is NULL: sets the message and returns -EINVAL. */
int client_null(const char *function, const char *object);

/* Numbers the writes that fail. */
static inline uint64_t client_count_failed(struct dsaio_client *client)
{
	return atomic_fetch_add_explicit(&client->n_failed, 1, memory_order_relaxed) + 1;
}

static inline uint64_t client_n_failed(const struct dsaio_client *client)
{
	return atomic_load_explicit(&client->n_failed, memory_order_relaxed);
}

/* Wakes the library's thread, if there is one.  The caller may hold any lock. */
static inline void client_poke(const struct dsaio_client *client)
{
	/* relaxed: a thread that waits for the bounce thread has started it */
	int fd = atomic_load_explicit(&client->poke_fd, memory_order_relaxed);

	if (fd)
		(void)eventfd_write(fd, 1); /* full: it is awake */
}

/*
 * The session has ended.  Handles and files that the program has not closed, closed handles whose ops
 * it has not freed, and memory that it has not freed stay: until then the client stays, too.
 */
void client_leave(struct dsaio_client *client);

/* While a call lets go of one of these, other threads may let go of the rest; client_left() ends it. */
static inline void client_hold(struct dsaio_client *client)
{
	if (client->is_disconnected) /* relaxed: the caller's object is counted, too */
		(void)atomic_fetch_add_explicit(&client->n_left, 1, memory_order_relaxed);
}

/* The program has let go of one of these.  May free the client, if it is disconnected. */
void client_left(struct dsaio_client *client);

/* Frees it. NULL is fine. */
void client_free(struct dsaio_client *client);

/* Adds one that the daemon made in that session.  False: the session is over, and so is the object. */
bool client_add_of(struct dsaio_client *client, struct client_object *object, uint32_t session);
void client_remove(struct dsaio_client *client, struct client_object *object);

void files_collect(struct dsaio_client *client); /* file.c */
/* The caller holds no lock. */
static inline void client_collect(struct dsaio_client *client)
{
	if (atomic_load_explicit(&client->files.garbage, memory_order_relaxed)) /* a hint */
		files_collect(client);
}

#endif
