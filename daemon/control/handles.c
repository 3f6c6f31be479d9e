#include "daemon/control/handles.h"

#include "daemon/control/request.h"
#include "daemon/control/session.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

/* ---- handles and channels ---- */

static void handle_free(struct handle *handle)
{
	struct call *call = handle->close_call;

	closep(&handle->doorbell_fd);
	quota_discharge(&handle->charge);
	free(handle);
	if (call)
		call->on_done(call, 0, NULL);
}

/* Releases the ids at once.  The handle is freed when the lanes have returned all channels. */
static void handle_close(struct handle *handle, bool drain)
{
	struct session *session = handle->session;

	(void)id_table_remove(&session->handles.handles, handle->id); /* it is there */
	id_table_release(&session->handles.handles, handle->id);      /* lanes never look there */
	handle->is_closed = true;
	LIST_EACH(struct session_channel, c, &handle->channels, node) {
		(void)id_table_remove(&session->handles.channels, c->channel->id);
		id_table_release(&session->handles.channels, c->channel->id);
		lane_remove_channel(c->channel->lane, c->channel, drain);
	}
	if (!handle->n_channels)
		handle_free(handle);
}

struct share *share_find(const struct session *session, const struct store *store)
{
	LIST_EACH(struct share, share, &session->handles.shares, node)
		if (share->store == store)
			return share;
	return NULL;
}

struct share *share_get(struct session *session, struct store *store)
{
	struct share *share = share_find(session, store);

	if (share)
		return share;
	share = calloc(1, sizeof(*share));
	if (!share)
		return NULL;
	share->session = session;
	share->store = store;
	store_ref(store);
	store->n_shares++;
	sched_client_init(&share->client);
	list_push(&session->handles.shares, &share->node);
	return share;
}

static void share_settle(struct share *share)
{
	if (share->n_channels || share->n_files)
		return;
	list_remove(&share->session->handles.shares, &share->node);
	share->store->n_shares--;
	store_unref(share->store);
	free(share);
}

void share_lose_file(struct share *share)
{
	share->n_files--;
	share_settle(share);
}

CLEANUP_FUNCTION(struct share, share_settle)

static void on_channel_removed(struct channel *channel, void *arg)
{
	struct session_channel *session_channel = arg;
	struct handle *handle = session_channel->handle;
	struct session *session = handle->session;

	assert(handle->is_closed);
	list_remove(&handle->channels, &session_channel->node);
	list_remove(&session->handles.channel_list, &session_channel->session_node);
	handle->n_channels--;
	session->handles.n_channels--;
	metrics_sum_coarse(&session->usage->ended, &channel->metrics);
	session->written_bytes += metrics_get(&channel->metrics.write_bytes);
	channel_free(channel);
	session_channel->share->n_channels--;
	share_settle(session_channel->share);
	free(session_channel);
	if (!handle->n_channels)
		handle_free(handle);
	session_touch(session);
}

static void on_channel_broken(struct channel *channel, const char *why, void *arg)
{
	char object[32];
	const struct session_channel *session_channel = arg;
	struct session *session = session_channel->handle->session;

	(void)snprintf(object, sizeof(object), "channel %" PRIu32 ": ", channel->id);
	session_end_for(session, object, why);
}

CLEANUP_FUNCTION(struct handle, handle_free)

int session_handle_open(struct session *session, const struct handle_config *config,
			struct handle **ret_handle, int *ret_client_fd, struct error *error)
{
	_cleanup_(handle_freep) struct handle *handle = calloc(1, sizeof(*handle));
	_cleanup_(closep) int client_fd = -1;
	int fds[2], r;

	if (!handle)
		return error_set(error, -ENOMEM, "handle");
	handle->doorbell_fd = -1;
	handle->session = session;
	handle->profile = config->profile;
	handle->io_class = config->io_class;
	handle->weight = config->weight;
	r = quota_charge(&handle->charge, &session->quota, QUOTA_HANDLES, 1, error);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return error_set(error, -errno, "handle: doorbell");
	handle->doorbell_fd = fds[0];
	client_fd = fds[1];
	/* The daemon reads nothing from it.  After shutdown(2) the client can send nothing, so no
	   descriptor of the client's waits in the socket to be closed with it. */
	(void)shutdown(fds[0], SHUT_RD); /* a connected socket: cannot fail */
	r = session_add(&session->handles.handles, handle, "handle", config->wanted_id, &handle->id,
			error);
	if (r < 0)
		return r;
	*ret_handle = TAKE_PTR(handle);
	*ret_client_fd = TAKE_FD(client_fd);
	return 0;
}

int session_handle_close(struct session *session, uint32_t id, struct call *call,
			 struct error *error)
{
	struct handle *handle = id_table_get(&session->handles.handles, id);

	if (!handle)
		return session_no_such(error, "handle", id);
	handle->close_call = call;
	handle_close(handle, false);
	return 0;
}

/* Copies the descriptors that a client needs for a channel with rings. */
static int channel_copy_fds(const struct channel *channel, int ret_fds[FRAME_FDS_MAX],
			    unsigned *ret_n_fds)
{
	const int from[] = { channel->ring_fd, channel->doorbell_fd, lane_board_fd(channel->lane) };
	unsigned n;

	for (n = 0; n < sizeof(from) / sizeof(*from); n++) {
		ret_fds[n] = fcntl(from[n], F_DUPFD_CLOEXEC, 3);
		if (ret_fds[n] < 0) {
			int code = -errno;

			while (n-- > 0)
				closep(&ret_fds[n]);
			return code;
		}
	}
	*ret_n_fds = n;
	return 0;
}

int session_channel_open(struct session *session, uint32_t handle_id, uint32_t store_key,
			 uint32_t wanted_id, uint32_t entries, bool has_rings,
			 struct channel **ret_channel, struct profile *ret_asked,
			 int ret_fds[FRAME_FDS_MAX], unsigned *ret_n_fds, struct error *error)
{
	struct handle *handle = id_table_get(&session->handles.handles, handle_id);
	struct store *store = registry_by_key(&session->service->registry, store_key);
	_cleanup_(freep) struct session_channel *session_channel = NULL;
	_cleanup_(share_settlep) struct share *share = NULL;
	_cleanup_(channel_freep) struct channel *made = NULL;
	struct channel *channel;
	unsigned n_fds = 0;
	int r;

	if (!handle)
		return session_no_such(error, "handle", handle_id);
	if (!store)
		return error_set_plain(
			error, -ENXIO,
			"channel: store %" PRIu32
			": the daemon has none with this number: name one from the reply to FileAdd",
			store_key);
	r = registry_check_access(&session->service->registry, store, &session->peer, "channel",
				  error);
	if (r < 0)
		return r;
	LIST_EACH(const struct session_channel, c, &handle->channels, node)
		if (c->share->store == store)
			return error_set_plain(error, -EEXIST,
					       "channel: handle %" PRIu32
					       " already has a channel on store %s",
					       handle_id, store->name);
	session_channel = calloc(1, sizeof(*session_channel));
	share = share_get(session, store);
	if (!session_channel || !share)
		return error_set(error, -ENOMEM, "channel");

	struct channel_config config = {
		.store = &store->lane_store,
		.objects = &session->objects,
		.client = &share->client,
		.quota = &session->quota,
		.uid = session->user->uid,
		.who = session->who,
		.profile = profile_fill(&handle->profile, &store->profile),
		.io_class = handle->io_class,
		.weight = session->weight ? session->weight : handle->weight,
		.limiters = { &session->usage->limiter, &session->limiter },
		.entries = entries,
		.has_rings = has_rings,
		.knows_unknown = session->knows_unknown,
		.client_doorbell_fd = handle->doorbell_fd,
		.owner = { .on_removed = on_channel_removed,
			   .on_broken = on_channel_broken,
			   .arg = session_channel },
	};
	r = store_start_lane(store, &config.profile,
			     registry_room_left(&session->service->registry, store), error);
	if (r < 0)
		return r;
	r = channel_new(&config, &made, error);
	if (r < 0)
		return r;
	r = has_rings ? channel_copy_fds(made, ret_fds, &n_fds) : 0;
	if (r < 0)
		return error_set(error, r, "channel: descriptors");
	r = session_add(&session->handles.channels, session_channel, "channel", wanted_id,
			&made->id, error);
	if (r < 0) {
		for (unsigned i = 0; i < n_fds; i++)
			closep(&ret_fds[i]);
		return r;
	}

	channel = TAKE_PTR(made);
	session_channel->handle = handle;
	session_channel->share = share;
	session_channel->channel = channel;
	list_push(&session->handles.channel_list, &session_channel->session_node);
	list_push(&handle->channels, &TAKE_PTR(session_channel)->node);
	share->n_channels++;
	handle->n_channels++;
	session->handles.n_channels++;
	lane_add_channel(channel->lane, channel);
	*ret_channel = channel;
	*ret_asked = config.profile;
	*ret_n_fds = n_fds;
	return 0;
}

void handles_set_weight(struct session *session, uint32_t weight)
{
	session->weight = weight;
	LIST_EACH(struct session_channel, c, &session->handles.channel_list, session_node)
		sched_set_weight(&c->channel->admit.queue, weight);
}

void handles_close_all(struct session *session, bool drain)
{
	uint32_t cursor = 0;
	struct handle *handle;

	while ((handle = id_table_next(&session->handles.handles, &cursor)))
		handle_close(handle, drain);
}

void handles_hurry(struct session *session)
{
	LIST_EACH(struct session_channel, c, &session->handles.channel_list, session_node)
		lane_hurry_channel(c->channel);
}

void handles_deinit(struct handles *handles)
{
	assert(!handles->n_channels && !handles->shares.first);
	id_table_deinit(&handles->handles);
	id_table_deinit(&handles->channels);
}

/* ---- ops by Submit ---- */

static void on_batch_done(struct batch *batch)
{
	struct call *call = batch->arg;

	call->session_channel->n_submitted -= batch->n;
	call->batch = batch;
	call->on_done(call, 0, NULL);
	free(batch);
}

int session_submit(struct session *session, const Wire__Submit *submit, struct call *call,
		   struct error *error)
{
	const uint32_t channel_id = submit->channel, n = (uint32_t)submit->n_entries;
	struct session_channel *session_channel = id_table_get(&session->handles.channels,
							       channel_id);
	struct channel *channel = session_channel ? session_channel->channel : NULL;
	struct batch *batch;
	int r;

	if (!channel)
		return session_no_such(error, "channel", channel_id);
	if (channel->has_rings)
		return error_set_plain(error, -EINVAL,
				       "submit: channel %" PRIu32
				       " has rings: its ops come by them; open one without",
				       channel_id);
	if (n > channel->entries)
		return error_set_plain(error, -EINVAL,
				       "submit: %" PRIu32 " ops: at most %" PRIu32
				       " ops may be open on this channel: submit fewer, or open a "
				       "channel with more entries",
				       n, channel->entries);
	if (n > channel->entries - session_channel->n_submitted)
		return error_set_plain(error, -EAGAIN,
				       "submit: %" PRIu32 " ops behind %" PRIu32
				       " open ones: at most %" PRIu32
				       " ops may be open on this channel: wait for replies first",
				       n, session_channel->n_submitted, channel->entries);
	r = batch_new(channel, n, on_batch_done, call, &batch);
	if (r < 0)
		return error_set(error, r, "submit: %" PRIu32 " ops", n);
	request_entries(submit, batch->entries);
	call->session_channel = session_channel;
	session_channel->n_submitted += n;
	lane_submit(batch);
	return 0;
}

static void on_cancelled(struct lane_cancel *cancel)
{
	struct call *call = container_of(cancel, struct call, cancel);

	call->on_done(call, 0, NULL);
}

int session_cancel(struct session *session, uint32_t channel_id, uint64_t op_id, struct call *call,
		   struct error *error)
{
	struct session_channel *session_channel = id_table_get(&session->handles.channels,
							       channel_id);

	if (!session_channel)
		return session_no_such(error, "channel", channel_id);
	call->cancel = (struct lane_cancel){
		.channel = session_channel->channel,
		.id = op_id,
		.on_done = on_cancelled,
	};
	lane_cancel(&call->cancel);
	return 0;
}
