#include "daemon/control/gpu_rates_wire.h"

#include "daemon/control/gpu_way.h"
#include "daemon/control/session.h"
#include "proto/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
	if (!has_gpu(gpu_probe_report(service->gpu_probe), uuid))
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
