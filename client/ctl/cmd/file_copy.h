/*
 * A file or stream that is copied in chunks, several of them in flight: the part that cp, cat and
 * put share.
 *
 * A side is also a name of a RADOS store, whose daemon is another one: then there are two clients and two handles, of
 * the background class, and the buffers are registered with both.  A new file there takes its place by a commit.
 *
 * A byte of the source goes to the same offset of the destination.  Holes of a source
 * file stay holes in a new file.  Chunks are described in chunk.h, a destination that is a file in
 * destination.h.
 *
 * file_copy_fail() reports a failure once, with the state of the destination.  Functions return
 * CTL_OK, or CTL_FAILED after that report.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_FILE_COPY_H
#define DSAIO_CLIENT_CTL_CMD_FILE_COPY_H

#include "client/ctl/cmd/chunk.h"
#include "client/ctl/cmd/destination.h"
#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/progress.h"

#include <stdint.h>
#include <sys/stat.h>

#define FILE_COPY_CHUNKS 4u

/* The progress of file_copy_run(). */
struct file_copy_run {
	uint64_t reading, writing, done; /* chunks: read started, write started, write ended */
	uint64_t pos;			 /* offset of the next read */
	uint64_t data_end;		 /* the source has no hole between pos and this offset */
	bool is_at_end;			 /* of the source, or of the bytes wanted */
};

struct file_copy {
	struct ctl *ctl;
	/* [0]: of files, [1]: of names of RADOS stores; NULL: there are none. */
	struct dsaio_client *clients[2];
	struct dsaio_handle *handles[2];
	struct side from, to;
	struct destination destination; /* of cp and put; to is its side */
	uint64_t start;			/* the first byte wanted of the source */
	uint64_t end;			/* after the last byte wanted; UINT64_MAX: to its end */
	uint64_t end_min;		/* a source that ends before this is an error */
	uint64_t done_bytes;		/* written */
	bool is_committed;		/* the destination, of a RADOS store */
	bool is_output_lost;		/* a write to the stream failed */
	size_t chunk_bytes;
	struct chunk chunks[FILE_COPY_CHUNKS];
	struct file_copy_run run;
	struct progress progress;
};

#define FILE_COPY_INIT(its_ctl)                                                               \
	{                                                                                     \
		.ctl = (its_ctl), .from.fd = -1, .to.fd = -1, .destination = DESTINATION_INIT \
	}

/* Reports a failure after the writes in flight have ended.  Returns CTL_FAILED. */
int file_copy_fail(struct file_copy *copy, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Opens the source for reading: a regular file or, if that is allowed, a block device; one of a RADOS store after
 * file_copy_connect().  ret_stat: its fstat(2); of that one mode and size.
 */
int file_copy_open_from(struct file_copy *copy, bool may_be_device, struct stat *ret_stat);

/* Checks the destination; changes nothing (destination.h). */
int file_copy_check_to(struct file_copy *copy, const struct stat *from_stat);

/* Opens the checked destination, or makes it (destination.h).  n_bytes: that will come; 0: not known. */
int file_copy_open_to(struct file_copy *copy, mode_t mode, uint64_t n_bytes);

/*
 * Connects for stores of these files, catches signals (except for a stream: cat has nothing to
 * remove), and opens the handle.  Until then a signal ends the process at once, also while the library
 * waits for a daemon that is stopped.  So nothing that has to be removed may be made before.
 */
int file_copy_connect(struct file_copy *copy, const char *const *paths, size_t n_paths);

/* Hands a side to the daemon.  other: programs that can do without it, for the message. */
int file_copy_attach(struct file_copy *copy, struct side *side, const char *other);

/*
 * Allocates the chunks' buffers.  They are smaller for few bytes, and if the client's share of the
 * pool is small.
 */
int file_copy_make_chunks(struct file_copy *copy, uint64_t n_bytes);

/* Reserves room at the destination for all that is to come, before the first write; a RADOS store has no such call. */
int file_copy_reserve(struct file_copy *copy);

/* Moves all bytes.  label: of the bar.  total_bytes: UINT64_MAX: unknown.  is_shown: with a bar. */
int file_copy_run(struct file_copy *copy, const char *label, uint64_t total_bytes, bool is_shown);

/* Waits for all ops in flight and ignores their results. */
void file_copy_drain(struct file_copy *copy);

/* Puts the new file in its place, or commits it; is_synced: its name is synced too. */
int file_copy_place(struct file_copy *copy, bool is_synced);

/* Disconnects, removes a new file that is not in its place, closes both sides except streams. */
void file_copy_deinit(struct file_copy *copy);

/* ---- chunks one by one, for comparing ---- */

/* Starts to move a chunk; without the daemon, moves it. */
int file_copy_start_chunk(struct file_copy *copy, const struct side *side, struct chunk *chunk,
			  bool is_write);

/*
 * Waits for the chunk's read.  Fewer bytes than the chunk's len are possible only at the source's
 * end, which must not lie before end_min.
 */
int file_copy_finish_read(struct file_copy *copy, const struct side *side, struct chunk *chunk,
			  size_t *ret_done);

#endif
