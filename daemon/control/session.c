#include "daemon/control/session.h"

#include "daemon/base/log.h"
#include "daemon/control/closing.h"
#include "daemon/control/idle_files.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Limits on a client's unsent replies and the descriptors in unread ones: beyond them its requests wait. */
#define SESSION_UNSENT_MAX (256u << 10)
#define SESSION_UNREAD_FDS_MAX 16u

const char *session_title(const struct session *session)
{
	static char title[160]; /* the main thread's, until the next call */

	(void)snprintf(title, sizeof(title), "client %" PRIu32 " (pid %d%s%s)", session->id,
		       session->peer.pid, session->name[0] ? ", " : "", session->name);
	return title;
}

/* ---- descriptors ---- */

static void on_closed(void *arg)
{
	struct session *session = arg;

	session->n_closings--;
	session_touch(session);
}

void session_close_fds(struct session *session, const int *fds, unsigned n_fds)
{
	session->n_closings += closing_start(session->user, &session->who,
					     "descriptors that came with a request", fds, n_fds,
					     on_closed, session);
}

/* ---- the connection ---- */

/* At a limit of the client or its user, requests stay in the client's socket.  Others do not wait. */
static bool on_may_read(const struct connection *connection)
{
	const struct session *session = container_of((struct connection *)(uintptr_t)connection,
						     struct session, connection);

	return !session_is_ending(session) &&
	       session->quota.used[QUOTA_CALLS] < session->quota.limit[QUOTA_CALLS] &&
	       connection->writer.queued_bytes <= SESSION_UNSENT_MAX &&
	       connection->n_unread_fds <= SESSION_UNREAD_FDS_MAX && !user_must_wait(session->user);
}

static void on_frame(struct connection *connection, struct frame *frame)
{
	struct session *session = container_of(connection, struct session, connection);

	session->service->on_frame(session, frame);
}

static void on_garbage(struct connection *connection, const char *why)
{
	struct session *session = container_of(connection, struct session, connection);

	session->service->on_garbage(session, why);
}

static void on_lost(struct connection *connection, const char *why)
{
	struct session *session = container_of(connection, struct session, connection);

	session->is_lost = true;
	if (why)
		session_end_for(session, "", why);
	else
		session_end(session, false);
}

static void on_close_fds(struct connection *connection, const int *fds, unsigned n_fds)
{
	session_close_fds(container_of(connection, struct session, connection), fds, n_fds);
}

/* Only the close of a client's file can hang. */
static void on_close_reply_fds(struct connection *connection, const int *fds, unsigned n_fds)
{
	struct session *session = container_of(connection, struct session, connection);

	if (session->has_got_files) {
		session_close_fds(session, fds, n_fds);
		return;
	}
	for (unsigned i = 0; i < n_fds; i++)
		(void)close(fds[i]); /* the daemon's own */
}

static void on_unread(struct connection *connection, int n)
{
	struct session *session = container_of(connection, struct session, connection);

	user_count_unread(session->user, n);
	session_touch(session);
}

static const struct connection_ops connection_ops = {
	.may_read = on_may_read,
	.on_frame = on_frame,
	.on_garbage = on_garbage,
	.on_lost = on_lost,
	.close_fds = on_close_fds,
	.close_reply_fds = on_close_reply_fds,
	.on_unread = on_unread,
};

void session_send(struct session *session, const void *body, size_t len, const int *fds,
		  unsigned n_fds)
{
	int r = connection_send(&session->connection, body, len, fds, n_fds);

	if (r >= 0)
		return;
	/* The client would wait without end for a reply that is lost. */
	log_event(&session->user->log_limit,
		  LOG_FIELDS(.event = "disconnected", .who = &session->who, .error = -r),
		  "%s: no reply can be sent: %s", session_title(session), strerrordesc_np(-r));
	session->connection.is_mute = true;
	session_end(session, false);
}

bool session_serve(struct session *session)
{
	bool has_more = connection_serve(&session->connection);

	session_touch(session); /* an end that has waited for this goes on */
	return has_more && !session_is_ending(session);
}

/* A client chooses ids (session_add()), and a table has all slots below. */
static void bound(struct id_table *table, uint64_t limit)
{
	id_table_bound(table, limit < ID_TABLE_SLOTS_MAX ? (uint32_t)limit : ID_TABLE_SLOTS_MAX);
}

void session_sum(const struct session *session, struct metrics *sum)
{
	LIST_EACH(const struct session_channel, c, &session->handles.channel_list, session_node)
		metrics_sum_coarse(sum, &c->channel->metrics);
}

uint64_t session_open_bytes(const struct session *session)
{
	uint64_t bytes = 0;

	LIST_EACH(const struct session_channel, c, &session->handles.channel_list, session_node)
		bytes += metrics_get(&c->channel->metrics.write_bytes);
	return bytes;
}

/* ---- begin and end ---- */

int session_hello(struct session *session, const char *name, const char *library, int pidfd,
		  int *ret_board_fd, struct error *error)
{
	int r;

	assert(session->state == SESSION_GREETING);
	r = session_make_board(session, ret_board_fd, error);
	if (r < 0) {
		session_close_fds(session, &pidfd, 1);
		return r;
	}
	(void)snprintf(session->name, sizeof(session->name), "%s", name); /* cut is fine */
	log_clean(session->name);
	(void)snprintf(session->library, sizeof(session->library), "%s", library); /* cut is fine */
	log_clean(session->library);
	session->state = SESSION_OPEN;

	/* A client with a wrong pidfd is served; only its death is noticed later. */
	r = pidfd < 0 ? -EINVAL : connection_watch_pidfd(&session->connection, pidfd);
	if (r == -ENOMEM)
		log_client(&session->user->log_limit, "%s: its pidfd cannot be watched",
			   session_title(session));
	if (r < 0)
		session_close_fds(session, &pidfd, 1);
	return 0;
}

static void session_free(struct session *session)
{
	struct service *service;

	if (!session)
		return;
	service = session->service;
	assert(!session->n_objects && !session->n_calls && !session->n_closings && !session->look &&
	       !session->is_advancing && !session->connection.run_entry.is_queued);
	if (session->connection.fd >= 0) {
		list_remove(&service->sessions, &session->node);
		service->n_sessions--;
	}
	connection_deinit(&session->connection);
	session_free_board(session);
	id_table_deinit(&session->objects.slabs);
	id_table_deinit(&session->objects.files);
	handles_deinit(&session->handles);
	assert(quota_is_zero(&session->quota));
	if (session->user)
		user_count_unread(session->user, -(int)session->connection.n_unread_fds);
	quota_discharge(&session->session_charge);
	if (session->usage)
		session->usage->n_clients--;
	peer_deinit(&session->peer);

	/* Last: the end of file proves to the client that the daemon uses none of its memory and files. */
	if (session->connection.fd >= 0)
		service_close_socket(service, session->user, session->connection.fd, &session->who,
				     "descriptors that a client sent before its end");
	else if (session->user)
		user_unref(session->user);
	free(session);
}

/* Advances the end of the session as far as possible. */
static void session_advance(struct message *message)
{
	struct session *session = container_of(message, struct session, advance);
	struct service *service = session->service;
	struct error error;

	session->is_advancing = false;
	if (session->state == SESSION_ENDING && !session->handles.n_channels) {
		session_drop_objects(session);
		session->state = SESSION_EMPTYING;
	}
	if (session->state != SESSION_EMPTYING || session->n_objects || session->n_calls ||
	    session->look || session->connection.run_entry.is_queued)
		return;
	/* A client without a Hello has nothing to go on with, and looks for a daemon again. */
	if (session->board && !session->connection.is_mute && session_client_goes_on(session)) {
		(void)error_set_plain(&error, -ESHUTDOWN, "the daemon is stopping");
		service->say_end(session, &error); /* if the socket has no room: dropped */
	}
	connection_mute(
		&session->connection); /* drops replies, whose descriptors may be of the client's files */
	if (session->n_closings || session->is_advancing)
		return;
	/* Without the socket nobody could count those that were sent. */
	if (session->connection.n_unread_fds && !session->is_stopped) {
		(void)shutdown(session->connection.fd,
			       SHUT_RDWR); /* of a connected socket: cannot fail */
		return;
	}
	session_free(session);
	if (!service->n_sessions)
		idle_files_stop(service);
	service->on_gone(service);
}

void session_touch(struct session *session)
{
	if (!session_is_ending(session) || session->is_advancing)
		return;
	session->is_advancing = true;
	mailbox_post(session->service->mailbox, &session->advance, session_advance);
}

void session_end(struct session *session, bool drain)
{
	struct connection *connection = &session->connection;
	struct error error;

	session->is_stopped |= drain;
	if (!drain)
		connection_unwatch(connection);
	if (session_is_ending(session)) {
		if (!drain)
			handles_hurry(session);
		session_touch(session); /* a stop does not wait for unread replies */
		return;
	}
	session->state = SESSION_ENDING;
	session->is_lost |= !drain;
	/* Nothing of the end waits for the client's socket: ops that drain end by themselves, and replies that
	   it does not read are dropped.  If the process dies, its pidfd still reports it: then none drains. */
	connection_stop(connection);
	(void)session_end_error(session, "GPU memory", "", &error);
	gpu_imports_stop(&session->gpu, &error);
	session_close_fds(session, connection->reader.fds, connection->reader.n_fds);
	connection->reader.n_fds = 0;
	handles_close_all(session, drain);
	session_touch(session);
}

bool session_client_goes_on(const struct session *session)
{
	return session->is_stopped && !session->is_lost &&
	       connection_has_peer(&session->connection);
}

void session_end_for(struct session *session, const char *object, const char *why)
{
	struct error error;

	if (!session_is_ending(session)) {
		log_event(
			&session->user->log_limit,
			LOG_FIELDS(.event = "disconnected", .who = &session->who, .error = EPROTO),
			"%s: %s%s: disconnected", session_title(session), object, why);
		(void)error_set_plain(&error, -EPROTO, "%s%s: the daemon closes the connection",
				      object, why);
		session->service->say_end(session, &error);
	}
	session_end(session, false);
}

void session_kill(struct session *session, const struct error *why)
{
	log_event(NULL, LOG_FIELDS(.event = "killed", .who = &session->who, .error = -why->code),
		  "%s: %s: disconnected", session_title(session), why->text);
	session->service->say_end(session, why);
	session_end(session, false);
}

struct session *session_find(const struct service *service, uint32_t id)
{
	LIST_EACH(struct session, s, &service->sessions, node)
		if (s->id == id)
			return s;
	return NULL;
}

int session_end_error(const struct session *session, const char *kind, const char *name,
		      struct error *error)
{
	if (!session->is_stopped)
		return error_set(error, -ECANCELED, "%s%s: the connection ends", kind, name);
	return error_set_plain(error, -ESHUTDOWN,
			       "%s%s: the daemon is stopping: repeat this when it has been started "
			       "again, with a new connection",
			       kind, name);
}

CLEANUP_FUNCTION(struct session, session_free)

int session_new(struct service *service, int fd, struct error *error)
{
	_cleanup_(session_freep) struct session *session = calloc(1, sizeof(*session));
	int r;

	if (!session)
		return error_set(error, -ENOMEM, "connection");
	session->service = service;
	connection_init(&session->connection, &connection_ops);

	r = peer_init(&session->peer, fd, error);
	if (r < 0)
		return r;
	r = user_ref(&service->users, session->peer.uid, &session->user);
	if (r < 0)
		return error_set(error, r, "connection: worker threads of uid %u" WORK_QUEUE_ADVICE,
				 session->peer.uid);
	r = quota_charge(&session->session_charge, &session->user->quota, QUOTA_SESSIONS, 1, error);
	if (r < 0)
		return r;
	session->usage = usage_user(&service->usage, session->peer.uid);
	if (!session->usage)
		return error_set(error, -ENOMEM, "connection");
	session->usage->n_clients++;
	session->connected_nsec = clock_nsec();
	session->id = service->last_id + 1;
	session->who = (struct hung_who){ .uid = session->peer.uid,
					  .pid = session->peer.pid,
					  .client = session->id };
	(void)snprintf(session->quota.name, sizeof(session->quota.name), "client %" PRIu32,
		       session->id);
	session->quota.parent = &session->user->quota;
	memcpy(session->quota.limit, service->config->client_limit, sizeof(session->quota.limit));
	bound(&session->objects.slabs,
	      session->quota.limit[QUOTA_SLABS] + session->quota.limit[QUOTA_VIEWS]);
	bound(&session->objects.files, session->quota.limit[QUOTA_FILES]);
	bound(&session->handles.handles, session->quota.limit[QUOTA_HANDLES]);
	bound(&session->handles.channels, session->quota.limit[QUOTA_CHANNELS]);
	session->gpu = (struct gpu_client){ .requests = &service->gpu,
					    .user = &session->user->gpu,
					    .pool = &service->pool,
					    .quota = &session->quota,
					    .who = &session->who };

	r = connection_start(&session->connection, fd, service->base, &service->run_queue,
			     &session->user->run_owner, error);
	if (r < 0)
		return r;

	service->last_id++;
	service->n_sessions++;
	list_push(&service->sessions, &TAKE_PTR(session)->node);
	return 0;
}
