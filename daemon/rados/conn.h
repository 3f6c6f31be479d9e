/*
 * The connection of a store, for conn.c and the keeper, which opens and closes it.
 */
#ifndef DSAIO_DAEMON_RADOS_CONN_H
#define DSAIO_DAEMON_RADOS_CONN_H

#include "daemon/rados/store.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>

struct rados_conn {
	struct rados_store *store;
	struct link {
		rados_t cluster;
		rados_ioctx_t io;
	} links[];
};

struct rados_store {
	struct rados_settings settings; /* its strings are in strings; path is not used */
	char *pool, *nspace;		/* nspace: "": the default one */
	char state_name[200];
	char strings[4 * PATH_MAX];
	struct held_files *held;
	struct rados_conn *conn; /* the keeper's, unless the store is online */
	pthread_t keeper;

	pthread_mutex_t lock;
	pthread_cond_t changed;	  /* it is online, or the keeper has something to do */
	struct rados_state state; /* from here on under the lock; pause_nsec is not used */
	bool is_fenced;		  /* the connection never works again, or there is none */
	uint64_t give_up_nsec;	  /* while it is offline: nobody waits longer */
	uint64_t quiet_nsec;	  /* since when no use of the connection ended */
	uint32_t n_uses;
	bool must_stop;
};

/* Under the lock. */
void store_offline(struct rados_store *store, uint64_t wait_nsec, const char *why);
/* Waits under the lock for a change.  Returns whether there was one before that time. */
static inline bool store_wait(struct rados_store *store, uint64_t until_nsec)
{
	struct timespec until = { .tv_sec = (time_t)(until_nsec / NSEC_PER_SEC),
				  .tv_nsec = (long)(until_nsec % NSEC_PER_SEC) };

	return pthread_cond_timedwait(&store->changed, &store->lock, &until) != ETIMEDOUT;
}

/* Nobody uses it. */
void conn_close(struct rados_store *store);
/* Also after a failure conn_close() is due. */
int conn_open(struct rados_store *store, struct error *error);
/* Whether the cluster answers, and lets its user read. */
int conn_probe(struct rados_store *store, struct error *error);

#endif
