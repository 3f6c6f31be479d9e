/*
 * The files of the flight recorder, beside the socket.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_TRACE_FILES_H
#define DSAIO_CLIENT_CTL_CMD_TRACE_FILES_H

#include "client/ctl/cmd/trace_file.h"
#include "client/ctl/cmd/trace_ops.h"
#include "proto/util/socket.h"

struct trace_files {
	char socket_path[SOCKET_PATH_BYTES];
	struct trace_file files[RECORDING_FILES_MAX]; /* without events: no such */
	const struct trace_file *first;		      /* NULL: there is none */
	uint64_t n_lost;			      /* events, of all files */
	struct trace_ops ops;
};
void trace_files_deinit(struct trace_files *files);

/* Finds the path that a connection would choose, also where nobody listens any more.  CTL_OK or CTL_FAILED (reported). */
int trace_files_find(const struct ctl *ctl, struct trace_files *files);

/*
 * Reads what the lanes have written since the last call into the files of that kind (RECORDING_NOW, ...), and adds
 * the ops on that store; NULL: all.  CTL_OK or CTL_FAILED (reported).
 */
int trace_files_read(const struct ctl *ctl, struct trace_files *files, const char *kind,
		     const char *store);

#endif
