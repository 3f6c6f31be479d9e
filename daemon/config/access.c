#include "daemon/config/access.h"

#include "proto/util/parser.h"

#include <stdio.h>
#include <stdlib.h>

void access_deinit(struct access *access)
{
	for (unsigned i = 0; i < N_ACCESS_LISTS; i++) {
		free(access->lists[i].ids);
		free(access->lists[i].text);
	}
	*access = (struct access){ 0 };
}

bool access_allows(const struct access *access, const struct peer *peer)
{
	const struct access_list *users = &access->lists[ACCESS_USERS];
	const struct access_list *groups = &access->lists[ACCESS_GROUPS];

	if (!users->n && !groups->n)
		return !access->is_closed;
	for (unsigned i = 0; i < users->n; i++)
		if (users->ids[i] == peer->uid)
			return true;
	for (unsigned i = 0; i < groups->n; i++)
		if (peer_has_group(peer, groups->ids[i]))
			return true;
	return false;
}

const char *access_text(const struct access *access)
{
	static char text[2 * PARSER_LINE_BYTES];
	const char *users = access->lists[ACCESS_USERS].text;
	const char *groups = access->lists[ACCESS_GROUPS].text;

	if (!users && !groups)
		return access->is_closed ? "administrators" : "";
	(void)snprintf(text, sizeof(text), "%s%s%s%s%s", users ? "users " : "", users ? users : "",
		       users && groups ? "; " : "", groups ? "groups " : "", groups ? groups : "");
	return text;
}
