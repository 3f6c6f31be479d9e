#include "client/lib/io/file_gpu.h"

#include "client/lib/base/debug.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Returns 0 or a negative errno, with a sentence. */
static int ask(const struct dsaio_file *file, const CUuuid *uuid)
{
	struct dsaio_conn *conn = file->client->conn;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__FileGpu body = WIRE__FILE_GPU__INIT;

	/* An older daemon copies the bytes of such files itself. */
	if (!(conn_facts(conn).features & RING_FEATURE_GPU_FILE))
		return 0;
	body.file = file->session.id;
	body.uuid = (ProtobufCBinaryData){ sizeof(uuid->bytes), /* only read */
					   (uint8_t *)(uintptr_t)uuid->bytes };
	request.body_case = WIRE__REQUEST__BODY_FILE_GPU;
	request.file_gpu = &body;
	return conn_call(conn, "GPU memory", &request, NULL, 0, NULL, NULL, NULL);
}

/* Ops wait for the daemon's yes, as long as it takes.  Else they copy meanwhile. */
static bool must_be_taken(const struct dsaio_file *file)
{
	return file->client->gpu_regions.must_import;
}

/* Under files.lock. */
static enum file_gpu state(const struct dsaio_file *file)
{
	/* relaxed: it changes under the lock */
	return (enum file_gpu)atomic_load_explicit(&file->session.gpu, memory_order_relaxed);
}

/* Under files.lock.  Takes why. */
static void set_state(struct dsaio_file *file, enum file_gpu new, char *why)
{
	free(file->session.gpu_why); /* that of an error which may pass: read under the lock only */
	file->session.gpu_why = why;
	/* release: pairs with file_gpu_is_refused(); the reason is there */
	atomic_store_explicit(&file->session.gpu, (int)new, memory_order_release);
}

/* An error that may pass: ops need not ask again at once.  Not of -EAGAIN: the daemon has room soon. */
static bool has_pause(int error)
{
	return error < 0 && error != -EAGAIN && error != -ENOTCONN;
}

/* Asks, in the place of all threads.  Under files.lock, which is released meanwhile. */
static int answer(struct dsaio_file *file, const CUuuid *uuid, char **ret_why)
{
	/* a guess; as for imports, in gpu_region.c */
	static const struct timespec pause = { .tv_nsec = 10000000 };
	struct client_files *files = &file->client->files;
	struct file_session *session = &file->session;
	char *why = NULL;
	int r;

	set_state(file, FILE_GPU_ASKED, NULL);
	(void)pthread_mutex_unlock(&files->lock);
	r = ask(file, uuid);
	/* The daemon is busy with others' files. */
	while (r == -EAGAIN && must_be_taken(file)) {
		(void)nanosleep(&pause, NULL); /* a signal only makes it shorter */
		r = ask(file, uuid);
	}
	if (r < 0) {
		*ret_why = strdup(dsaio_error());
		why = has_pause(r) ? strdup(dsaio_error()) : NULL;
		debug_log("GPU memory: %s is copied: %s", file->name, dsaio_error());
	}
	(void)pthread_mutex_lock(&files->lock);
	session->gpu_error = has_pause(r) ? r : 0;
	session->gpu_retry_nsec = clock_nsec() + file->client->gpu_regions.pause_nsec;
	set_state(file,
		  r == 0	     ? FILE_GPU_TAKEN
		  : r == -EOPNOTSUPP ? FILE_GPU_REFUSED
				     : FILE_GPU_NOT_ASKED,
		  why);
	(void)pthread_cond_broadcast(&files->answered);
	return r;
}

int file_gpu_register_slow(struct dsaio_file *file, const CUuuid *uuid, char **ret_why)
{
	struct client_files *files = &file->client->files;
	const struct file_session *session = &file->session;
	int r = 0;

	(void)pthread_mutex_lock(&files->lock); /* a plain mutex: cannot fail */
	while (state(file) == FILE_GPU_ASKED && must_be_taken(file))
		(void)pthread_cond_wait(&files->answered, &files->lock);
	switch (state(file)) {
	case FILE_GPU_NOT_ASKED:
		if (!session->gpu_error || clock_nsec() >= session->gpu_retry_nsec) {
			r = answer(file, uuid, ret_why);
			break;
		}
		r = session->gpu_error;
		*ret_why = session->gpu_why ? strdup(session->gpu_why) : NULL;
		break;
	case FILE_GPU_ASKED:
		r = -EAGAIN;
		*ret_why = strdup("the daemon has not yet answered whether cuFile takes the file");
		break;
	case FILE_GPU_REFUSED:
		r = -EOPNOTSUPP;
		break;
	case FILE_GPU_TAKEN:
		break;
	}
	(void)pthread_mutex_unlock(&files->lock);
	if (r == -EOPNOTSUPP && !*ret_why)
		(void)file_gpu_is_refused(file, ret_why);
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
