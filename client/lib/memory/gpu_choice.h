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
 * Rates of long ops are far above those of short ones.  So only ops of like lengths count: four of the usual way one
 * after the other, and those of the other way that are as long.
 *
 * A way that fails twice in a row is the slower one, with a rate of 1.  If both do, the ways are not the cause.
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
	uint64_t len;	      /* of the first op that counted; 0: none has */
	bool is_direct;	      /* it is made: the way */
	unsigned n_tries;     /* while it is not: ops that were given the other way, ... */
	unsigned n_failed[2]; /* ... and [is_direct] failures in a row */
	unsigned n[2];	      /* [is_direct] ops that were measured, ... */
	uint64_t rates[2][GPU_CHOICE_TIMES]; /* ... and their bytes per second, from 1 */
	int error;			     /* errno of the way that failed; 0: neither has */
	uint64_t rate[2];		     /* it is made: the medians */
};

/* The way of the next op: directly?  is_usual_direct: so is the usual way.  is_alone: it may be measured. */
bool gpu_choice_next(struct gpu_choice *choice, bool is_usual_direct, bool is_alone);

/* May ops of that length be compared with those that counted? */
bool gpu_choice_is_like(const struct gpu_choice *choice, uint64_t len);

/* Before gpu_choice_add(): whether an op of that length counts.  While no op has tried the other way, an op that
   is unlike the others is the first of new ones. */
bool gpu_choice_take_len(struct gpu_choice *choice, uint64_t len);

/* An op that has ended well, as many bytes in that time.  Returns whether the choice is made by that. */
bool gpu_choice_add(struct gpu_choice *choice, bool is_direct, uint64_t bytes, uint64_t nsec);

/* An op has failed with that errno.  Returns the same. */
bool gpu_choice_fail(struct gpu_choice *choice, bool is_direct, int error);

/* Another client has made it. */
void gpu_choice_set(struct gpu_choice *choice, bool is_direct, uint64_t direct_rate,
		    uint64_t copied_rate, int error);

#endif
