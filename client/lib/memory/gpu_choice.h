/*
 * The choice between the two ways of ops on GPU memory of one kind (store, GPU, direction and class of
 * lengths): directly, by the daemon's cuFile, or copied through pinned memory.
 *
 * The program's own ops are measured, those alone whose time is their own (gpu_choices.h).  Ops go the usual
 * way, until GPU_CHOICE_TIMES of them have counted: the program's ops can be measured.  Then ops that are
 * alone go the other way, until as many of these have counted.  The way with the higher median of bytes per
 * second is chosen for good.  Direct ops cost less processor time, so that way is chosen too if it is almost
 * as fast.
 *
 * A way that fails twice in a row is the slower one.  If both do, the ways are not the cause.
 *
 * A pure module: times in, way out.  The owner locks.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_GPU_CHOICE_H
#define DSAIO_CLIENT_LIB_MEMORY_GPU_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

/* Ops of each way.  The median of 4 (the mean of the middle two) bears one that was slow for another reason,
   as the first one is. */
#define GPU_CHOICE_TIMES 4u
#define GPU_CHOICE_TRIES 16u /* of the other way: if they do not count, no more of them are made */
#define GPU_CHOICE_FAILURES 2u
#define GPU_CHOICE_PERCENT 95u /* of a copy's rate that a direct op has to reach */

struct gpu_choice {
	bool is_made;
	bool is_direct;	      /* it is made: the way */
	unsigned n_tries;     /* while it is not: ops that were given the other way, ... */
	unsigned n_failed[2]; /* ... and [is_direct] failures in a row */
	unsigned n[2];	      /* [is_direct] ops that were measured, ... */
	uint64_t rates[2][GPU_CHOICE_TIMES]; /* ... and their bytes per second, from 1 */
	uint64_t rate[2];		     /* it is made: the medians */
};

/* The way of the next op: directly?  is_usual_direct: so is the usual way.  is_alone: it may be measured. */
bool gpu_choice_next(struct gpu_choice *choice, bool is_usual_direct, bool is_alone);

/* An op that has ended well, as many bytes in that time.  Returns whether the choice is made by that. */
bool gpu_choice_add(struct gpu_choice *choice, bool is_direct, uint64_t bytes, uint64_t nsec);

/* An op has failed.  Returns the same. */
bool gpu_choice_fail(struct gpu_choice *choice, bool is_direct);

/* Another client has made it. */
void gpu_choice_set(struct gpu_choice *choice, bool is_direct, uint64_t direct_rate,
		    uint64_t copied_rate);

#endif
