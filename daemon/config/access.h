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

enum { ACCESS_USERS, ACCESS_GROUPS, N_ACCESS_LISTS };

struct access {
	struct access_list {
		id_t *ids;
		unsigned n;
		char *text; /* as the administrator wrote it; NULL: not given */
	} lists[N_ACCESS_LISTS];
	bool is_closed; /* without lists it is for administrators alone, else for everybody */
};
void access_deinit(struct access *access);

/* Administrators have access to everything; the caller checks that. */
bool access_allows(const struct access *access, const struct peer *peer);

/* Whom it allows, as "users a, b; groups c", until the next call; "": everybody. */
const char *access_text(const struct access *access);

#endif
