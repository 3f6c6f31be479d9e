#include "daemon/control/names.h"

#include "daemon/base/log.h"
#include "daemon/control/files.h"
#include "daemon/control/idle_files.h"
#include "daemon/control/request.h"
#include "daemon/control/session.h"
#include "daemon/engine/rados.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A page of NameStat and NameList. */
struct page {
	Wire__NameListReply reply;
	Wire__NamedFile *pointers[RADOS_LIST_MAX];
	struct listed {
		Wire__NamedFile wire;
		char name[RADOS_NAME_MAX + 1];
	} files[RADOS_LIST_MAX];
	char next[RADOS_NAME_MAX + 8];
};

/* A call on a name, or on a file that was created. */
struct named {
	struct call *call;
	struct store *store;
	struct page *page;
	Wire__OpenMode mode;
	bool is_created;   /* by a client: it may be committed */
	struct file *file; /* of FileOpen, FileCommit and FileAbandon: referenced */
	struct rados_file
		rados; /* of FileOpen: what the client says, then what there is; else a copy of the file's */
	uint64_t size; /* of FileCommit */
	struct job job;
	struct error error;
	int result;
	const char *name; /* in text */
	char text[];	  /* the name, with its store */
};

/* Finds the store whose path and a slash begin the name. */
static int store_find(struct session *session, const char *name, struct store **ret_store,
		      struct error *error)
{
	struct registry *registry = &session->service->registry;
	char shown[160], what[sizeof(shown) + 8];

	(void)snprintf(shown, sizeof(shown), "%s", name); /* cut is fine */
	log_clean(shown);
	LIST_EACH(struct store, store, &registry->stores, node) {
		const size_t len = strlen(store->path);

		if (!store->plugin || strncmp(name, store->path, len) != 0 || name[len] != '/')
			continue;
		*ret_store = store;
		(void)snprintf(what, sizeof(what), "file %s", shown);
		return registry_check_access(registry, store, &session->peer, what, error);
	}
	return error_set_plain(
		error, -ENXIO,
		"%s: this daemon serves no store of that pool and namespace (dsaioctl stores "
		"shows its stores): connect to the daemon that does; dsaiod@rados.service "
		"listens at /run/dsaiod-rados/dsaiod.sock, and dsaioctl and Python use "
		"$DSAIO_RADOS_SOCKET",
		shown);
}

/* The checks of all calls.  is_change: a drained store refuses it. */
static int named_new(struct call *call, const char *text, bool is_change, struct named **ret_named,
		     struct error *error)
{
	struct store *store;
	struct named *named;
	const char *name;
	int r = store_find(call->session, text, &store, error);

	if (r < 0)
		return r;
	name = text + strlen(store->path) + 1;
	if (call->what != WIRE__REQUEST__BODY_NAME_LIST)
		r = rados_name_check(name, error);
	else if (strlen(name) > RADOS_NAME_MAX)
		r = error_set_plain(error, -EINVAL,
				    "name_list: the start of a name has %zu bytes: at most %u",
				    strlen(name), RADOS_NAME_MAX);
	if (r == 0 && is_change)
		r = session_check_drained(store, text, error);
	if (r < 0)
		return r;
	named = calloc(1, sizeof(*named) + strlen(text) + 1);
	if (!named)
		return error_set(error, -ENOMEM, "request");
	named->call = call;
	named->store = store;
	named->name = strcpy(named->text, text) + (name - text);
	*ret_named = named;
	return 0;
}

/* ---- on a worker thread ---- */

static int open_by(struct named *named, struct error *error)
{
	const struct rados_plugin *plugin = named->store->plugin;
	struct rados_store *store = named->store->rados;
	struct rados_file *file = &named->rados;
	int r;

	switch (named->mode) {
	case WIRE__OPEN_MODE__OPEN_CREATE:
		return plugin->create(store, named->name, file->size, file->is_sparse, file, error);
	case WIRE__OPEN_MODE__OPEN_TOKEN:
		r = plugin->open_token(store, named->name, file->id, file, error);
		/* Its last object is known only when it is committed, so one host alone writes it. */
		if (r == 0 && !file->size)
			r = error_set_plain(error, -EINVAL,
					    "%s: it was created without a size, so others cannot "
					    "write it: create it with its size",
					    named->text);
		return r;
	case WIRE__OPEN_MODE__OPEN_AGAIN:
		if (!file->is_writable)
			return 0;
		r = plugin->open_token(store, named->name, file->id, file, error);
		if (r == -ESTALE)
			file->is_writable = false; /* it was committed, and the reply was lost */
		return r == -ESTALE || r == -EHOSTDOWN || r == -ETIMEDOUT ? 0 : r;
	default:
		return plugin->open(store, named->name, file, error);
	}
}

static int page_add(const char *name, const struct rados_entry *entry, void *arg)
{
	Wire__NameListReply *reply = arg;
	struct page *page = container_of(reply, struct page, reply);
	struct listed *one = &page->files[reply->n_files];

	if (reply->n_files == RADOS_LIST_MAX)
		return -EOVERFLOW; /* the plug-in has broken its promise */
	(void)snprintf(one->name, sizeof(one->name), "%s", name);
	wire__named_file__init(&one->wire);
	one->wire.name = one->name;
	one->wire.size = entry->size;
	one->wire.mtime_sec = entry->time_sec;
	one->wire.object_bytes = entry->object_bytes;
	one->wire.id = entry->id;
	page->pointers[reply->n_files++] = &one->wire;
	return 0;
}

static int look_up(struct named *named, struct error *error)
{
	const struct rados_plugin *plugin = named->store->plugin;
	struct page *page = named->page;
	struct rados_entry entry;
	int r;

	if (named->call->what == WIRE__REQUEST__BODY_NAME_LIST) {
		r = plugin->list(named->store->rados, named->name, page->next, page_add,
				 &page->reply, error);
		return r == 0 || error->code ? r : error_set(error, r, "%s", named->text);
	}
	*page->next = 0;
	r = plugin->stat(named->store->rados, named->name, &entry, error);
	return r < 0 ? r : page_add(named->name, &entry, &page->reply);
}

static void named_run(struct job *job)
{
	struct named *named = container_of(job, struct named, job);
	const struct rados_plugin *plugin = named->store->plugin;
	struct rados_store *store = named->store->rados;
	struct error *error = &named->error;

	switch (named->call->what) {
	case WIRE__REQUEST__BODY_FILE_OPEN:
		named->result = open_by(named, error);
		break;
	case WIRE__REQUEST__BODY_FILE_COMMIT:
		named->result = plugin->commit(store, named->name, &named->rados, named->size,
					       error);
		break;
	case WIRE__REQUEST__BODY_FILE_ABANDON:
		named->result = plugin->abandon(store, named->name, &named->rados, error);
		break;
	case WIRE__REQUEST__BODY_NAME_REMOVE:
		named->result = plugin->remove(store, named->name, error);
		break;
	default:
		named->result = look_up(named, error);
	}
}

/* ---- and again on the main thread ---- */

static void release(struct file *file)
{
	file->store->plugin->release(file->store->rados, &file->target.rados);
}

static void file_opened(struct named *named)
{
	struct file *file = named->file;

	file->target.rados = named->rados;
	file->facts.ino = named->rados.id;
	if (named->result == 0 && named->is_created) {
		file->rados_name = strdup(named->text);
		named->result = file->rados_name ? 0 : -ENOMEM;
	}
	if (named->result == 0 && named->rados.is_writable) {
		named->result = named->store->plugin->hold(named->store->rados,
							   &file->target.rados);
		if (named->result == 0)
			file->release = release;
		file->facts.can_write = true;
	}
	if (named->result == -ENOMEM)
		(void)error_set(&named->error, -ENOMEM, "file %s", file->name);
	session_file_made(file, named->store, named->result, &named->error, named->call);
}

static void file_finished(struct named *named)
{
	struct file *file = named->file;

	if (named->result == 0) {
		if (file->release)
			file->release(file);
		file->release = NULL;
		file->target.rados.size = named->rados.size;
		file->facts.can_write = file->target.rados.is_writable = false;
	}
	file->is_finishing = false;
	file_unref(file);
}

static void named_main(struct job *job)
{
	struct named *named = container_of(job, struct named, job);
	struct call *call = named->call;

	if (call->what == WIRE__REQUEST__BODY_FILE_OPEN) {
		file_opened(named);
	} else {
		if (named->file)
			file_finished(named);
		if (named->page)
			call->message = &named->page->reply;
		call->on_done(call, named->result, named->result < 0 ? &named->error : NULL);
	}
	free(named->page);
	free(named);
}

static void named_start(struct named *named)
{
	const struct session *session = named->call->session;

	named->job.work.about = (struct hung_about){ .what = "request",
						     .file = named->text,
						     .fd = -1,
						     .dev = named->store->dev,
						     .is_cluster = true,
						     .who = session->who };
	job_submit(session->user->work_queue, &named->job, session->service->mailbox, named_run,
		   named_main);
}

/* ---- requests ---- */

int session_file_open(struct session *session, const Wire__FileOpen *open, struct call *call,
		      struct error *error)
{
	_cleanup_(freep) struct named *named = NULL;
	int r = named_new(call, open->name, open->mode != WIRE__OPEN_MODE__OPEN_AGAIN, &named,
			  error);

	if (r < 0)
		return r;
	named->mode = open->mode;
	named->is_created = open->mode != WIRE__OPEN_MODE__OPEN_READ &&
			    (open->mode != WIRE__OPEN_MODE__OPEN_AGAIN || open->is_writable);
	named->rados = (struct rados_file){ .id = open->id,
					    .size = open->size,
					    .object_bytes = open->object_bytes,
					    .is_sparse = open->is_sparse,
					    .is_writable = open->is_writable };
	call->wanted_id = open->file;
	idle_files_reclaim(session);
	r = file_make_named(&session->quota, session->user->work_queue, session->service->mailbox,
			    &session->who, named->text, &named->file, error);
	if (r < 0)
		return r;
	named->file->store = named->store;
	named->file->target.about.dev = named->store->dev;
	session->n_objects++;
	named_start(TAKE_PTR(named));
	return 0;
}

int session_file_finish(struct session *session, uint32_t id, uint64_t size, struct call *call,
			struct error *error)
{
	struct file *file = id_table_get(&session->objects.files, id);
	struct named *named = NULL;
	int r;

	if (!file)
		return session_no_such(error, "file", id);
	if (!file->rados_name)
		return error_set_plain(
			error, -EBADF,
			"file %s: was not created by this client: only such a file is "
			"committed or abandoned",
			file->name);
	if (file->is_finishing)
		return error_set_plain(error, -EBUSY, "file %s: is being committed or abandoned",
				       file->name);
	r = named_new(call, file->rados_name, call->what == WIRE__REQUEST__BODY_FILE_COMMIT, &named,
		      error);
	if (r < 0)
		return r;
	named->rados = file->target.rados;
	named->size = size;
	file_ref(file);
	file->is_finishing = true;
	named->file = file;
	named_start(named);
	return 0;
}

int session_name_ask(struct session *session, const char *name, const char *next, struct call *call,
		     struct error *error)
{
	_cleanup_(freep) struct named *named = NULL;
	int r = named_new(call, name, call->what == WIRE__REQUEST__BODY_NAME_REMOVE, &named, error);

	(void)session;
	if (r < 0)
		return r;
	if (call->what != WIRE__REQUEST__BODY_NAME_REMOVE) {
		named->page = malloc(sizeof(*named->page));
		if (!named->page)
			return error_set(error, -ENOMEM, "%s", name);
		wire__name_list_reply__init(&named->page->reply);
		named->page->reply.files = named->page->pointers;
		named->page->reply.next = named->page->next;
		(void)snprintf(named->page->next, sizeof(named->page->next), "%s", next);
	}
	named_start(TAKE_PTR(named));
	return 0;
}
