/*
 * A small file in the state directory.  It is replaced by a rename, so it has either the old or the new text.
 *
 * On a thread that may block and has the daemon's own ids (privileges.h), or at the start.
 */
#ifndef DSAIO_DAEMON_BASE_STATE_FILE_H
#define DSAIO_DAEMON_BASE_STATE_FILE_H

#include "daemon/base/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* Opens one for reading: a regular file, no link, of at most max_bytes.  NULL: errno says why; EINVAL: it is
   another. */
FILE *state_file_open(int dir_fd, const char *name, off_t max_bytes);

/*
 * Makes the directory, too, if it is missing.  name: at most 200 bytes.  text: NULL removes the file.  is_damaged: what
 * is there is renamed to NAME.damaged first.  Returns 0 when it is on the disk, or an error.
 */
int state_file_write(const char *dir, const char *name, const char *text, bool is_damaged,
		     struct error *error);

#endif
