/*
 * A peer: who a client is, as the kernel tells when it connects, never as it says itself; and
 * access, which says whom something is for.
 *
 * Administrators are root, the daemon's own user and the members of admin_group.
 */
#ifndef DSAIO_DAEMON_CONTROL_PEER_H
#define DSAIO_DAEMON_CONTROL_PEER_H

#include "daemon/base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct config;

struct peer {
	pid_t pid; /* 0: in a namespace that does not show here */
	uid_t uid;
	gid_t gid;
	gid_t *groups; /* supplementary; owned */
	unsigned n_groups;
};

/* Asks the kernel who is at the other end of a connected Unix socket.  0 or an error. */
int peer_init(struct peer *peer, int fd, struct error *error);
void peer_deinit(struct peer *peer); /* a zeroed one is fine */

bool peer_has_group(const struct peer *peer, gid_t gid);
bool peer_is_admin(const struct peer *peer, const struct config *config);

/* Users and groups that are allowed something; none at all: everybody is. */
struct access {
	uid_t *users;
	unsigned n_users;
	gid_t *groups;
	unsigned n_groups;
	char *text; /* as the administrator wrote it, "users a, b; groups c"; NULL: everybody */
};
void access_deinit(struct access *access);

/* Administrators are always allowed. */
bool access_allows(const struct access *access, const struct peer *peer,
		   const struct config *config);

#endif
