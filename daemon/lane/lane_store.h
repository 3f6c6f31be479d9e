/*
 * What lanes and channels know of their store: settings, where they report, and the store itself
 * as an opaque pointer.  The store embeds it and fills it in before its first lane starts.
 */
#ifndef DSAIO_DAEMON_LANE_LANE_STORE_H
#define DSAIO_DAEMON_LANE_LANE_STORE_H

#include "daemon/account/metrics.h"
#include "daemon/base/mailbox.h"
#include "daemon/engine/workers.h"
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
	uint64_t window_bytes;	      /* the window's most; 0: what profiles say */
	uint32_t whole_bytes;	      /* the largest block that its device takes in one request */
	/*
	 * Its clients may be of several users.  A client can make a direct op wait for as long as it
	 * wants: another process of its own holds the inode's lock.  So no block of such a store waits in
	 * io_submit, not even while one client is alone: the next client could not be served.
	 */
	bool is_multi_user;
	/* Whether worker threads are its engine, since io_submit would wait.  The main thread writes,
	   then the probe's; lanes read, relaxed: either way every block is done. */
	_Atomic bool is_blocking;
	struct lane *home;		   /* main thread; NULL before the first channel */
	struct workers workers;		   /* of its users; main thread */
	struct metrics metrics;		   /* of all its channels so far; home lane writes */
	_Atomic uint64_t now_window_bytes; /* home lane: as it is; relaxed */
};

static inline bool lane_store_is_blocking(const struct lane_store *store)
{
	return atomic_load_explicit(&store->is_blocking, memory_order_relaxed);
}

/* The size of blocks that the store transfers for a profile, while one client uses it. */
static inline uint32_t lane_store_block_bytes(const struct lane_store *store,
					      const struct profile *profile)
{
	if (lane_store_is_blocking(store) || !store->is_multi_user ||
	    profile->block_size < store->whole_bytes)
		return profile->block_size;
	return store->whole_bytes;
}

#endif
