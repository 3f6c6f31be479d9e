/*
 * The path of the daemon's socket.  The system's socket has a fixed path.  A user's own socket is in
 * a directory of that user, beside the start lock and the log of a daemon that the library started.
 *
 * That directory is $XDG_RUNTIME_DIR/dsaiod.  If the variable is unset or names nothing that exists
 * (a batch system passes on the login node's value), it is /tmp/dsaiod-UID.  It is opened once,
 * without following a symbolic link, and the checks use that descriptor: this user owns it, nobody
 * else may enter it, and nobody else can replace it.
 */
#ifndef DSAIO_PROTO_UTIL_SOCKET_H
#define DSAIO_PROTO_UTIL_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

#define SOCKET_SYSTEM "/run/dsaiod/dsaiod.sock"
#define SOCKET_NAME "dsaiod.sock"
#define SOCKET_LOCK SOCKET_NAME ".lock" /* the daemon's start lock: PATH.lock for any socket path */
#define SOCKET_LOG "dsaiod.log"
/* The name (LISTEN_FDNAMES) of a listening socket whose file the daemon removes. */
#define SOCKET_HANDED_OVER "dsaiod-autostart"

#define SOCKET_PATH_BYTES 108 /* sun_path, with the NUL */

/* Any program can fill the queue with connections that it has closed, and each costs up to 30 us before the next
   one.  With a full queue more programs wait in connect(2). */
#define SOCKET_BACKLOG 16

struct socket_dir {
	int fd;
	char path[SOCKET_PATH_BYTES]; /* of the socket in this directory */
};

/*
 * Opens the directory of this user's own socket.  make: creates it if it does not exist.
 * Returns 0, and the caller owns ret_dir->fd; or -errno with a message in text: -ENOENT (does not
 * exist; only without make), -EPERM (another user owns it, or others may enter it), -ENOTDIR (a
 * symbolic link, or no directory), -ENAMETOOLONG, or the kernel's errno.
 */
int socket_dir_open(bool make, struct socket_dir *ret_dir, char *text, size_t size);

#endif
