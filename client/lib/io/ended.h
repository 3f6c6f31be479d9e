/*
 * Ended ops: the async ops of a handle that have ended and were not reported yet, in the order of
 * their ends.  dsaio_handle_reap() reports the first ones, dsaio_handle_wait() all.
 *
 * An op that the caller freed before leaves the list and is only counted.  The first
 * freed op that failed is recorded, for dsaio_handle_wait().
 *
 * Everything is under handle->lock.  A listed op has a reference of the list's.
 */
#ifndef DSAIO_CLIENT_LIB_IO_ENDED_H
#define DSAIO_CLIENT_LIB_IO_ENDED_H

#include "client/lib/io/op.h"

struct ended {
	struct op_pool *pool; /* takes back ops without references */
	struct list ops;
	uint64_t n_listed;
	/* The first that failed of those freed and not reported, and of those whose error no caller has seen. */
	struct dsaio_op *orphan, *lost;
	uint64_t n_unreported;
	uint64_t n_ends; /* numbers the ends */
};

void ended_init(struct ended *ended, struct op_pool *pool);
/* Drops all. */
void ended_clear(struct ended *ended);

/* The op is ENDED from now on.  Takes the library's reference; returns true if the op is listed. */
bool ended_add(struct ended *ended, struct dsaio_op *op);

/* The caller frees the op, and drops its own reference after. */
void ended_forget(struct ended *ended, struct dsaio_op *op);

/* dsaio_handle_reap(): reports the first n at most.  A detached one that was done is freed. */
int ended_take(struct ended *ended, struct dsaio_completion *ret, int n);

/*
 * dsaio_handle_wait(): reports all.  Returns their count, or the errno of the first that failed and its
 * message, the caller's (NULL: there was no memory for it).  only_lost: of those that failed and whose error no
 * caller has seen, for dsaio_handle_close().
 */
int64_t ended_take_all(struct ended *ended, bool only_lost, char **ret_text);

#endif
