/*
 * The window of a store: the limit on bytes in flight while several clients are active.  It keeps a
 * small read from waiting behind the device's queue, and keeps the device busy.
 *
 * The ratio of a block's latency to the lowest recent latency of its kind and size tells how many
 * bytes only queue in the device: window x (1 - 1/ratio).  Every 10 ms the window shrinks by an eighth
 * if these are more than 4 MiB.  It grows by an eighth if they are less than 2 MiB and the window was
 * full.  For 10 ms of every 5 s it closes to its minimum, so that the lowest latency is measured with an
 * almost empty queue.
 *
 * A client that is alone has the bytes in flight that the device moves in 10 ms, but at least 16 MiB.  That is
 * enough for any device to be busy that answers within 10 ms, and what a newcomer's first block waits for.
 *
 * The guard: devices and kernels may also delay a small block behind many large blocks.  While a small
 * block is late, no large block starts.  This has a time limit, because the block may be late for
 * another reason; after it the guard rests for as long as it was active.
 *
 * The caller passes all times.  Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_WINDOW_H
#define DSAIO_DAEMON_LANE_WINDOW_H

#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>

#define WINDOW_START_BYTES (2u << 20)
#define WINDOW_LEAST_BYTES (512u << 10)
#define WINDOW_ALONE_BYTES (16u << 20)
#define WINDOW_ALONE_NSEC 10000000u
#define WINDOW_INTERVAL_NSEC 10000000u
#define WINDOW_INTERVAL_BLOCKS 16u /* an interval is longer, if it has fewer */
#define WINDOW_ERA_NSEC UINT64_C(5000000000)
/* The largest block that the guard protects. */
#define WINDOW_SMALL_BYTES (64u << 10)
#define WINDOW_LATE_NSEC 2000000u
#define WINDOW_GUARD_NSEC 20000000u
/* A block of GPU memory that takes longer leaves the window, and no room is reserved for a client whose last
   block does.  A guess: far above what a working driver needs. */
#define WINDOW_HUNG_NSEC UINT64_C(1000000000)

/* Latencies are compared within a kind of blocks, a sum of these: those of GPU memory take longer. */
#define WINDOW_READ 0u
#define WINDOW_WRITE 1u
#define WINDOW_GPU 2u
#define WINDOW_KINDS 4u

#define WINDOW_SAMPLES 64u /* ratios of an interval: of more, the last */
#define WINDOW_SIZES 15u   /* powers of two from 4 KiB to 64 MiB */

/* A small block in flight of a client without other blocks; embedded in the client. */
struct window_small {
	struct list_node node;
	uint64_t since_nsec;
	uint64_t deadline_nsec; /* the block is late after this time */
};

struct window {
	uint64_t bytes;
	uint64_t least_bytes, most_bytes;

	/* of this interval */
	uint64_t since_nsec, done_bytes;
	uint64_t own_nsec; /* sum of the lowest latencies of its blocks */
	uint32_t n_done;
	bool was_full, was_idle;
	uint16_t ratios[WINDOW_SAMPLES]; /* in 1/256 */

	double bytes_per_sec; /* mean of some intervals in which it was full; 0: none yet */

	/* the lowest latency by kind and size in this era and the last; 0: none */
	uint64_t lowest_nsec[2][WINDOW_KINDS][WINDOW_SIZES];
	uint64_t era_nsec;	    /* when it began */
	bool is_closed, was_closed; /* to its minimum: once in an era */

	struct list smalls;  /* by age */
	uint64_t guard_nsec; /* when the guard began; 0: it is off */
};

void window_init(struct window *window);
/* Sets the maximum, which may be less than the minimum. */
void window_set_most(struct window *window, uint64_t most_bytes);
/* Several clients are active, after a time when they were not. */
void window_open(struct window *window, uint64_t now_nsec);

/* Bytes that may be in flight now. */
uint64_t window_bytes(const struct window *window);
/* The same for a client that is alone. */
uint64_t window_alone_bytes(const struct window *window);
/* A block did not start because the window is full. */
static inline void window_note_full(struct window *window)
{
	window->was_full = true;
}
/* No block is in flight. */
static inline void window_note_idle(struct window *window)
{
	window->was_idle = true;
}
/* A complete block of a device has ended.  Reads at the end of a file do not count: they end at once, and
   compared with them all others would seem to have queued.  is_shared: several clients are active. */
void window_note_done(struct window *window, unsigned kind, uint32_t bytes, uint64_t nsec,
		      bool is_shared, uint64_t now_nsec);
/* The lowest recent latency of such blocks; 0: none was measured. */
uint64_t window_lowest_nsec(const struct window *window, unsigned kind, uint32_t bytes);

/* A small block starts, or has ended. */
void window_small_start(struct window *window, struct window_small *small, unsigned kind,
			uint32_t bytes, uint64_t now_nsec);
void window_small_end(struct window *window, struct window_small *small);
/* Returns 0 if a larger block may start now; else it must wait until that time, or until a small block
   ends. */
uint64_t window_guard(struct window *window, uint64_t now_nsec);

#endif
