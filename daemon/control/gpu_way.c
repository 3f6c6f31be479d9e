#include "daemon/control/gpu_way.h"

#include "daemon/control/service.h"
#include "daemon/engine/gpu_probe.h"

#include <stdio.h>

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
	if (is_probing || (way.can_import && !gpu_report_copies(report)))
		way.way = WIRE__GPU_WAY__GPU_AUTO;
	return way;
}

struct gpu_way service_gpu_way(const struct service *service)
{
	return gpu_way(service->registry.config->engine, gpu_probe_report(service->gpu_probe),
		       gpu_probe_is_running(service->gpu_probe));
}
