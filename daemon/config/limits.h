/*
 * Limits of one client, and of all clients of one user: the defaults that depend on the daemon's
 * descriptors or on the pool, and the check that a client's limit is no larger than its user's.
 */
#ifndef DSAIO_DAEMON_CONFIG_LIMITS_H
#define DSAIO_DAEMON_CONFIG_LIMITS_H

struct config;

/* When the file has been read: computes the limits that it does not give.  Mistakes go to config. */
void limits_settle(struct config *config);

#endif
