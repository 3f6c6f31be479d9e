/*
 * Requests: one control message -> one session call -> one reply.
 *
 * A message is decoded and checked by functions that know no session, so that a fuzz target can
 * call what a hostile client calls: request_decode(), then request_check() with any number of
 * descriptors, request_entries() on a Submit that passed, request_free().
 *
 * A request with wrong values is refused, and its session lives.  Bytes that are no request, and a
 * request before Hello, end the session, with one line in the log.
 */
#ifndef DSAIO_DAEMON_CONTROL_REQUEST_H
#define DSAIO_DAEMON_CONTROL_REQUEST_H

#include "daemon/control/session.h"
#include "proto/dsaio.pb-c.h"

#include <stdint.h>

/* Protocol versions that this daemon speaks. */
#define REQUEST_VERSION_MIN 1u
#define REQUEST_VERSION_MAX 1u

/* 0 and a request for request_free(), or -EPROTO or -ENOMEM. */
int request_decode(const uint8_t *body, size_t len, Wire__Request **ret_request,
		   struct error *error);
void request_free(Wire__Request *request); /* NULL is fine */

/*
 * Makes all checks of a request and its number of descriptors that need no session.  Returns 0,
 * or with a sentence that names value and limit: -EINVAL, -EOPNOTSUPP (not known),
 * -EPROTONOSUPPORT (no common version).
 */
int request_check(const Wire__Request *request, unsigned n_fds, struct error *error);

/* Copies what a checked Submit asks for to entries (submit->n_entries of them). */
void request_entries(const Wire__Submit *submit, struct ring_entry *entries);

/* The service's on_frame and on_garbage. */
void request_serve(struct session *session, struct frame *frame);
void request_refuse_garbage(struct session *session, const char *why);

/* Tells a client that gets no session why.  fd: its socket; borrowed. */
void request_refuse(int fd, const struct error *error);

#endif
