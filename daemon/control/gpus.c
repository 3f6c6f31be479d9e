#include "daemon/control/gpus.h"

#include "daemon/control/session.h"
#include "daemon/engine/gpu_file.h"
#include "daemon/engine/gpu_probe.h"
#include "proto/util/cleanup.h"
#include "proto/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the way ---- */

/* Why nothing can be imported, by the report of a probe that has ended.  Returns false: it can. */
static bool has_obstacle(const struct gpu_report *report, char why[ERROR_TEXT_BYTES])
{
	char cufile[GPU_TEXT_BYTES];

	if (!report)
		(void)snprintf(why, ERROR_TEXT_BYTES, "the daemon has found no GPU on this host");
	else if (report->problem[0])
		(void)snprintf(why, ERROR_TEXT_BYTES, "the GPUs cannot be used: %.400s",
			       report->problem);
	else
		(void)snprintf(why, ERROR_TEXT_BYTES, "%s", gpu_report_cufile_text(report, cufile));
	return !report || report->problem[0] || !report->has_cufile;
}

struct gpu_way gpu_way(enum gpu_engine engine, const struct gpu_report *report, bool is_probing)
{
	struct gpu_way way = { .way = WIRE__GPU_WAY__GPU_COPY };

	if (engine == GPU_ENGINE_LIBAIO)
		(void)snprintf(way.why, sizeof(way.why),
			       "the daemon's configuration says engine = libaio");
	else if (is_probing)
		(void)snprintf(way.why, sizeof(way.why), "the GPU driver has not answered yet");
	if (engine == GPU_ENGINE_LIBAIO)
		return way;
	way.can_import = is_probing || !has_obstacle(report, way.why);
	if (engine == GPU_ENGINE_GDS) {
		if (!is_probing && !report)
			(void)snprintf(way.why, sizeof(way.why),
				       "the daemon has found no GPU on this host: see whether "
				       "nvidia-smi finds one and restart the daemon, or set "
				       "engine = auto");
		way.way = WIRE__GPU_WAY__GPU_DIRECT;
		return way;
	}
	if (way.can_import)
		way.way = WIRE__GPU_WAY__GPU_AUTO;
	return way;
}

struct gpu_way service_gpu_way(const struct service *service)
{
	return gpu_way(service->registry.config->engine, gpu_probe_report(service->gpus),
		       gpu_probe_is_running(service->gpus));
}

/* ---- what was measured ---- */

static bool has_gpu(const struct gpu_report *report, const char *uuid)
{
	for (unsigned i = 0; report && i < report->n_gpus; i++)
		if (strcmp(report->gpus[i].uuid, uuid) == 0)
			return true;
	return false;
}

static void rates_keep(struct gpu_rates_row *row, const Wire__GpuRates *wire)
{
	for (size_t i = 0; i < wire->n_rates; i++) {
		const Wire__GpuRate *rate = wire->rates[i];

		row->rates[!!rate->is_write][rate->len_class] = (struct gpu_rate){
			rate->direct_rate, rate->copied_rate, rate->is_direct, rate->error
		};
	}
}

int session_gpu_rates(struct session *session, const Wire__GpuRates *wire,
		      const struct gpu_rates_row **ret_row, struct error *error)
{
	struct service *service = session->service;
	const struct store *store = registry_by_id(&service->registry, wire->store);
	const struct gpu_way way = service_gpu_way(service);
	const uid_t uid = session->user->uid;
	char uuid[GPU_UUID_BYTES];
	struct gpu_rates_row *row;
	int r;

	if (way.way != WIRE__GPU_WAY__GPU_AUTO)
		return error_set_plain(error, -EOPNOTSUPP,
				       "gpu_rates: the daemon does not choose by them: %s",
				       way.why);
	if (!store)
		return error_set_plain(error, -ENXIO,
				       "gpu_rates: store %" PRIu32
				       ": the daemon has none with this id",
				       wire->store);
	r = registry_check_access(&service->registry, store, &session->peer, "gpu_rates", error);
	if (r < 0)
		return r;
	gpu_uuid_print(wire->uuid.data, uuid);
	if (!has_gpu(gpu_probe_report(service->gpus), uuid))
		return error_set_plain(error, -ENODEV, "gpu_rates: the daemon has found no %s",
				       uuid);
	if (wire->n_rates) {
		row = gpu_rates_get(&service->gpu_rates, uid, store->name, uuid);
		if (!row)
			return error_set(error, -ENOMEM, "gpu_rates");
		rates_keep(row, wire);
	} else {
		row = gpu_rates_find(&service->gpu_rates, uid, store->name, uuid);
	}
	*ret_row = row;
	return 0;
}

bool service_gpu_copies(const struct service *service)
{
	const struct gpu_report *report = gpu_probe_report(service->gpus);

	return report && !report->nvfs_major && !report->nvfs_minor && !report->has_p2pdma;
}

int gpu_rates_to_wire(const struct gpu_rates_row *row, size_t *ret_n, Wire__GpuRate ***ret_rates)
{
	*ret_rates = calloc((size_t)2 * N_GPU_CLASSES, sizeof(Wire__GpuRate *));
	if (!*ret_rates)
		return -ENOMEM;
	for (unsigned i = 0; i < 2 * N_GPU_CLASSES; i++) {
		const struct gpu_rate *rate = &row->rates[i / N_GPU_CLASSES][i % N_GPU_CLASSES];
		Wire__GpuRate *one;

		if (!rate->direct_rate)
			continue;
		one = WIRE_NEW(Wire__GpuRate, wire__gpu_rate);
		if (!one)
			return -ENOMEM;
		(*ret_rates)[(*ret_n)++] = one;
		one->is_write = i >= N_GPU_CLASSES;
		one->len_class = i % N_GPU_CLASSES;
		one->direct_rate = rate->direct_rate;
		one->copied_rate = rate->copied_rate;
		one->is_direct = rate->is_direct;
		one->error = rate->error;
	}
	return 0;
}

/* ---- imports ---- */

/* An import that waits for the end of the probe. */
struct gpu_wait {
	struct list_node node; /* in the service's list */
	struct call *call;
	struct gds_handle handle; /* its descriptor is owned */
};

/* The probe has ended.  Takes the handle's descriptor. */
static int import_now(struct session *session, const struct gds_handle *handle, struct call *call,
		      struct error *error)
{
	const struct gpu_way way = service_gpu_way(session->service);

	if (way.can_import)
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
			"GPU memory: %" PRIu32 " requests of this client and %" PRIu32
			" of its user wait for the GPU driver, of at most %" PRIu64 " and %" PRIu64
			" (half of client_requests and user_requests in "
			"dsaiod.conf): see whether nvidia-smi returns",
			session->n_imports, session->user->n_imports, most, user_most);
	call->is_import = true;
	session->n_imports++;
	session->user->n_imports++;
	return 0;
}

int session_gpu_import(struct session *session, const struct gds_handle *handle, struct call *call,
		       struct error *error)
{
	struct service *service = session->service;
	struct gpu_wait *wait;
	int r = import_count(session, call, error);

	if (r < 0) {
		session_close_fds(session, &handle->fd, 1);
		return r;
	}
	if (service->registry.config->engine == GPU_ENGINE_LIBAIO ||
	    !gpu_probe_is_running(service->gpus))
		return import_now(session, handle, call, error);
	wait = calloc(1, sizeof(*wait));
	if (!wait) {
		session_close_fds(session, &handle->fd, 1);
		return error_set(error, -ENOMEM, "GPU memory");
	}
	wait->call = call;
	wait->handle = *handle;
	list_push(&service->gpu_waits, &wait->node);
	return 0;
}

static void on_registered(struct file *file, int result, const struct error *failed, void *arg)
{
	struct call *call = arg;

	(void)file;
	call->on_done(call, result, failed);
}

int session_file_gpu(struct session *session, uint32_t id, const char uuid[sizeof(CUuuid)],
		     struct call *call, struct error *error)
{
	const struct service *service = session->service;
	const struct gpu_way way = service_gpu_way(service);
	struct file *file = id_table_get(&session->objects.files, id);
	int r;

	if (!file)
		return session_no_such(error, "file", id);
	if (!way.can_import)
		return error_set_plain(error, -EOPNOTSUPP,
				       "file %s: the daemon does not use GPU memory: %s",
				       file->name, way.why);
	/* A client asks when it has imported memory, whose reply came after the probe. */
	if (gpu_probe_is_running(service->gpus))
		return error_set_plain(error, -EAGAIN,
				       "file %s: the GPU driver has not answered yet", file->name);
	r = import_count(session, call, error);
	return r < 0 ? r : gpu_file_register(file, uuid, on_registered, call, error);
}

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
		(void)error_set(&error, -ECANCELED, "GPU memory: the connection ends");
		call->on_done(call, error.code, &error);
	}
}

void gpus_on_probe_end(void *arg)
{
	struct service *service = arg;
	struct gpu_wait *wait;

	/* An answer may end its session, and with it other waits. */
	while ((wait = list_entry(service->gpu_waits.first, struct gpu_wait, node))) {
		const struct gds_handle handle = wait->handle;
		struct call *call = wait->call;
		struct error error;
		int r;

		wait_free(service, wait);
		r = import_now(call->session, &handle, call, &error);
		if (r < 0)
			call->on_done(call, r, &error);
	}
}
