/*
 * Access: the users and groups that a store serves, as the administrator configured them.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONFIG_ACCESS_H
#define DSAIO_DAEMON_CONFIG_ACCESS_H

#include "daemon/base/peer.h"

#include <stdbool.h>
#include <sys/types.h>

/* No user and no group: everybody. */
struct access {
	uid_t *users;
	unsigned n_users;
	gid_t *groups;
	unsigned n_groups;
	char *lists[2]; /* as the administrator wrote them; NULL: not given */
	char *text;	/* both, as "users a, b; groups c"; NULL: everybody */
};
void access_deinit(struct access *access);

/* Administrators have access to everything; the caller checks that. */
bool access_allows(const struct access *access, const struct peer *peer);

#endif
