#include "daemon/config/access.h"

#include <stdlib.h>

void access_deinit(struct access *access)
{
	free(access->users);
	free(access->groups);
	free(access->lists[0]);
	free(access->lists[1]);
	free(access->text);
	*access = (struct access){ 0 };
}

bool access_allows(const struct access *access, const struct peer *peer)
{
	if (!access->n_users && !access->n_groups)
		return true;
	for (unsigned i = 0; i < access->n_users; i++)
		if (access->users[i] == peer->uid)
			return true;
	for (unsigned i = 0; i < access->n_groups; i++)
		if (peer_has_group(peer, access->groups[i]))
			return true;
	return false;
}
