/*
 * A profile: the five tuning numbers of DeepNVMe, as a handle or a store has them.
 *
 * Both sides check with profile_check(): the library so that a mistake is told at once,
 * the daemon because the library may be another one.
 */
#ifndef DSAIO_PROTO_PROFILE_H
#define DSAIO_PROTO_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* DeepSpeed's own tests ask for 1024.  A block has at least the file's alignment all the same. */
#define PROFILE_BLOCK_SIZE_MIN 512u
#define PROFILE_BLOCK_SIZE_MAX (64u << 20)
#define PROFILE_BLOCK_SIZE_STEP 512u
#define PROFILE_QUEUE_DEPTH_MAX 4096u
#define PROFILE_PARALLELISM_MAX 64u

struct profile {
	uint32_t block_size;	       /* bytes that one iocb carries at most */
	uint32_t queue_depth;	       /* blocks of a channel in flight per lane */
	bool single_submit;	       /* one io_submit call per iocb instead of a batch */
	bool overlap_events;	       /* refill as completions come; else fill, wait for all */
	uint32_t intra_op_parallelism; /* parts that an op is cut into */
};

/* DeepSpeed's handle defaults, but for overlap_events, which never loses. */
#define PROFILE_DEFAULT                            \
	((struct profile){ .block_size = 1u << 20, \
			   .queue_depth = 128,     \
			   .single_submit = false, \
			   .overlap_events = true, \
			   .intra_op_parallelism = 1 })

/*
 * Returns 0, or -EINVAL and in text (of size bytes) a sentence that names the value and
 * its limit.
 */
int profile_check(const struct profile *profile, char *text, size_t size);

#endif
