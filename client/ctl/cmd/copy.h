/*
 * Bytes from one side to another in pieces, several of them under way: what cp, cat and put share.
 *
 * A side is a file that goes through the daemon, whose reads and writes overlap; or one that is
 * read and written at its offsets by plain system calls; or a stream, which has no offsets.  A
 * byte of the source goes to the same offset of the destination.
 *
 * The destination is replaced as a whole: the bytes go to a temporary file in its directory, which
 * copy_place() renames.  After a failure or a signal copy_deinit() removes that file, and the
 * destination is as it was.  Only with is_in_place, or through /dev or /proc, the destination itself
 * is written; then what is there of it stays, but for a file of our own making that nothing was
 * written to.
 *
 * A failure is reported once, by copy_fail(), with how far the copy got.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_COPY_H
#define DSAIO_CLIENT_CTL_CMD_COPY_H

#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/newfile.h"
#include "client/ctl/ui/progress.h"

#include <stdint.h>
#include <sys/stat.h>

#define COPY_PIECES 4u

struct side {
	const char *path;	 /* borrowed; of a stream: what it is called in messages */
	int fd;			 /* our own, but for a stream's */
	struct dsaio_file *file; /* NULL: fd is used */
	bool is_stream;
};

struct piece {
	char *memory; /* whole pages: piece_bytes of them */
	char *data;   /* in there, as far behind a page's start as off is in the file */
	uint64_t off;
	size_t len;
	struct dsaio_op *op; /* open at the daemon */
	int64_t done;	     /* without the daemon: bytes moved, or a negative errno */
};

/* How far copy_run() is. */
struct copy_run {
	uint64_t reading, writing, done; /* pieces */
	uint64_t pos;			 /* where the next is read */
	bool is_at_end;			 /* of the source, or of what is wanted */
};

#define COPY_INIT(its_ctl)                                                            \
	{                                                                             \
		.ctl = (its_ctl), .from.fd = -1, .to.fd = -1, .dir_fd = -1, .temp = { \
			.dir_fd = -1,                                                 \
			.fd = -1                                                      \
		}                                                                     \
	}

struct copy {
	struct ctl *ctl;
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct side from, to;
	uint64_t start;	     /* of the source: the first byte wanted */
	uint64_t end;	     /* behind the last one; UINT64_MAX: as many as there are */
	uint64_t end_min;    /* the source ending before that is an error */
	uint64_t done_bytes; /* written */
	bool is_in_place;    /* the caller's choice; see above */
	bool was_there;	     /* the destination, before */
	struct stat old;     /* what it was, if it was there */
	char *place;	     /* owned; the path that the temporary file gets */
	int dir_fd;	     /* its directory; -1: written in place */
	struct newfile temp; /* without fd, which is to.fd */
	bool is_made;	     /* the destination was not there, and is written in place */
	bool is_changed;     /* it may no longer be what it was: a write was begun, or a cut */
	bool is_complete;    /* all is there; what fails later is the comparison */
	bool is_output_lost; /* a stream took no more: its other end is gone, or it failed */
	size_t piece_bytes;
	struct piece pieces[COPY_PIECES];
	struct copy_run run;
	struct progress progress;
};

/*
 * Ends the copy with a sentence and how far it got, when the writes under way have ended.
 * Returns CTL_FAILED.
 */
int copy_fail(struct copy *copy, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Opens the source for reading: a regular file, or, if that is allowed, a block device.
 * Returns CTL_OK, and what fstat(2) says, or CTL_FAILED (told).
 */
int copy_open_from(struct copy *copy, bool may_be_device, struct stat *ret_stat);

/*
 * Opens the destination, a regular file that is not the source, or makes it with that mode (less
 * the umask).  access_mode: O_WRONLY or O_RDWR.  Unless it is written in place: the temporary file.
 */
int copy_open_to(struct copy *copy, int access_mode, mode_t mode, const struct stat *from_stat);

/* Opens the handle. */
int copy_open_handle(struct copy *copy);

/*
 * Takes the buffers; smaller ones for less than so many bytes, and where the client's share of
 * the pool is small.
 */
int copy_make_pieces(struct copy *copy, uint64_t n_bytes);

/* Moves all bytes.  label: of the bar; total_bytes: UINT64_MAX: nobody knows; is_shown: or none. */
int copy_run(struct copy *copy, const char *label, uint64_t total_bytes, bool is_shown);

/*
 * Before anything is written, so that a full disk changes nothing: reserves blocks for the temporary
 * file.  In place it only checks that there is room.
 */
int copy_reserve(struct copy *copy, uint64_t bytes);

/* Whether there is a temporary file: the destination is not written in place, nor complete. */
static inline bool copy_has_temp(const struct copy *copy)
{
	return copy->temp.temporary[0] != '\0';
}

/* Cuts the destination to that size, if it is longer. */
int copy_cut(struct copy *copy, uint64_t size);

/* Gives the temporary file the mode of the file that it replaces, and its owner where that is allowed. */
int copy_keep_owner(struct copy *copy);

/* Brings the destination's bytes to its device. */
int copy_sync(struct copy *copy);

/* Renames the temporary file; is_synced: a new name is on its device, too. */
int copy_place(struct copy *copy, bool is_synced);

/* Waits for what is open at the daemon, whatever comes of it. */
void copy_drain(struct copy *copy);

/*
 * All clean-up: disconnects, removes what is not complete and not the destination, closes what is no
 * stream.
 */
void copy_deinit(struct copy *copy);

/* ---- pieces one by one, for comparing ---- */

/* The piece that begins at byte off and ends at the latest at end. */
void piece_place(const struct copy *copy, struct piece *piece, uint64_t off, uint64_t end);

/* Starts to move a piece; without the daemon, moves it at once.  Returns CTL_OK or CTL_FAILED. */
int piece_start(struct copy *copy, const struct side *side, struct piece *piece, bool is_write);

/*
 * Waits for what piece_start() began, and for a read says how many bytes there were (fewer than
 * len only at the source's end, which is checked).  Returns CTL_OK or CTL_FAILED.
 */
int piece_finish_read(struct copy *copy, const struct side *side, struct piece *piece,
		      size_t *ret_done);
int piece_finish_write(struct copy *copy, const struct side *side, struct piece *piece);

#endif
