/*
 * Idle files: files that lie unused in a client's cache.
 *
 * They go in two cases.  (a) Every few seconds a worker thread of the user looks which of them have no
 * link any more (file_board.h says why), at most LOOK_FILES at a time.  Without files there is no
 * timer.  (b) Near the user's bound on files, idle files of its other clients go.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_IDLE_FILES_H
#define DSAIO_DAEMON_CONTROL_IDLE_FILES_H

#include <stdint.h>

struct service;
struct session;

/* A file was added: all idle files are looked at soon. */
void idle_files_note_added(struct service *service);
/* The last session has gone: no timer remains. */
void idle_files_stop(struct service *service);

/* Near the user's bound, takes idle files from the user's other clients, to be closed soon. */
void idle_files_reclaim(const struct session *asking);

#endif
