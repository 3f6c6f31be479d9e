#include "daemon/engine/device_slab.h"

#include "proto/util/cleanup.h"

#include <stddef.h>

struct device_slab {
	struct slab slab;
	struct gds_handle handle;
	struct gds_memory *memory; /* NULL: not imported */
};
static_assert(offsetof(struct device_slab, slab) == 0, "the pool frees it by its slab");

static struct device_slab *device_slab(struct slab *slab)
{
	return container_of(slab, struct device_slab, slab);
}

static int import(struct slab *slab)
{
	struct device_slab *device = device_slab(slab);
	const struct gds_handle handle = device->handle;

	device->handle.fd = -1; /* the callee's */
	return gds_import(&handle, &device->memory, &slab->region, &slab->error);
}

static void release(struct slab *slab)
{
	if (device_slab(slab)->memory)
		gds_release(device_slab(slab)->memory);
}

static const struct slab_kind kind_device = {
	.struct_bytes = sizeof(struct device_slab),
	.quota = QUOTA_DEVICE_BYTES,
	.making = "GPU import",
	.freeing = "GPU release",
	.make = import,
	.unmake = release,
};

int slab_import_device(struct pool *pool, struct quota *quota, struct work_queue *work_queue,
		       const struct gds_handle *handle, const struct hung_who *who,
		       void (*on_made)(struct slab *slab, int result, const struct error *error,
				       void *arg),
		       void *arg, struct error *error)
{
	struct slab *slab;
	int r = slab_new_of(&kind_device, pool, quota, work_queue, handle->size_bytes,
			    handle->size_bytes, &slab, error);

	if (r < 0)
		return r;
	device_slab(slab)->handle = *handle;
	slab->job.work.about = (struct hung_about){ .file = "GPU memory",
						    .is_gpu = true,
						    .who = *who };
	slab_start(slab, on_made, arg);
	return 0;
}
