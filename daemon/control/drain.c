#include "daemon/control/drain.h"

#include "daemon/base/event.h"
#include "daemon/base/log.h"
#include "daemon/control/idle_files.h"
#include "daemon/control/session.h"
#include "proto/file_board.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* For the closes: those of local file systems take milliseconds. */
#define DRAIN_NSEC UINT64_C(10000000000)
/* Walks that take idle files.  Those that become idle later belong to programs that use them again and again. */
#define DRAIN_WALKS 10u
/* Between two walks. */
#define DRAIN_PAUSE_USEC 20000
/* Clients in a reply, which fits into a frame. */
#define DRAIN_CLIENTS_MAX 256u

struct drain {
	struct call *call;
	Wire__DrainMode mode;
	struct store *store; /* referenced */
	uint64_t deadline_nsec;
	uint32_t n_closed, n_walks;
	/* The walk: a session in each turn of the main thread. */
	uint32_t session_id; /* the last one */
	uint32_t n_closing;  /* files of the sessions so far that are being closed */
};

/* ---- the end ---- */

static void drain_end(struct drain *drain, int result, const struct error *error)
{
	drain->call->on_done(drain->call, result, error);
	if (drain->store)
		store_unref(drain->store);
	free(drain);
}

static Wire__Holder holder_to_wire(const struct session *session, const struct share *share)
{
	Wire__Holder one = WIRE__HOLDER__INIT;

	one.name = (char *)(uintptr_t)session->name; /* only read */
	one.client = session->id;
	one.uid = session->user->uid;
	one.pid = (uint32_t)session->peer.pid;
	one.files = share->n_files;
	one.channels = share->n_channels;
	return one;
}

static void drain_report(struct drain *drain)
{
	Wire__StoreDrainReply reply = WIRE__STORE_DRAIN_REPLY__INIT;
	Wire__Holder holders[DRAIN_CLIENTS_MAX], *clients[DRAIN_CLIENTS_MAX];

	reply.closed = drain->n_closed;
	reply.closing = drain->n_closing;
	reply.files = store_is_probing(drain->store);
	reply.store = drain->store->name;
	reply.path = drain->store->path;
	reply.clients = clients;
	LIST_EACH(const struct session, s, &drain->call->session->service->sessions, node) {
		const struct share *share = share_find(s, drain->store);

		if (!share)
			continue;
		reply.files += share->n_files;
		if (reply.n_all_clients++ >= DRAIN_CLIENTS_MAX)
			continue;
		holders[reply.n_clients] = holder_to_wire(s, share);
		clients[reply.n_clients] = &holders[reply.n_clients];
		reply.n_clients++;
	}
	drain->call->drained = &reply;
	drain_end(drain, 0, NULL);
}

/* ---- the walk ---- */

/* Takes the session's idle files.  Returns how many others are in use. */
static uint32_t walk_session(struct drain *drain, struct session *session)
{
	const bool may_take = drain->n_walks < DRAIN_WALKS;
	uint32_t cursor = 0, n_used = 0;
	struct file *file;

	while ((file = id_table_next(&session->objects.files, &cursor))) {
		if (file->store != drain->store || session_is_ending(session))
			continue;
		if (may_take && idle_file_take(session, file, 1))
			drain->n_closed++;
		else if (!may_take || !file_board_idle(session->board, file->id))
			n_used++; /* else a look has a reference, or the client lies */
	}
	return n_used;
}

/* Returns whether the walk is done, else a later turn goes on. */
static bool drain_walk(struct drain *drain)
{
	LIST_EACH(struct session, s, &drain->call->session->service->sessions, node) {
		const struct share *share = s->id <= drain->session_id
						    ? NULL
						    : share_find(s, drain->store);
		uint32_t n_used;

		if (!share)
			continue;
		n_used = walk_session(drain, s);
		if (share->n_files > n_used)
			drain->n_closing += share->n_files - n_used;
		drain->session_id = s->id;
		return false;
	}
	return true;
}

static void on_turn(EVENT_ARG(arg))
{
	struct timeval pause = { 0 };
	struct drain *drain = arg;
	struct error error;

	if (session_is_ending(drain->call->session)) {
		drain_end(drain,
			  session_end_error(drain->call->session, "store ", drain->store->name,
					    &error),
			  &error);
		return;
	}
	if (drain_walk(drain)) {
		drain->n_closing += store_is_probing(drain->store);
		if (!drain->n_closing || clock_nsec() >= drain->deadline_nsec) {
			drain_report(drain);
			return;
		}
		drain->session_id = drain->n_closing = 0;
		drain->n_walks++;
		pause.tv_usec = DRAIN_PAUSE_USEC;
	}
	if (event_base_once(drain->call->session->service->base, -1, EV_TIMEOUT, on_turn, drain,
			    &pause) < 0)
		drain_end(drain, error_set(&error, -ENOMEM, "drain"), &error);
}

static void on_store(struct store *store, int result, const struct error *error, const char *note,
		     void *arg)
{
	struct drain *drain = arg;
	const bool begins = drain->mode == WIRE__DRAIN_MODE__DRAIN_BEGIN;

	if (result < 0) {
		drain_end(drain, result, error);
		return;
	}
	drain->call->note = strdup(note);
	store_ref(store);
	drain->store = store;
	if (drain->mode != WIRE__DRAIN_MODE__DRAIN_CLOSE)
		log_event(NULL,
			  LOG_FIELDS(.event = begins ? "drained" : "served", .store = store->name),
			  "store %s: %s by user %u", store->name,
			  begins ? "drained" : "served again", drain->call->session->user->uid);
	if (drain->mode == WIRE__DRAIN_MODE__DRAIN_END) {
		drain_report(drain);
		return;
	}
	drain->deadline_nsec = clock_nsec() + DRAIN_NSEC;
	on_turn(-1, EV_TIMEOUT, drain);
}

int session_drain(struct session *session, const Wire__StoreDrain *request, int fd,
		  struct call *call, struct error *error)
{
	struct drain *drain;
	struct registry_question question = call_question(call, request->name, fd);
	const struct store_change change = {
		.what = request->mode == WIRE__DRAIN_MODE__DRAIN_CLOSE ? CHANGE_NOTHING
								       : CHANGE_DRAINED,
		.is_set = request->mode == WIRE__DRAIN_MODE__DRAIN_BEGIN,
	};
	int r = config_check_admin(
		session->service->config, &session->peer,
		"only administrators drain stores, and close the files of all clients",
		": ask one, or close those of your programs with dsaio_file_drop()", error);
	if (r < 0)
		return r;
	drain = malloc(sizeof(*drain));
	if (!drain)
		return error_set(error, -ENOMEM, "drain");
	*drain = (struct drain){ .call = call, .mode = request->mode };
	question.on_done = on_store;
	question.arg = drain;
	r = registry_change(&session->service->registry, &question, &change, error);
	if (r < 0)
		free(drain);
	return r;
}
