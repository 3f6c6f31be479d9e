/*
 * Vectored ops: one op on several buffers.
 *
 * Each buffer is a part: an op of its own on its range of the file, which takes an entry of the ring
 * or is bounced.  The vectored op itself is in no ring, and not among its inode's ops.  It ends with
 * its last part.  Its bytes done are those before the first byte, in the order of the file, that a part
 * did not do; that part's errno is its result.
 *
 * It references its parts until it ends, so that it can cancel them.  No lock is held by callers,
 * unless said otherwise; all fields of struct vector are under handle->lock.
 */
#ifndef DSAIO_CLIENT_LIB_IO_VECTOR_H
#define DSAIO_CLIENT_LIB_IO_VECTOR_H

#include "client/lib/io/op.h"

/* Freed with the vectored op, which outlives its parts. */
struct vector {
	struct dsaio_op *whole;
	char *text;	   /* as error */
	uint64_t stop_off; /* where the first part that was not whole stopped, or UINT64_MAX */
	int error;	   /* that part's; 0: it was at the end of the file */
	uint32_t n_open;   /* and 1 while further ones come */
	uint32_t n_parts;
	struct dsaio_op *parts[]; /* referenced */
};

/* The op, which is filled in, is a vectored one, for up to n_max parts.  Returns 0 or -ENOMEM. */
int vector_open(struct dsaio_op *whole, uint32_t n_max);

/* A further part, which is not on its way yet. */
void vector_add(struct dsaio_op *whole, struct dsaio_op *part);

/* A part from off on could not be made.  Takes the message. */
void vector_fail(struct dsaio_op *whole, uint64_t off, int error, char *text);

/* No further part comes.  True: all have ended, and so has to the op, whose result is filled in. */
bool vector_close(struct dsaio_op *whole);

/* A settled part ends.  Returns the op if it was the last: it has to end, its result is filled in. */
struct dsaio_op *vector_end_part(struct dsaio_op *part);

/* Its part of that number, from 0, with a reference for the caller; NULL: there is none, or it ended. */
struct dsaio_op *vector_part(struct dsaio_op *whole, uint32_t i);

#endif
