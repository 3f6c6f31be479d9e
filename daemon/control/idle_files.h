/*
 * Idle files: files that lie unused in a client's cache.
 *
 * They go in three cases.  (a) Every few seconds a worker thread of the user looks which of them have no
 * link any more (file_board.h says why), at most LOOK_FILES at a time.  (b) So do those whose word on the
 * file board has been the same for 10 s: they keep a file system from being unmounted.  A client whose files
 * are all in use makes no work, if it has RING_FEATURE_QUIET: they become QUIET, and no look comes before its
 * next request.  (c) Near the user's bound on files, idle files of its other clients go.  And a drain of their
 * store takes them (drain.h).
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_IDLE_FILES_H
#define DSAIO_DAEMON_CONTROL_IDLE_FILES_H

#include <stdbool.h>
#include <stdint.h>

struct file;
struct service;
struct session;

/* A file of that client was added, or one that was QUIET may be idle: all idle files are looked at soon. */
void idle_files_watch(struct session *session);
/* The last session has gone: no timer remains. */
void idle_files_stop(struct service *service);

/*
 * Takes an idle file from its client, to be closed soon.  Returns false if it is in use.  n_refs: references to the
 * file that no op has: the table's, and those of the caller.
 */
bool idle_file_take(struct session *session, struct file *file, uint32_t n_refs);

/* Near the user's bound, takes idle files from the user's other clients, to be closed soon. */
void idle_files_reclaim(const struct session *asking);

#endif
