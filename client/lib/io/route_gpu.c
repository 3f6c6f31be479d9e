#include "client/lib/io/route_gpu.h"

#include "client/lib/io/file_gpu.h"
#include "client/lib/memory/gpu_copy.h"

#include <string.h>

/* The memory may go directly.  Does the file?  As route_gpu(). */
static int route_file(const struct op_request *q, struct buffer_place *place, char **ret_why)
{
	_cleanup_(freep) char *why = NULL;
	int r = file_gpu_register(q->file, gpu_memory_uuid(place), &why);

	if (r == 0)
		return 1;
	buffer_unref(place->piece);
	*place = (struct buffer_place){ .slab = NULL };
	if (r == -ENOTCONN)
		return error_fail(r, "%s: %s", q->function, why ? why : strerrordesc_np(-r));
	r = gpu_memory_refuse_file(&q->handle->client->gpu, q->function, r, why);
	if (r == 0)
		*ret_why = TAKE_PTR(why);
	return r;
}

int route_gpu(const struct op_request *q, struct buffer_place *ret_place, int *ret_gpu,
	      char **ret_why)
{
	struct gpu_memory *gpu = &q->handle->client->gpu;
	int r;

	*ret_gpu = gpus_find(q->buf);
	if (*ret_gpu < 0)
		return 0;
	if (gpu->can_import && !gpu->must_import && file_gpu_is_refused(q->file, ret_why)) {
		gpu_memory_tend(gpu);
		return 0;
	}
	r = gpu_memory_ref(gpu, q->function, q->buf, q->len, ret_place);
	return r == 1 ? route_file(q, ret_place, ret_why) : r;
}

bool route_gpu_asks(const struct op_request *q)
{
	return q->handle->client->gpu.can_import && !q->iov && q->len &&
	       !file_gpu_is_known(q->file) && gpus_find(q->buf) >= 0;
}
