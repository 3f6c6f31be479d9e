/*
 * Where the daemon's socket lies: the system's at a fixed path; a user's own in a directory of
 * theirs, with the start lock and the log of a daemon that the library started beside it.
 *
 * That directory is $XDG_RUNTIME_DIR/dsaiod; without the variable, or where it names nothing that is
 * there (a batch system hands on the login node's), /tmp/dsaiod-UID.  It is opened once, without
 * following a symbolic link, and checked by that descriptor: it belongs to this user, nobody else
 * gets in, and nobody else can put another in its place.
 */
#ifndef DSAIO_PROTO_UTIL_SOCKET_H
#define DSAIO_PROTO_UTIL_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

#define SOCKET_SYSTEM "/run/dsaiod/dsaiod.sock"
#define SOCKET_NAME "dsaiod.sock"
#define SOCKET_LOCK SOCKET_NAME ".lock" /* PATH.lock, whatever the path: the daemon's start lock */
#define SOCKET_LOG "dsaiod.log"
/* The name (LISTEN_FDNAMES) of a listening socket whose file is the daemon's to remove. */
#define SOCKET_HANDED_OVER "dsaiod-autostart"

#define SOCKET_PATH_BYTES 108 /* sun_path, with the NUL */

struct socket_dir {
	int fd;
	char path[SOCKET_PATH_BYTES]; /* of the socket in it */
};

/*
 * Opens the directory of this user's own socket.  make: makes it if it is not there.
 * Returns 0, and ret_dir->fd is the caller's; or -errno with a sentence in text: -ENOENT (not
 * there; only without make), -EPERM (of somebody else, or open to others), -ENOTDIR (a symbolic
 * link, or no directory), -ENAMETOOLONG, or what the kernel says.
 */
int socket_dir_open(bool make, struct socket_dir *ret_dir, char *text, size_t size);

#endif
