/*
 * Requests as they come: bytes of a client that are decoded and checked without a session, so a fuzz
 * target calls what a hostile client calls: request_decode(), then request_check() with any number of
 * descriptors, request_entries() on a Submit that passed, request_free().
 *
 * serve.h has the rest: it makes the session's call and sends the reply.
 */
#ifndef DSAIO_DAEMON_CONTROL_REQUEST_H
#define DSAIO_DAEMON_CONTROL_REQUEST_H

#include "daemon/base/error.h"
#include "daemon/engine/gds.h"
#include "daemon/lane/sched.h"
#include "daemon/object/pool.h"
#include "proto/dsaio.pb-c.h"
#include "proto/ring.h"

#include <stddef.h>
#include <stdint.h>

/* Protocol versions that this daemon speaks. */
#define REQUEST_VERSION_MIN 1u
#define REQUEST_VERSION_MAX 1u

/* 0 and a request for request_free(), or -EPROTO: no request, or no memory for it (protobuf-c does not
   tell which). */
int request_decode(const uint8_t *body, size_t len, Wire__Request **ret_request,
		   struct error *error);
void request_free(Wire__Request *request); /* NULL is fine */

/*
 * Makes all checks of a request and its number of descriptors that need no session.  Returns 0,
 * or with a message that names value and limit: -EINVAL, -EOPNOTSUPP (not known),
 * -EPROTONOSUPPORT (no common version).
 */
int request_check(const Wire__Request *request, unsigned n_fds, struct error *error);

/* Copies the ops of a checked Submit to entries (submit->n_entries of them). */
void request_entries(const Wire__Submit *submit, struct ring_entry *entries);

/* The class of a checked HandleOpen. */
enum sched_class request_class(Wire__Class wire);

/* The handle of a checked DeviceImport, without its descriptor. */
struct gds_handle request_gds_handle(const Wire__DeviceImport *import);

#endif
