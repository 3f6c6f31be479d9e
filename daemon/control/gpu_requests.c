#include "daemon/control/gpu_requests.h"

#include "daemon/control/gpu_way.h"
#include "daemon/control/session.h"
#include "daemon/engine/gpu_file.h"
#include "daemon/engine/gpu_probe.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* An import that waits for the end of the probe. */
struct gpu_wait {
	struct list_node node; /* in the service's list */
	struct call *call;
	struct gds_handle handle; /* its descriptor is owned */
	bool must_import;
};

/* The probe has ended.  Takes the handle's descriptor. */
static int import_now(struct session *session, const struct gds_handle *handle, bool must_import,
		      struct call *call, struct error *error)
{
	const struct gpu_way way = service_gpu_way(session->service);

	if (way.can_import && (must_import || way.way != WIRE__GPU_WAY__GPU_COPY))
		return session_slab_import_gpu(session, handle, call, error);
	session_close_fds(session, &handle->fd, 1);
	return error_set_plain(error, -EOPNOTSUPP, "the daemon does not use GPU memory: %s",
			       way.why);
}

/* The driver may not return: then calls for it would be all of the requests that a user may have. */
static int import_count(struct session *session, struct call *call, struct error *error)
{
	const uint64_t most = (session->quota.limit[QUOTA_CALLS] + 1) / 2,
		       user_most = (session->user->quota.limit[QUOTA_CALLS] + 1) / 2;

	if (session->n_imports >= most || session->user->n_imports >= user_most)
		return error_set_plain(
			error, -EAGAIN,
			"%" PRIu32 " requests of this client and %" PRIu32
			" of its user wait for the GPU driver, of at most %" PRIu64 " and %" PRIu64
			" (half of client_requests and user_requests in "
			"dsaiod.conf): see whether nvidia-smi returns",
			session->n_imports, session->user->n_imports, most, user_most);
	call->is_import = true;
	session->n_imports++;
	session->user->n_imports++;
	return 0;
}

int session_gpu_import(struct session *session, const struct gds_handle *handle, bool must_import,
		       struct call *call, struct error *error)
{
	struct service *service = session->service;
	struct gpu_wait *wait;
	int r = import_count(session, call, error);

	if (r < 0) {
		session_close_fds(session, &handle->fd, 1);
		return r;
	}
	if (service->registry.config->engine == GPU_ENGINE_LIBAIO ||
	    !gpu_probe_is_running(service->gpu_probe))
		return import_now(session, handle, must_import, call, error);
	wait = calloc(1, sizeof(*wait));
	if (!wait) {
		session_close_fds(session, &handle->fd, 1);
		return error_set(error, -ENOMEM, "GPU memory");
	}
	wait->call = call;
	wait->handle = *handle;
	wait->must_import = must_import;
	list_push(&service->gpu_waits, &wait->node);
	return 0;
}

/* ---- files ---- */

/* A file that a worker thread registers. */
struct registering {
	struct list_node node; /* in the user's list */
	struct call *call;
	const struct store *store; /* the file's */
};

/* How many files are registered now, and how many may be. */
struct registering_count {
	uint64_t n, n_store;	   /* of all stores, and of the store */
	uint64_t most, store_most; /* likewise */
};

static bool count_is_full(const struct registering_count *count)
{
	return count->n >= count->most || count->n_store >= count->store_most;
}

/* n_calls: the limit on requests. */
static void count_limit(struct registering_count *count, uint64_t n_calls)
{
	count->most = (n_calls + 3) / 4;
	count->store_most = (count->most + 1) / 2;
}

/*
 * cuFile calls the file's file system, and a dead one does not return.  So files have their own share of the
 * requests, beside that of imports, and a store has half of that.  The threads are those for all calls into
 * the user's file systems: half of them are left to other calls.
 */
static int registering_check(const struct session *session, const struct file *file,
			     struct error *error)
{
	const struct user *user = session->user;
	const uint64_t n_calls = user->quota.limit[QUOTA_CALLS];
	struct registering_count own = { .n = 0 }, all = { .n = 0 };

	LIST_EACH(const struct registering, other, &user->registering, node) {
		const bool is_own = other->call->session == session,
			   is_store = other->store == file->store;

		all.n++;
		all.n_store += is_store;
		own.n += is_own;
		own.n_store += is_own && is_store;
	}
	count_limit(&own, session->quota.limit[QUOTA_CALLS]);
	count_limit(&all, n_calls < 4 * USER_REGISTERING_MAX ? n_calls : 4 * USER_REGISTERING_MAX);
	if (!count_is_full(&own) && !count_is_full(&all))
		return 0;
	return error_set_plain(error, -EAGAIN,
			       "file %s: cuFile registers %" PRIu64
			       " files of this client and %" PRIu64
			       " of its user, of at most %" PRIu64 " and %" PRIu64 " (%" PRIu64
			       " and %" PRIu64 " of its store, of at most %" PRIu64 " and %" PRIu64
			       "; see client_requests and user_requests in dsaiod.conf)",
			       file->name, own.n, all.n, own.most, all.most, own.n_store,
			       all.n_store, own.store_most, all.store_most);
}

static void on_registered(struct file *file, int result, const struct error *failed, void *arg)
{
	struct registering *registering = arg;
	struct call *call = registering->call;

	(void)file;
	list_remove(&call->session->user->registering, &registering->node);
	free(registering);
	call->on_done(call, result, failed);
}

int session_file_gpu(struct session *session, uint32_t id, const char uuid[sizeof(CUuuid)],
		     struct call *call, struct error *error)
{
	const struct service *service = session->service;
	const struct gpu_way way = service_gpu_way(service);
	struct file *file = id_table_get(&session->objects.files, id);
	struct registering *registering;
	int r;

	if (!file)
		return session_no_such(error, "file", id);
	if (!way.can_import)
		return error_set_plain(error, -EOPNOTSUPP,
				       "file %s: the daemon does not use GPU memory: %s",
				       file->name, way.why);
	/* A client asks when it has imported memory, whose reply came after the probe. */
	if (gpu_probe_is_running(service->gpu_probe))
		return error_set_plain(error, -EAGAIN,
				       "file %s: the GPU driver has not answered yet", file->name);
	r = registering_check(session, file, error);
	if (r < 0)
		return r;
	registering = calloc(1, sizeof(*registering));
	if (!registering)
		return error_set(error, -ENOMEM, "file %s", file->name);
	registering->call = call;
	registering->store = file->store;
	r = gpu_file_register(file, uuid, on_registered, registering, error);
	if (r < 0) {
		free(registering);
		return r;
	}
	list_push(&session->user->registering, &registering->node);
	return 0;
}

/* ---- ends ---- */

static void wait_free(struct service *service, struct gpu_wait *wait)
{
	list_remove(&service->gpu_waits, &wait->node);
	free(wait);
}

void session_stop_imports(struct session *session)
{
	struct service *service = session->service;

	LIST_EACH(struct gpu_wait, wait, &service->gpu_waits, node) {
		struct call *call = wait->call;
		struct error error;

		if (call->session != session)
			continue;
		session_close_fds(session, &wait->handle.fd, 1);
		wait_free(service, wait);
		(void)session_end_error(session, "GPU memory", "", &error);
		call->on_done(call, error.code, &error);
	}
}

void gpu_requests_on_probe_end(void *arg)
{
	struct service *service = arg;
	struct gpu_wait *wait;

	/* An answer may end its session, and with it other waits. */
	while ((wait = list_entry(service->gpu_waits.first, struct gpu_wait, node))) {
		const struct gds_handle handle = wait->handle;
		const bool must_import = wait->must_import;
		struct call *call = wait->call;
		struct error error;
		int r;

		wait_free(service, wait);
		r = import_now(call->session, &handle, must_import, call, &error);
		if (r < 0)
			call->on_done(call, r, &error);
	}
}
