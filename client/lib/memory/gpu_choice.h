/*
 * The choice between the two ways of ops on GPU memory of one kind (store, GPU, direction and class of
 * lengths): directly, by the daemon's cuFile, or copied through pinned memory.
 *
 * The program's own ops are measured.  The first ones alternate, and when GPU_CHOICE_TIMES of each way have
 * ended, the way with the higher median of bytes per second is chosen for good.  Direct ops cost less
 * processor time, so that way is chosen too if it is almost as fast.
 *
 * Ops may come in a pattern, such as a short and a long one in turns.  So the ways do not simply alternate:
 * each has 4 of the first 8 ops, and of these as many at odd as at even places, and in each half.
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
#define GPU_CHOICE_PERCENT 95u /* of a copy's rate that a direct op has to reach */

struct gpu_choice {
	bool is_made;
	bool is_direct;			     /* it is made: the way */
	uint32_t n_begun;		     /* while it is not: ops that were given a way */
	unsigned n[2];			     /* [is_direct] ops that were measured, ... */
	uint64_t rates[2][GPU_CHOICE_TIMES]; /* ... and their bytes per second, from 1 */
	uint64_t rate[2];		     /* it is made: the medians */
};

/* The way of the next op: directly? */
bool gpu_choice_next(struct gpu_choice *choice);

/* An op that has ended well, as many bytes in that time.  Returns whether the choice is made by that. */
bool gpu_choice_add(struct gpu_choice *choice, bool is_direct, uint64_t bytes, uint64_t nsec);

/* Another client has made it. */
void gpu_choice_set(struct gpu_choice *choice, bool is_direct, uint64_t direct_rate,
		    uint64_t copied_rate);

#endif
