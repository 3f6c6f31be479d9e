/*
 * The places of the files of the flight recorder, beside the socket.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_TRACE_FILES_H
#define DSAIO_CLIENT_CTL_CMD_TRACE_FILES_H

#include "client/ctl/ui/ctl.h"
#include "proto/recording.h"
#include "proto/util/socket.h"

#define TRACE_PATH_BYTES (SOCKET_PATH_BYTES + RECORDING_SUFFIX_BYTES)

/* The path that a connection would choose, also where nobody listens any more.  CTL_OK or CTL_FAILED (reported). */
int trace_find_socket(const struct ctl *ctl, char path[SOCKET_PATH_BYTES]);

/* *ret_fd is -1 where there is no such file.  CTL_OK or CTL_FAILED (reported). */
int trace_open(const struct ctl *ctl, const char *path, int *ret_fd);

#endif
