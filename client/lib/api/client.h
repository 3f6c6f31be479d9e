/*
 * A client: one connection, and the list of all that was opened on it.
 *
 * A word in a page of its own, MADV_WIPEONFORK, tells a forked child from the process that
 * connected.  Each public call looks at it before any lock or ring (client_check()).
 *
 * Handles and files stand in the client's list.  A file that came to its end where locks are held is
 * left on the garbage list, which public calls empty when they hold no lock (client_collect()).  That
 * never sleeps, since the caller has nothing to do with the file.
 *
 * Locks, each taken only while holding some that stand before it:
 *   handle.open_lock    a channel is being made
 *   the consumer role   of a handle (wait.h): not a mutex, but waited for like one
 *   inode.extend_lock   a file's size is being moved
 *   inode.lock          the open ops of an inode, the size known
 *   channel.submit_lock the submitter's side of a ring
 *   buffers.grow_lock   a slab is being made
 *   bounce.lock         jobs for the library's thread
 *   slots.lock          bounce memory
 *   copiers.lock        copies that others may make
 *   handle.lock         op objects, ended ops, counters, waiters
 *   buffers.lock        slabs and pieces
 *   conn.lock           calls in progress; not held while one waits for its reply
 *   files.lock          the file cache, descriptors of files
 *   client.lock         the lists here
 * Nobody sleeps for an op while holding any of them.
 */
#ifndef DSAIO_CLIENT_LIB_API_CLIENT_H
#define DSAIO_CLIENT_LIB_API_CLIENT_H

#include "client/lib/io/cache.h"
#include "client/lib/link/conn.h"
#include "client/lib/dsaio.h"
#include "client/lib/base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/eventfd.h>

/* In the order in which dsaio_disconnect() closes them. */
enum client_object_kind {
	CLIENT_HANDLE,
	CLIENT_BOUNCE, /* before files and buffers: its thread uses them */
	CLIENT_FILE,
	CLIENT_BUFFERS,
	N_CLIENT_OBJECT_KINDS
};

/* What a handle, a file and the buffers are to their client. */
struct client_object {
	enum client_object_kind kind;
	/* The client goes: frees the object, without messages where the session's end does. */
	void (*on_disconnect)(struct client_object *object);
	/* It was left on the garbage list: closes it, without sleeping. */
	void (*on_collect)(struct client_object *object);
	struct client_object *next, *prev;  /* client.lock */
	struct client_object *next_garbage; /* client.lock */
};

/* What a client's files share: file.c. */
struct client_files {
	pthread_mutex_t lock; /* of all here, and of what the files say */
	struct cache cache;
	uint32_t n;	       /* descriptions that the daemon has: one or two a file */
	uint32_t n_fds;	       /* descriptors kept for them here, ... */
	uint32_t n_fds_wanted; /* ... and how many should be at most */
};

struct dsaio_client {
	const _Atomic uint32_t *guard; /* CLIENT_GUARD; 0 in a forked child */
	struct dsaio_conn *conn;
	uint32_t spin_usec; /* a wait's default */
	unsigned n_cpus;    /* that the process might run on when it connected */
	pthread_mutex_t lock;
	struct client_object *objects[N_CLIENT_OBJECT_KINDS];
	struct client_object *_Atomic garbage;	/* written under the lock; read without as a hint */
	struct client_buffers *_Atomic buffers; /* buffer.c; NULL before the first */
	struct client_bounce *_Atomic bounce;	/* bounce.c; NULL before the first */
	_Atomic int poke_fd; /* an eventfd that wakes bounce.c's thread; 0: there is none */
	struct client_files files;
	void *inodes; /* inode.c: tsearch(3) tree; client.lock */
};

#define CLIENT_GUARD 0x64736169u

static inline bool client_is_forked(const struct dsaio_client *client)
{
	/* relaxed: written before the client was handed to anybody, wiped by fork alone */
	return atomic_load_explicit(client->guard, memory_order_relaxed) != CLIENT_GUARD;
}

/* Returns 0, -EINVAL for NULL, or -EPERM in a forked child. */
int client_check(const struct dsaio_client *client, const char *function);

/* Returns 0, or -ENOTCONN if the daemon was seen to be gone. */
int client_check_alive(const struct dsaio_client *client, const char *function);

/* A NULL object; returns -EINVAL. */
int client_null(const char *function, const char *object);

/* The library's thread, if there is one, looks again.  Any lock held. */
static inline void client_poke(const struct dsaio_client *client)
{
	/* relaxed: who waits for this thread has started it */
	int fd = atomic_load_explicit(&client->poke_fd, memory_order_relaxed);

	if (fd)
		(void)eventfd_write(fd, 1); /* full: it is awake */
}

void client_add(struct dsaio_client *client, struct client_object *object);
void client_remove(struct dsaio_client *client, struct client_object *object);
void client_leave_garbage(struct dsaio_client *client, struct client_object *object);

void client_collect_slow(struct dsaio_client *client);
/* No lock held. */
static inline void client_collect(struct dsaio_client *client)
{
	if (atomic_load_explicit(&client->garbage, memory_order_relaxed)) /* a hint */
		client_collect_slow(client);
}

/* The connection, for dsaioctl's own requests. */
struct dsaio_conn *client_conn(struct dsaio_client *client);

#endif
