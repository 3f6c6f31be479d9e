/*
 * A chunk: a part of a file or stream that cp, cat and put move at once, and the buffer that it
 * moves through.
 *
 * A side is the place that chunks are read from or written to.  There are three kinds:
 *  - a file that goes through the daemon: chunk_start() submits an op, chunk_finish() waits for it;
 *  - a file without the daemon: chunk_start() reads or writes at the chunk's offset;
 *  - a stream, which has no offsets: chunk_start() fills the chunk, or writes all of it.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_CHUNK_H
#define DSAIO_CLIENT_CTL_CMD_CHUNK_H

#include "client/lib/dsaio.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHUNK_TEXT_BYTES (PATH_MAX + 1024u) /* a path and the library's message */

struct side {
	const char *path;	 /* borrowed; a stream's name in messages */
	int fd;			 /* owned, except a stream's */
	struct dsaio_file *file; /* NULL: fd is used */
	bool is_stream;
	bool is_rados; /* of a RADOS store: has a file, and no fd */
};

struct chunk {
	char *memory; /* whole pages */
	char *data;   /* in memory, as far after a page's start as off is in the file */
	uint64_t off;
	size_t len;
	struct dsaio_op *op; /* submitted to the daemon; NULL: none */
	int64_t done;	     /* without the daemon: bytes moved, or a negative errno */
};

/* Makes the chunk begin at byte off and end at byte end, or earlier where its memory ends. */
void chunk_place(struct chunk *chunk, size_t memory_bytes, uint64_t off, uint64_t end);

/* Returns 0, or a negative errno, with dsaio_error() as the message.  handle: of the daemon. */
int chunk_start(struct chunk *chunk, struct dsaio_handle *handle, const struct side *side,
		bool is_write);

/*
 * Waits for the end of what chunk_start() began.  Returns 0 and the bytes moved, or
 *   -EINTR  a signal came (stop.h); an op may still be in flight
 *   -EPIPE  nothing reads the stream any more
 *   or another negative errno, with the message in text (of CHUNK_TEXT_BYTES)
 */
int chunk_finish(struct chunk *chunk, const struct side *side, bool is_write, size_t *ret_done,
		 char *text);

/* Waits for the chunk's op, whatever its result.  Returns 0, or -EINTR if a signal came first. */
int chunk_drop(struct chunk *chunk);

#endif
