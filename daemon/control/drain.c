#include "daemon/control/drain.h"

#include "daemon/base/log.h"
#include "daemon/control/idle_files.h"
#include "daemon/control/session.h"
#include "proto/file_board.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/wire.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

/* For the closes: those of local file systems take milliseconds. */
#define DRAIN_NSEC UINT64_C(10000000000)
/* Walks that take idle files.  Those that become idle later belong to programs that use them again and again. */
#define DRAIN_WALKS 10u
/* Between two walks. */
#define DRAIN_PAUSE_USEC 20000
/* Files in a turn of the main thread: takes about a millisecond if all are taken. */
#define DRAIN_FILES 1024u
/* Clients in a reply, which fits into a frame. */
#define DRAIN_CLIENTS_MAX 256u

#define NOTE_BYTES (ERROR_TEXT_BYTES + 160)

struct drain {
	struct call *call;
	drain_done_fn *on_done;
	Wire__DrainMode mode;
	char note[NOTE_BYTES]; /* why it is not saved; "": it is */
	struct store *store;   /* referenced */
	struct event *event;
	uint64_t deadline_nsec;
	uint32_t n_closed, n_walks;
	/* The walk: it is at slot `cursor` of the files of the session with that id. */
	uint32_t session_id, cursor;
	uint32_t n_used;    /* files of that session so far that are in use */
	uint32_t n_closing; /* files of the sessions before it that are being closed */
};

/* ---- the end ---- */

static void drain_end(struct drain *drain, const Wire__StoreDrainReply *reply,
		      const struct error *error)
{
	drain->on_done(drain->call, reply, error, drain->note);
	if (drain->store)
		store_unref(drain->store);
	if (drain->event)
		event_free(drain->event);
	free(drain);
}

static int add_holder(const struct session *session, const struct share *share,
		      Wire__StoreDrainReply *reply)
{
	Wire__Holder *one;
	char *name;

	reply->files += share->n_files;
	if (reply->n_all_clients++ >= DRAIN_CLIENTS_MAX)
		return 0;
	one = WIRE_NEW(Wire__Holder, wire__holder);
	if (!one)
		return -ENOMEM;
	reply->clients[reply->n_clients++] = one;
	name = strdup(session->name);
	if (!name)
		return -ENOMEM;
	one->name = name;
	one->client = session->id;
	one->uid = session->user->uid;
	one->pid = (uint32_t)session->peer.pid;
	one->files = share->n_files;
	one->channels = share->n_channels;
	return 0;
}

static int drain_to_wire(const struct drain *drain, Wire__StoreDrainReply *reply)
{
	const struct store *store = drain->store;

	reply->closed = drain->n_closed;
	reply->closing = drain->n_closing;
	reply->files = store_is_probing(store);
	reply->store = strdup(store->name);
	reply->path = strdup(store->path);
	reply->clients = calloc(DRAIN_CLIENTS_MAX, sizeof(Wire__Holder *));
	if (!reply->store || !reply->path || !reply->clients)
		return -ENOMEM;
	LIST_EACH(const struct session, s, &drain->call->session->service->sessions, node) {
		const struct share *share = share_find(s, store);

		if (share && add_holder(s, share, reply) < 0)
			return -ENOMEM;
	}
	return 0;
}

static void reply_freep(Wire__StoreDrainReply **reply)
{
	wire__store_drain_reply__free_unpacked(*reply, NULL);
}

static void drain_report(struct drain *drain)
{
	_cleanup_(reply_freep) Wire__StoreDrainReply *reply = WIRE_NEW(Wire__StoreDrainReply,
								       wire__store_drain_reply);
	struct error error;

	if (reply && drain_to_wire(drain, reply) == 0) {
		drain_end(drain, reply, NULL);
		return;
	}
	(void)error_set(&error, -ENOMEM, "drain");
	drain_end(drain, NULL, &error);
}

/* ---- the walk ---- */

/* The session's files from the cursor on.  Returns how many of n_max it looked at. */
static uint32_t walk_session(struct drain *drain, struct session *session, uint32_t n_max)
{
	struct file *file;
	uint32_t n = 0;
	bool may_take;

	while (n < n_max && (file = id_table_next(&session->objects.files, &drain->cursor))) {
		n++;
		if (file->store != drain->store || session_is_ending(session))
			continue;
		may_take = drain->n_walks < DRAIN_WALKS;
		if (may_take && idle_file_take(session, file, 1))
			drain->n_closed++;
		else if (!may_take || !file_board_idle(session->board, file->id))
			drain->n_used++; /* else a look has a reference, or the client lies */
	}
	return n;
}

/* Returns whether the walk is done, else a later turn goes on. */
static bool drain_walk(struct drain *drain)
{
	uint32_t n_left = DRAIN_FILES;

	LIST_EACH(struct session, s, &drain->call->session->service->sessions, node) {
		const struct share *share = s->id < drain->session_id ? NULL
								      : share_find(s, drain->store);

		if (!share)
			continue;
		if (s->id > drain->session_id) {
			drain->session_id = s->id;
			drain->cursor = drain->n_used = 0;
		}
		n_left -= walk_session(drain, s, n_left);
		if (!n_left)
			return false;
		if (share->n_files > drain->n_used)
			drain->n_closing += share->n_files - drain->n_used;
		drain->session_id = s->id + 1;
		drain->cursor = drain->n_used = 0;
	}
	return true;
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct timeval pause = { 0 };
	struct drain *drain = arg;
	struct error error;

	(void)fd;
	(void)what;
	if (session_is_ending(drain->call->session)) {
		(void)session_end_error(drain->call->session, "store ", drain->store->name, &error);
		drain_end(drain, NULL, &error);
		return;
	}
	if (drain_walk(drain)) {
		drain->n_closing += store_is_probing(drain->store);
		if (!drain->n_closing || clock_nsec() >= drain->deadline_nsec) {
			drain_report(drain);
			return;
		}
		drain->session_id = drain->cursor = drain->n_used = drain->n_closing = 0;
		drain->n_walks++;
		pause.tv_usec = DRAIN_PAUSE_USEC;
	}
	if (evtimer_add(drain->event, &pause) == 0)
		return;
	(void)error_set(&error, -ENOMEM, "drain");
	drain_end(drain, NULL, &error);
}

static void on_store(struct store *store, int result, const struct error *error, const char *note,
		     void *arg)
{
	struct drain *drain = arg;

	if (result < 0) {
		drain_end(drain, NULL, error);
		return;
	}
	(void)snprintf(drain->note, sizeof(drain->note), "%s", note);
	store_ref(store);
	drain->store = store;
	if (drain->mode != WIRE__DRAIN_MODE__DRAIN_CLOSE)
		log_notice("store %s: %s by user %u", store->name,
			   drain->mode == WIRE__DRAIN_MODE__DRAIN_BEGIN ? "drained"
									: "served again",
			   drain->call->session->user->uid);
	if (drain->mode == WIRE__DRAIN_MODE__DRAIN_END) {
		drain_report(drain);
		return;
	}
	drain->deadline_nsec = clock_nsec() + DRAIN_NSEC;
	on_turn(-1, EV_TIMEOUT, drain);
}

/* Frees a drain that has not begun. */
static void drain_freep(struct drain **drain)
{
	if (*drain && (*drain)->event)
		event_free((*drain)->event);
	free(*drain);
}

int session_drain(struct session *session, const Wire__StoreDrain *request, int fd,
		  struct call *call, drain_done_fn *on_done, struct error *error)
{
	struct service *service = session->service;
	_cleanup_(drain_freep) struct drain *drain = NULL;
	struct registry_question question = {
		.name = request->name,
		.fd = fd,
		.peer = &session->peer,
		.work_queue = session->user->work_queue,
		.who = &session->who,
		.on_done = on_store,
	};
	const struct store_change change = {
		.what = request->mode == WIRE__DRAIN_MODE__DRAIN_CLOSE ? CHANGE_NOTHING
								       : CHANGE_DRAINED,
		.is_set = request->mode == WIRE__DRAIN_MODE__DRAIN_BEGIN,
	};
	int r;

	r = config_check_admin(
		service->config, &session->peer,
		"only administrators drain stores, and close the files of all clients",
		": ask one, or close those of your programs with dsaio_file_drop()", error);
	if (r < 0)
		return r;
	drain = calloc(1, sizeof(*drain));
	if (!drain)
		return error_set(error, -ENOMEM, "drain");
	drain->event = evtimer_new(service->base, on_turn, drain);
	if (!drain->event)
		return error_set(error, -ENOMEM, "drain");
	drain->call = call;
	drain->on_done = on_done;
	drain->mode = request->mode;
	question.arg = drain;
	r = registry_change(&service->registry, &question, &change, error);
	if (r == 0)
		(void)TAKE_PTR(drain); /* it may be freed already */
	return r;
}
