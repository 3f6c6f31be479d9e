/*
 * A small file in the state directory.  It is replaced by a rename, so it has either the old or the new text.
 *
 * On a thread that may block and has the daemon's own ids (privileges.h).
 */
#ifndef DSAIO_DAEMON_BASE_STATE_FILE_H
#define DSAIO_DAEMON_BASE_STATE_FILE_H

#include "daemon/base/error.h"

#include <stdbool.h>

/*
 * Makes the directory, too, if it is missing.  name: at most 200 bytes.  text: NULL removes the file.  is_damaged: what
 * is there is renamed to NAME.damaged first.  Returns 0 when it is on the disk, or an error.
 */
int state_file_write(const char *dir, const char *name, const char *text, bool is_damaged,
		     struct error *error);

#endif
