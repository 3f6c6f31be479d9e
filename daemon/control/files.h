/*
 * Files of a session: checked on a worker thread when they come, then in the table where lanes look
 * them up, and on the file board, by which the client keeps idle files in its cache.
 *
 * A file that comes when the user is at its bound waits while idle files of the user's other clients
 * are on their way out (idle_files.h).
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_FILES_H
#define DSAIO_DAEMON_CONTROL_FILES_H

#include "daemon/base/error.h"
#include "proto/util/cuda.h"

#include <stdint.h>

struct call;
struct file;
struct session;
struct store;

/* Makes the file board.  *ret_fd: for the client, the caller's. */
int session_make_board(struct session *session, int *ret_fd, struct error *error);
void session_free_board(struct session *session);

/* Takes fd, also on error.  on_done with call->file, which has call->wanted_id. */
int session_file_add(struct session *session, int fd, const char *name, struct call *call,
		     struct error *error);
/* Returns 0, or -ENOMEDIUM: the store takes no new files. */
int session_check_drained(const struct store *store, const char *name, struct error *error);
/*
 * The end of making a file: adds it to the session.  result: 0, or an error of before, which session->n_objects counts
 * still.  Then on_done with call->file.
 */
void session_file_made(struct file *file, struct store *store, int result, struct error *error,
		       struct call *call);
int session_file_remove(struct session *session, uint32_t id, struct call *call,
			struct error *error);
/* Takes fd, also on error. */
int session_file_buffered(struct session *session, uint32_t id, int fd, struct call *call,
			  struct error *error);
/* FileGpu: registers the file with cuFile.  on_done without a result.  -EBADF (no such file), or as
   gpu_file_register(). */
int session_file_gpu(struct session *session, uint32_t id, const char uuid[sizeof(CUuuid)],
		     struct call *call, struct error *error);
/* The file of that id, if it has a descriptor, else -EBADF or -EOPNOTSUPP.  what: the request's. */
int session_file_with_fd(const struct session *session, uint32_t id, const char *what,
			 struct file **ret_file, struct error *error);
/* *ret_fd: a copy of its descriptor, for session_send(). */
int session_file_get(struct session *session, uint32_t id, int *ret_fd, struct error *error);

#endif
