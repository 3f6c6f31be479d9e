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
#define ESCAPED_BYTES_MAX (3 * FILE_BYTES_MAX + 1)

/* Asks the daemon.  *ret_reply is the caller's, for wire_replyp(). */
static int name_ask(struct dsaio_client *client, const char *function, Wire__Request__BodyCase what,
		    const char *name, const char *next, Wire__Reply **ret_reply)
{
	_cleanup_(freep) char *full = NULL;
	Wire__NameAsk body = WIRE__NAME_ASK__INIT;
	Wire__Request request = WIRE_REQUEST(NAME_LIST, name_list, &body); /* all have that body */
	int r = client_check_call(client, function, name, "name");

	if (r == 0)
		r = uri_rados(name, &full);
	if (r < 0)
		return r;
	request.body_case = what;
	body.name = full;
	body.next = (char *)(uintptr_t)next; /* only read */
	return conn_call(client->conn, function, &request, NULL, 0, ret_reply, NULL);
}

/* A name that was listed can be asked for. */
static void escape(const char *name, char *to)
{
	for (; *name; name++)
		to = *name == '%' ? stpcpy(to, "%25") : (*to = *name, to + 1);
	*to = '\0';
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
	struct dsaio_stat found;
	int r;

	if (!ret_stat)
		return client_null("stat", "place for the result");
	r = sized_check("stat", &SIZED_STAT, ret_stat->size);
	if (r == 0)
		r = name_ask(client, "stat", WIRE__REQUEST__BODY_NAME_STAT, name, "", &reply);
	if (r < 0)
		return r;
	if (reply->name_stat->n_files != 1 || !stat_from(reply->name_stat->files[0], &found))
		return file_named_broken(client, "stat", name);
	found.name = NULL;
	return sized_write("stat", &SIZED_STAT, &found, ret_stat);
}

int dsaio_list(struct dsaio_client *client, const char *name,
	       int (*each)(const struct dsaio_stat *file, void *arg), void *arg)
{
	CANCEL_DISABLE();
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	_cleanup_(wire_replyp) Wire__Reply *before = NULL; /* has next */
	const char *next = "";
	char escaped[ESCAPED_BYTES_MAX];
	struct dsaio_stat file;
	int r = each ? 0 : client_null("list", "function each");

	do {
		if (r == 0)
			r = name_ask(client, "list", WIRE__REQUEST__BODY_NAME_LIST, name, next,
				     &reply);
		if (r < 0)
			return r;
		if (*next && strcmp(reply->name_list->next, next) == 0) /* it would never end */
			return file_named_broken(client, "list", name);
		for (size_t i = 0; i < reply->name_list->n_files && r == 0; i++) {
			if (!stat_from(reply->name_list->files[i], &file))
				return file_named_broken(client, "list", name);
			escape(file.name, escaped);
			file.name = escaped;
			r = each(&file, arg);
		}
		next = reply->name_list->next;
		wire_replyp(&before);
		before = TAKE_PTR(reply);
	} while (r == 0 && *next);
	return r;
}

int dsaio_remove(struct dsaio_client *client, const char *name)
{
	CANCEL_DISABLE();

	return name_ask(client, "remove", WIRE__REQUEST__BODY_NAME_REMOVE, name, "", NULL);
}
