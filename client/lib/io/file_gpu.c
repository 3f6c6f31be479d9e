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

/* Under gpu.lock, as all of the below.  error: one that may pass.  Takes why. */
static void set_state(struct file_session *session, enum file_gpu new, int error, char *why)
{
	free(session->gpu_why); /* that of an error which may pass: read under the lock only */
	session->gpu_why = why;
	session->gpu_error = error;
	/* release: pairs with file_gpu_is_refused(); the reason is there */
	atomic_store_explicit(&session->gpu, (int)new, memory_order_release);
}

/* Asks, in the place of all threads.  The lock is released meanwhile. */
static int answer(struct gpu_memory *gpu, struct dsaio_file *file, const CUuuid *uuid,
		  char **ret_why)
{
	struct file_session *session = &file->session;
	bool has_pause;
	int r;

	set_state(session, FILE_GPU_ASKED, 0, NULL);
	for (;;) {
		(void)pthread_mutex_unlock(&gpu->lock);
		r = ask(file, uuid);
		(void)pthread_mutex_lock(&gpu->lock);
		if (r != -EAGAIN || !gpu->must_import)
			break;
		gpu_memory_await_room(gpu); /* the daemon is busy with others' files */
	}
	if (r < 0) {
		*ret_why = strdup(dsaio_error());
		debug_log("GPU memory: %s is copied: %s", file->name, dsaio_error());
	}
	/* Ops need not ask again at once, except after -EAGAIN: the daemon has room soon. */
	has_pause = r < 0 && r != -EAGAIN && r != -ENOTCONN;
	session->gpu_retry_nsec = clock_nsec() + gpu->pause_nsec;
	set_state(session,
		  r == 0	     ? FILE_GPU_TAKEN
		  : r == -EOPNOTSUPP ? FILE_GPU_REFUSED
				     : FILE_GPU_NOT_ASKED,
		  has_pause ? r : 0, has_pause ? strdup(dsaio_error()) : NULL);
	(void)pthread_cond_broadcast(&gpu->changed);
	return r;
}

int file_gpu_register_slow(struct dsaio_file *file, const CUuuid *uuid, char **ret_why)
{
	struct gpu_memory *gpu = &file->client->gpu;
	const struct file_session *session = &file->session;
	int r = 0;
	LOCKED(&gpu->lock);

	while (session->gpu == FILE_GPU_ASKED && gpu->must_import)
		(void)pthread_cond_wait(&gpu->changed, &gpu->lock);
	if (session->gpu == FILE_GPU_ASKED) {
		r = -EAGAIN;
		*ret_why = strdup("the daemon has not yet answered whether cuFile takes the file");
	} else if (session->gpu == FILE_GPU_NOT_ASKED &&
		   (!session->gpu_error || clock_nsec() >= session->gpu_retry_nsec)) {
		r = answer(gpu, file, uuid, ret_why);
	} else if (session->gpu != FILE_GPU_TAKEN) {
		r = session->gpu_error;
		*ret_why = session->gpu_why ? strdup(session->gpu_why) : NULL;
	}
	return r;
}

bool file_gpu_is_refused(struct dsaio_file *file, char **ret_why)
{
	/* acquire: pairs with set_state(); the reason does not change from then on */
	if (atomic_load_explicit(&file->session.gpu, memory_order_acquire) != FILE_GPU_REFUSED)
		return false;
	*ret_why = file->session.gpu_why ? strdup(file->session.gpu_why) : NULL;
	return true;
}
