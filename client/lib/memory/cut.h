/*
 * Cutting a slab into pieces, by whole pages.
 *
 * The pieces, used and free, lie side by side in the order of their offsets and fill the slab;
 * no two free ones of a kind touch.  A piece that was used before is dirty: its next user has to zero
 * it.  A retired piece is free, but is not taken again before cut_revive().
 * Knows only offsets, no memory.  The caller has the lock.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_CUT_H
#define DSAIO_CLIENT_LIB_MEMORY_CUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUT_PAGE 4096u

struct cut_piece {
	size_t off, len;
	bool is_free, is_dirty, is_retired;
	uint32_t n_forks;	/* when it was taken: buffer.c */
	_Atomic uint32_t n_ops; /* open ops that use it: buffer.c */
};

struct cut {
	size_t bytes, used_bytes, retired_bytes;
	struct cut_piece **pieces; /* owned, each by its own malloc: ops point to them */
	size_t n, n_allocated;
};

/* bytes: a multiple of CUT_PAGE.  Returns 0 or -ENOMEM. */
int cut_init(struct cut *cut, size_t bytes);
void cut_deinit(struct cut *cut);

/*
 * Takes the first free piece that is large enough, cut to len rounded up to pages.
 * Returns 0, -ENOSPC if there is none, or -ENOMEM.
 */
int cut_take(struct cut *cut, size_t len, struct cut_piece **ret_piece);

/* The index of the piece that holds the byte at off, which lies in the slab. */
size_t cut_find(const struct cut *cut, size_t off);

/* Gives the used piece at that index back, dirty; it grows together with free neighbours of its kind. */
void cut_release(struct cut *cut, size_t index, bool is_retired);

/* Retired pieces are free as any other.  Returns whether there were any. */
bool cut_revive(struct cut *cut);

#endif
