/*
 * A slab of GPU memory: an allocation of the client's that the daemon has imported (gds.h).  It has an id,
 * references and a free as other slabs have (pool.h), but no bytes of the pool.
 *
 * The driver's calls may hang, so they run on the user's worker threads and are reported if they do.
 */
#ifndef DSAIO_DAEMON_ENGINE_GPU_SLAB_H
#define DSAIO_DAEMON_ENGINE_GPU_SLAB_H

#include "daemon/base/hung.h"
#include "daemon/engine/gds.h"
#include "daemon/object/pool.h"

/*
 * Imports the handle's allocation, charged to quota.  who: for reports of calls that hang.  Returns 0 and
 * later calls on_made in the main thread, as slab_make() does; its errors are those of gds_import().  Or
 * returns -EINVAL (a size of 0 or over 2^46), -EDQUOT, -EMFILE or -ENOMEM, and calls nothing.  If
 * on_made will be called, the handle's descriptor is taken; else it is still the caller's.
 */
int gpu_slab_import(struct pool *pool, struct quota *quota, struct work_queue *work_queue,
		    const struct gds_handle *handle, const struct hung_who *who,
		    void (*on_made)(struct slab *slab, int result, const struct error *error,
				    void *arg),
		    void *arg, struct error *error);

#endif
