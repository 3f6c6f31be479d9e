#include "client/lib/memory/slab.h"

#include "client/lib/base/error.h"
#include "client/lib/memory/allocation.h"
#include "proto/util/cleanup.h"

const struct slab_placement SLAB_ANYWHERE = { .pages = WIRE__PAGES__PAGES_ANY };

int slab_ask(struct dsaio_conn *conn, const char *what, uint64_t bytes,
	     const struct slab_placement *place, uint32_t *ret_id, int *ret_fd)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__SlabNew body = WIRE__SLAB_NEW__INIT;
	int r;

	body.size_bytes = bytes;
	body.pages = place->pages;
	body.has_node = place->has_node;
	body.node = place->node;
	request.body_case = WIRE__REQUEST__BODY_SLAB_NEW;
	request.slab_new = &body;
	r = conn_call(conn, what, &request, NULL, 0, &reply, ret_fd);
	if (r < 0)
		return r;
	if (!reply->slab_new->is_locked)
		atomic_store_explicit(&conn->has_unlocked, true, memory_order_relaxed);
	*ret_id = reply->slab_new->slab;
	return 0;
}

int slab_import_fd(struct dsaio_conn *conn, int fd, uint64_t off, uint64_t bytes, uint32_t *ret_id)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__SlabImport body = WIRE__SLAB_IMPORT__INIT;
	int r;

	body.off = off;
	body.size_bytes = bytes;
	request.body_case = WIRE__REQUEST__BODY_SLAB_IMPORT;
	request.slab_import = &body;
	r = conn_call(conn, "memory_register", &request, &fd, 1, &reply, NULL);
	if (r == 0)
		*ret_id = reply->slab_import->slab;
	return r;
}

int slab_import_gpu(struct dsaio_conn *conn, const struct allocation_handle *handle, uint64_t bytes,
		    bool must_import, uint32_t *ret_id)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__DeviceImport body = WIRE__DEVICE_IMPORT__INIT;
	bool has_fd = handle->fd >= 0;
	int r;

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
	request.body_case = WIRE__REQUEST__BODY_DEVICE_IMPORT;
	request.device_import = &body;
	r = conn_call(conn, "the daemon", &request, &handle->fd, has_fd, &reply, NULL);
	if (r == 0)
		*ret_id = reply->device_import->slab;
	return r;
}

void slab_release(struct dsaio_conn *conn, uint32_t id, bool waits)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__SlabFree body = WIRE__SLAB_FREE__INIT;

	body.slab = id;
	request.body_case = WIRE__REQUEST__BODY_SLAB_FREE;
	request.slab_free = &body;
	if (!waits)
		conn_post(conn, &request);
	else /* fails only if the daemon is gone, and its pool with it */
		(void)conn_call(conn, "free", &request, NULL, 0, NULL, NULL);
}
