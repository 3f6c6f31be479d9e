/*
 * GPU memory of sessions: the way that it takes to and from files, and its imports.
 *
 * The way follows from the configuration (engine) and from what the probe of GPUs has found.  The client
 * follows it: Hello names it.  An import that comes while the probe still runs waits for its end.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_DEVICES_H
#define DSAIO_DAEMON_CONTROL_DEVICES_H

#include "daemon/base/error.h"
#include "daemon/config/config.h"
#include "daemon/engine/gds.h"
#include "proto/dsaio.pb-c.h"

#include <stdbool.h>

struct call;
struct gpu_report;
struct service;
struct session;

struct gpu_way {
	Wire__GpuWay way;
	bool can_import;	    /* as far as is known: the probe may still run */
	char why[ERROR_TEXT_BYTES]; /* the reason, for people */
};
/* report: NULL: the probe has found nothing.  is_probing: it has not ended. */
struct gpu_way gpu_way(enum gpu_engine engine, const struct gpu_report *report, bool is_probing);
/* The way of the service's clients, now. */
struct gpu_way service_gpu_way(const struct service *service);

/* on_done with call->slab, which has no descriptor.  Takes the handle's descriptor, also on error.
   Further errors: -EOPNOTSUPP (no import is possible here). */
int session_device_import(struct session *session, const struct gds_handle *handle,
			  struct call *call, struct error *error);
/* The session ends: imports that wait for the probe end with -ECANCELED. */
void session_stop_imports(struct session *session);

/* The probe has ended: imports that waited go on.  arg: the service. */
void devices_on_probe_end(void *arg);

#endif
