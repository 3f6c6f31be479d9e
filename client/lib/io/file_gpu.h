/*
 * Does cuFile take a file?
 *
 * Before the first op between an open file and GPU memory the daemon is asked (FileGpu), which registers the
 * file with cuFile.  The answer lasts as long as the file is open or in the cache, for all threads.  If cuFile does
 * not take the file, the library copies, or the op fails where that is demanded.  So no op fails for this cause
 * when it is on its way already.
 *
 *     unknown -> taken, refused          it stays unknown if the cause may end soon: it is asked again after
 *                                        a second
 *
 * The thread that asks waits for the answer, which may never come if the file system is dead.  Others that ask
 * meanwhile get -EAGAIN, as they do while the daemon has no room for more files, and copy.  Where copies are not
 * allowed (GPU_DIRECT, DSAIO_GPU_DIRECT), they repeat the question.  No thread waits for the answer about another
 * file.
 *
 * Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_IO_FILE_GPU_H
#define DSAIO_CLIENT_LIB_IO_FILE_GPU_H

#include "client/lib/io/file.h"

/*
 * uuid: of the memory's GPU.  Returns 0: ops go directly; or a negative errno, and a message in *ret_why, which is
 * the caller's (NULL: no memory): -EOPNOTSUPP (cuFile does not take the file), -ENOTCONN, or errors that a later
 * op may not have: -EAGAIN (there is no answer yet) and others.  Sleeps for the daemon's answer.
 */
int file_gpu_register_slow(struct dsaio_file *file, const CUuuid *uuid, char **ret_why);

static inline int file_gpu_register(struct dsaio_file *file, const CUuuid *uuid, char **ret_why)
{
	/* relaxed: nothing else is read */
	if (atomic_load_explicit(&file->session.gpu, memory_order_relaxed) == FILE_GPU_TAKEN)
		return 0;
	return file_gpu_register_slow(file, uuid, ret_why);
}

/* Is nothing to be asked any more? */
static inline bool file_gpu_is_known(const struct dsaio_file *file)
{
	/* relaxed: nothing else is read */
	const int state = atomic_load_explicit(&file->session.gpu, memory_order_relaxed);

	return state == FILE_GPU_TAKEN || state == FILE_GPU_REFUSED;
}

/* Is it known that cuFile does not take the file?  Then memory need not be imported.  *ret_why as above. */
bool file_gpu_is_refused(struct dsaio_file *file, char **ret_why);

#endif
