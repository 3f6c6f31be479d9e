#include "client/lib/memory/slab.h"

#include "client/lib/base/deadline.h"
#include "client/lib/base/error.h"
#include "client/lib/memory/allocation.h"
#include "proto/util/cleanup.h"

/* Locking takes 0.1 to 6 s a GiB. */
#define SLAB_HAND_OVER_MSEC 600000u

const struct slab_placement SLAB_ANYWHERE = { .pages = WIRE__PAGES__PAGES_ANY };

/* A call that makes a slab.  As conn_call(). */
static int make(struct dsaio_conn *conn, const char *what, Wire__Request *request, const int *fds,
		unsigned n_fds, struct slab_name *slab, int *ret_fd)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int r = conn_call(conn, what, request, fds, n_fds, &reply, ret_fd);

	if (r < 0)
		return r;
	if (ret_fd && !reply->slab_new->is_locked)
		atomic_store_explicit(&conn->has_unlocked, true, memory_order_relaxed);
	slab->id = reply->slab_new->slab; /* all replies have that body */
	slab->session = conn_answered_in();
	return 0;
}

int slab_ask(struct dsaio_conn *conn, const char *what, uint64_t bytes,
	     const struct slab_placement *place, struct slab_name *slab, int *ret_fd)
{
	Wire__SlabNew body = WIRE__SLAB_NEW__INIT;

	body.size_bytes = bytes;
	body.pages = place->pages;
	body.has_node = place->has_node;
	body.node = place->node;
	return make(conn, what, &WIRE_REQUEST(SLAB_NEW, slab_new, &body), NULL, 0, slab, ret_fd);
}

int slab_import_fd(struct dsaio_conn *conn, int fd, uint64_t off, uint64_t bytes,
		   struct slab_name *slab)
{
	Wire__SlabImport body = WIRE__SLAB_IMPORT__INIT;

	body.off = off;
	body.size_bytes = bytes;
	return make(conn, "memory_register", &WIRE_REQUEST(SLAB_IMPORT, slab_import, &body), &fd, 1,
		    slab, NULL);
}

int slab_import_gpu(struct dsaio_conn *conn, const struct allocation_handle *handle, uint64_t bytes,
		    bool must_import, struct slab_name *slab)
{
	Wire__DeviceImport body = WIRE__DEVICE_IMPORT__INIT;
	const bool has_fd = handle->fd >= 0;

	/* only read */
	body.uuid = (ProtobufCBinaryData){ sizeof(handle->uuid.bytes),
					   (uint8_t *)(uintptr_t)handle->uuid.bytes };
	if (!has_fd)
		body.ipc_handle = (ProtobufCBinaryData){
			sizeof(handle->ipc.reserved), (uint8_t *)(uintptr_t)handle->ipc.reserved
		};
	body.size_bytes = bytes;
	body.buffer_id = handle->buffer_id;
	body.must_import = must_import;
	return make(conn, "the daemon", &WIRE_REQUEST(DEVICE_IMPORT, device_import, &body),
		    &handle->fd, has_fd, slab, NULL);
}

void slab_release(struct dsaio_conn *conn, const struct slab_name *slab, bool waits)
{
	Wire__SlabFree body = WIRE__SLAB_FREE__INIT;
	Wire__Request request = WIRE_REQUEST(SLAB_FREE, slab_free, &body);

	if (atomic_load(&slab->error)) /* the daemon does not have it */
		return;
	body.slab = slab->id;
	if (!waits)
		conn_post_in(conn, &request, slab->session);
	else /* fails only if the daemon is gone, and its pool with it */
		(void)conn_call_in(conn, "free", &request, slab->session, false, DEADLINE_NEVER);
}

int slab_hand_over(struct dsaio_conn *next, const struct slab_name *slab, int fd_in, uint64_t off,
		   uint64_t bytes)
{
	_cleanup_(closep) int fd = fd_in;
	const uint64_t deadline = deadline_in_msec(SLAB_HAND_OVER_MSEC);
	Wire__SlabImport import = WIRE__SLAB_IMPORT__INIT;
	Wire__SlabAdopt adopt = WIRE__SLAB_ADOPT__INIT;
	Wire__Request request = slab->is_imported ? WIRE_REQUEST(SLAB_IMPORT, slab_import, &import)
						  : WIRE_REQUEST(SLAB_ADOPT, slab_adopt, &adopt);
	int r;

	import.off = off;
	import.size_bytes = adopt.size_bytes = bytes;
	import.slab = adopt.slab = slab->id;
	r = conn_call_for(next, "memory", &request, &fd, 1, deadline, NULL, NULL);
	return r == -ETIMEDOUT ? -ENOTCONN : r; /* it hangs: another try */
}
