/*
 * The part of a store that lanes and channels use: its settings, the mailbox for reports, and the store
 * itself as an opaque pointer.  The store embeds it and fills it in before its first lane starts.
 */
#ifndef DSAIO_DAEMON_LANE_LANE_STORE_H
#define DSAIO_DAEMON_LANE_LANE_STORE_H

#include "daemon/account/limiter.h"
#include "daemon/account/metrics.h"
#include "daemon/base/mailbox.h"
#include "daemon/engine/threads.h"
#include "daemon/lane/sched.h"
#include "proto/profile.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct lane;
struct store;

struct lane_store {
	struct store *store; /* opaque: files name theirs so */
	const char *name;    /* borrowed: for messages */
	dev_t dev;
	struct mailbox *main_mailbox; /* borrowed: where lanes report */
	uint32_t spin_usec;	      /* how long lanes spin before they sleep; 0: not at all */
	uint64_t window_max_bytes;    /* maximum of the window; 0: none but its own */
	uint32_t whole_bytes;	      /* the largest block that its device takes in one request */
	/*
	 * Its clients may belong to several users.  A client can block a direct op for any time: another
	 * of its processes holds the inode's lock.  So no block of such a store may wait in io_submit,
	 * not even while one client is alone, because the next client could not be served.
	 */
	bool is_multi_user;
	/* No block of its files needs room in the kernel, so its lane has none.  Workers do the blocks of another
	   file system that gets its device number. */
	bool is_tmpfs;
	/* Whether worker threads are its engine, because io_submit would block.  The main thread and
	   then the probe's thread write it.  The lane reads it; relaxed, because both answers are correct. */
	_Atomic bool is_blocking;
	/* It takes no new ops but syncs.  The main thread writes it; relaxed: nothing goes with it. */
	_Atomic bool is_drained;
	struct limiter limiter;
	struct lane *lane;	 /* main thread; NULL before the first channel */
	uint32_t depth;		 /* of its engine, in blocks; main thread; 0 without a lane */
	uint64_t channels_depth; /* main thread: blocks in flight, of all channels */
	struct worker_queues worker_queues; /* its users'; main thread */
	struct metrics metrics
		[N_SCHED_CLASSES]; /* of all its channels so far, by class; the lane writes */
	_Atomic uint64_t now_window_bytes; /* the present window; the lane writes, relaxed */
};

static inline bool lane_store_is_blocking(const struct lane_store *store)
{
	return atomic_load_explicit(&store->is_blocking, memory_order_relaxed);
}

/* Its metrics, of all classes. */
static inline void lane_store_sum(const struct lane_store *store, struct metrics *ret_sum)
{
	*ret_sum = (struct metrics){ 0 };
	for (unsigned i = 0; i < N_SCHED_CLASSES; i++)
		metrics_sum(ret_sum, &store->metrics[i]);
}

static inline uint64_t lane_store_written(const struct lane_store *store)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < N_SCHED_CLASSES; i++)
		bytes += metrics_get(&store->metrics[i].write_bytes);
	return bytes;
}

static inline bool lane_store_is_drained(const struct lane_store *store)
{
	return atomic_load_explicit(&store->is_drained, memory_order_relaxed);
}

static inline void lane_store_set_drained(struct lane_store *store, bool is_drained)
{
	atomic_store_explicit(&store->is_drained, is_drained, memory_order_relaxed);
}

/* The block size that the store uses for a profile while one client is active. */
static inline uint32_t lane_store_block_bytes(const struct lane_store *store,
					      const struct profile *profile)
{
	if (lane_store_is_blocking(store) || !store->is_multi_user ||
	    profile->block_size < store->whole_bytes)
		return profile->block_size;
	return store->whole_bytes;
}

/* Blocks in flight of one channel: queue_depth for each of intra_op_parallelism, as DeepNVMe's threads have a queue
   each.  Where the store's blocks are smaller than the profile's they are more, so that as many bytes are in flight. */
static inline uint64_t lane_store_blocks(const struct lane_store *store,
					 const struct profile *profile)
{
	const uint32_t bytes = lane_store_block_bytes(store, profile);

	return (uint64_t)profile->queue_depth * profile->intra_op_parallelism *
	       (((uint64_t)profile->block_size + bytes - 1) / bytes);
}

#endif
