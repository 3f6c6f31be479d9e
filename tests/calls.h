/*
 * Short forms of the library's calls, for tests and benchmarks.
 */
#ifndef DSAIO_TESTS_CALLS_H
#define DSAIO_TESTS_CALLS_H

#include "client/lib/dsaio.h"

/* It does not reconnect: most tests of a daemon's end are of its end for good. */
static inline int socket_connect(const char *socket_path, struct dsaio_client **ret_client)
{
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;

	options.socket_path = socket_path;
	options.flags = DSAIO_NO_RECONNECT;
	return dsaio_connect(&options, ret_client);
}

static inline int profile_open(struct dsaio_client *client, const struct dsaio_profile *profile,
			       struct dsaio_handle **ret_handle)
{
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;

	options.profile = profile;
	return dsaio_handle_open(client, &options, ret_handle);
}

/* Shared memory: where bytes of fd are mapped from fd_off on. */
static inline int fd_register(struct dsaio_client *client, int fd, uint64_t fd_off, size_t bytes,
			      void *memory)
{
	struct dsaio_memory description = DSAIO_MEMORY_INIT;

	description.kind = DSAIO_MEMORY_FD;
	description.fd = fd;
	description.fd_off = fd_off;
	description.bytes = bytes;
	description.start = memory;
	return dsaio_memory_register(client, &description);
}

static inline bool is_registered(struct dsaio_client *client, const void *memory, size_t bytes)
{
	return dsaio_memory_kind(client, memory, bytes) > DSAIO_MEMORY_NONE;
}

static inline bool op_is_done(struct dsaio_op *op)
{
	return dsaio_op_wait(op, 0, NULL) == 0;
}

/* dsaio_handle_reap() of the ops alone, at most 256. */
static inline int ops_reap(struct dsaio_handle *handle, struct dsaio_op **ops, int min, int max,
			   int64_t timeout_usec)
{
	struct dsaio_completion completions[256];
	int n = dsaio_handle_reap(handle, completions, sizeof(completions[0]), min,
				  max < 256 ? max : 256, timeout_usec);

	for (int i = 0; i < n; i++)
		ops[i] = completions[i].op;
	return n;
}

#endif
