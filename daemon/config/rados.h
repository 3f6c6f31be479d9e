/*
 * Stores on RADOS in the configuration: their path and limits.
 */
#ifndef DSAIO_DAEMON_CONFIG_RADOS_H
#define DSAIO_DAEMON_CONFIG_RADOS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define RADOS_SCHEME "rados://"
#define RADOS_OBJECT_MIN (64u << 10)
#define RADOS_OBJECT_MAX (32u << 20) /* librados takes no op of more than 90 MiB */

/* A sweep removes each of a file's objects that may be there, so this bounds it: 4 TiB of objects of 4 MiB. */
#define RADOS_OBJECTS_MAX (1u << 20)

#define RADOS_QUEUE_DEPTH \
	16u /* by default: blocks of 4 MiB: a cluster of three hosts is busy with these (a guess) */

/* The keys of a store on RADOS, each with a default; NULL: Ceph's. */
struct rados_config {
	char *conf, *user;
	uint32_t object_bytes; /* of new files; a power of two */
	uint32_t op_timeout_sec, connections, trash_after_sec;
	uint64_t inflight_max; /* bytes */
};

/* The largest file. */
static inline uint64_t rados_size_max(uint32_t object_bytes)
{
	return (uint64_t)object_bytes * RADOS_OBJECTS_MAX;
}

/* Is that path one of RADOS?  NULL: no. */
static inline bool config_is_rados(const char *path)
{
	return path && strncmp(path, RADOS_SCHEME, strlen(RADOS_SCHEME)) == 0;
}

#endif
