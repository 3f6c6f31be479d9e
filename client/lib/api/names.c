/*
 * Public calls on the names of RADOS stores: stat, list, remove.
 */
#include "client/lib/api/sized.h"
#include "client/lib/base/cancel.h"
#include "client/lib/base/uri.h"
#include "client/lib/io/file_named.h"

#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX 255u

/* The checks of all calls here; the name as the daemon takes it is the caller's, for free(). */
static int names_check(const struct dsaio_client *client, const char *function, const char *name,
		       char **ret_name)
{
	int r = client_check(client, function);

	if (r < 0)
		return r;
	if (!name)
		return client_null(function, "name");
	r = client_check_alive(client, function);
	return r < 0 ? r : uri_rados(name, ret_name);
}

/* False: no daemon says that. */
static bool stat_from(const Wire__NamedFile *file, struct dsaio_stat *ret)
{
	const size_t n = strlen(file->name);

	if (!file->id || !n || n > FILE_BYTES_MAX || file->size > INT64_MAX ||
	    file->mtime_sec > INT64_MAX || __builtin_popcount(file->object_bytes) != 1)
		return false;
	*ret = (struct dsaio_stat){ .size = sizeof(*ret),
				    .name = file->name,
				    .file_size = file->size,
				    .mtime_sec = (int64_t)file->mtime_sec,
				    .id = file->id,
				    .object_size = file->object_bytes };
	return true;
}

int dsaio_stat(struct dsaio_client *client, const char *name, struct dsaio_stat *ret_stat)
{
	CANCEL_DISABLE();
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	_cleanup_(freep) char *full = NULL;
	Wire__NameStat body = WIRE__NAME_STAT__INIT;
	Wire__Request request = WIRE_REQUEST(NAME_STAT, name_stat, &body);
	struct dsaio_stat found;
	int r = names_check(client, "stat", name, &full);

	if (r < 0)
		return r;
	if (!ret_stat)
		return client_null("stat", "place for the result");
	r = sized_check("stat", &SIZED_STAT, ret_stat->size);
	if (r < 0)
		return r;
	body.name = full;
	r = conn_call(client->conn, "stat", &request, NULL, 0, &reply, NULL);
	if (r < 0)
		return r;
	if (!stat_from(reply->name_stat, &found))
		return file_named_broken(client, "stat", full);
	found.name = NULL;
	return sized_write("stat", &SIZED_STAT, &found, ret_stat);
}

/* A page of a list.  Returns 0, what each() has returned, or -ENOTCONN. */
static int page_report(struct dsaio_client *client, const char *name,
		       const Wire__NameListReply *page,
		       int (*each)(const struct dsaio_stat *file, void *arg), void *arg)
{
	struct dsaio_stat file;
	int r = 0;

	for (size_t i = 0; i < page->n_files && r == 0; i++) {
		if (!stat_from(page->files[i], &file))
			return file_named_broken(client, "list", name);
		r = each(&file, arg);
	}
	return r;
}

int dsaio_list(struct dsaio_client *client, const char *name,
	       int (*each)(const struct dsaio_stat *file, void *arg), void *arg)
{
	CANCEL_DISABLE();
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	_cleanup_(freep) char *full = NULL;
	Wire__NameList body = WIRE__NAME_LIST__INIT;
	Wire__Request request = WIRE_REQUEST(NAME_LIST, name_list, &body);
	int r = names_check(client, "list", name, &full);

	if (r == 0 && !each)
		r = client_null("list", "function each");
	if (r < 0)
		return r;
	body.name = full;
	do {
		_cleanup_(wire_replyp) Wire__Reply *page = NULL;

		r = conn_call(client->conn, "list", &request, NULL, 0, &page, NULL);
		if (r < 0)
			return r;
		if (*body.next && strcmp(page->name_list->next, body.next) == 0)
			return file_named_broken(client, "list", full); /* it would never end */
		r = page_report(client, full, page->name_list, each, arg);
		body.next = page->name_list->next;
		wire_replyp(&reply);
		reply = TAKE_PTR(page); /* body.next is its */
	} while (r == 0 && *body.next);
	return r;
}

int dsaio_remove(struct dsaio_client *client, const char *name)
{
	CANCEL_DISABLE();
	_cleanup_(freep) char *full = NULL;
	Wire__NameRemove body = WIRE__NAME_REMOVE__INIT;
	Wire__Request request = WIRE_REQUEST(NAME_REMOVE, name_remove, &body);
	int r = names_check(client, "remove", name, &full);

	if (r < 0)
		return r;
	body.name = full;
	return conn_call(client->conn, "remove", &request, NULL, 0, NULL, NULL);
}
