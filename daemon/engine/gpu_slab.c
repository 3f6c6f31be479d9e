#include "daemon/engine/gpu_slab.h"

#include "proto/util/cleanup.h"

#include <stddef.h>

struct gpu_slab {
	struct slab slab;
	struct gds_handle handle;
	struct gds_memory *memory; /* NULL: not imported */
};
static_assert(offsetof(struct gpu_slab, slab) == 0, "the pool frees it by its slab");

static struct gpu_slab *gpu_slab(struct slab *slab)
{
	return container_of(slab, struct gpu_slab, slab);
}

static int import(struct slab *slab)
{
	struct gpu_slab *gpu = gpu_slab(slab);
	const struct gds_handle handle = gpu->handle;

	gpu->handle.fd = -1; /* the callee's */
	return gds_import(&handle, &gpu->memory, &slab->region, &slab->error);
}

static void release(struct slab *slab)
{
	if (gpu_slab(slab)->memory)
		gds_release(gpu_slab(slab)->memory);
}

static const struct slab_kind kind_gpu = {
	.struct_bytes = sizeof(struct gpu_slab),
	.quota = QUOTA_GPU_BYTES,
	.making = "GPU import",
	.freeing = "GPU release",
	.make = import,
	.unmake = release,
};

int gpu_slab_import(struct pool *pool, struct quota *quota, struct work_queue *work_queue,
		    const struct gds_handle *handle, const struct hung_who *who,
		    void (*on_made)(struct slab *slab, int result, const struct error *error,
				    void *arg),
		    void *arg, struct error *error)
{
	struct slab *slab;
	int r = slab_new_of(&kind_gpu, pool, quota, work_queue, handle->size_bytes,
			    handle->size_bytes, &slab, error);

	if (r < 0)
		return r;
	gpu_slab(slab)->handle = *handle;
	slab->job.work.about = (struct hung_about){ .file = "GPU memory",
						    .is_gpu = true,
						    .who = *who };
	slab_start(slab, on_made, arg);
	return 0;
}
