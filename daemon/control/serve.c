#include "daemon/control/serve.h"

#include "daemon/base/log.h"
#include "daemon/config/changes.h"
#include "daemon/control/drain.h"
#include "daemon/control/idle_files.h"
#include "daemon/control/limits.h"
#include "daemon/control/names.h"
#include "daemon/control/reload.h"
#include "daemon/control/request.h"
#include "daemon/control/status.h"
#include "daemon/control/views.h"
#include "daemon/recovery/adopt.h"
#include "proto/util/cleanup.h"
#include "proto/util/plural.h"
#include "proto/util/size.h"
#include "proto/version.h" /* the version is the project's */
#include "proto/wire.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A cut message in a line of the log: a guess. */
#define RECOVERED_TEXT_BYTES 200u
/* The reason of a kill, with its NUL: the library keeps CONN_TEXT_BYTES of the message. */
#define KILL_REASON_BYTES 200u

/* ---- replies ---- */

static uint8_t *reply_pack(const Wire__Reply *reply, size_t *ret_len)
{
	size_t len = wire__reply__get_packed_size(reply);
	uint8_t *body = malloc(len ? len : 1);

	if (body)
		*ret_len = wire__reply__pack(reply, body);
	return body;
}

/* Takes fds. */
static void reply_send(struct session *session, const Wire__Reply *reply, const int *fds,
		       unsigned n_fds)
{
	size_t len = 0;
	_cleanup_(freep) uint8_t *body = reply_pack(reply, &len);

	/* Without memory it sends nothing, and the lost reply ends the session. */
	session_send(session, body, len, fds, n_fds);
}

static void reply_error(struct session *session, uint64_t seq, const struct error *error)
{
	Wire__Reply reply = WIRE__REPLY__INIT;

	reply.seq = seq;
	reply.error = error->code;
	reply.text = (char *)(uintptr_t)error->text; /* only read */
	reply_send(session, &reply, NULL, 0);
}

/* message: what body names, or NULL; all of them are in one union.  Takes fds. */
static int reply_with(struct session *session, uint64_t seq, int body, const void *message,
		      const char *text, const int *fds, unsigned n_fds)
{
	Wire__Reply reply = WIRE__REPLY__INIT;

	reply.seq = seq;
	reply.text = (char *)(uintptr_t)text; /* only read */
	reply.body_case = (Wire__Reply__BodyCase)body;
	reply.hello = (Wire__HelloReply *)(uintptr_t)message; /* likewise */
	reply_send(session, &reply, fds, n_fds);
	return 0;
}

/* The end of a call.  error: NULL: none. */
static void call_reply(struct call *call, const struct error *error, int body, const void *message)
{
	const unsigned n_fds = call->n_reply_fds;

	if (error) {
		reply_error(call->session, call->seq, error);
	} else {
		call->n_reply_fds = 0; /* the writer owns them now */
		(void)reply_with(call->session, call->seq, body, message, call->note,
				 call->reply_fds, n_fds);
	}
	call_free(call);
}

void serve_refusal(int fd, const struct error *error)
{
	Wire__Reply reply = WIRE__REPLY__INIT;
	struct frame_writer writer = { 0 };
	size_t len = 0;
	_cleanup_(freep) uint8_t *body = NULL;

	reply.error = error->code;
	reply.text = (char *)(uintptr_t)error->text; /* only read */
	body = reply_pack(&reply, &len);
	if (frame_queue(&writer, body, len, NULL, 0) == 0)
		(void)frame_flush(&writer, fd); /* a new socket has room for it */
	frame_writer_deinit(&writer);
}

void serve_end(struct session *session, const struct error *why)
{
	reply_error(session, 0, why);
}

void serve_garbage(struct session *session, const char *why)
{
	struct error error;

	log_event(&session->user->log_limit,
		  LOG_FIELDS(.event = "disconnected", .who = &session->who, .error = EPROTO),
		  "%s: broke the protocol: %s: disconnected", session_title(session), why);
	(void)error_set_plain(&error, -EPROTO, "%s: the daemon closes the connection", why);
	serve_end(session, &error);
	session_end(session, false);
}

static void reply_slab(struct call *call)
{
	Wire__SlabNewReply reply = WIRE__SLAB_NEW_REPLY__INIT;

	reply.slab = call->slab->id;
	reply.size_bytes = call->slab->size_bytes;
	reply.is_locked = call->slab->is_locked;
	if (slab_is_view(call->slab)) {
		const struct view_version *version = view_version_of(call->slab);

		reply.file_bytes = version->size;
		reply.file_ctime_nsec = version->ctime.tv_sec * (int64_t)NSEC_PER_SEC +
					version->ctime.tv_nsec;
	}
	/* Replies to these requests have their numbers. */
	call_reply(call, NULL, call->what, &reply);
}

/* FileAdd and FileOpen. */
static void reply_file(struct call *call)
{
	const struct rados_file *rados = &call->file->target.rados;
	Wire__FileAddReply reply = WIRE__FILE_ADD_REPLY__INIT;
	Wire__FileOpenReply opened = WIRE__FILE_OPEN_REPLY__INIT;
	Wire__Profile profile = WIRE__PROFILE__INIT;

	reply.file = call->file->id;
	reply.store = call->file->store->key;
	reply.offset_align = call->file->target.offset_align;
	reply.memory_align = call->file->target.memory_align;
	profile_to_wire(&call->file->store->profile, &profile);
	reply.profile = &profile;
	if (call->what == WIRE__REQUEST__BODY_FILE_ADD) {
		call_reply(call, NULL, WIRE__REPLY__BODY_FILE_ADD, &reply);
		return;
	}
	opened.add = &reply;
	opened.id = rados->id;
	opened.size = rados->size;
	opened.object_bytes = rados->object_bytes;
	opened.is_sparse = rados->is_sparse;
	opened.is_writable = rados->is_writable;
	call_reply(call, NULL, WIRE__REPLY__BODY_FILE_OPEN, &opened);
}

static void reply_submit(struct call *call)
{
	Wire__SubmitReply reply = WIRE__SUBMIT_REPLY__INIT;

	reply.n_results = call->batch->n;
	reply.results = call->batch->results;
	call_reply(call, NULL, WIRE__REPLY__BODY_SUBMIT, &reply);
}

static void reply_view_wait(struct call *call)
{
	Wire__ViewWaitReply reply = WIRE__VIEW_WAIT_REPLY__INIT;

	reply.state = call->view_state;
	call_reply(call, NULL, WIRE__REPLY__BODY_VIEW_WAIT, &reply);
}

static void reply_reload(struct call *call)
{
	Wire__ReloadReply reply = WIRE__RELOAD_REPLY__INIT;

	reply.applied = call->changes->applied.lines;
	reply.n_applied = call->changes->applied.n;
	reply.needs_restart = call->changes->needs_restart.lines;
	reply.n_needs_restart = call->changes->needs_restart.n;
	call_reply(call, NULL, WIRE__REPLY__BODY_RELOAD, &reply);
}

/* The end of a call: replies to the requests of serve_later(). */
static void call_done(struct call *call, int result, const struct error *error)
{
	if (result < 0) {
		call_reply(call, error, 0, NULL);
		return;
	}
	switch (call->what) {
	case WIRE__REQUEST__BODY_SLAB_NEW:
	case WIRE__REQUEST__BODY_SLAB_IMPORT:
	case WIRE__REQUEST__BODY_DEVICE_IMPORT:
	case WIRE__REQUEST__BODY_SLAB_ADOPT:
	case WIRE__REQUEST__BODY_VIEW_OPEN:
	case WIRE__REQUEST__BODY_VIEW_KEEP:
		reply_slab(call);
		break;
	case WIRE__REQUEST__BODY_FILE_ADD:
	case WIRE__REQUEST__BODY_FILE_OPEN:
		reply_file(call);
		break;
	case WIRE__REQUEST__BODY_NAME_STAT:
	case WIRE__REQUEST__BODY_NAME_LIST:
		call_reply(call, NULL, call->what, call->message);
		break;
	case WIRE__REQUEST__BODY_VIEW_WAIT:
		reply_view_wait(call);
		break;
	case WIRE__REQUEST__BODY_SUBMIT:
		reply_submit(call);
		break;
	case WIRE__REQUEST__BODY_STORE_GET:
	case WIRE__REQUEST__BODY_PROFILE_SET:
		call_reply(call, NULL, WIRE__REPLY__BODY_STORE_GET, status_store(call->store));
		break;
	case WIRE__REQUEST__BODY_STORE_DRAIN:
		call_reply(call, NULL, WIRE__REPLY__BODY_STORE_DRAIN, call->drained);
		break;
	case WIRE__REQUEST__BODY_RELOAD:
		reply_reload(call);
		break;
	default: /* the reply has no fields */
		call_reply(call, NULL, 0, NULL);
		break;
	}
}

/* ---- stores ---- */

/* set: NULL for StoreGet. */
static int serve_store(struct session *session, const char *name, const Wire__ProfileSet *set,
		       struct frame *frame, struct call *call, struct error *error)
{
	const struct registry_question question = call_question(call, name,
								frame->n_fds ? frame->fds[0] : -1);
	struct store_change change = { .what = set ? CHANGE_PROFILE : CHANGE_NOTHING,
				       .is_set = set && set->profile };
	int r;

	if (change.is_set)
		change.profile = partial_from_wire(set->profile);
	r = registry_change(&session->service->registry, &question, &change, error);
	if (r == 0 && frame->n_fds)
		(void)TAKE_FD(frame->fds[0]); /* the registry has it now */
	return r;
}

static int serve_drain(struct session *session, const Wire__StoreDrain *drain, struct frame *frame,
		       struct call *call, struct error *error)
{
	int r = session_drain(session, drain, frame->n_fds ? frame->fds[0] : -1, call, error);

	if (r == 0 && frame->n_fds)
		(void)TAKE_FD(frame->fds[0]); /* the registry has it now */
	return r;
}

/* ---- one request ---- */

static int serve_hello(struct session *session, uint64_t seq, const Wire__Hello *hello,
		       struct frame *frame, struct error *error)
{
	const struct service *service = session->service;
	struct gpu_path path = gpu_requests_path(&service->gpu);
	Wire__HelloReply ours = WIRE__HELLO_REPLY__INIT;
	int board_fd, r;

	if (session->state != SESSION_GREETING)
		return error_set_plain(error, -EINVAL, "hello: this connection has had one");
	r = session_hello(session, hello->name, hello->library,
			  frame->n_fds ? TAKE_FD(frame->fds[0]) : -1, &board_fd, error);
	if (r < 0)
		return r;

	ours.version = hello->version_max < REQUEST_VERSION_MAX ? hello->version_max
								: REQUEST_VERSION_MAX;
	ours.features = hello->features &
			((path.can_import ? RING_FEATURE_DEVICE : 0) | RING_FEATURE_DSYNC |
			 RING_FEATURE_RECOVERY | RING_FEATURE_UNKNOWN | RING_FEATURE_QUIET);
	session->knows_unknown = ours.features & RING_FEATURE_UNKNOWN;
	session->knows_quiet = ours.features & RING_FEATURE_QUIET;
	ours.daemon_version = (char *)(uintptr_t)DSAIO_VERSION; /* only read */
	ours.pid = (uint32_t)getpid();
	ours.client_pool_max = service->config->client_limit[QUOTA_POOL_BYTES];
	ours.max_entries = RING_ENTRIES_MAX;
	ours.spin_usec = service->config->spin_usec;
	ours.max_files = id_table_end(&session->objects.files);
	ours.gpu_path = path.path;
	ours.gpu_why = path.why;
	ours.started_nsec = service->started_nsec;
	ours.log_place = (char *)(uintptr_t)log_place(session->peer.uid); /* only read */
	ours.is_admin = config_is_admin(service->registry.config, &session->peer);
	return reply_with(session, seq, WIRE__REPLY__BODY_HELLO, &ours, NULL, &board_fd, 1);
}

/* All of it is what the client says. */
static int serve_recovered(struct session *session, uint64_t seq, const Wire__Recovered *r,
			   struct error *error)
{
	char text[RECOVERED_TEXT_BYTES], failed[RECOVERED_TEXT_BYTES + 32] = "";

	if (session->has_recovered)
		return error_set_plain(error, -EINVAL, "recovered: this connection has had one");
	session->has_recovered = true;
	session->service->n_recoveries++;
	(void)snprintf(text, sizeof(text), "%s", r->text); /* cut is fine */
	log_clean(text);
	if (r->failed)
		(void)snprintf(failed, sizeof(failed), "; %" PRIu32 " could not be%s%s", r->failed,
			       text[0] ? ": " : "", text);
	log_event(&session->user->log_limit, LOG_FIELDS(.event = "recovered", .who = &session->who),
		  "%s: has gone on after a restart: handed over %" PRIu32 " slab%s of %s, %" PRIu32
		  " file%s, %" PRIu32 " channel%s, %" PRIu32 " op%s in %" PRIu64 " ms%s",
		  session_title(session), r->slabs, plural(r->slabs), SIZE_TEXT(r->slab_bytes),
		  r->files, plural(r->files), r->channels, plural(r->channels), r->ops,
		  plural(r->ops), r->usec / 1000, failed);
	return reply_with(session, seq, 0, NULL, NULL, NULL, 0);
}

static int serve_kill(struct session *session, uint64_t seq, const Wire__ClientKill *kill,
		      struct error *error)
{
	struct session *victim = session_find(session->service, kill->client);
	char reason[KILL_REASON_BYTES];
	struct error why;
	int r = config_check_admin(session->service->config, &session->peer,
				   "only administrators end clients",
				   ": ask one, or end your program", error);

	if (r < 0)
		return r;
	if (!victim)
		return error_set_plain(error, -ESRCH,
				       "client %" PRIu32 ": there is none of that number: dsaioctl "
				       "clients shows them",
				       kill->client);
	if (victim == session)
		return error_set_plain(error, -EINVAL,
				       "client %" PRIu32
				       " is the connection of this request: close "
				       "it",
				       kill->client);
	if (session_is_ending(victim))
		return error_set_plain(
			error, -ESRCH,
			"%s has ended, and is waited for: dsaioctl status shows calls "
			"that hang, and what frees them",
			session_title(victim));
	(void)snprintf(reason, sizeof(reason), "%s", kill->reason); /* cut is fine */
	log_clean(reason);
	(void)error_set_plain(&why, -EPERM, "an administrator (uid %u) has ended this session%s%s",
			      session->peer.uid, reason[0] ? ": " : "", reason);
	session_kill(victim, &why);
	return reply_with(session, seq, 0, NULL, session_title(victim), NULL, 0);
}

static int serve_file_get(struct session *session, uint64_t seq, const Wire__FileGet *get,
			  struct error *error)
{
	int fd, r = session_file_get(session, get->file, &fd, error);

	return r < 0 ? r : reply_with(session, seq, 0, NULL, NULL, &fd, 1);
}

static int serve_handle_open(struct session *session, uint64_t seq, const Wire__HandleOpen *open,
			     struct error *error)
{
	Wire__HandleOpenReply opened = WIRE__HANDLE_OPEN_REPLY__INIT;
	struct handle_config config = { .profile = PARTIAL_PROFILE_NONE,
					.io_class = request_class(open->io_class),
					.weight = open->weight ? open->weight : 1,
					.wanted_id = open->handle };
	struct handle *handle;
	int client_fd, r;

	if (open->profile)
		config.profile = partial_from_wire(open->profile);
	r = session_handle_open(session, &config, &handle, &client_fd, error);
	if (r < 0)
		return r;
	opened.handle = handle->id;
	return reply_with(session, seq, WIRE__REPLY__BODY_HANDLE_OPEN, &opened, NULL, &client_fd,
			  1);
}

static int serve_channel_open(struct session *session, uint64_t seq, const Wire__ChannelOpen *open,
			      struct error *error)
{
	Wire__ChannelOpenReply opened = WIRE__CHANNEL_OPEN_REPLY__INIT;
	Wire__Profile profile = WIRE__PROFILE__INIT;
	struct profile asked;
	struct channel *channel;
	int fds[FRAME_FDS_MAX], r;
	unsigned n_fds;

	r = session_channel_open(session, open->handle, open->store, open->channel, open->entries,
				 !open->without_rings, &channel, &asked, fds, &n_fds, error);
	if (r < 0)
		return r;
	opened.channel = channel->id;
	opened.entries = channel->entries;
	opened.block_size = store_block_bytes(channel->store, &channel->profile);
	opened.queue_depth = channel->profile.queue_depth;
	profile_to_wire(&asked, &profile);
	opened.profile = &profile;
	return reply_with(session, seq, WIRE__REPLY__BODY_CHANNEL_OPEN, &opened, NULL, fds, n_fds);
}

_Static_assert((int)SLAB_PAGES_HUGE == WIRE__PAGES__PAGES_HUGE &&
		       (int)SLAB_PAGES_SMALL == WIRE__PAGES__PAGES_SMALL,
	       "the request has the same numbers");

static int serve_slab_new(struct session *session, const Wire__SlabNew *slab_new, struct call *call,
			  struct error *error)
{
	const struct slab_place place = { .pages = (enum slab_pages)slab_new->pages,
					  .has_node = slab_new->has_node,
					  .node = slab_new->node };

	return session_slab_new(session, slab_new->size_bytes, &place, call, error);
}

static int serve_file_add(struct session *session, const Wire__FileAdd *add, struct frame *frame,
			  struct call *call, struct error *error)
{
	const char *name = add->name[0] ? add->name : "(unnamed)";

	call->wanted_id = add->file;
	return session_file_add(session, TAKE_FD(frame->fds[0]), name, call, error);
}

static int serve_device_import(struct session *session, const Wire__DeviceImport *import,
			       struct frame *frame, struct call *call, struct error *error)
{
	struct gds_handle handle = request_gds_handle(import);

	if (frame->n_fds)
		handle.fd = TAKE_FD(frame->fds[0]);
	return session_slab_import_gpu(session, &handle, import->must_import, call, error);
}

/* Answers requests that need no call.  Returns 0 if it did, 1 if the request needs a call. */
static int serve_now(struct session *session, const Wire__Request *request, struct frame *frame,
		     struct error *error)
{
	switch (request->body_case) {
	case WIRE__REQUEST__BODY_HELLO:
		return serve_hello(session, request->seq, request->hello, frame, error);
	case WIRE__REQUEST__BODY_HANDLE_OPEN:
		return serve_handle_open(session, request->seq, request->handle_open, error);
	case WIRE__REQUEST__BODY_CHANNEL_OPEN:
		return serve_channel_open(session, request->seq, request->channel_open, error);
	case WIRE__REQUEST__BODY_STATUS:
		return reply_with(session, request->seq, WIRE__REPLY__BODY_STATUS,
				  status_reply(session, request->status), NULL, NULL, 0);
	case WIRE__REQUEST__BODY_RECOVERED:
		return serve_recovered(session, request->seq, request->recovered, error);
	case WIRE__REQUEST__BODY_FILE_GET:
		return serve_file_get(session, request->seq, request->file_get, error);
	case WIRE__REQUEST__BODY_CLIENT_KILL:
		return serve_kill(session, request->seq, request->client_kill, error);
	default:
		return 1;
	}
}

/* Serves requests that need a call.  call_done() answers, unless this returns an error. */
static int serve_later(struct session *session, const Wire__Request *request, struct frame *frame,
		       struct call *call, struct error *error)
{
	switch (request->body_case) {
	case WIRE__REQUEST__BODY_SLAB_NEW:
		return serve_slab_new(session, request->slab_new, call, error);
	case WIRE__REQUEST__BODY_SLAB_IMPORT:
		call->wanted_id = request->slab_import->slab;
		return session_slab_import(session, &slab_kind_imported, TAKE_FD(frame->fds[0]),
					   request->slab_import->off,
					   request->slab_import->size_bytes, call, error);
	case WIRE__REQUEST__BODY_SLAB_ADOPT:
		call->wanted_id = request->slab_adopt->slab;
		return session_slab_import(session, &slab_kind_adopted, TAKE_FD(frame->fds[0]), 0,
					   request->slab_adopt->size_bytes, call, error);
	case WIRE__REQUEST__BODY_VIEW_OPEN:
		return session_view_open(session, request->view_open->file, request->view_open->off,
					 call, error);
	case WIRE__REQUEST__BODY_VIEW_KEEP:
		call->wanted_id = request->view_keep->slab;
		return session_view_keep(session, request->view_keep->size_bytes, call, error);
	case WIRE__REQUEST__BODY_VIEW_WAIT:
		return session_view_wait(session, request->view_wait->slab,
					 request->view_wait->may_wait, call, error);
	case WIRE__REQUEST__BODY_SLAB_FREE:
		return session_slab_free(session, request->slab_free->slab, call, error);
	case WIRE__REQUEST__BODY_FILE_ADD:
		return serve_file_add(session, request->file_add, frame, call, error);
	case WIRE__REQUEST__BODY_FILE_OPEN:
		return session_file_open(session, request->file_open, call, error);
	case WIRE__REQUEST__BODY_FILE_COMMIT:
	case WIRE__REQUEST__BODY_FILE_ABANDON: /* the same message, as below */
		return session_file_finish(session, request->file_commit->file,
					   request->file_commit->size, call, error);
	case WIRE__REQUEST__BODY_NAME_REMOVE:
	case WIRE__REQUEST__BODY_NAME_STAT:
	case WIRE__REQUEST__BODY_NAME_LIST:
		return session_name_ask(session, request->name_list->name, request->name_list->next,
					call, error);
	case WIRE__REQUEST__BODY_FILE_REMOVE:
		return session_file_remove(session, request->file_remove->file, call, error);
	case WIRE__REQUEST__BODY_FILE_BUFFERED:
		return session_file_buffered(session, request->file_buffered->file,
					     TAKE_FD(frame->fds[0]), call, error);
	case WIRE__REQUEST__BODY_HANDLE_CLOSE:
		return session_handle_close(session, request->handle_close->handle, call, error);
	case WIRE__REQUEST__BODY_SUBMIT:
		return session_submit(session, request->submit, call, error);
	case WIRE__REQUEST__BODY_CANCEL:
		return session_cancel(session, request->cancel->channel, request->cancel->id, call,
				      error);
	case WIRE__REQUEST__BODY_STORE_GET:
		return serve_store(session, request->store_get->name, NULL, frame, call, error);
	case WIRE__REQUEST__BODY_PROFILE_SET:
		return serve_store(session, request->profile_set->name, request->profile_set, frame,
				   call, error);
	case WIRE__REQUEST__BODY_RELOAD:
		return session_reload(session, call, error);
	case WIRE__REQUEST__BODY_STORE_DRAIN:
		return serve_drain(session, request->store_drain, frame, call, error);
	case WIRE__REQUEST__BODY_LIMIT_SET:
		return session_limit_set(session, request->limit_set, call, error);
	case WIRE__REQUEST__BODY_DEVICE_IMPORT:
		return serve_device_import(session, request->device_import, frame, call, error);
	case WIRE__REQUEST__BODY_FILE_GPU:
		return session_file_gpu(session, request->file_gpu->file,
					(const char *)request->file_gpu->uuid.data, call, error);
	default:
		return error_set_plain(error, -EOPNOTSUPP, "request %d is not served",
				       request->body_case);
	}
}

static int serve(struct session *session, const Wire__Request *request, struct frame *frame,
		 struct error *error)
{
	struct call *call;
	int r;

	r = request_check(request, frame->n_fds, error);
	if (r < 0)
		return r;
	r = serve_now(session, request, frame, error);
	if (r <= 0)
		return r;
	r = call_new(session, request->seq, &call, error);
	if (r < 0)
		return r;
	call->what = (int)request->body_case;
	call->on_done = call_done;
	r = serve_later(session, request, frame, call, error);
	if (r < 0)
		call_free(call);
	return r;
}

CLEANUP_FUNCTION(Wire__Request, request_free)

void serve_frame(struct session *session, struct frame *frame)
{
	_cleanup_(request_freep) Wire__Request *request = NULL;
	struct error error;
	int r;

	if (session->is_quiet)
		idle_files_watch(session);
	r = request_decode(frame->body, frame->len, &request, &error);
	if (r < 0) {
		serve_garbage(session, error.text);
		return;
	}
	if (session->state == SESSION_GREETING && request->body_case != WIRE__REQUEST__BODY_HELLO) {
		serve_garbage(session, "a request came before hello");
		return;
	}
	r = serve(session, request, frame, &error);
	if (r == 0)
		return;
	reply_error(session, request->seq, &error);
	if (session->state == SESSION_GREETING) /* without Hello no other request is served */
		session_end(session, false);
}
