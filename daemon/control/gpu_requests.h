/*
 * Requests of sessions that wait for the GPU's driver: imports of GPU memory, and registrations of files at
 * cuFile.  These wait for the file system, too, so neither takes the place of the other.
 *
 * An import that comes while the probe of GPUs still runs waits for its end.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_GPU_REQUESTS_H
#define DSAIO_DAEMON_CONTROL_GPU_REQUESTS_H

#include "daemon/base/error.h"
#include "daemon/engine/gds.h"

struct call;
struct session;

/*
 * on_done with call->slab, which has no descriptor.  Takes the handle's descriptor, also on error.  Further
 * errors: -EOPNOTSUPP (no import is possible here), -EAGAIN (half of the client's or user's requests are imports
 * that wait for the driver: the other half is for other requests).
 */
int session_gpu_import(struct session *session, const struct gds_handle *handle, bool must_import,
		       struct call *call, struct error *error);
/*
 * FileGpu: registers the file with cuFile.  on_done without a result.  Further errors: -EBADF (no such file),
 * -EOPNOTSUPP (the daemon uses no GPU memory), -EAGAIN (too many files of the client, the user, or of
 * the store for one of them, are registered now, or the probe of GPUs has not ended).
 */
int session_file_gpu(struct session *session, uint32_t id, const char uuid[sizeof(CUuuid)],
		     struct call *call, struct error *error);

/* The session ends: imports that wait for the probe end with -ECANCELED. */
void session_stop_imports(struct session *session);

/* The probe has ended: imports that waited go on.  arg: the service. */
void gpu_requests_on_probe_end(void *arg);

#endif
