/*
 * The destination of cp and put: a file that is made or replaced as a whole, or a block device.
 *
 * The bytes of a file go to a new one in its directory (newfile.h), which destination_place() puts in
 * its place.  After a failure or a signal destination_deinit() removes that one, and the destination is
 * as it was.  A block device is written in place, and keeps what was written to it.
 *
 * The rules are those of dsaio/_replace.py, with two exceptions: a file with hard links and a link to
 * nothing are refused.
 *
 * Functions return 0, or a negative errno with the message in text (of DESTINATION_TEXT_BYTES).
 */
#ifndef DSAIO_CLIENT_CTL_CMD_DESTINATION_H
#define DSAIO_CLIENT_CTL_CMD_DESTINATION_H

#include "client/ctl/cmd/chunk.h"
#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/newfile.h"

#include <sys/stat.h>

#define DESTINATION_TEXT_BYTES (2 * PATH_MAX + 1024u) /* two paths and the library's message */

struct destination {
	struct side *side;   /* borrowed; the file that is written */
	bool is_device;	     /* a block device */
	bool was_there;	     /* before */
	struct stat old;     /* if it was there */
	char *place;	     /* owned; the path that the new file gets */
	int dir_fd;	     /* its directory; -1: none yet */
	struct newfile temp; /* the side's fd is a duplicate of its fd */
};

#define DESTINATION_INIT                                        \
	{                                                       \
		.dir_fd = -1, .temp = {.dir_fd = -1, .fd = -1 } \
	}

/*
 * Checks that side->path can be a destination: a regular file that is not the source, a block device,
 * or no file in a directory that is there.  Changes nothing.
 */
int destination_check(struct destination *destination, struct side *side, const char *from_path,
		      const struct stat *from_stat, char *text);

/*
 * Opens the checked device for reading and writing, or makes the new file.  mode: less the umask, of a
 * file that was not there; one that replaces another is nobody else's until destination_place().
 */
int destination_open(struct destination *destination, mode_t mode, char *text);

/*
 * Reserves blocks for len bytes at off of the file, or checks that the device has them.  Call it before
 * the first write, so that a full disk is reported at once.
 */
int destination_reserve(struct destination *destination, uint64_t off, uint64_t len, char *text);

/* Syncs the file's bytes. */
int destination_sync(struct destination *destination, struct dsaio_handle *handle, char *text);

/*
 * Gives the new file the mode and, where that is allowed, the owner of the file that it replaces, and
 * its name; nothing is left to do on a device.  A changed owner is noted.  is_synced: the name is
 * synced, too.
 */
int destination_place(struct destination *destination, const struct ctl *ctl, bool is_synced,
		      char *text);

/* Removes the new file if it was not placed. */
void destination_deinit(struct destination *destination);

#endif
