/*
 * Split: cuts ops into parts and blocks.  Pure functions.
 *
 * An op is cut into n_parts contiguous parts of whole alignment units, each into blocks of at
 * most block_size.  Blocks are numbered across parts (first block of part 0, of part 1, ...,
 * second of part 0, ...), so that all parts progress together and one counter is the state.
 */
#ifndef DSAIO_DAEMON_OBJECT_SPLIT_H
#define DSAIO_DAEMON_OBJECT_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

struct split {
	uint64_t len;	     /* of the op; > 0 */
	uint32_t n_parts;    /* > 0 */
	uint32_t block_size; /* > 0, a multiple of the file's alignment */
	uint32_t align;	     /* parts start at multiples of it */
};

struct split_block {
	uint32_t part;
	uint64_t off; /* from the op's start */
	uint32_t len; /* 0: this part has no such block */
};

/* Bytes of every part but the last ones, which may be shorter or empty. */
uint64_t split_part_bytes(const struct split *split);
/* Block number n.  Numbers run from 0 to split_n_blocks() - 1. */
struct split_block split_block(const struct split *split, uint32_t n);
uint32_t split_n_blocks(const struct split *split);

/* True if such an op has few enough blocks for the counter. */
bool split_is_countable(const struct split *split);

#endif
