#include "daemon/control/files.h"

#include "daemon/base/memfd.h"
#include "daemon/control/idle_files.h"
#include "daemon/control/session.h"
#include "daemon/engine/engine.h"
#include "proto/file_board.h"
#include "proto/util/cleanup.h"
#include "proto/util/socket.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* ---- the file board ---- */

/* The board has room for all files that the client may have: untouched pages take no memory. */
int session_make_board(struct session *session, int *ret_fd, struct error *error)
{
	uint32_t max_files = id_table_end(&session->objects.files);
	size_t bytes = file_board_bytes(max_files);
	_cleanup_(closep) int fd = -1;
	void *board;
	int r;

	r = memfd_new_sealed("dsaio-files", bytes, 0);
	if (r < 0)
		return error_set(error, r, "hello: the file board");
	fd = r;
	board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (board == MAP_FAILED)
		return error_set(error, -errno, "hello: the file board");
	session->board = board;
	session->board_bytes = bytes;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

void session_free_board(struct session *session)
{
	if (session->board)
		(void)munmap((void *)session->board,
			     session->board_bytes); /* the whole mapping: cannot fail */
}

/* ---- add and remove ---- */

int session_check_drained(const struct store *store, const char *name, struct error *error)
{
	if (!lane_store_is_drained(&store->lane_store))
		return 0;
	return error_set_plain(error, -ENOMEDIUM,
			       "file %s: store %s is drained: an administrator has it refuse new "
			       "files and ops, until dsaioctl undrain %s",
			       name, store->name, store->name);
}

void session_file_made(struct file *file, struct store *store, int result, struct error *error,
		       struct call *call)
{
	struct session *session = call->session;
	struct share *share = NULL;
	char name[sizeof(file->name) + 8];

	if (result == 0 && session_is_ending(session))
		result = session_end_error(session, "file ", file->name, error);
	/* Files that an earlier daemon had may be synced; intake refuses their other ops. */
	if (result == 0 && !call->wanted_id)
		result = session_check_drained(store, file->name, error);
	if (result == 0) {
		share = share_get(session, store);
		result = share ? 0 : error_set(error, -ENOMEM, "file %s", file->name);
	}
	if (result == 0) {
		share->n_files++;
		file->share = share;
		file->on_closed = share_lose_file;
		(void)snprintf(name, sizeof(name), "file %s", file->name);
		result = file_attach(file, store, &store->inodes, store->engine->align);
		if (result < 0)
			(void)error_set(error, result, "%s", name);
		else
			result = session_add(&session->objects.files, file, name, call->wanted_id,
					     &file->id, error);
	}
	if (result < 0) {
		file_unref_for(file, session_object_gone, session);
		call->on_done(call, result, error);
		return;
	}
	assert(file_board_index(file->id) < session->board_bytes / sizeof(*session->board));
	file_board_set_used(session->board, file->id);
	idle_files_watch(session);
	call->file = file;
	call->on_done(call, 0, NULL);
}

static void on_file_checked(struct file *file, int result, const struct error *failed, void *arg)
{
	struct call *call = arg;
	struct session *session = call->session;
	struct store *store = NULL;
	struct error error;

	if (result < 0) {
		session->n_objects--;
		call->on_done(call, result, failed);
		return;
	}
	if (!session_is_ending(session))
		result = registry_for_file(&session->service->registry, &file->facts, file->name,
					   &session->peer, &store, &error);
	session_file_made(file, store, result, &error, call);
}

int session_file_with_fd(const struct session *session, uint32_t id, const char *what,
			 struct file **ret_file, struct error *error)
{
	struct file *file = id_table_get(&session->objects.files, id);

	if (!file)
		return session_no_such(error, "file", id);
	if (file->target.kind != TARGET_FILE)
		return error_set_plain(
			error, -EOPNOTSUPP,
			"%s: file %s is on RADOS and has no descriptor: read and write "
			"it by this library",
			what, file->name);
	*ret_file = file;
	return 0;
}

int session_file_add(struct session *session, int fd, const char *name, struct call *call,
		     struct error *error)
{
	int r;

	idle_files_reclaim(session);
	r = file_make(&session->quota, session->user->work_queue, session->user->gpu_work_queue,
		      session->service->mailbox, &session->who, fd, name, on_file_checked, call,
		      error);
	if (r < 0)
		session_close_fds(session, &fd, 1);
	else
		session->n_objects++;
	return r;
}

static void on_registered(int result, const struct error *error, void *arg)
{
	struct call *call = arg;

	call->on_done(call, result, error);
}

int session_file_gpu(struct session *session, uint32_t id, const char uuid[sizeof(CUuuid)],
		     struct call *call, struct error *error)
{
	struct file *file = NULL;
	int r = session_file_with_fd(session, id, "file_gpu", &file, error);

	if (r < 0)
		return r;
	return gpu_file_register(&session->gpu, file, uuid, on_registered, call, error);
}

int session_file_remove(struct session *session, uint32_t id, struct call *call,
			struct error *error)
{
	return session_remove(session, &session->objects.files, id, "file", file_unref_for,
			      session_object_removed, call, error);
}

static void on_buffered_added(struct file *file, int result, const struct error *failed, void *arg)
{
	struct call *call = arg;

	(void)file;
	call->on_done(call, result, failed);
}

int session_file_buffered(struct session *session, uint32_t id, int fd, struct call *call,
			  struct error *error)
{
	struct file *file = NULL;
	int r;

	idle_files_reclaim(session); /* it is charged like a file */
	r = session_file_with_fd(session, id, "file_buffered", &file, error);
	if (r == 0)
		r = file_add_buffered(file, fd, on_buffered_added, call, error);
	if (r < 0)
		session_close_fds(session, &fd, 1);
	return r;
}

int session_file_get(struct session *session, uint32_t id, int *ret_fd, struct error *error)
{
	struct file *file = NULL;
	int fd, r = session_file_with_fd(session, id, "file_get", &file, error);

	if (r < 0)
		return r;
	fd = fcntl(file->target.fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return error_set(error, -errno, "file %s: a descriptor for it", file->name);
	session->has_got_files = true;
	*ret_fd = fd;
	return 0;
}
