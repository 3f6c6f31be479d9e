/*
 * Vectored ops: one op on several buffers.
 *
 * Each buffer is a part: an op of its own on its range of the file, which takes an entry of the ring
 * or is bounced.  The vectored op itself is in no ring, and not among its inode's ops.  It ends with
 * its last part.  Its bytes done are those before the first byte, in the order of the file, that a part
 * did not do; that part's errno is its result.
 *
 * It references its parts until it ends, so that it can cancel them.  No lock is held by callers,
 * unless said otherwise; all fields of parts are under handle->lock.
 */
#ifndef DSAIO_CLIENT_LIB_IO_VECTOR_H
#define DSAIO_CLIENT_LIB_IO_VECTOR_H

#include "client/lib/io/op.h"

/* The op, which is filled in, is a vectored one, without parts so far. */
void vector_open(struct dsaio_op *whole);

/* A further part, which is not on its way yet. */
void vector_add(struct dsaio_op *whole, struct dsaio_op *part);

/* A part from off on could not be made.  Takes the sentence. */
void vector_fail(struct dsaio_op *whole, uint64_t off, int error, char *text);

/* No further part comes.  True: all have ended, and so has to the op, whose result is filled in. */
bool vector_close(struct dsaio_op *whole);

/* A settled part ends.  Returns the op if it was the last: it has to end, its result is filled in. */
struct dsaio_op *vector_end_part(struct dsaio_op *part);

/* The parts, one after the other, with a reference for the caller; part: NULL: the first. */
struct dsaio_op *vector_next(struct dsaio_op *whole, struct dsaio_op *part);

#endif
