/*
 * GPU memory of sessions: the way that it takes to and from files, what clients have measured of the
 * ways, its imports, and the files that cuFile takes.
 *
 * The way follows from the configuration (engine) and from what the probe of GPUs has found.  The client
 * follows it: Hello names it.  An import that comes while the probe still runs waits for its end.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_GPUS_H
#define DSAIO_DAEMON_CONTROL_GPUS_H

#include "daemon/base/error.h"
#include "daemon/config/config.h"
#include "daemon/engine/gds.h"
#include "proto/dsaio.pb-c.h"

#include <stdbool.h>

struct call;
struct gpu_rates_row;
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

/*
 * GpuRates, which was checked: keeps what a client has measured, if it has.  *ret_row: all that is kept of
 * its user, until the next call; NULL: nothing.  Errors: those of the message.
 */
int session_gpu_rates(struct session *session, const Wire__GpuRates *wire,
		      const struct gpu_rates_row **ret_row, struct error *error);
/* Does cuFile itself copy, so that the client's copies are the usual way? */
bool service_gpu_copies(const struct service *service);
/* Fills in a message's rates, whose number is 0 so far.  Returns 0 or -ENOMEM; the message's to free. */
int gpu_rates_to_wire(const struct gpu_rates_row *row, size_t *ret_n, Wire__GpuRate ***ret_rates);

/*
 * on_done with call->slab, which has no descriptor.  Takes the handle's descriptor, also on error.  Further
 * errors: -EOPNOTSUPP (no import is possible here), -EAGAIN (half of the client's or user's requests are imports
 * that wait for the driver: the other half is for requests that do not).
 */
int session_gpu_import(struct session *session, const struct gds_handle *handle, struct call *call,
		       struct error *error);
/*
 * FileGpu: registers the file with cuFile.  on_done without a result.  Further errors: -EBADF (no such file),
 * -EOPNOTSUPP (the daemon uses no GPU memory), -EAGAIN (as above, or the probe of GPUs has not ended).
 */
int session_file_gpu(struct session *session, uint32_t id, const char uuid[sizeof(CUuuid)],
		     struct call *call, struct error *error);

/* The session ends: imports that wait for the probe end with -ECANCELED. */
void session_stop_imports(struct session *session);

/* The probe has ended: imports that waited go on.  arg: the service. */
void gpus_on_probe_end(void *arg);

#endif
