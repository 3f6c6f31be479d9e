/*
 * Copiers: a few threads of the library that help a thread that has several copies to make.
 *
 *     post -> queued -> running -> done        a copier's
 *                   \-> done                   its owner's: copiers_make()
 *
 * A copy belongs to its owner.  The owner posts it, and makes it itself if no copier has begun with it.
 * So no copy depends on a thread that may not run.
 *
 * The threads are started when copies are posted and none is idle, at most n_max, and stay.  If none can be
 * started, the owner copies alone.
 * A forked child has no copiers, and no call of the library gets there (client_check()).
 *
 * Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_COPIERS_H
#define DSAIO_CLIENT_LIB_MEMORY_COPIERS_H

#include "proto/util/list.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define COPIERS_ASK UINT32_MAX
#define COPIERS_MAX 3u /* a fourth thread's copies gain little: the page faults share locks */

/* Embedded in its owner, which run() finds by container_of(). */
struct copy {
	void (*run)(struct copy *copy);
	enum copy_state {
		COPY_NONE,    /* its owner's: not posted */
		COPY_QUEUED,  /* in the list; anybody's to take */
		COPY_RUNNING, /* a copier's, or its owner's in copiers_make() */
		COPY_DONE,    /* its owner's again; copiers touch it no more */
	} state;
	struct list_node node; /* of the queued ones */
};

struct copiers {

	pthread_mutex_t lock; /* of all below, and of copies that are posted */
	pthread_cond_t posted, done;
	struct list copies;
	unsigned n_queued; /* in it */
	unsigned
		n_max; /* threads, at most COPIERS_MAX; COPIERS_ASK: copiers_wanted(), at the first copy */
	unsigned n_idle; /* threads that will look at the list before they sleep */
	unsigned n_threads;
	bool is_stopping;
	pthread_t threads[COPIERS_MAX];
};

/* How many may help on this host: two CPUs are left, for the owner and for the daemon. */
unsigned copiers_wanted(void);

void copiers_init(struct copiers *copiers, unsigned n_max);
/* No copy is posted.  The threads end. */
void copiers_deinit(struct copiers *copiers);

/* Queues a copy for the copiers.  False: there is no thread; it stays the caller's. */
bool copiers_post(struct copiers *copiers, struct copy *copy);

/* Makes a posted copy here if nobody has begun with it. */
void copiers_make(struct copiers *copiers, struct copy *copy);

/* Is a posted copy the owner's again? */
bool copiers_is_done(struct copiers *copiers, const struct copy *copy);

/* Sleeps until it is. */
void copiers_await(struct copiers *copiers, const struct copy *copy);

#endif
