/*
 * The handles of a session, their channels, and the session's shares of stores.
 *
 * A handle that is closed has no id any more.  It is freed when the lanes have released all of its
 * channels.  A share exists while the session has channels or files on the store.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_HANDLES_H
#define DSAIO_DAEMON_CONTROL_HANDLES_H

#include "daemon/base/error.h"
#include "daemon/base/id_table.h"
#include "daemon/base/quota.h"
#include "daemon/lane/sched.h"
#include "proto/dsaio.pb-c.h"
#include "proto/frame.h"
#include "proto/profile.h"
#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>

struct call;
struct channel;
struct ring_entry;
struct session;
struct store;

/* A session's part of a store, while it has files or channels there: its flow in the scheduler,
   over all its channels. */
struct share {
	struct list_node node;
	struct session *session;
	struct store *store; /* referenced */
	struct sched_client client;
	uint32_t n_channels; /* the lane may look up ids while there is one */
	uint32_t n_files;    /* until they are closed */
};

struct handle {
	uint32_t id;
	struct session *session;
	struct partial_profile profile; /* the rest is each store's own */
	enum sched_class io_class;
	uint32_t weight;
	int doorbell_fd;      /* the daemon's end */
	struct list channels; /* struct session_channel */
	uint32_t n_channels;  /* of it, not yet released */
	bool is_closed;
	struct call *close_call; /* waits for the channels, or NULL */
	struct charge charge;
};

/* A channel, as its session sees it. */
struct session_channel {
	struct list_node node, session_node; /* in the handle's list, and in the session's */
	struct handle *handle;
	struct share *share;
	struct channel *channel;
	uint32_t n_submitted; /* entries of open Submits */
};

/* All handles, channels and shares of a session. */
struct handles {
	struct id_table handles, channels; /* struct handle, struct session_channel */
	struct list shares;
	struct list channel_list; /* struct session_channel, by session_node */
	uint32_t n_channels;	  /* not yet released by their lanes */
};
/* No channel, no share is left. */
void handles_deinit(struct handles *handles);

/* Sets the weight of all channels, also of those that are opened later. */
void handles_set_weight(struct session *session, uint32_t weight);

/* Closes all handles.  With drain the ops that were read complete, else those that have not started are
   cancelled. */
void handles_close_all(struct session *session, bool drain);
/* After handles_close_all() with drain: cancels the ops that have not started. */
void handles_hurry(struct session *session);

/* The session's share of a store; NULL: it has neither files nor channels there. */
struct share *share_find(const struct session *session, const struct store *store);
/*
 * The session's share of a store, made if there is none.  NULL: no memory.  The caller adds a file or a
 * channel.
 */
struct share *share_get(struct session *session, struct store *store);
/* A file on the share's store is closed. */
void share_lose_file(struct share *share);

struct handle_config {
	struct partial_profile profile; /* the rest is each store's own */
	enum sched_class io_class;
	uint32_t weight;
	uint32_t wanted_id; /* 0: any */
};
/* *ret_client_fd: the client's end of the doorbell socket, the caller's. */
int session_handle_open(struct session *session, const struct handle_config *config,
			struct handle **ret_handle, int *ret_client_fd, struct error *error);
/* on_done follows when all channels are back; not after an error. */
int session_handle_close(struct session *session, uint32_t id, struct call *call,
			 struct error *error);

/* *ret_asked: the handle's profile, with inherited fields filled in.  Fills in the reply's descriptors:
   the caller's. */
int session_channel_open(struct session *session, uint32_t handle_id, uint32_t store_key,
			 uint32_t wanted_id, uint32_t entries, bool has_rings,
			 struct channel **ret_channel, struct profile *ret_asked,
			 int ret_fds[FRAME_FDS_MAX], unsigned *ret_n_fds, struct error *error);

/*
 * A checked Submit.  on_done: call->batch has the results until call_free().
 *
 * The ops of a Submit are a batch, and not entries of a ring whose client is this thread.  A ring would need
 * ids that are unique in the channel, their way back to the request and to the client's id (Cancel), and
 * the consumption of completions before the channel is freed, which is more than the batch.
 */
int session_submit(struct session *session, const Wire__Submit *submit, struct call *call,
		   struct error *error);

int session_cancel(struct session *session, uint32_t channel_id, uint64_t op_id, struct call *call,
		   struct error *error);

#endif
