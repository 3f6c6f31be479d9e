/*
 * The files of the flight recorder, beside the socket.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_TRACE_FILES_H
#define DSAIO_CLIENT_CTL_CMD_TRACE_FILES_H

#include "client/ctl/cmd/trace_file.h"
#include "client/ctl/ui/ctl.h"
#include "proto/util/socket.h"

/* The path that a connection would choose, also where nobody listens any more.  CTL_OK or CTL_FAILED (reported). */
int trace_find_socket(const struct ctl *ctl, char path[SOCKET_PATH_BYTES]);

/*
 * Reads lane i's file of that kind (RECORDING_NOW, ...), as trace_file_read().  Without events and store it is not
 * there, or no such file; is_noted: the latter is said.  CTL_OK or CTL_FAILED (reported).
 */
int trace_read_lane(const struct ctl *ctl, const char *socket_path, const char *kind, unsigned i,
		    uint64_t first, bool is_noted, struct trace_file *ret_file);

#endif
