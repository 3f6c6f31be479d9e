/*
 * The socket at which clients connect: made by this daemon, or inherited from systemd or from the
 * library that started the daemon.
 *
 * Main thread, at start.
 */
#ifndef DSAIO_DAEMON_CONTROL_LISTEN_SOCKET_H
#define DSAIO_DAEMON_CONTROL_LISTEN_SOCKET_H

#include "daemon/base/error.h"

#include <stdbool.h>

/* Before anything is made beside it.  -ENAMETOOLONG: the kernel takes no such path; -EEXIST: a file
   that is no socket is there. */
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

#endif
