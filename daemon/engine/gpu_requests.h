/*
 * Clients' requests for GPU memory: the path that it takes to and from files, imports of allocations, and
 * registrations of files with cuFile.
 *
 * The path follows from the configuration (engine) and from what the probe of GPUs has found.  The client follows it:
 * Hello names it.
 *
 * An import is a slab (pool.h) without bytes of the pool.  One that comes while the probe still runs waits for its
 * end.  A file is registered before the first op between it and GPU memory, and until it is closed.
 *
 * Calls of the driver and of cuFile may hang, so they run on the user's worker threads and are reported if they do.
 * Imports have threads of their own.  cuFile calls a file's file system, so registrations have the threads for calls
 * into file systems, and neither takes the place of the other.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_ENGINE_GPU_REQUESTS_H
#define DSAIO_DAEMON_ENGINE_GPU_REQUESTS_H

#include "daemon/base/hung.h"
#include "daemon/config/config.h"
#include "daemon/engine/gds.h"
#include "daemon/engine/gpu_probe.h"
#include "daemon/object/pool.h"
#include "proto/dsaio.pb-c.h"

struct file;

/* Files of one user that cuFile registers at a time: half of the worker threads for its descriptors. */
#define GPU_FILES_MAX 32u

/* The daemon's. */
struct gpu_requests {
	enum gpu_mode mode;
	struct gpu_probe *probe; /* NULL: none */
	struct list waits;	 /* struct gpu_slab: imports that wait for its end */
};

/* Embedded in a user. */
struct gpu_user {
	const struct quota *quota;     /* the user's: its limit on requests */
	struct work_queue *work_queue; /* for the driver */
	uint32_t n_imports;	       /* not yet answered */
	struct list files;	       /* struct registration: in progress */
};

/* Embedded in a session; all it points to is borrowed. */
struct gpu_client {
	struct gpu_requests *requests;
	struct gpu_user *user;
	struct pool *pool;
	struct quota *quota; /* the client's */
	const struct hung_who *who;
	uint32_t n_imports;
};

struct gpu_path {
	Wire__GpuPath path;
	bool can_import; /* where a client demands it; as far as is known: the probe may still run */
	char why[ERROR_TEXT_BYTES]; /* the reason, for people */
};
/* report: NULL: the probe has found nothing.  is_probing: it has not ended. */
struct gpu_path gpu_path(enum gpu_mode mode, const struct gpu_report *report, bool is_probing);
/* That of the daemon's clients, now. */
struct gpu_path gpu_requests_path(const struct gpu_requests *requests);

/*
 * Imports the handle's allocation, charged to the client.  must_import: also where ops are copied by default.
 * Returns 0 and later calls on_made, as slab_make() does; its errors are those of gds_import(), and -EOPNOTSUPP.  Or
 * returns -EOPNOTSUPP (no import is possible here), -EAGAIN (half of the client's or user's requests are imports
 * that wait for the driver: the other half is for other requests), -EINVAL (a size of 0 or over 2^46), -EDQUOT,
 * -EMFILE or -ENOMEM, and calls nothing.  If on_made will be called, the handle's descriptor is taken; else it is
 * still the caller's.
 */
int gpu_import(struct gpu_client *client, const struct gds_handle *handle, bool must_import,
	       void (*on_made)(struct slab *slab, int result, const struct error *error, void *arg),
	       void *arg, struct error *error);

/* The client's session ends: imports that wait for the probe end with that error, soon. */
void gpu_imports_stop(struct gpu_client *client, const struct error *error);

/* The probe has ended: imports that waited go on.  arg: the requests. */
void gpu_requests_on_probe_end(void *arg);

/*
 * Registers a file with cuFile.  uuid: of a GPU, whose context the call needs.  The file is held until the end.
 * Returns 0 and later calls on_done with 0, or an error of gds_register(), whose message names the file.  Or returns
 * -EOPNOTSUPP (the daemon uses no GPU memory), -EAGAIN (too many files of the user, or of them on the store, or
 * this one, are being registered, or the probe of GPUs has not ended) or -ENOMEM, and calls nothing.
 */
int gpu_file_register(struct gpu_client *client, struct file *file, const char uuid[sizeof(CUuuid)],
		      void (*on_done)(int result, const struct error *error, void *arg), void *arg,
		      struct error *error);

#endif
