#include "daemon/control/objects.h"

#include "daemon/control/session.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* A slab or file that was removed from the table, until all lanes have answered. */
struct removal {
	struct id_table *table;
	uint32_t id;
	void *object;
	void (*unref)(void *object, void (*on_freed)(void *arg), void *arg);
	void (*on_freed)(void *arg);
	void *arg;
	uint32_t n_unquiet; /* lanes that have not answered yet */
	struct quiet {
		struct lane_quiesce quiesce;
		struct removal *removal;
	} quiets[];
};

int session_no_such(struct error *error, const char *what, uint32_t id)
{
	return error_set_plain(error, -EBADF,
			       "%s %" PRIu32
			       ": this client has none with this id; it was closed, or never "
			       "opened here",
			       what, id);
}

int session_add(struct id_table *table, void *object, const char *name, uint32_t wanted_id,
		uint32_t *ret_id, struct error *error)
{
	int r = id_table_add(table, object, wanted_id, ret_id);

	if (r == -EEXIST)
		return error_set_plain(error, r,
				       "%s: its id %" PRIu32
				       " is in use: remove the object that has it (or had it, and "
				       "is not yet freed), or ask for any id (0)",
				       name, wanted_id);
	if (r == -EINVAL)
		return error_set_plain(error, r,
				       "%s: its id %" PRIu32
				       " is none that this client can have: the index (id & 65535) "
				       "must be below %" PRIu32
				       ", and the generation (id >> 16) not 0: ask for any id (0)",
				       name, wanted_id, id_table_end(table));
	return r < 0 ? error_set(error, r, "%s: no id for it", name) : 0;
}

void session_object_gone(void *arg)
{
	struct session *session = arg;

	session->n_objects--;
	session_touch(session);
}

void session_object_removed(void *arg)
{
	struct call *call = arg;
	struct session *session = call->session;

	call->on_done(call, 0, NULL);
	session_object_gone(session);
}

static void slab_unref_for(void *object, void (*on_freed)(void *arg), void *arg)
{
	struct slab *slab = object;

	slab->on_freed = on_freed;
	slab->freed_arg = arg;
	slab_unref(slab);
}

void file_unref_for(void *object, void (*on_freed)(void *arg), void *arg)
{
	struct file *file = object;

	file->on_freed = on_freed;
	file->freed_arg = arg;
	file_unref(file);
}

static void removal_is_quiet(struct removal *removal)
{
	id_table_release(removal->table, removal->id);
	removal->unref(removal->object, removal->on_freed, removal->arg);
	free(removal);
}

static void on_quiet(struct lane_quiesce *quiesce)
{
	struct removal *removal = container_of(quiesce, struct quiet, quiesce)->removal;

	if (--removal->n_unquiet == 0)
		removal_is_quiet(removal);
}

int session_remove(struct session *session, struct id_table *table, uint32_t id, const char *what,
		   void (*unref)(void *object, void (*on_freed)(void *arg), void *arg),
		   void (*on_freed)(void *arg), void *arg, struct error *error)
{
	struct removal *removal;
	uint32_t n = 0;

	if (!id_table_get(table, id))
		return session_no_such(error, what, id);
	LIST_EACH(const struct share, share, &session->handles.shares, node)
		n += share->n_channels > 0;
	removal = calloc(1, sizeof(*removal) + n * sizeof(removal->quiets[0]));
	if (!removal)
		return error_set(error, -ENOMEM, "%s %" PRIu32, what, id);
	*removal = (struct removal){
		.table = table,
		.id = id,
		.object = id_table_remove(table, id),
		.unref = unref,
		.on_freed = on_freed,
		.arg = arg,
		.n_unquiet = n,
	};

	n = 0;
	LIST_EACH(const struct share, share, &session->handles.shares, node) {
		struct quiet *quiet = &removal->quiets[n];

		if (!share->n_channels)
			continue;
		quiet->removal = removal;
		quiet->quiesce.on_quiet = on_quiet;
		lane_quiesce(share->store->lane, &quiet->quiesce);
		n++;
	}
	if (!n)
		removal_is_quiet(removal);
	return 0;
}

/* A client that has not handed over all yet hands over the same to the daemon after this one. */
static bool keeps_bytes(const struct session *session, const struct slab *slab, bool goes_on)
{
	return goes_on || (!slab->kind->sends_fd && !session->has_recovered);
}

static void on_slab_made(struct slab *slab, int result, const struct error *failed, void *arg)
{
	struct call *call = arg;
	struct session *session = call->session;
	struct error error;

	if (result < 0) {
		session->n_objects--;
		call->on_done(call, result, failed);
		return;
	}
	if (session_is_ending(session)) {
		slab->keeps_bytes = keeps_bytes(session, slab, session_client_goes_on(session));
		slab_unref_for(slab, session_object_gone, session);
		(void)session_end_error(session, "slab", "", &error);
		call->on_done(call, error.code, &error);
		return;
	}
	if (slab->kind->sends_fd)
		result = call_add_fd(call, slab->fd);
	if (result < 0)
		(void)error_set(&error, result, "slab: no descriptor for it");
	else
		result = session_add(&session->objects.slabs, slab, "slab", call->wanted_id,
				     &slab->id, &error);
	if (result < 0) {
		slab_unref_for(slab, session_object_gone, session);
		call->on_done(call, result, &error);
		return;
	}
	slab->keeps_bytes = false;
	call->slab = slab;
	call->on_done(call, 0, NULL);
}

/* After the begin of a slab, which takes fd (-1: none) if it succeeds. */
static int slab_begun(struct session *session, int r, int fd)
{
	if (r < 0)
		session_close_fds(session, &fd, 1);
	else
		session->n_objects++;
	return r;
}

int session_slab_new(struct session *session, uint64_t size_bytes, const struct slab_place *place,
		     struct call *call, struct error *error)
{
	return slab_begun(session,
			  slab_make(&session->service->pool, &session->quota,
				    session->user->slab_work_queue, &session->who, size_bytes,
				    place, on_slab_made, call, error),
			  -1);
}

int session_slab_import(struct session *session, const struct slab_kind *kind, int fd, uint64_t off,
			uint64_t size_bytes, struct call *call, struct error *error)
{
	return slab_begun(session,
			  slab_import(kind, &session->service->pool, &session->quota,
				      session->user->work_queue, &session->who, fd, off, size_bytes,
				      on_slab_made, call, error),
			  fd);
}

int session_slab_import_gpu(struct session *session, const struct gds_handle *handle,
			    bool must_import, struct call *call, struct error *error)
{
	return slab_begun(session,
			  gpu_import(&session->gpu, handle, must_import, on_slab_made, call, error),
			  handle->fd);
}

void session_slab_start(struct session *session, struct slab *slab, struct call *call)
{
	session->n_objects++;
	slab_start(slab, on_slab_made, call);
}

int session_slab_free(struct session *session, uint32_t id, struct call *call, struct error *error)
{
	return session_remove(session, &session->objects.slabs, id, "slab", slab_unref_for,
			      session_object_removed, call, error);
}

void session_drop_objects(struct session *session)
{
	const bool goes_on = session_client_goes_on(session);
	uint32_t cursor = 0;
	struct slab *slab;
	struct file *file;

	while ((slab = id_table_next(&session->objects.slabs, &cursor))) {
		(void)id_table_remove(&session->objects.slabs, slab->id); /* no lane looks */
		id_table_release(&session->objects.slabs, slab->id);
		slab->keeps_bytes = keeps_bytes(session, slab, goes_on);
		slab_unref_for(slab, session_object_gone, session);
	}
	cursor = 0;
	while ((file = id_table_next(&session->objects.files, &cursor))) {
		(void)id_table_remove(&session->objects.files, file->id); /* no lane looks */
		id_table_release(&session->objects.files, file->id);
		file_unref_for(file, session_object_gone, session);
	}
}
