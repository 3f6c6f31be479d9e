/*
 * A call: a request that is not yet answered.  on_done is called once, in the main thread, with 0
 * and the result, or with an error.  It then calls call_free().
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_CALL_H
#define DSAIO_DAEMON_CONTROL_CALL_H

#include "daemon/base/error.h"
#include "daemon/base/quota.h"
#include "daemon/lane/lane.h"
#include "daemon/store/registry.h"
#include "proto/dsaio.pb-c.h"
#include "proto/frame.h"

#include <stdbool.h>
#include <stdint.h>

struct batch;
struct changes;
struct file;
struct session_channel;
struct session;
struct slab;

struct call {
	struct session *session;
	uint64_t seq;
	int what;	    /* the request's body_case */
	uint32_t wanted_id; /* of the slab or file; 0: any */
	void (*on_done)(struct call *call, int result, const struct error *error);
	struct charge charge;
	union { /* the result, or what the call waits for */
		struct slab *slab;
		struct file *file;
		struct batch *batch;
		struct lane_cancel cancel;
		/* Borrowed: */
		const struct store *store;
		const Wire__StoreDrainReply *drained;
		const struct changes *changes;
		Wire__ViewState view_state;
		const void *message; /* of NameStat and NameList: the reply's */
	};
	int reply_fds[FRAME_FDS_MAX]; /* for the reply: the daemon's own, owned */
	unsigned n_reply_fds;
	char *note;				 /* of the reply; NULL: none */
	struct session_channel *session_channel; /* of Submit */
};

int call_new(struct session *session, uint64_t seq, struct call **ret_call, struct error *error);
/* Discharges the quota, so that waiting requests go on.  NULL is fine. */
void call_free(struct call *call);
/* Calls on_done, and the reply has a note for people ("": none). */
void call_end(struct call *call, int result, const struct error *error, const char *note);
/* A question about a store, which ends the call. */
struct registry_question call_question(struct call *call, const char *name, int fd);
/* Adds a copy of fd to the reply's descriptors.  Returns 0 or -errno. */
int call_add_fd(struct call *call, int fd);

#endif
