#include "daemon/base/peer.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

/* The kernel's NGROUPS_MAX. */
#define GROUPS_MAX 65536u
/* Enough for nearly all users, so that one call suffices. */
#define GROUPS_USUAL 64u

static int groups_look(struct peer *peer, int fd)
{
	_cleanup_(freep) gid_t *groups = NULL;

	for (socklen_t room = GROUPS_USUAL * sizeof(gid_t);;) {
		socklen_t len = room;

		free(groups);
		groups = malloc(room);
		if (!groups)
			return -ENOMEM;
		if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) == 0) {
			peer->n_groups = (unsigned)(len / sizeof(gid_t));
			peer->groups = TAKE_PTR(groups);
			return 0;
		}
		/* ERANGE: len says how much there is */
		if (errno != ERANGE || len <= room || len > GROUPS_MAX * sizeof(gid_t))
			return -errno;
		room = len;
	}
}

int peer_init(struct peer *peer, int fd, struct error *error)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int r;

	*peer = (struct peer){ 0 };
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return error_set(error, -errno, "connection: SO_PEERCRED");
	peer->pid = cred.pid;
	peer->uid = cred.uid;
	peer->gid = cred.gid;
	r = groups_look(peer, fd);
	if (r < 0)
		return error_set(error, r, "connection: SO_PEERGROUPS");
	return 0;
}

void peer_deinit(struct peer *peer)
{
	free(peer->groups);
	*peer = (struct peer){ 0 };
}

bool peer_has_group(const struct peer *peer, gid_t gid)
{
	if (peer->gid == gid)
		return true;
	for (unsigned i = 0; i < peer->n_groups; i++)
		if (peer->groups[i] == gid)
			return true;
	return false;
}
