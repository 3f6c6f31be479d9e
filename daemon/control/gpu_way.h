/*
 * The way that GPU memory takes to and from files.
 *
 * It follows from the configuration (engine) and from what the probe of GPUs has found.  The client follows it:
 * Hello names it.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_GPU_WAY_H
#define DSAIO_DAEMON_CONTROL_GPU_WAY_H

#include "daemon/base/error.h"
#include "daemon/config/config.h"
#include "proto/dsaio.pb-c.h"

#include <stdbool.h>

struct gpu_report;
struct service;

struct gpu_way {
	Wire__GpuWay way;
	bool can_import; /* where a client demands it; as far as is known: the probe may still run */
	char why[ERROR_TEXT_BYTES]; /* the reason, for people */
};
/* report: NULL: the probe has found nothing.  is_probing: it has not ended. */
struct gpu_way gpu_way(enum gpu_engine engine, const struct gpu_report *report, bool is_probing);
/* The way of the service's clients, now. */
struct gpu_way service_gpu_way(const struct service *service);

#endif
