/*
 * For unit tests: regions of GPU memory, on the stand-in for libcuda and with a daemon of the test's own.
 */
#ifndef DSAIO_TESTS_UNIT_CLIENT_REGIONS_H
#define DSAIO_TESTS_UNIT_CLIENT_REGIONS_H

#include "client/lib/memory/gpu_memory.h"
#include "tests/unit/daemon_end.h"
#include "tests/unit/gpu.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES (1u << 20)
#define MAPPED_BYTES STANDIN_GRANULARITY
#define NEVER_NSEC (UINT64_MAX / 4)
#define N_MAX 3u

static struct daemon {
	int fd;
	bool is_running;
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	int refusals[8];      /* results of the imports that come; 0: granted */
	unsigned n_most; /* not 0: slabs that it grants; each free is done at the next refusal */
	unsigned n_slabs;
	uint64_t free_seq; /* of a free that is not done; 0: none */
	uint32_t last_slab;
	struct seen {
		unsigned n_imports, n_freed;
		uint32_t last_freed;
		uint64_t size_bytes, buffer_id;
		char uuid;
		bool has_fd, has_ipc;
	} seen;
} peer;

static inline void peer_import(const Wire__DeviceImport *import, const struct frame *frame,
			       Wire__Reply *reply, Wire__SlabNewReply *slab)
{
	peer.seen.size_bytes = import->size_bytes;
	peer.seen.buffer_id = import->buffer_id;
	peer.seen.uuid = (char)import->uuid.data[0];
	peer.seen.has_fd = frame->n_fds;
	peer.seen.has_ipc = import->ipc_handle.len == CU_IPC_HANDLE_SIZE;
	reply->error = peer.n_most && peer.n_slabs == peer.n_most
			       ? -EDQUOT
			       : peer.refusals[peer.seen.n_imports % 8];
	peer.seen.n_imports++;
	if (reply->error) {
		reply->text = (char *)(uintptr_t) "no such luck"; /* only read */
		return;
	}
	peer.n_slabs++;
	slab->slab = ++peer.last_slab;
	reply->body_case = WIRE__REPLY__BODY_DEVICE_IMPORT;
	reply->device_import = slab;
}

/* Under the lock. */
static inline void peer_free_done(void)
{
	Wire__Reply reply = WIRE__REPLY__INIT;

	reply.seq = peer.free_seq;
	peer.free_seq = 0;
	peer.n_slabs--;
	(void)daemon_end_reply(peer.fd, &reply, -1); /* the client may have gone */
}

/* false: the connection has ended. */
static inline bool peer_serve(struct frame_reader *reader)
{
	Wire__SlabNewReply slab = WIRE__SLAB_NEW_REPLY__INIT;
	Wire__Reply reply = WIRE__REPLY__INIT;
	Wire__Request *request;
	struct frame frame;
	bool is_done = true;

	request = daemon_end_read(reader, peer.fd, &frame);
	if (!request)
		return false;
	reply.seq = request->seq;
	(void)pthread_mutex_lock(&peer.lock);
	if (request->body_case == WIRE__REQUEST__BODY_DEVICE_IMPORT) {
		peer_import(request->device_import, &frame, &reply, &slab);
		(void)daemon_end_reply(peer.fd, &reply, -1);
		is_done = reply.error == -EDQUOT;
	} else {
		ck_assert_int_eq(request->body_case, WIRE__REQUEST__BODY_SLAB_FREE);
		peer.seen.n_freed++;
		peer.seen.last_freed = request->slab_free->slab;
		peer.free_seq = request->seq;
		is_done = !peer.n_most;
	}
	if (peer.free_seq && is_done)
		peer_free_done();
	(void)pthread_mutex_unlock(&peer.lock);
	wire__request__free_unpacked(request, NULL);
	frame_deinit(&frame);
	return true;
}

static inline void *peer_main(void *arg)
{
	struct frame_reader reader = { 0 };

	(void)arg;
	while (peer_serve(&reader))
		;
	frame_reader_deinit(&reader);
	return NULL;
}

static inline char *gpu_alloc(int number)
{
	return gpu_memory_new(number, BYTES);
}

static inline void gpu_free(const char *memory)
{
	gpu_memory_free(0, memory);
}

/* Maps new memory there, in place of what is. */
static inline void gpu_map(const char *memory, bool may_export)
{
	ck_assert_int_eq(standins_map(&gpu, memory, MAPPED_BYTES, may_export), CUDA_SUCCESS);
}

static inline char *gpu_reserve(void)
{
	CUdeviceptr memory;

	ck_assert_int_eq(gpu.map.cuMemAddressReserve(&memory, MAPPED_BYTES, 0, 0, 0), CUDA_SUCCESS);
	return (char *)(uintptr_t)memory;
}

static struct dsaio_conn conn;
static struct gpu_memory regions;

static inline void client_begin_with(uint64_t features, Wire__GpuPath path, bool is_direct_only)
{
	conn.facts.features = features;
	conn.facts.gpu_path = path;
	gpu_memory_deinit(&regions);
	gpu_memory_init(&regions, &conn, is_direct_only);
	regions.pause_nsec = NEVER_NSEC;
	regions.n_max = N_MAX;
}

static inline void client_begin(uint64_t features, Wire__GpuPath path)
{
	client_begin_with(features, path, false);
}

static inline void setup(void)
{
	cuda_open("gpus=2 reuse=1");
	memset(&peer, 0, sizeof(peer)); /* as daemon_end_connect() does with conn */
	memset(&regions, 0, sizeof(regions));
	peer.fd = daemon_end_connect(&conn);
	(void)strcpy(conn.facts.gpu_why, "as the test wants it");
	(void)pthread_mutex_init(&peer.lock, NULL);
	ck_assert_int_eq(pthread_create(&peer.thread, NULL, peer_main, NULL), 0);
	peer.is_running = true;
	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_PATH__GPU_AUTO);
}

/* The daemon has served all that was sent to it. */
static inline void settle(void)
{
	if (!peer.is_running)
		return;
	peer.is_running = false;
	(void)shutdown(conn.fd, SHUT_WR);
	ck_assert_int_eq(pthread_join(peer.thread, NULL), 0);
}

static inline void teardown(void)
{
	const struct standin_cuda now = gpu.look.standin_counts();

	settle();
	gpu_memory_deinit(&regions);
	conn_calls_deinit(&conn);
	(void)close(conn.fd);
	(void)close(peer.fd);
	ck_assert_uint_eq(now.n_current, 0);
	ck_assert_uint_eq(now.n_handles, now.n_reserved); /* as many as are mapped */
}

static inline int ref(const char *memory, uint64_t len, struct buffer_place *ret_place)
{
	return gpu_memory_ref(&regions, "test", memory, len, ret_place);
}

/* An op on the memory, which ends at once.  Returns its slab, 0: it is copied, or an errno. */
static inline int use(const char *memory)
{
	struct buffer_place place;
	int r = ref(memory, 1, &place);

	if (r != 1)
		return r;
	buffer_unref(place.piece);
	return (int)place.slab->id;
}

static inline void unregister(const char *start)
{
	bool is_last = false;

	ck_assert_int_eq(gpu_memory_unregister(&regions, start, &is_last), 0);
	ck_assert(!is_last);
}

/* The requests that the daemon has seen so far. */
static inline struct seen seen(void)
{
	struct seen now;

	(void)pthread_mutex_lock(&peer.lock);
	now = peer.seen;
	(void)pthread_mutex_unlock(&peer.lock);
	return now;
}

/* The daemon's answer to that import, from 0. */
static inline void refuse(unsigned import, int error)
{
	(void)pthread_mutex_lock(&peer.lock);
	peer.refusals[import] = error;
	(void)pthread_mutex_unlock(&peer.lock);
}

#endif
