/*
 * Asks cuFile whether it takes a file, before the first op between the file and GPU memory: the file is
 * registered with it (gds.h) until it is closed.
 *
 * The call may hang, in the file's file system or in the driver, so it runs on the user's worker threads for
 * calls into file systems, and is reported if it does.  Imports do not wait behind it.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_ENGINE_GPU_FILE_H
#define DSAIO_DAEMON_ENGINE_GPU_FILE_H

#include "daemon/base/error.h"
#include "proto/util/cuda.h"

struct file;

/*
 * uuid: of a GPU, whose context the call needs.  The file is held until the end.  Returns 0 and later calls
 * on_done in the main thread: with 0, or an error of gds_register(), whose sentence names the file.  Or
 * returns -ENOMEM, and calls nothing.
 */
int gpu_file_register(struct file *file, const char uuid[sizeof(CUuuid)],
		      void (*on_done)(struct file *file, int result, const struct error *error,
				      void *arg),
		      void *arg, struct error *error);

#endif
