/*
 * Serves requests: one control message -> one session call -> one reply.
 *
 * A request with wrong values is refused, and its session lives.  Bytes that are no request, and a
 * request before Hello, end the session, with one line in the log.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_SERVE_H
#define DSAIO_DAEMON_CONTROL_SERVE_H

#include "daemon/control/session.h"

/* The service's on_frame and on_garbage. */
void serve_frame(struct session *session, struct frame *frame);
void serve_garbage(struct session *session, const char *why);
/* The service's say_end. */
void serve_end(struct session *session, const struct error *why);

/* Sends the reason to a client that gets no session.  fd: its socket; borrowed. */
void serve_refusal(int fd, const struct error *error);

#endif
