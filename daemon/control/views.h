/*
 * Views of a session (object/view.h): the requests ViewOpen and ViewWait.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_VIEWS_H
#define DSAIO_DAEMON_CONTROL_VIEWS_H

#include "daemon/base/error.h"
#include "proto/dsaio.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct call;
struct service;
struct session;

/* on_done with call->slab, which is a use; the descriptor is in the reply's.  Errors: as view_look() and
   views_open(), and -EBADF (no such file). */
int session_view_open(struct session *session, uint32_t file, uint64_t off, struct call *call,
		      struct error *error);
/* on_done with call->view_state.  -EBADF: no slab of that id is a view; -ESTALE. */
int session_view_wait(struct session *session, uint32_t slab, bool may_wait, struct call *call,
		      struct error *error);

/* on_done with call->slab.  Errors: as slab_new_of(). */
int session_view_keep(struct session *session, uint64_t bytes, struct call *call,
		      struct error *error);

/* Makes the service's views.  Returns 0 or -errno. */
int service_views_start(struct service *service);
void service_views_deinit(struct service *service);

#endif
