#include "daemon/control/devices.h"

#include "daemon/control/session.h"
#include "daemon/engine/gpu_probe.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdlib.h>

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

/* Does cuFile copy through memory of its own? */
static bool is_in_compatibility_mode(const struct gpu_report *report)
{
	return !report->nvfs_major && !report->nvfs_minor && !report->has_p2pdma;
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
		way.way = WIRE__GPU_WAY__GPU_DIRECT;
		return way;
	}
	if (!is_probing && way.can_import && is_in_compatibility_mode(report))
		way.can_import = false; /* a copy by the client costs less */
	if (way.can_import)
		way.way = WIRE__GPU_WAY__GPU_AUTO;
	return way;
}

struct gpu_way service_gpu_way(const struct service *service)
{
	return gpu_way(service->registry.config->engine, gpu_probe_report(service->gpus),
		       gpu_probe_is_running(service->gpus));
}

/* ---- imports ---- */

/* An import that waits for the end of the probe. */
struct device_wait {
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

int session_device_import(struct session *session, const struct gds_handle *handle,
			  struct call *call, struct error *error)
{
	struct service *service = session->service;
	struct device_wait *wait;

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
	list_push(&service->device_waits, &wait->node);
	return 0;
}

static void wait_free(struct service *service, struct device_wait *wait)
{
	list_remove(&service->device_waits, &wait->node);
	free(wait);
}

void session_stop_imports(struct session *session)
{
	struct service *service = session->service;

	LIST_EACH(struct device_wait, wait, &service->device_waits, node) {
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

void devices_on_probe_end(void *arg)
{
	struct service *service = arg;
	struct device_wait *wait;

	/* An answer may end its session, and with it other waits. */
	while ((wait = list_entry(service->device_waits.first, struct device_wait, node))) {
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
