/*
 * A lane: the I/O thread of a store, with its engine queue.
 *
 * It alone reads rings, keeps order, schedules and shows completions (proto/README.md "Sleep and wake-up" is
 * its loop).  One is enough: reads of 1 MiB blocks cost it and the client 11 ms of CPU time a GB, and a second one
 * that only carried out blocks moved 0.77 to 1.03 of the bytes (blocks of 4 KiB to 1 MiB, a device of 2 GB/s).
 * It sleeps only when it has nothing to take, nothing ended and nothing it may start; no system
 * call, lock or allocation on the path of an op but io_submit (on tmpfs: the read or write) and, for sleepers,
 * a doorbell.
 *
 * These functions: main thread.
 */
#ifndef DSAIO_DAEMON_LANE_LANE_H
#define DSAIO_DAEMON_LANE_LANE_H

#include "daemon/base/mailbox.h"
#include "daemon/engine/engine.h"
#include "daemon/lane/channel.h"

/* Long enough that a program which waits for each op and works on what it read is not parked
   between two (proto/README.md "Sleep and wake-up"). */
#define LANE_PARK_NSEC UINT64_C(10000000)

/* A doorbell that rings idly more often than this in a second leaves epoll (proto/README.md "Hostile
   input"). */
#define LANE_IDLE_DOORBELLS_MAX 10000u

struct lane;

struct lane_config {
	struct lane_store *store;
	const struct engine_ops *engine;
	uint32_t depth;			 /* of its engine queue */
	uint32_t room;			 /* its first room in the kernel: lane_grow() */
	struct rados_store *rados_store; /* of the engine rados; else NULL */
	uint64_t park_nsec;		 /* a channel that was quiet for so long is parked */
	uint32_t idle_doorbells_max;	 /* LANE_IDLE_DOORBELLS_MAX */
};

int lane_start(const struct lane_config *config, struct lane **ret_lane, struct error *error);
/* Waits until its thread has ended.  It has no channel any more. */
void lane_stop(struct lane *lane);
/* It is stopped.  NULL is fine. */
void lane_free(struct lane *lane);

/* Blocks that its engine has room for in the kernel; 0: no block needs any. */
uint32_t lane_room(const struct lane *lane);
/* Makes room for more, up to its depth.  Returns 0, also for fewer than that, or an error. */
int lane_grow(struct lane *lane, uint32_t room, struct error *error);
int lane_board_fd(const struct lane *lane); /* borrowed */

/*
 * For the watchdog: asks the lane for a sign of life, unless it owes one.  Returns for how many nsec it has owed one.
 * 0 also while it is in a call that may hang (hung.h): a file system or device delays it then, and a restart would
 * not help.
 */
uint64_t lane_ping(struct lane *lane, uint64_t now_nsec);

/* Gives the lane a channel.  It is looked at as soon as this returns. */
void lane_add_channel(struct lane *lane, struct channel *channel);
/*
 * Takes no further entries from it, drops what has not started (drain: false) or lets all ops
 * that were taken end (drain: true), then calls its owner's on_removed.
 */
void lane_remove_channel(struct lane *lane, struct channel *channel, bool drain);
/* A channel that drains is to drop what has not started, after all; seen in the lane's next turn,
   and there is one as long as anything can start. */
void lane_hurry_channel(struct channel *channel);

/* Hands a batch to the channel's lane, which takes it.  The caller has checked that at most
   channel->entries ops are open. */
void lane_submit(struct batch *batch);

/*
 * Cancels the op with this id, if there is one; on_done, in the main thread, comes when the lane has
 * looked: before the channel's on_removed.
 */
struct lane_cancel {
	struct message message;
	struct channel *channel;
	uint64_t id;
	void (*on_done)(struct lane_cancel *cancel);
};
void lane_cancel(struct lane_cancel *cancel);

/*
 * Runs message in the main thread after the lane has seen all that the main thread did before:
 * a lane uses what was removed from an id_table only where it holds a reference.
 */
struct lane_quiesce {
	struct message message;
	struct lane *lane;
	void (*on_quiet)(struct lane_quiesce *quiesce); /* main thread */
};
void lane_quiesce(struct lane *lane, struct lane_quiesce *quiesce);

#endif
