/*
 * The destination of cp and put: a file that is replaced as a whole.
 *
 * The bytes go to a temporary file in its directory (newfile.h), which destination_place() renames.
 * After a failure or a signal destination_deinit() removes that file, and the destination is as it
 * was.  With is_in_place, or through /dev or /proc, the destination itself is written.  Then its
 * content stays after a failure, but a new file that nothing was written to is removed.
 *
 * Functions return 0, or a negative errno with the sentence in text (of DESTINATION_TEXT_BYTES).
 */
#ifndef DSAIO_CLIENT_CTL_CMD_DESTINATION_H
#define DSAIO_CLIENT_CTL_CMD_DESTINATION_H

#include "client/ctl/cmd/chunk.h"
#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/newfile.h"

#include <sys/stat.h>

#define DESTINATION_TEXT_BYTES (2 * PATH_MAX + 1024u) /* two paths and the library's sentence */

struct destination {
	struct side *side;   /* borrowed; the file that is written */
	bool is_in_place;    /* the caller's choice */
	bool was_there;	     /* before */
	struct stat old;     /* if it was there */
	char *place;	     /* owned; the path that the temporary file gets */
	int dir_fd;	     /* its directory; -1: written in place */
	struct newfile temp; /* its fd is the side's, until destination_deinit() */
	bool is_made;	     /* it was not there, and is written in place */
	bool is_changed;     /* a write began, or it was cut: it may differ from the old file */
	bool is_written;     /* all bytes are there; it may be longer, and is not synced */
	bool is_complete;    /* all bytes are there under its name; only a comparison may follow */
};

#define DESTINATION_INIT                                        \
	{                                                       \
		.dir_fd = -1, .temp = {.dir_fd = -1, .fd = -1 } \
	}

/* Whether there is a temporary file: it is not written in place, and not renamed yet. */
static inline bool destination_has_temp(const struct destination *destination)
{
	return destination->temp.temporary[0] != '\0';
}

/*
 * Checks that side->path can be a destination: a regular file that is not the source, or no file in
 * a directory that is there.  Changes nothing.
 */
int destination_check(struct destination *destination, struct side *side, const char *from_path,
		      const struct stat *from_stat, char *text);

/*
 * Opens the checked destination, or makes it with that mode less the umask.  access_mode: O_WRONLY
 * or O_RDWR.  Unless it is written in place, this makes the temporary file.
 */
int destination_open(struct destination *destination, int access_mode, mode_t mode, char *text);

/* Its path names an open file (/dev/stdout, /dev/fd/N, /proc/...), or a device: not a file to remove. */
bool destination_is_device(const struct destination *destination);

/* Its side goes through the daemon from now on: side->file is set. */
void destination_attached(struct destination *destination);

/*
 * Call it before the first write, so that a full disk changes nothing.  Reserves blocks for the
 * temporary file; in place, only checks that there is room.
 */
int destination_reserve(struct destination *destination, uint64_t bytes, char *text);

/*
 * Cuts off what the old file had behind that size.  -ESTALE: the file is longer than the old one was, so
 * another process has written to it.  Then it keeps all.
 */
int destination_cut(struct destination *destination, uint64_t size, char *text);

/*
 * Gives the temporary file the mode and, where that is allowed, the owner of the file that it
 * replaces.  A changed owner is noted.
 */
int destination_keep_owner(struct destination *destination, const struct ctl *ctl, char *text);

/* Syncs the file's bytes. */
int destination_sync(struct destination *destination, struct dsaio_handle *handle, char *text);

/* Renames the temporary file.  is_synced: its name is synced too. */
int destination_place(struct destination *destination, bool is_synced, char *text);

/* Whether the file that the side has open has no byte, of whatever process. */
bool destination_is_empty(const struct destination *destination);

/*
 * Removes the temporary file, which the side has open no more, or an empty file that was made in place
 * (n_bytes: how many were written), if the path still names it.
 */
void destination_deinit(struct destination *destination, uint64_t n_bytes);

#endif
