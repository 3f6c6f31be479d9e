#include "daemon/control/names.h"

#include "daemon/base/log.h"
#include "daemon/control/idle_files.h"
#include "daemon/control/request.h"
#include "daemon/control/session.h"
#include "daemon/engine/rados.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A page of NameList. */
struct page {
	Wire__NamedFile *pointers[RADOS_LIST_MAX];
	struct listed {
		Wire__NamedFile wire;
		char name[RADOS_NAME_MAX + 1];
	} files[RADOS_LIST_MAX];
	unsigned n;
};

/* A call on a name, or on a file that was created. */
struct named {
	struct call *call;
	struct store *store;
	const char *name; /* in text, or the file's */
	Wire__OpenMode mode;
	struct rados_file rados; /* of FileOpen: what the client says; else a copy of the file's */
	uint64_t size;		 /* of FileCommit */
	struct file *file;	 /* of FileCommit and FileAbandon: referenced */
	struct page *page;
	char next[REQUEST_NEXT_MAX + 1];
	Wire__NamedFile stat;
	Wire__NameListReply list;
	struct job job;
	struct lane_quiesce quiesce;
	struct error error;
	int result;
	char text[]; /* the name, with its store */
};

/* ---- the store of a name ---- */

/* Finds the store whose path and a slash begin the name.  *ret_file: what follows, in name. */
static int store_find(struct session *session, const char *name, struct store **ret_store,
		      const char **ret_file, struct error *error)
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
		*ret_file = name + len + 1;
		(void)snprintf(what, sizeof(what), "file %s", shown);
		return registry_check_access(registry, store, &session->peer, what, error);
	}
	return error_set_plain(
		error, -ENXIO,
		"%s: this daemon serves no store of that pool and namespace (dsaioctl stores "
		"shows its stores); one of RADOS alone may listen at "
		"/run/dsaiod-rados/dsaiod.sock: set $DSAIO_RADOS_SOCKET to its socket",
		shown);
}

/* name: where the name of the file begins in text, of which it has a copy. */
static int named_new(struct call *call, struct store *store, const char *text, const char *name,
		     struct named **ret_named, struct error *error)
{
	const size_t len = strlen(text);
	struct named *named = calloc(1, sizeof(*named) + len + 1);

	if (!named)
		return error_set(error, -ENOMEM, "request");
	named->call = call;
	named->store = store;
	(void)memcpy(named->text, text, len + 1);
	named->name = named->text + (name - text);
	*ret_named = named;
	return 0;
}

/* ---- open ---- */

/* On a worker thread. */
static int look(struct file *file, void *arg, struct error *error)
{
	const struct named *named = arg;
	const struct rados_plugin *plugin = named->store->plugin;
	struct rados_store *store = named->store->rados;
	const struct rados_file *asked = &named->rados;
	struct rados_file *rados = &file->target.rados;
	int r = 0;

	switch (named->mode) {
	case WIRE__OPEN_MODE__OPEN_CREATE:
		r = plugin->create(store, named->name, asked->size, asked->is_sparse, rados, error);
		break;
	case WIRE__OPEN_MODE__OPEN_TOKEN:
		r = plugin->open_token(store, named->name, asked->id, rados, error);
		break;
	case WIRE__OPEN_MODE__OPEN_AGAIN: /* without the cluster: recovery does not wait for it */
		*rados = *asked;
		break;
	default:
		r = plugin->open(store, named->name, rados, error);
		break;
	}
	if (r == 0 && rados->is_writable) {
		file->rados_name = strdup(named->name);
		if (!file->rados_name)
			r = error_set(error, -ENOMEM, "file %s", file->name);
	}
	return r;
}

static void release(struct file *file)
{
	file->store->plugin->release(file->store->rados, &file->target.rados);
}

static void on_opened(struct file *file, int result, const struct error *failed, void *arg)
{
	_cleanup_(freep) struct named *named = arg;
	struct store *store = named->store;
	struct call *call = named->call;
	struct error error;

	if (result < 0) {
		call->session->n_objects--;
		call->on_done(call, result, failed);
		return;
	}
	file->store = store;
	file->target.about.dev = store->dev;
	if (file->rados_name) {
		result = store->plugin->hold(store->rados, &file->target.rados);
		if (result < 0)
			(void)error_set(&error, result, "file %s", file->name);
		else
			file->release = release;
	}
	session_file_made(file, store, result, &error, call);
}

int session_file_open(struct session *session, const Wire__FileOpen *open, struct call *call,
		      struct error *error)
{
	_cleanup_(freep) struct named *named = NULL;
	struct store *store;
	const char *name;
	int r = store_find(session, open->name, &store, &name, error);

	if (r == 0)
		r = rados_name_check(name, error);
	if (r == 0 && open->mode != WIRE__OPEN_MODE__OPEN_AGAIN)
		r = session_check_drained(store, open->name, error);
	if (r == 0)
		r = named_new(call, store, open->name, name, &named, error);
	if (r < 0)
		return r;
	named->mode = open->mode;
	named->rados = (struct rados_file){ .id = open->id,
					    .size = open->size,
					    .object_bytes = open->object_bytes,
					    .is_sparse = open->is_sparse,
					    .is_writable = open->is_writable };
	call->wanted_id = open->file;
	idle_files_reclaim(session);
	r = file_make_named(&session->quota, session->user->work_queue, session->service->mailbox,
			    &session->who, named->text, look, on_opened, named, error);
	if (r < 0)
		return r;
	TAKE_PTR(named);
	session->n_objects++;
	return 0;
}

/* ---- the other calls ---- */

static void named_end(struct named *named)
{
	struct call *call = named->call;

	call->on_done(call, named->result, named->result < 0 ? &named->error : NULL);
	if (named->file) {
		named->file->is_finishing = false;
		file_unref(named->file);
	}
	free(named->page);
	free(named);
}

/* The lane alone reads these, and so changes them. */
static void file_finish(struct lane_quiesce *quiesce)
{
	const struct named *named = container_of(quiesce, struct named, quiesce);
	struct file *file = named->file;

	file->facts.can_write = file->target.rados.is_writable = false;
	file->target.rados.size = named->size;
}

static void on_quiet(struct lane_quiesce *quiesce)
{
	named_end(container_of(quiesce, struct named, quiesce));
}

static void named_main(struct job *job)
{
	struct named *named = container_of(job, struct named, job);
	struct file *file = named->file;

	if (!file || named->result < 0) {
		named_end(named);
		return;
	}
	if (file->release) {
		file->release(file);
		file->release = NULL;
	}
	named->quiesce.in_lane = file_finish;
	named->quiesce.on_quiet = on_quiet;
	if (named->store->lane) {
		lane_quiesce(named->store->lane, &named->quiesce);
	} else {
		file_finish(&named->quiesce);
		named_end(named);
	}
}

static void entry_to_wire(const struct rados_entry *entry, const char *name, Wire__NamedFile *wire)
{
	wire__named_file__init(wire);
	wire->name = (char *)(uintptr_t)name; /* only read */
	wire->size = entry->size;
	wire->mtime_sec = entry->time_sec;
	wire->object_bytes = entry->object_bytes;
	wire->id = entry->id;
}

static int page_add(const char *name, const struct rados_entry *entry, void *arg)
{
	struct page *page = arg;
	struct listed *one = &page->files[page->n];

	if (page->n == RADOS_LIST_MAX)
		return -EOVERFLOW; /* the plug-in has broken its promise */
	(void)snprintf(one->name, sizeof(one->name), "%s", name);
	entry_to_wire(entry, one->name, &one->wire);
	page->pointers[page->n++] = &one->wire;
	return 0;
}

static int list(struct named *named, struct error *error)
{
	const struct store *store = named->store;
	int r;

	named->page = malloc(sizeof(*named->page));
	if (!named->page)
		return error_set(error, -ENOMEM, "files of store %s", store->name);
	named->page->n = 0;
	r = store->plugin->list(store->rados, named->name, named->next, page_add, named->page,
				error);
	if (r < 0)
		return error->code ? r : error_set(error, r, "files of store %s", store->name);
	wire__name_list_reply__init(&named->list);
	named->list.files = named->page->pointers;
	named->list.n_files = named->page->n;
	named->list.next = named->next;
	named->call->message = &named->list;
	return 0;
}

static int stat_name(struct named *named, struct error *error)
{
	const struct store *store = named->store;
	struct rados_entry entry;
	int r = store->plugin->stat(store->rados, named->name, &entry, error);

	if (r < 0)
		return r;
	entry_to_wire(&entry, named->name, &named->stat);
	named->call->message = &named->stat;
	return 0;
}

/* On a worker thread. */
static int ask(struct named *named, struct error *error)
{
	const struct rados_plugin *plugin = named->store->plugin;
	struct rados_store *store = named->store->rados;

	switch (named->call->what) {
	case WIRE__REQUEST__BODY_FILE_COMMIT:
		return plugin->commit(store, named->name, &named->rados, named->size, error);
	case WIRE__REQUEST__BODY_FILE_ABANDON:
		return plugin->abandon(store, named->name, &named->rados, error);
	case WIRE__REQUEST__BODY_NAME_REMOVE:
		return plugin->remove(store, named->name, error);
	case WIRE__REQUEST__BODY_NAME_STAT:
		return stat_name(named, error);
	default:
		return list(named, error);
	}
}

static void named_run(struct job *job)
{
	struct named *named = container_of(job, struct named, job);

	named->result = ask(named, &named->error);
}

static void named_start(struct named *named)
{
	const struct session *session = named->call->session;

	named->job.run = named_run;
	named->job.done = named_main;
	named->job.mailbox = session->service->mailbox;
	named->job.work.about = (struct hung_about){ .what = named->file ? "commit" : "name lookup",
						     .file = named->text,
						     .fd = -1,
						     .dev = named->store->dev,
						     .is_cluster = true,
						     .who = session->who };
	job_submit(session->user->work_queue, &named->job);
}

int session_file_finish(struct session *session, uint32_t id, uint64_t size, struct call *call,
			struct error *error)
{
	struct file *file = id_table_get(&session->objects.files, id);
	struct named *named = NULL;
	int r = 0;

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
	if (call->what == WIRE__REQUEST__BODY_FILE_COMMIT)
		r = session_check_drained(file->store, file->name, error);
	if (r == 0)
		r = named_new(call, file->store, file->rados_name, file->rados_name, &named, error);
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
	const bool is_list = call->what == WIRE__REQUEST__BODY_NAME_LIST;
	struct named *named = NULL;
	struct store *store;
	const char *file;
	int r = store_find(session, name, &store, &file, error);

	if (r == 0 && is_list && strlen(file) > RADOS_NAME_MAX)
		r = error_set_plain(error, -EINVAL,
				    "name_list: the start of a name has %zu bytes: at most %u",
				    strlen(file), RADOS_NAME_MAX);
	if (r == 0 && !is_list)
		r = rados_name_check(file, error);
	if (r == 0 && call->what == WIRE__REQUEST__BODY_NAME_REMOVE)
		r = session_check_drained(store, file, error);
	if (r == 0)
		r = named_new(call, store, name, file, &named, error);
	if (r < 0)
		return r;
	(void)snprintf(named->next, sizeof(named->next), "%s", next);
	named_start(named);
	return 0;
}
