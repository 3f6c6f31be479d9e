#include "client/lib/io/file_gpu.h"

#include "client/lib/base/debug.h"
#include "proto/util/clock.h"

#include <stdlib.h>
#include <string.h>

/* Returns 0 or a negative errno, with a message. */
static int ask(const struct dsaio_file *file, const CUuuid *uuid)
{
	Wire__FileGpu body = WIRE__FILE_GPU__INIT;
	Wire__Request request = WIRE_REQUEST(FILE_GPU, file_gpu, &body);

	body.file = file->session.id;
	body.uuid = (ProtobufCBinaryData){ sizeof(uuid->bytes), /* only read */
					   (uint8_t *)(uintptr_t)uuid->bytes };
	return conn_call(file->client->conn, "GPU memory", &request, NULL, 0, NULL, NULL);
}

int file_gpu_register_slow(struct dsaio_file *file, const CUuuid *uuid, char **ret_why)
{
	struct gpu_memory *gpu = &file->client->gpu;
	struct file_session *session = &file->session;
	bool has_pause;
	int r;

	(void)pthread_mutex_lock(&gpu->lock); /* a plain mutex: cannot fail */
	r = clock_nsec() < session->gpu_retry_nsec ? session->gpu_error : 0;
	if (r < 0)
		*ret_why = session->gpu_why ? strdup(session->gpu_why) : NULL;
	(void)pthread_mutex_unlock(&gpu->lock);
	if (r < 0)
		return r;
	/* -EAGAIN: the daemon is busy with others' files, or another thread has asked about this one. */
	while ((r = ask(file, uuid)) == -EAGAIN && gpu->must_import)
		gpu_memory_await_room();
	if (r < 0) {
		*ret_why = strdup(dsaio_error());
		debug_log("GPU memory: %s is copied: %s", file->name, dsaio_error());
	}
	LOCKED(&gpu->lock);
	if (session->gpu != FILE_GPU_UNKNOWN) /* by another thread */
		return r;
	/* Ops need not ask again at once, except after -EAGAIN: the daemon has room soon. */
	has_pause = r < 0 && r != -EAGAIN && r != -ENOTCONN;
	free(session->gpu_why); /* that of an error which may pass: read under the lock only */
	session->gpu_why = has_pause ? strdup(dsaio_error()) : NULL;
	session->gpu_error = has_pause ? r : 0;
	session->gpu_retry_nsec = r == -EOPNOTSUPP ? UINT64_MAX : clock_nsec() + gpu->pause_nsec;
	/* release: pairs with file_gpu_is_refused(); the reason is there */
	atomic_store_explicit(&session->gpu,
			      r == 0		 ? FILE_GPU_TAKEN
			      : r == -EOPNOTSUPP ? FILE_GPU_REFUSED
						 : FILE_GPU_UNKNOWN,
			      memory_order_release);
	return r;
}

bool file_gpu_is_refused(struct dsaio_file *file, char **ret_why)
{
	/* acquire: pairs with file_gpu_register_slow(); the reason does not change from then on */
	if (atomic_load_explicit(&file->session.gpu, memory_order_acquire) != FILE_GPU_REFUSED)
		return false;
	*ret_why = file->session.gpu_why ? strdup(file->session.gpu_why) : NULL;
	return true;
}
