/*
 * --check-config: what the configuration names, looked for on this host.  Main thread; no other runs.
 */
#ifndef DSAIO_DAEMON_CHECK_H
#define DSAIO_DAEMON_CHECK_H

#include "daemon/config/config.h"

/* Logs each mistake with its line, cause and cure.  0, or -EINVAL if there is one. */
int check_host(const struct config *config);

#endif
