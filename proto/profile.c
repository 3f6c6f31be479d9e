#include "proto/profile.h"

#include "proto/util/size.h"

#include <errno.h>
#include <stdio.h>

int profile_check(const struct profile *profile, char *text, size_t size)
{
	if (profile->block_size < PROFILE_BLOCK_SIZE_MIN ||
	    profile->block_size > PROFILE_BLOCK_SIZE_MAX ||
	    profile->block_size % PROFILE_BLOCK_SIZE_STEP) {
		(void)snprintf(text, size,
			       "profile: block_size %u: must be a multiple of %u from %s to %s",
			       profile->block_size, PROFILE_BLOCK_SIZE_STEP,
			       SIZE_TEXT(PROFILE_BLOCK_SIZE_MIN),
			       SIZE_TEXT(PROFILE_BLOCK_SIZE_MAX));
		return -EINVAL;
	}
	if (profile->queue_depth < 1 || profile->queue_depth > PROFILE_QUEUE_DEPTH_MAX) {
		(void)snprintf(text, size, "profile: queue_depth %u: must be from 1 to %u",
			       profile->queue_depth, PROFILE_QUEUE_DEPTH_MAX);
		return -EINVAL;
	}
	if (profile->intra_op_parallelism < 1 ||
	    profile->intra_op_parallelism > PROFILE_PARALLELISM_MAX) {
		(void)snprintf(text, size, "profile: intra_op_parallelism %u: must be from 1 to %u",
			       profile->intra_op_parallelism, PROFILE_PARALLELISM_MAX);
		return -EINVAL;
	}
	return 0;
}

struct profile profile_fill(const struct partial_profile *partial, const struct profile *whole)
{
	const struct profile *p = &partial->profile;
	unsigned given = partial->given;

	return (struct profile){
		.block_size = given & PROFILE_BLOCK_SIZE ? p->block_size : whole->block_size,
		.queue_depth = given & PROFILE_QUEUE_DEPTH ? p->queue_depth : whole->queue_depth,
		.single_submit = given & PROFILE_SINGLE_SUBMIT ? p->single_submit
							       : whole->single_submit,
		.overlap_events = given & PROFILE_OVERLAP_EVENTS ? p->overlap_events
								 : whole->overlap_events,
		.intra_op_parallelism = given & PROFILE_PARALLELISM ? p->intra_op_parallelism
								    : whole->intra_op_parallelism,
	};
}
