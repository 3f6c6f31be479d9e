/*
 * The window of a store: how many bytes it lets be in flight while several clients are active, so
 * that a small read does not wait behind what the device queues up, and the device has enough to do.
 *
 * A block's latency beside the lowest one lately of its direction and size says how much of the
 * window only waits: window x (1 - 1/ratio).  Each 10 ms the window gives an eighth back if that is
 * over 4 MiB, and takes one if it is under 2 MiB and the window was full.  So that the lowest
 * latency is one of blocks with little before them, it closes to its least for 10 ms of every 5 s.
 *
 * The guard: devices and kernels, too, may let a small block wait behind many large ones.  While a
 * small one is late no large block starts, but not for long: it may be late for another reason.  Then it
 * rests as long as it guarded.
 *
 * Times are the caller's, nothing here asks a clock.  Home lane only.
 */
#ifndef DSAIO_DAEMON_LANE_WINDOW_H
#define DSAIO_DAEMON_LANE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define WINDOW_START_BYTES (2u << 20)
#define WINDOW_LEAST_BYTES (512u << 10)
#define WINDOW_INTERVAL_NSEC 10000000u
#define WINDOW_INTERVAL_BLOCKS 16u /* an interval is longer, if it has fewer */
#define WINDOW_ERA_NSEC UINT64_C(5000000000)
/* Blocks that the guard is for: no larger ones. */
#define WINDOW_SMALL_BYTES (64u << 10)
#define WINDOW_LATE_NSEC 2000000u
#define WINDOW_GUARD_NSEC 20000000u
#define WINDOW_HUNG_NSEC UINT64_C(1000000000)

#define WINDOW_SAMPLES 64u /* ratios of an interval: of more, the last */
#define WINDOW_SIZES 15u   /* powers of two from 4 KiB to 64 MiB */

/* A small block in flight of a client that has no other: a member of what the block belongs to. */
struct window_small {
	struct window_small *next, *prev;
	uint64_t since_nsec;
	uint64_t patience_nsec; /* it is late when it took longer */
};

struct window {
	uint64_t bytes;
	uint64_t least_bytes, most_bytes;

	/* of this interval */
	uint64_t since_nsec, done_bytes;
	uint64_t own_nsec; /* of its blocks together: the lowest latencies */
	uint32_t n_done;
	bool was_full;
	uint16_t ratios[WINDOW_SAMPLES]; /* in 1/256 */

	double bytes_per_sec; /* while it was full: the mean of some intervals; 0: not yet */

	/* the lowest latency by direction and size in this era and the last; 0: none */
	uint64_t lowest_nsec[2][2][WINDOW_SIZES];
	uint64_t era_nsec;	    /* when it began */
	bool is_closed, was_closed; /* to its least: once in an era */

	struct window_small *first_small, *last_small; /* by age */
	uint64_t guard_nsec;			       /* when it began to guard; 0: it does not */
};

void window_init(struct window *window);
/* most_bytes: it shall not grow beyond that.  May be less than the least. */
void window_set_most(struct window *window, uint64_t most_bytes);
/* Several clients are active, after a time when they were not. */
void window_open(struct window *window, uint64_t now_nsec);

/* Bytes that may be in flight now. */
uint64_t window_bytes(const struct window *window);
/* A block did not start since the window is full. */
static inline void window_note_full(struct window *window)
{
	window->was_full = true;
}
/* A block of these is back, whole, and a device did it: the end of a file comes back at once, and
   beside that all others would seem to have waited.  is_shared: several clients are active. */
void window_note_done(struct window *window, bool is_write, uint32_t bytes, uint64_t nsec,
		      bool is_shared, uint64_t now_nsec);
/* The lowest latency of such blocks lately; 0: none was seen. */
uint64_t window_lowest_nsec(const struct window *window, bool is_write, uint32_t bytes);

/* A small block starts, or is back. */
void window_small_start(struct window *window, struct window_small *small, bool is_write,
			uint32_t bytes, uint64_t now_nsec);
void window_small_end(struct window *window, struct window_small *small);
/* May a larger block start now?  0: yes; else not before that time, or the end of a small one. */
uint64_t window_guard(struct window *window, uint64_t now_nsec);

#endif
