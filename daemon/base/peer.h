/*
 * A peer: the identity of a client, as the kernel reports it for the connection.  A client's own
 * claims are not used.
 */
#ifndef DSAIO_DAEMON_BASE_PEER_H
#define DSAIO_DAEMON_BASE_PEER_H

#include "daemon/base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct peer {
	pid_t pid; /* 0: in a PID namespace that is not visible here */
	uid_t uid;
	gid_t gid;
	gid_t *groups; /* supplementary; owned */
	unsigned n_groups;
};

/* Gets the identity of the other end of a connected Unix socket.  Returns 0 or an error. */
int peer_init(struct peer *peer, int fd, struct error *error);
void peer_deinit(struct peer *peer); /* a zeroed one is fine */

bool peer_has_group(const struct peer *peer, gid_t gid);

#endif
