/*
 * The daemon's side of systemd's protocols: sockets that were handed over, as sd_listen_fds(3)
 * takes them, and messages about the service, as sd_notify(3) sends them.  The library that starts a
 * user's own daemon hands over its socket in the same way.
 *
 * These few calls are written here so that the daemon needs no libsystemd, which not every host has.
 * Main thread.
 */
#ifndef DSAIO_DAEMON_BASE_SYSTEMD_H
#define DSAIO_DAEMON_BASE_SYSTEMD_H

#include <stdbool.h>

/* The first descriptor that is handed over; the others follow it. */
#define SYSTEMD_LISTEN_FD 3

/*
 * How many descriptors were handed to this process; they become close-on-exec.  0: none, or they are
 * another process's.  -EINVAL: the variables make no sense; -EBADF: there is no such descriptor.
 */
int systemd_listen_fds(void);

/* Whether $LISTEN_FDNAMES is this one name. */
bool systemd_listen_fd_has_name(const char *name);

/* Removes the variables, since a number in them may soon be another file's. */
void systemd_listen_fds_forget(void);

/* Whether fd is a listening stream socket of the Unix domain: at path, or anywhere (NULL). */
bool systemd_is_listening_at(int fd, const char *path);

/*
 * Sends lines NAME=VALUE about the state of the service.  Returns 1, 0 if nobody has asked for them
 * ($NOTIFY_SOCKET is not set), or -errno: -EAFNOSUPPORT for what is no socket of the Unix domain, such
 * as that of a virtual machine's host.
 */
int systemd_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
