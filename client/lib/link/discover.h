/*
 * Finding the daemon, and starting one.
 *
 * With a path, that.  Without: $DSAIO_SOCKET, else the system's socket, else the user's own
 * (proto/util/socket.h), where a daemon is started if there is none.  The next place is looked at only
 * if the one before is not there at all: what exists and refuses is an error, or two daemons
 * would work on the same files without knowing of each other.  Only the user's own socket, when
 * nobody listens and nobody holds the start lock, is what a dead daemon left, and is replaced.
 *
 * Starting.  Whoever gets the start lock (SOCKET.lock, which the daemon then holds while it lives)
 * looks again, makes the listening socket and hands it to the daemon.  So all others, and we, are
 * connected at once, and the first Hello waits in the socket until the daemon reads it.  A daemon
 * that cannot start closes the socket: the end of file is the news, and its log says why.
 *
 * Any thread; processes may do so at the same time.
 */
#ifndef DSAIO_CLIENT_LIB_LINK_DISCOVER_H
#define DSAIO_CLIENT_LIB_LINK_DISCOVER_H

#include "proto/util/socket.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Limit on the wait for a daemon that is stopped or too busy: until it takes a connection, and until it answers Hello.
   dsaioctl sets it. */
extern uint32_t discover_wait_msec;

struct found {
	int fd; /* connected, nothing said yet; -1: none */
	char path[SOCKET_PATH_BYTES];
	bool is_own;   /* the user's own */
	bool is_named; /* by the caller or $DSAIO_SOCKET: to look again would find the same */
	/* We have started it: */
	bool is_started;
	int log_fd;	/* else -1 */
	off_t log_from; /* where its lines begin */
	char log_path[SOCKET_PATH_BYTES];
};
#define FOUND_NONE                     \
	{                              \
		.fd = -1, .log_fd = -1 \
	}

/*
 * path: NULL: as above.  Returns 0, or -errno as dsaio_connect(), with a message.
 * found_deinit() it in any case.
 */
int discover(const char *path, struct found *found);
/* The same at the path where a daemon was found before; is_own: the user's own, which is started if need be. */
int discover_again(const char *path, bool is_own, struct found *found);
void found_deinit(struct found *found);

/* The daemon that we started ended before it answered: returns -ECHILD, with a message. */
int discover_explain(const struct found *found);

#endif
