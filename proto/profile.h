/*
 * A profile: the five tuning numbers of DeepNVMe, for a handle or a store.
 *
 * A store has a whole profile.  A handle gives some fields, and uses those of each store for the rest.
 *
 * The daemon checks the profiles of clients (profile_check()), dsaioctl those that it is given.
 */
#ifndef DSAIO_PROTO_PROFILE_H
#define DSAIO_PROTO_PROFILE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* DeepSpeed's own tests use 1024.  A block nevertheless has at least the file's alignment. */
#define PROFILE_BLOCK_SIZE_MIN 512u
#define PROFILE_BLOCK_SIZE_MAX (64u << 20)
#define PROFILE_BLOCK_SIZE_STEP 512u
#define PROFILE_QUEUE_DEPTH_MAX 4096u
#define PROFILE_PARALLELISM_MAX 64u

struct profile {
	uint32_t block_size;	       /* maximum bytes of one block */
	uint32_t queue_depth;	       /* blocks of a channel in flight per lane */
	bool single_submit;	       /* one io_submit call per iocb instead of a batch */
	bool overlap_events;	       /* refill as completions arrive; else fill, wait for all */
	uint32_t intra_op_parallelism; /* multiplies queue_depth */
};

/* DeepSpeed's handle defaults, except overlap_events: on is never slower. */
#define PROFILE_DEFAULT                            \
	((struct profile){ .block_size = 1u << 20, \
			   .queue_depth = 128,     \
			   .single_submit = false, \
			   .overlap_events = true, \
			   .intra_op_parallelism = 1 })

/* The fields of a profile, as bits of a set.  Profile.absent has them on the wire: never renumber them. */
enum profile_field {
	PROFILE_BLOCK_SIZE = 1,
	PROFILE_QUEUE_DEPTH = 2,
	PROFILE_SINGLE_SUBMIT = 4,
	PROFILE_OVERLAP_EVENTS = 8,
	PROFILE_PARALLELISM = 16,
	PROFILE_ALL = 31,
};
static_assert(PROFILE_BLOCK_SIZE == 1 << 0 && PROFILE_QUEUE_DEPTH == 1 << 1 &&
		      PROFILE_SINGLE_SUBMIT == 1 << 2 && PROFILE_OVERLAP_EVENTS == 1 << 3 &&
		      PROFILE_PARALLELISM == 1 << 4,
	      "Profile.absent of a released protocol");

/* Some fields of a profile. */
struct partial_profile {
	struct profile profile; /* a field that is not given has the default's value */
	unsigned given;		/* of enum profile_field */
};
#define PARTIAL_PROFILE_NONE ((struct partial_profile){ .profile = PROFILE_DEFAULT, .given = 0 })

/* The fields that are given, and those of a whole profile for the rest. */
struct profile profile_fill(const struct partial_profile *partial, const struct profile *whole);

/*
 * Returns 0, or -EINVAL and a message in text (of size bytes) that names the value and its
 * limit.
 */
int profile_check(const struct profile *profile, char *text, size_t size);

#endif
