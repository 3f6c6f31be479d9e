/*
 * Stores on RADOS in the configuration: their path, limits and defaults.
 */
#ifndef DSAIO_DAEMON_CONFIG_RADOS_H
#define DSAIO_DAEMON_CONFIG_RADOS_H

#include "daemon/base/error.h"

#include <stdbool.h>
#include <string.h>

struct config;
struct store_config;

#define RADOS_SCHEME "rados://"
#define RADOS_OBJECT_MIN (64u << 10)
#define RADOS_OBJECT_MAX (32u << 20) /* librados takes no op of more than 90 MiB */

/* Is that path one of RADOS?  NULL: no. */
static inline bool config_is_rados(const char *path)
{
	return path && strncmp(path, RADOS_SCHEME, strlen(RADOS_SCHEME)) == 0;
}

/* Sets what the store's section leaves out; a store of another kind that has such keys is a mistake. */
void rados_settle(struct config *config, struct store_config *store);

#endif
