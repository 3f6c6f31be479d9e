/*
 * Looks on this host for what the configuration names: for --check-config, and for a reload, on a worker thread.
 */
#ifndef DSAIO_DAEMON_CHECK_H
#define DSAIO_DAEMON_CHECK_H

#include "daemon/config/config.h"

/* Adds each mistake with its line, cause and cure to config->mistakes.  0, or -EINVAL if there is one. */
int check_host(struct config *config);
/* The same for its stores, which a reload makes itself. */
int check_stores(struct config *config);
/* Logs warnings about memory: the daemon starts with it, and serves what it can. */
void check_memory(const struct config *config);

#endif
