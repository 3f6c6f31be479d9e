/*
 * A daemon of the command's own, on a temporary socket, for the command's life (--private).
 *
 * Between dsaioctl and its daemon stands a keeper: a child that starts the daemon, reads what it
 * says, and, when dsaioctl's end of a socket closes, stops it and removes the temporary directory.
 * It closes however dsaioctl ends, so nothing is left behind after an error, Ctrl-C or
 * SIGKILL.  Should the keeper itself be killed, the kernel sends the daemon a SIGTERM.
 */
#ifndef DSAIO_CLIENT_CTL_UI_PRIVATE_H
#define DSAIO_CLIENT_CTL_UI_PRIVATE_H

#include <stddef.h>
#include <sys/types.h>

struct private_daemon {
	pid_t keeper;
	int fd; /* closing it ends keeper and daemon */
	char socket_path[108];
};

/*
 * Starts $DSAIOD, else dsaiod beside this program, else in the configured sbindir (never from
 * PATH), with a store for each file system of these files and directories; returns when it serves.
 * Returns 0, or a negative errno and in text (of size bytes) the message.
 * Call it before any thread is there.
 */
int private_start(const char *const *paths, size_t n_paths, struct private_daemon *ret_daemon,
		  char *text, size_t size);

/* Stops the daemon and waits until all is gone. */
void private_stop(struct private_daemon *daemon);

#endif
