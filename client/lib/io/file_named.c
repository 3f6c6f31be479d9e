#include "client/lib/io/file_named.h"

#include "client/lib/base/debug.h"
#include "client/lib/io/file_fd.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DEV_OF_STORE (UINT64_C(1) << 63) /* no device of the kernel's has that bit */

int file_named_broken(struct dsaio_client *client, const char *function, const char *name)
{
	conn_break(client->conn);
	return error_fail(-ENOTCONN, "%s %s: the daemon's answer makes no sense: it is broken",
			  function, name);
}

/* ---- opening ---- */

static bool is_sane(const Wire__FileOpen *asked, const Wire__FileOpenReply *reply)
{
	const Wire__FileAddReply *add = reply->add;

	return add && add->offset_align == 1 && add->memory_align == 1 && reply->id &&
	       reply->size <= INT64_MAX && __builtin_popcount(reply->object_bytes) == 1 &&
	       reply->is_writable == (asked->mode != WIRE__OPEN_MODE__OPEN_READ) &&
	       (asked->mode != WIRE__OPEN_MODE__OPEN_TOKEN || reply->id == asked->id) &&
	       (asked->mode != WIRE__OPEN_MODE__OPEN_CREATE || reply->size == asked->size);
}

static int daemon_open(struct dsaio_file *file, const char *function, Wire__FileOpen *asked)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__Request request = WIRE_REQUEST(FILE_OPEN, file_open, asked);
	struct dsaio_client *client = file->client;
	const Wire__FileOpenReply *got;
	uint64_t n_answered;
	int r;

	do {
		n_answered = conn_posts_answered(client->conn);
		r = conn_call(client->conn, function, &request, NULL, 0, &reply, NULL);
	} while (r == -EMFILE && files_make_room(client, n_answered));
	if (r < 0)
		return r;
	got = reply->file_open;
	if (!is_sane(asked, got))
		return file_named_broken(client, function, file->name);
	file->session.id = got->add->file;
	file->session.number = conn_answered_in();
	file->session.store = got->add->store;
	file->session.offset_align = file->session.memory_align = 1;
	file->named.id = got->id;
	file->named.object_bytes = got->object_bytes;
	file->named.is_sparse = got->is_sparse;
	file->named.is_created = got->is_writable;
	atomic_store(&file->named.size, got->size);
	atomic_store(&file->can_write, got->is_writable);
	file->identity.dev = DEV_OF_STORE | got->add->store;
	file->identity.ino = got->id;
	return 0;
}

/* Or NULL: no memory. */
static struct dsaio_file *named_new(struct dsaio_client *client, const char *name)
{
	struct dsaio_file *file = file_alloc(client, strdup(name));

	if (!file)
		return NULL;
	file->entry.key.fd = -1;
	file->can_read = true;
	atomic_init(&file->session.gpu, FILE_GPU_REFUSED);
	file->session.gpu_error = -EOPNOTSUPP;
	file->session.gpu_retry_nsec = UINT64_MAX;
	file->session.gpu_why = strdup("cuFile does not know files of RADOS stores");
	return file;
}

int file_named_open(struct dsaio_client *client, const char *function, Wire__FileOpen *asked,
		    struct dsaio_file **ret_file)
{
	_cleanup_(file_freep) struct dsaio_file *file = named_new(client, asked->name);
	int r;

	if (!file)
		return error_fail_errno(-ENOMEM, "%s %s", function, asked->name);
	while (files_evict(client, files_max(client) - 1))
		;
	do {
		r = daemon_open(file, function, asked);
		if (r < 0)
			return r;
	} while (!client_add_of(client, &file->object, file->session.number));
	(void)pthread_mutex_lock(&client->files.lock); /* a plain mutex: cannot fail */
	client->files.n++;
	(void)pthread_mutex_unlock(&client->files.lock);
	r = inode_hold(client, file->identity.dev, file->identity.ino, &file->inode);
	if (r < 0) {
		(void)file_release(TAKE_PTR(file), false); /* the daemon has it */
		return error_fail_errno(r, "%s %s", function, asked->name);
	}
	debug_log("%s %s: file %#x of store %u, id %#" PRIx64, function, file->name,
		  file->session.id, file->session.store, file->named.id);
	client_collect(client);
	*ret_file = TAKE_PTR(file);
	return 0;
}

int file_named_hand_over(const struct dsaio_file *file, struct dsaio_conn *next,
			 uint64_t deadline_nsec)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__FileOpen body = WIRE__FILE_OPEN__INIT;
	Wire__Request request = WIRE_REQUEST(FILE_OPEN, file_open, &body);
	int r;

	body.mode = WIRE__OPEN_MODE__OPEN_AGAIN;
	body.name = file->name;
	body.file = file->session.id;
	body.id = file->named.id;
	body.is_writable = file->can_write; /* before the size: see file_named_end() */
	body.size = file->named.size;
	body.object_bytes = file->named.object_bytes;
	body.is_sparse = file->named.is_sparse;
	r = conn_call_for(next, "open", &request, NULL, 0, deadline_nsec, &reply, NULL);
	if (r == 0 &&
	    (!reply->file_open->add || reply->file_open->add->store != file->session.store))
		r = error_fail(-ENXIO,
			       "file %s: its store is not the one that it was before the restart",
			       file->name);
	return r;
}

/* ---- the end of a created file ---- */

int file_named_end(struct dsaio_file *file, const char *function, bool is_commit, uint64_t size)
{
	Wire__FileEnd body = WIRE__FILE_END__INIT;
	Wire__Request request = WIRE_REQUEST(FILE_ABANDON, file_abandon, &body);
	int r = file_refused(file);

	if (!file->named.is_created)
		return error_fail(-EBADF, "%s of %s: it was not opened with dsaio_create()",
				  function, file->name);
	if (!file->can_write)
		return error_fail(-ESTALE, "%s of %s: it was committed or abandoned before",
				  function, file->name);
	if (inode_has_ops(file->inode))
		return error_fail(-EBUSY,
				  "%s of %s: ops of this client on it are open: await them first",
				  function, file->name);
	if (size > INT64_MAX)
		return error_fail(-EINVAL, "%s of %s: size %" PRIu64 " passes 2^63", function,
				  file->name, size);
	if (is_commit)
		request.body_case = WIRE__REQUEST__BODY_FILE_COMMIT;
	body.file = file->session.id;
	body.size = size ? size : (uint64_t)file_named_size(file);
	if (r == 0)
		r = conn_call(file->client->conn, function, &request, NULL, 0, NULL, NULL);
	if (r == 0)
		r = file_refused(file);
	if (r < 0)
		return r;
	/* In this order: who sees that it is not written any more sees its size. */
	atomic_store(&file->named.size, body.size);
	atomic_store(&file->can_write, false);
	inode_opened(file->inode, body.size);
	return 0;
}
