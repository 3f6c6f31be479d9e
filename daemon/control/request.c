#include "daemon/control/request.h"

#include "daemon/config/rados.h"
#include "proto/version.h" /* the version is the project's */
#include "proto/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The sizes of CUuuid and CUipcMemHandle, in DeviceImport. */
#define UUID_BYTES (sizeof(((struct gds_handle *)NULL)->uuid))
#define IPC_HANDLE_BYTES (sizeof(((struct gds_handle *)NULL)->ipc))

/* How many descriptors may come with a request.  *ret_min: how many have to. */
static unsigned fds_of(const Wire__Request *request, unsigned *ret_min)
{
	*ret_min = 0;
	switch (request->body_case) {
	case WIRE__REQUEST__BODY_FILE_ADD:
	case WIRE__REQUEST__BODY_FILE_BUFFERED:
	case WIRE__REQUEST__BODY_SLAB_IMPORT:
	case WIRE__REQUEST__BODY_SLAB_ADOPT:
		return *ret_min = 1;
	case WIRE__REQUEST__BODY_HELLO:
	case WIRE__REQUEST__BODY_STORE_GET:
	case WIRE__REQUEST__BODY_STORE_DRAIN:
	case WIRE__REQUEST__BODY_PROFILE_SET:
	case WIRE__REQUEST__BODY_DEVICE_IMPORT:
		return 1;
	default:
		return 0;
	}
}

int request_decode(const uint8_t *body, size_t len, Wire__Request **ret_request,
		   struct error *error)
{
	Wire__Request *request = wire__request__unpack(NULL, len, body);

	if (!request)
		return error_set_plain(error, -EPROTO, "a frame of %zu bytes is no request", len);
	*ret_request = request;
	return 0;
}

void request_free(Wire__Request *request)
{
	wire__request__free_unpacked(request, NULL);
}

static int hello_check(const Wire__Hello *hello, struct error *error)
{
	if (hello->version_min > hello->version_max)
		return error_set_plain(error, -EINVAL,
				       "hello: protocol versions %" PRIu32 " to %" PRIu32
				       ": the first must not be above the second",
				       hello->version_min, hello->version_max);
	if (hello->version_min > REQUEST_VERSION_MAX || hello->version_max < REQUEST_VERSION_MIN)
		return error_set_plain(error, -EPROTONOSUPPORT,
				       "hello: the client speaks protocol versions %" PRIu32
				       " to %" PRIu32 ", the daemon (%s) %u to %u: install a "
				       "library and a daemon of the same release",
				       hello->version_min, hello->version_max, DSAIO_VERSION,
				       REQUEST_VERSION_MIN, REQUEST_VERSION_MAX);
	return 0;
}

enum sched_class request_class(Wire__Class wire)
{
	static const enum sched_class classes[] = {
		[WIRE__CLASS__NORMAL] = SCHED_NORMAL,
		[WIRE__CLASS__DEMAND] = SCHED_DEMAND,
		[WIRE__CLASS__BACKGROUND] = SCHED_BACKGROUND,
	};

	return classes[wire];
}

static int handle_open_check(const Wire__HandleOpen *open, struct error *error)
{
	char why[ERROR_TEXT_BYTES - 32];

	if (open->profile) {
		struct partial_profile partial = partial_from_wire(open->profile);

		if (profile_check(&partial.profile, why, sizeof(why)) < 0)
			return error_set_plain(error, -EINVAL, "handle_open: %s", why);
	}
	if ((unsigned)open->io_class > WIRE__CLASS__BACKGROUND)
		return error_set_plain(error, -EINVAL,
				       "handle_open: class %d: must be 0 (normal), 1 (demand) or 2 "
				       "(background)",
				       (int)open->io_class);
	if (open->weight > SCHED_WEIGHT_MAX)
		return error_set_plain(error, -EINVAL,
				       "handle_open: weight %" PRIu32 ": must be from 1 to %u",
				       open->weight, SCHED_WEIGHT_MAX);
	return 0;
}

static int device_import_check(const Wire__DeviceImport *import, unsigned n_fds,
			       struct error *error)
{
	if (import->uuid.len != UUID_BYTES)
		return error_set_plain(error, -EINVAL,
				       "device_import: a UUID of %zu bytes: must have %zu",
				       import->uuid.len, UUID_BYTES);
	if (import->ipc_handle.len && n_fds)
		return error_set_plain(
			error, -EINVAL,
			"device_import: an IPC handle and a descriptor: must be one of "
			"them");
	if (!n_fds && import->ipc_handle.len != IPC_HANDLE_BYTES)
		return error_set_plain(
			error, -EINVAL,
			"device_import: an IPC handle of %zu bytes: must have %zu, unless "
			"a descriptor comes in its place",
			import->ipc_handle.len, IPC_HANDLE_BYTES);
	if (!import->size_bytes)
		return error_set_plain(
			error, -EINVAL,
			"device_import: 0 bytes: must be the size of the allocation");
	return 0;
}

struct gds_handle request_gds_handle(const Wire__DeviceImport *import)
{
	struct gds_handle handle = { .is_ipc = import->ipc_handle.len,
				     .fd = -1,
				     .size_bytes = import->size_bytes };

	memcpy(handle.uuid, import->uuid.data, sizeof(handle.uuid));
	if (handle.is_ipc) {
		memcpy(handle.ipc, import->ipc_handle.data, sizeof(handle.ipc));
		handle.buffer_id = import->buffer_id;
	}
	return handle;
}

static int limit_set_check(const Wire__LimitSet *set, struct error *error)
{
	if ((set->store[0] != 0) + (set->has_uid != 0) + (set->client != 0) != 1)
		return error_set_plain(
			error, -EINVAL,
			"limit_set: must name a store, a user or a client, and one alone");
	if (set->weight && !set->client)
		return error_set_plain(error, -EINVAL, "limit_set: only a client has a weight");
	if (set->weight > SCHED_WEIGHT_MAX)
		return error_set_plain(error, -EINVAL,
				       "limit_set: weight %" PRIu32 ": must be from 1 to %u",
				       set->weight, SCHED_WEIGHT_MAX);
	if (!set->limit && !set->weight)
		return error_set_plain(error, -EINVAL, "limit_set: neither a limit nor a weight");
	if (set->limit && (set->limit->bytes_per_sec > RATE_LIMIT_MAX ||
			   set->limit->ops_per_sec > RATE_LIMIT_MAX))
		return error_set_plain(error, -EINVAL,
				       "limit_set: %" PRIu64 " bytes/s, %" PRIu64
				       " ops/s: each must be at most %" PRIu64,
				       set->limit->bytes_per_sec, set->limit->ops_per_sec,
				       RATE_LIMIT_MAX);
	return 0;
}

static int file_size_check(uint64_t size, const char *what, struct error *error)
{
	if (size <= INT64_MAX)
		return 0;
	return error_set_plain(error, -EINVAL, "%s: size %" PRIu64 ": must be at most 2^63 - 1",
			       what, size);
}

static int file_open_check(const Wire__FileOpen *open, struct error *error)
{
	const uint32_t object = open->object_bytes;

	if ((unsigned)open->mode > WIRE__OPEN_MODE__OPEN_AGAIN ||
	    (open->mode == WIRE__OPEN_MODE__OPEN_AGAIN &&
	     (object < RADOS_OBJECT_MIN || object > RADOS_OBJECT_MAX || (object & (object - 1)) ||
	      open->size > rados_size_max(object))))
		return error_set_plain(error, -EINVAL,
				       "file_open: mode %d, objects of %" PRIu32
				       " bytes: must be 0 (read), 1 (create), 2 (token) or, with "
				       "at most %u of a power of two from %u to %u, 3 (again)",
				       (int)open->mode, object, RADOS_OBJECTS_MAX, RADOS_OBJECT_MIN,
				       RADOS_OBJECT_MAX);
	return file_size_check(open->size, "file_open", error);
}

/* A request of a later protocol version is an unknown field. */
static int unknown_refuse(const Wire__Request *request, struct error *error)
{
	if (!request->base.n_unknown_fields)
		return error_set_plain(error, -EOPNOTSUPP, "an empty request: it asks for nothing");
	return error_set_plain(
		error, -EOPNOTSUPP,
		"request %" PRIu32 " is not known to this daemon (%s, protocol version %u)",
		request->base.unknown_fields[0].tag, DSAIO_VERSION, REQUEST_VERSION_MAX);
}

int request_check(const Wire__Request *request, unsigned n_fds, struct error *error)
{
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(
		request->base.descriptor, request->body_case);
	unsigned min, max = fds_of(request, &min);

	if (!field)
		return unknown_refuse(request, error);
	if (n_fds < min || n_fds > max)
		return error_set_plain(error, -EINVAL,
				       "%s: %u descriptors came with it: expected %s%u",
				       field->name, n_fds, min < max ? "at most " : "", max);

	switch (request->body_case) {
	case WIRE__REQUEST__BODY_HELLO:
		return hello_check(request->hello, error);
	case WIRE__REQUEST__BODY_SLAB_NEW:
		if ((unsigned)request->slab_new->pages > WIRE__PAGES__PAGES_SMALL)
			return error_set_plain(error, -EINVAL,
					       "slab_new: pages %d: must be 0 (any), 1 (huge) or 2 "
					       "(small)",
					       (int)request->slab_new->pages);
		return 0;
	case WIRE__REQUEST__BODY_HANDLE_OPEN:
		return handle_open_check(request->handle_open, error);
	case WIRE__REQUEST__BODY_DEVICE_IMPORT:
		return device_import_check(request->device_import, n_fds, error);
	case WIRE__REQUEST__BODY_FILE_GPU:
		if (request->file_gpu->uuid.len != UUID_BYTES)
			return error_set_plain(error, -EINVAL,
					       "file_gpu: a UUID of %zu bytes: must have %zu",
					       request->file_gpu->uuid.len, UUID_BYTES);
		return 0;
	case WIRE__REQUEST__BODY_STORE_DRAIN:
		if ((unsigned)request->store_drain->mode > WIRE__DRAIN_MODE__DRAIN_END)
			return error_set_plain(error, -EINVAL,
					       "store_drain: mode %d: must be 0 (close), 1 (begin) "
					       "or 2 (end)",
					       (int)request->store_drain->mode);
		return 0;
	case WIRE__REQUEST__BODY_LIMIT_SET:
		return limit_set_check(request->limit_set, error);
	case WIRE__REQUEST__BODY_FILE_OPEN:
		return file_open_check(request->file_open, error);
	case WIRE__REQUEST__BODY_FILE_COMMIT:
		return file_size_check(request->file_commit->size, "file_commit", error);
	case WIRE__REQUEST__BODY_SUBMIT:
		if (request->submit->n_entries > RING_ENTRIES_MAX)
			return error_set_plain(error, -EINVAL,
					       "submit: %zu entries: at most %u may come in one "
					       "request",
					       request->submit->n_entries, RING_ENTRIES_MAX);
		return 0;
	default:
		return 0; /* the session checks ids and sizes */
	}
}

void request_entries(const Wire__Submit *submit, struct ring_entry *entries)
{
	for (size_t i = 0; i < submit->n_entries; i++) {
		const Wire__Entry *wire = submit->entries[i];

		entries[i] = (struct ring_entry){
			.id = wire->id,
			/* Opcodes that do not fit into a ring entry become 0, which is refused. */
			.opcode = wire->opcode <= UINT8_MAX ? (uint8_t)wire->opcode : 0,
			.file = wire->file,
			.slab = wire->slab,
			.slab_off = wire->slab_off,
			.off = wire->off,
			.len = wire->len,
			.timeout_msec = wire->timeout_msec,
		};
	}
}
