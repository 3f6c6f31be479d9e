/*
 * A service that cannot start, and the clients that wait at systemd's socket.
 *
 * They are what it was started for.  While one of them waits, systemd starts the service again at
 * once, until its limits leave service and socket in the state failed.  So they are refused: each
 * learns where the cause is, and the next client starts the service again.
 *
 * Main thread, around the whole start.
 */
#ifndef DSAIO_DAEMON_CONTROL_REFUSAL_H
#define DSAIO_DAEMON_CONTROL_REFUSAL_H

/* systemd's socket, a descriptor of its own; -1: there is none, or the library handed it over. */
int refusal_prepare(void);
/* Refuses all that wait there. */
void refusal_send(int listen_fd);

#endif
