/*
 * The socket at which clients connect: made by this daemon, or inherited from systemd or from the
 * library that started the daemon.
 *
 * Clients that wait at systemd's socket are what the service was started for.  While one of them waits,
 * systemd starts the service again at once, until its limits leave service and socket in the state failed.
 * So a service that cannot start refuses them: each learns where the cause is, and the next client starts
 * the service again.
 *
 * Main thread, at start.
 */
#ifndef DSAIO_DAEMON_CONTROL_LISTEN_SOCKET_H
#define DSAIO_DAEMON_CONTROL_LISTEN_SOCKET_H

#include "daemon/base/error.h"

#include <stdbool.h>

/* Before anything is made beside it.  -EEXIST: a file that is no socket is there. */
int listen_socket_check(const char *path, struct error *error);

/*
 * The socket that systemd or the library handed over.  Returns 1 with *ret_fd, 0 if there is none, or
 * an error.  *ret_is_handed_over: the library made it, so its file is the daemon's to remove; systemd's
 * is systemd's.
 */
int listen_socket_inherit(const char *path, int *ret_fd, bool *ret_is_handed_over,
			  struct error *error);

/*
 * Makes the socket, after start_lock_take().  A stale one is replaced; one that another process serves
 * is -EADDRINUSE.  *ret_is_bound becomes true when the file is ours to remove, also on a later error.
 */
int listen_socket_make(const char *path, bool is_user, bool *ret_is_bound, int *ret_fd,
		       struct error *error);

/* Around the whole start: a further descriptor of systemd's socket; -1: there is none, or the library handed it
   over. */
int listen_socket_hold(void);
/* Refuses all that wait there. */
void listen_socket_refuse(int listen_fd);

#endif
