/*
 * Recovery of files: handing those in use over to the next daemon, with the ids that they had.
 *
 *   the file                                     what is handed over
 *   its descriptor is kept here                  that one
 *     (also if it was unlinked, or came as a
 *     descriptor; it is kept until the close)
 *   it is not, and the file has a path           the path, opened again, if it is the same inode; never with
 *                                                O_CREAT, O_EXCL or O_TRUNC
 *   it is not, and has none, or names another    nothing: -ESTALE
 *   it had a buffered description                another one
 *   it is of a RADOS store                       its id, size and the like, never the file that has its name now
 *   it is only cached                            nothing: it leaves the cache
 */
#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/io/file_fd.h"
#include "client/lib/io/file_named.h"
#include "client/lib/io/file_open.h"

#include <stdlib.h>

/* A file system may hang; the others are not to wait for it.  A guess. */
#define FILE_MSEC 10000u

/* All files in use, each with a reference for the caller.  Returns how many, or -ENOMEM. */
static int files_take(struct dsaio_client *client, struct dsaio_file ***ret_files)
{
	struct dsaio_file **files = NULL;
	int n = 0;

	(void)pthread_mutex_lock(&client->files.lock); /* plain mutexes: cannot fail */
	(void)pthread_mutex_lock(&client->lock);
	LIST_EACH(struct client_object, object, &client->objects[CLIENT_FILE], node)
		n++;
	files = calloc((size_t)n + 1, sizeof(*files));
	n = 0;
	LIST_EACH(struct dsaio_file, file, &client->objects[CLIENT_FILE], object.node) {
		if (!files || !atomic_load(&file->n_refs))
			continue;
		file_add_ref(file);
		file->session.number = conn_attempt(client->conn);
		files[n++] = file;
	}
	(void)pthread_mutex_unlock(&client->lock);
	(void)pthread_mutex_unlock(&client->files.lock);
	*ret_files = files;
	return files ? n : -ENOMEM;
}

static int hand_over_direct(struct dsaio_file *file, struct dsaio_conn *next, int fd)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__FileAdd body = WIRE__FILE_ADD__INIT;
	Wire__Request request = WIRE_REQUEST(FILE_ADD, file_add, &body);
	int r;

	body.name = file->name;
	body.file = file->session.id;
	r = conn_call_for(next, "open", &request, &fd, 1, deadline_in_msec(FILE_MSEC), &reply,
			  NULL);
	if (r == 0 && reply->file_add->store != file->session.store)
		r = error_fail(-ENXIO,
			       "file %s: its store is not the one that it was before the restart",
			       file->name);
	return r;
}

static int hand_over_buffered(struct dsaio_file *file, struct dsaio_conn *next, int fd)
{
	Wire__FileBuffered body = WIRE__FILE_BUFFERED__INIT;
	Wire__Request request = WIRE_REQUEST(FILE_BUFFERED, file_buffered, &body);
	_cleanup_(closep) int buffered = file_open_buffered(file, fd);

	if (buffered < 0)
		return buffered;
	body.file = file->session.id;
	return conn_call_for(next, "open", &request, &buffered, 1, deadline_in_msec(FILE_MSEC),
			     NULL, NULL);
}

/* Returns 0, also if it could not be; or -ENOTCONN. */
static int hand_over_by(struct dsaio_file *file, struct dsaio_conn *next, int fd)
{
	struct client_files *files = &file->client->files;
	int r = fd < 0 ? fd : hand_over_direct(file, next, fd);

	if (file->named.id)
		r = file_named_hand_over(file, next, deadline_in_msec(FILE_MSEC));
	if (r == -ETIMEDOUT && !conn_answers(next)) /* it is the daemon that hangs */
		r = -ENOTCONN;
	if (r < 0 && r != -ENOTCONN) {
		atomic_store(&file->session.error, r);
		(void)pthread_mutex_lock(&files->lock);
		cache_remove(&files->cache, &file->entry); /* an open must not find it */
		(void)pthread_mutex_unlock(&files->lock);
		debug_log("file %s cannot be handed over: %s", file->name, dsaio_error());
		return 0;
	}
	if (r == 0 && atomic_load(&file->session.has_buffered)) {
		r = hand_over_buffered(file, next, fd);
		/* The next op that needs it asks again.  But if `next` has gone away, the one after it
		   gets it, as ops that are open need it, too. */
		if (r < 0 && r != -ENOTCONN) {
			(void)pthread_mutex_lock(&files->lock);
			atomic_store(&file->session.has_buffered, false);
			files->n--;
			(void)pthread_mutex_unlock(&files->lock);
		}
	}
	(void)pthread_mutex_lock(&file->client->gpu.lock);
	if (atomic_load(&file->session.gpu) == FILE_GPU_TAKEN)
		atomic_store(&file->session.gpu, FILE_GPU_UNKNOWN);
	(void)pthread_mutex_unlock(&file->client->gpu.lock);
	return r == -ENOTCONN ? r : 0;
}

/* As hand_over_by().  A kept descriptor is not duplicated: the close of one may hang. */
static int file_hand_over(struct dsaio_file *file, struct dsaio_conn *next)
{
	_cleanup_(closep) int opened = -1;
	const int kept = file_fd_take_kept(file);
	int r;

	if (kept < 0 && !file->named.id)
		opened = file_open_again(file);
	r = hand_over_by(file, next, kept < 0 ? opened : kept);
	if (kept >= 0)
		file_fd_release(file);
	return r;
}

int files_hand_over(struct dsaio_client *client, struct dsaio_conn *next, uint32_t *n_refused)
{
	_cleanup_(freep) struct dsaio_file **files = NULL;
	int n = files_take(client, &files), n_done = 0, r = 0;
	uint64_t hung_dev = 0;
	bool is_hung = false;

	if (n < 0)
		return -ENOTCONN; /* tried again */
	for (int i = 0; i < n; i++) {
		struct file_session *session = &files[i]->session;
		const bool was_refused = atomic_load(&session->error);

		if (is_hung && files[i]->identity.dev == hung_dev && !was_refused)
			atomic_store(&session->error, -ETIMEDOUT); /* once is enough */
		if (r == 0 && !atomic_load(&session->error))
			r = file_hand_over(files[i], next);
		if (atomic_load(&session->error) == -ETIMEDOUT) {
			is_hung = true;
			hung_dev = files[i]->identity.dev;
		}
		n_done += !atomic_load(&session->error);
		*n_refused += !was_refused && atomic_load(&session->error);
		file_drop_ref(files[i]);
	}
	return r < 0 ? r : n_done;
}
