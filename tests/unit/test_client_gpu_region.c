/*
 * Regions of GPU memory, on the stand-in for libcuda and with a daemon of the test's own.
 */
#include "client/lib/memory/gpu_region.h"

#include "client/lib/base/error.h"
#include "client/lib/dsaio.h"
#include "proto/util/cleanup.h"
#include "tests/unit/gpu.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES (1u << 20)
#define MAPPED_BYTES STANDIN_GRANULARITY
#define NEVER_NSEC (UINT64_MAX / 4)
#define N_MAX 3u

/* ---- a daemon ---- */

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

static void peer_import(const Wire__DeviceImport *import, const struct frame *frame,
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

static void peer_send(const Wire__Reply *reply)
{
	struct frame_writer writer = { 0 };
	uint8_t body[256];
	size_t len = wire__reply__pack(reply, body);

	ck_assert_int_eq(frame_queue(&writer, body, len, NULL, 0), 0);
	(void)frame_flush(&writer, peer.fd); /* the client may have gone */
	frame_writer_deinit(&writer);
}

/* Under the lock. */
static void peer_free_done(void)
{
	Wire__Reply reply = WIRE__REPLY__INIT;

	reply.seq = peer.free_seq;
	peer.free_seq = 0;
	peer.n_slabs--;
	peer_send(&reply);
}

/* false: the connection has ended. */
static bool peer_serve(struct frame_reader *reader)
{
	Wire__SlabNewReply slab = WIRE__SLAB_NEW_REPLY__INIT;
	Wire__Reply reply = WIRE__REPLY__INIT;
	Wire__Request *request;
	struct frame frame;
	bool is_done = true;
	char text[160];

	if (frame_read(reader, peer.fd, &frame, text, sizeof(text)) != 1)
		return false;
	request = wire__request__unpack(NULL, frame.len, frame.body);
	ck_assert_ptr_nonnull(request);
	reply.seq = request->seq;
	(void)pthread_mutex_lock(&peer.lock);
	if (request->body_case == WIRE__REQUEST__BODY_DEVICE_IMPORT) {
		peer_import(request->device_import, &frame, &reply, &slab);
		peer_send(&reply);
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

static void *peer_main(void *arg)
{
	struct frame_reader reader = { 0 };

	(void)arg;
	while (peer_serve(&reader))
		;
	frame_reader_deinit(&reader);
	return NULL;
}

/* ---- a program with GPUs ---- */

static char *gpu_alloc(int number)
{
	return gpu_memory_new(number, BYTES);
}

static void gpu_free(const char *memory)
{
	gpu_memory_free(0, memory);
}

/* Maps new memory there, in place of what is. */
static void gpu_map(const char *memory, bool may_export)
{
	ck_assert_int_eq(standins_map(&gpu, memory, MAPPED_BYTES, may_export), CUDA_SUCCESS);
}

static char *gpu_reserve(void)
{
	CUdeviceptr memory;

	ck_assert_int_eq(gpu.map.cuMemAddressReserve(&memory, MAPPED_BYTES, 0, 0, 0), CUDA_SUCCESS);
	return (char *)(uintptr_t)memory;
}

/* ---- a client ---- */

static struct dsaio_conn conn;
static struct gpu_regions regions;

static void client_begin_with(uint64_t features, Wire__GpuWay way, bool is_direct_only)
{
	conn.facts.features = features;
	conn.facts.gpu_way = way;
	gpu_regions_deinit(&regions);
	gpu_regions_init(&regions, &conn, is_direct_only);
	regions.pause_nsec = NEVER_NSEC;
	regions.n_max = N_MAX;
}

static void client_begin(uint64_t features, Wire__GpuWay way)
{
	client_begin_with(features, way, false);
}

static void setup(void)
{
	int fds[2];

	cuda_open("gpus=2 reuse=1");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	memset(&conn, 0, sizeof(conn)); /* without a fork for each test they follow one another */
	memset(&peer, 0, sizeof(peer));
	memset(&regions, 0, sizeof(regions));
	conn.fd = fds[0];
	conn.silence.limit_msec = CONN_SILENT_MSEC;
	conn.path = (char *)(uintptr_t) "test"; /* only read */
	(void)strcpy(conn.facts.gpu_why, "as the test wants it");
	conn_calls_init(&conn);
	(void)pthread_mutex_init(&conn.lock, NULL);
	ck_assert_int_eq(fcntl(conn.fd, F_SETFL, O_RDWR | O_NONBLOCK), 0);
	peer.fd = fds[1];
	(void)pthread_mutex_init(&peer.lock, NULL);
	ck_assert_int_eq(pthread_create(&peer.thread, NULL, peer_main, NULL), 0);
	peer.is_running = true;
	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_AUTO);
}

/* The daemon has served all that was sent to it. */
static void settle(void)
{
	if (!peer.is_running)
		return;
	peer.is_running = false;
	(void)shutdown(conn.fd, SHUT_WR);
	ck_assert_int_eq(pthread_join(peer.thread, NULL), 0);
}

static void teardown(void)
{
	const struct standin_cuda now = gpu.look.standin_counts();

	settle();
	gpu_regions_deinit(&regions);
	conn_calls_deinit(&conn);
	free(conn.watches);
	(void)close(conn.fd);
	(void)close(peer.fd);
	ck_assert_uint_eq(now.n_current, 0);
	ck_assert_uint_eq(now.n_handles, now.n_reserved); /* as many as are mapped */
}

static int ref(const char *memory, uint64_t len, struct buffer_place *ret_place)
{
	return gpu_regions_ref(&regions, "test", memory, len, ret_place);
}

/* An op on the memory, which ends at once.  Returns its slab, 0: it is copied, or an errno. */
static int use(const char *memory)
{
	struct buffer_place place;
	int r = ref(memory, 1, &place);

	if (r != 1)
		return r;
	buffer_unref(place.piece);
	return (int)place.slab->id;
}

/* The requests that the daemon has seen so far. */
static struct seen seen(void)
{
	struct seen now;

	(void)pthread_mutex_lock(&peer.lock);
	now = peer.seen;
	(void)pthread_mutex_unlock(&peer.lock);
	return now;
}

/* The daemon's answer to that import, from 0. */
static void refuse(unsigned import, int error)
{
	(void)pthread_mutex_lock(&peer.lock);
	peer.refusals[import] = error;
	(void)pthread_mutex_unlock(&peer.lock);
}

START_TEST(an_allocation_is_imported_once_and_whole)
{
	char *memory = gpu_alloc(1);
	unsigned long long buffer_id = 0;
	struct buffer_place place;

	ck_assert_int_eq(gpu.copy.cuPointerGetAttribute(&buffer_id, CU_POINTER_ATTRIBUTE_BUFFER_ID,
							(CUdeviceptr)(uintptr_t)memory),
			 CUDA_SUCCESS);
	ck_assert_int_eq(ref(memory + 1000, BYTES - 1000, &place), 1);
	ck_assert_uint_eq(place.slab->id, 1);
	ck_assert_uint_eq(place.slab_off, 1000);
	ck_assert(place.slab->is_imported && place.slab->is_gpu);
	buffer_unref(place.piece);
	ck_assert_int_eq(ref(memory, 5, &place), 1);
	ck_assert_uint_eq(place.slab_off, 0);
	buffer_unref(place.piece);
	settle();
	ck_assert_uint_eq(seen().n_imports, 1);
	ck_assert_uint_eq(seen().size_bytes, BYTES);
	ck_assert_uint_eq(seen().buffer_id, buffer_id);
	ck_assert_int_eq(seen().uuid, (char)0xa1); /* GPU 1 */
	ck_assert(seen().has_ipc && !seen().has_fd);
	ck_assert_uint_eq(seen().n_freed, 0);
}
END_TEST

START_TEST(other_memory_is_copied)
{
	char *memory = gpu_alloc(0), buf[16];

	ck_assert_int_eq(use(buf), 0);
	ck_assert_int_eq(use(NULL), 0);
	ck_assert_uint_eq(seen().n_imports, 0);
	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_COPY);
	ck_assert_int_eq(use(memory), 0);
	client_begin(0, WIRE__GPU_WAY__GPU_AUTO);
	ck_assert_int_eq(use(memory), 0);
	ck_assert_uint_eq(seen().n_imports, 0);
}
END_TEST

START_TEST(a_range_that_passes_its_allocation_is_copied)
{
	char *memory = gpu_alloc(0);
	struct buffer_place place;

	ck_assert_int_eq(ref(memory + 1, BYTES, &place), 0);
	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_DIRECT);
	ck_assert_int_eq(ref(memory + 1, BYTES, &place), -EFAULT);
	ck_assert_msg(strstr(dsaio_error(), "within one allocation"), "%s", dsaio_error());
}
END_TEST

START_TEST(a_program_may_demand_that_nothing_is_copied)
{
	char *memory = gpu_alloc(0), buf[16];

	client_begin_with(RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_COPY, true);
	ck_assert_int_eq(use(memory), -EOPNOTSUPP);
	ck_assert_msg(strstr(dsaio_error(), "as the test wants it") &&
			      strstr(dsaio_error(), "DSAIO_GPU_DIRECT"),
		      "%s", dsaio_error());
	ck_assert_int_eq(use(buf), 0);
	client_begin_with(RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_AUTO, true);
	refuse(0, -ENODEV);
	ck_assert_int_eq(use(memory), -ENODEV);
	ck_assert_msg(strstr(dsaio_error(), "DSAIO_GPU_DIRECT"), "%s", dsaio_error());
	ck_assert_int_eq(use(gpu_alloc(0)), 1);
}
END_TEST

START_TEST(an_address_that_comes_again_is_other_memory)
{
	char *memory = gpu_alloc(0);

	ck_assert_int_eq(use(memory), 1);
	gpu_free(memory);
	ck_assert_ptr_eq(gpu_alloc(0), memory);
	ck_assert_int_eq(use(memory + 5), 2);
	ck_assert_int_eq(use(memory), 2);
	gpu_free(memory);
	ck_assert_int_eq(use(memory), 0); /* no memory */
	settle();
	ck_assert_uint_eq(seen().n_imports, 2);
	ck_assert_uint_eq(seen().n_freed, 2);
	ck_assert_uint_eq(seen().last_freed, 2);
}
END_TEST

START_TEST(memory_that_is_mapped_anew_is_other_memory)
{
	char *memory = gpu_reserve();

	gpu_map(memory, true);
	ck_assert_int_eq(use(memory + 7), 1);
	ck_assert(seen().has_fd && !seen().has_ipc);
	ck_assert_uint_eq(seen().size_bytes, MAPPED_BYTES);
	gpu_map(memory, true);
	ck_assert_int_eq(use(memory + 7), 2);
	ck_assert_uint_eq(seen().last_freed, 1);
	gpu_map(memory, false); /* not to be exported */
	ck_assert_int_eq(use(memory), 0);
	ck_assert_uint_eq(seen().n_imports, 2);
	ck_assert_uint_eq(seen().last_freed, 2);
}
END_TEST

/* The daemon has freed the first region, and no other, when it has served all. */
static void first_is_freed(void)
{
	settle();
	ck_assert_uint_eq(seen().n_freed, 1);
	ck_assert_uint_eq(seen().last_freed, 1);
}

START_TEST(a_region_stays_while_an_op_uses_it)
{
	char *memory = gpu_alloc(0);
	struct buffer_place place;

	ck_assert_int_eq(ref(memory, BYTES, &place), 1);
	gpu_free(memory);
	ck_assert_ptr_eq(gpu_alloc(0), memory);
	ck_assert_int_eq(use(memory), 2);
	ck_assert_uint_eq(seen().n_freed, 0);
	ck_assert_uint_eq(place.slab->id, 1);
	buffer_unref(place.piece);
	ck_assert_int_eq(use(memory), 2);
	first_is_freed();
}
END_TEST

START_TEST(freed_memory_is_given_back_by_later_ops)
{
	char *memory = gpu_alloc(0), *other = gpu_alloc(0);

	ck_assert_int_eq(use(memory), 1);
	ck_assert_int_eq(use(other), 2);
	gpu_free(memory);
	ck_assert_int_eq(use(other), 2);
	ck_assert_uint_eq(regions.n, 2); /* it looks only now and then */
	regions.pause_nsec = 0;
	ck_assert_int_eq(use(other), 2);
	ck_assert_uint_eq(regions.n, 1);
	first_is_freed();
}
END_TEST

START_TEST(freed_memory_is_given_back_before_an_import)
{
	char *memory = gpu_alloc(0), *other = gpu_alloc(0);

	ck_assert_int_eq(use(memory), 1);
	gpu_free(memory);
	ck_assert_int_eq(use(other), 2);
	ck_assert_uint_eq(seen().last_freed, 1);
	ck_assert_uint_eq(regions.n, 1);
}
END_TEST

static const struct {
	const char *what;
	int error;
	bool is_for_now;
} refusals[] = {
	{ "the daemon cannot", -EOPNOTSUPP, false },
	{ "the handle does not open", -EFAULT, false },
	{ "no such GPU", -ENODEV, false },
	{ "no memory", -ENOMEM, true },
	{ "too many", -EMFILE, true },
};

START_TEST(a_refusal_is_remembered)
{
	char *memory = gpu_alloc(0), *why;

	refuse(0, refusals[_i].error);
	ck_assert_int_eq(use(memory), 0);
	ck_assert_int_eq(use(memory + 9), 0);
	ck_assert_msg(seen().n_imports == 1, "%s", refusals[_i].what);
	why = gpu_regions_why(&regions, memory);
	ck_assert_msg(strstr(why, "no such luck"), "%s", why);
	free(why);
	gpu_free(memory); /* other memory is another question */
	ck_assert_ptr_eq(gpu_alloc(0), memory);
	ck_assert_int_eq(use(memory), 1);
}
END_TEST

START_TEST(a_refusal_for_now_is_forgotten)
{
	char *memory = gpu_alloc(0);

	regions.pause_nsec = 0;
	refuse(0, refusals[_i].error);
	ck_assert_int_eq(use(memory), 0);
	ck_assert_msg(use(memory) == refusals[_i].is_for_now, "%s", refusals[_i].what);
}
END_TEST

START_TEST(imports_that_the_daemon_does_not_take_yet_are_tried_again_where_nothing_may_be_copied)
{
	char *memory = gpu_alloc(0);

	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_DIRECT);
	refuse(0, -EAGAIN);
	refuse(1, -EAGAIN);
	ck_assert_int_eq(use(memory), 1);
	ck_assert_uint_eq(seen().n_imports, 3);
	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_AUTO);
	refuse(3, -EAGAIN);
	ck_assert_int_eq(use(memory), 0);
	ck_assert_uint_eq(seen().n_imports, 4);
}
END_TEST

START_TEST(a_refusal_is_an_error_where_nothing_may_be_copied)
{
	char *memory = gpu_alloc(0), buf[16];

	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_DIRECT);
	refuse(0, refusals[_i].error);
	refuse(1, refusals[_i].error);
	ck_assert_int_eq(use(memory), refusals[_i].error);
	ck_assert_msg(strstr(dsaio_error(), "test: GPU memory at 0x") &&
			      strstr(dsaio_error(), "no such luck") &&
			      strstr(dsaio_error(), "engine = gds"),
		      "%s", dsaio_error());
	ck_assert_int_eq(use(buf), 0);
}
END_TEST

START_TEST(without_the_feature_nothing_is_asked)
{
	char *memory = gpu_alloc(0), buf[16];

	client_begin(0, WIRE__GPU_WAY__GPU_DIRECT);
	ck_assert_int_eq(use(buf), 0);
	ck_assert_int_eq(use(memory), -EOPNOTSUPP);
	ck_assert_msg(strstr(dsaio_error(), "as the test wants it"), "%s", dsaio_error());
	ck_assert_uint_eq(seen().n_imports, 0);
}
END_TEST

START_TEST(regions_are_bounded)
{
	char *memory[N_MAX + 1];

	for (unsigned i = 0; i <= N_MAX; i++)
		memory[i] = gpu_alloc(0);
	for (unsigned i = 0; i < N_MAX; i++)
		ck_assert_int_eq(use(memory[i]), (int)i + 1);
	ck_assert_int_eq(use(memory[N_MAX]), 0); /* all were just used */
	ck_assert_uint_eq(seen().n_imports, N_MAX);
	ck_assert_int_eq(use(memory[0]), 1); /* now the second was not for the longest time */
	regions.pause_nsec = 0;
	ck_assert_int_eq(use(memory[N_MAX]), N_MAX + 1);
	ck_assert_uint_eq(seen().last_freed, 2);
	ck_assert_int_eq(use(memory[0]), 1);
	ck_assert_uint_eq(regions.n, N_MAX);
}
END_TEST

START_TEST(where_nothing_may_be_copied_a_region_goes_at_once)
{
	struct buffer_place place;

	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_WAY__GPU_DIRECT);
	ck_assert_int_eq(ref(gpu_alloc(0), 1, &place), 1);
	for (unsigned i = 0; i < N_MAX; i++)
		ck_assert_int_eq(use(gpu_alloc(0)), (int)i + 2);
	ck_assert_uint_eq(seen().last_freed, 2); /* not 1: an op uses it */
	buffer_unref(place.piece);
}
END_TEST

START_TEST(too_much_memory_is_mended_by_less)
{
	char *memory = gpu_alloc(0);

	regions.pause_nsec = 0;
	ck_assert_int_eq(use(memory), 1);
	refuse(1, -ENOMEM);
	ck_assert_int_eq(use(gpu_alloc(0)), 2);
	ck_assert_uint_eq(seen().last_freed, 1);
	ck_assert_uint_eq(seen().n_imports, 3);
	refuse(3, -ENOMEM);
	refuse(4, -ENOMEM); /* of a sole region of its own */
	ck_assert_int_eq(use(gpu_alloc(0)), 0);
}
END_TEST

/* The daemon grants so many slabs, and takes its time to free one. */
static void limit(unsigned n_most)
{
	(void)pthread_mutex_lock(&peer.lock);
	peer.n_most = n_most;
	(void)pthread_mutex_unlock(&peer.lock);
}

START_TEST(memory_that_is_being_given_back_is_no_reason_to_refuse_other_memory)
{
	char *first = gpu_alloc(0), *memory = gpu_alloc(0);
	struct buffer_place place;

	limit(2);
	regions.pause_nsec = 0;
	ck_assert_int_eq(use(first), 1);
	ck_assert_int_eq(ref(memory, 1, &place), 1); /* it stays */
	gpu_free(first);
	ck_assert_int_eq(use(memory), 2); /* posts that it gives the first back */
	ck_assert_int_eq(use(gpu_alloc(0)), 3);
	ck_assert_uint_eq(seen().n_imports, 4);
	ck_assert_uint_eq(seen().last_freed, 1);
	buffer_unref(place.piece);
	limit(0);
}
END_TEST

static void *unregister_main(void *arg)
{
	gpu_regions_unregister(&regions, arg);
	return NULL;
}

START_TEST(memory_that_another_thread_gives_back_is_no_reason_to_refuse_other_memory)
{
	char *first = gpu_alloc(0), *memory = gpu_alloc(0), *why;
	struct allocation allocation;
	struct buffer_place place;
	pthread_t thread;

	limit(2);
	ck_assert_int_eq(gpu_regions_register(&regions, "test", first, BYTES), 0);
	ck_assert_int_eq(allocation_find(first, &allocation, &why), 0);
	ck_assert_int_eq(ref(memory, 1, &place), 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, unregister_main, &allocation), 0);
	while (!seen().n_freed)
		(void)usleep(1000);
	ck_assert_int_eq(use(gpu_alloc(0)), 3);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	buffer_unref(place.piece);
	limit(0);
}
END_TEST

START_TEST(registered_memory_stays)
{
	struct allocation allocation;
	char *memory = gpu_alloc(0), *why;

	regions.pause_nsec = 0;
	ck_assert_int_eq(gpu_regions_register(&regions, "test", memory, BYTES), 0);
	ck_assert_int_eq(gpu_regions_register(&regions, "test", memory, 1), 0);
	ck_assert_int_eq(allocation_find(memory, &allocation, &why), 0);
	for (unsigned i = 0; i < 2 * N_MAX; i++)
		ck_assert_int_eq(use(gpu_alloc(0)), (int)i + 2);
	ck_assert_int_eq(use(memory), 1);
	gpu_regions_unregister(&regions, &allocation);
	ck_assert_int_eq(use(memory), 1);
	gpu_regions_unregister(&regions, &allocation);
	ck_assert_uint_eq(seen().last_freed, 1);
	gpu_regions_unregister(&regions, &allocation); /* nothing */
	ck_assert_int_eq(use(memory), 2 * N_MAX + 2);
}
END_TEST

/* The region was given back with the first range, though the second one was registered still. */
START_TEST(ranges_that_were_registered_during_a_refusal_count)
{
	struct allocation allocation;
	char *memory = gpu_alloc(0), *why;

	regions.pause_nsec = 0;
	refuse(0, -ENOMEM);
	ck_assert_int_eq(gpu_regions_register(&regions, "test", memory, 1), 0);
	ck_assert_int_eq(gpu_regions_register(&regions, "test", memory + 1, 1), 0);
	ck_assert_int_eq(allocation_find(memory, &allocation, &why), 0);
	ck_assert_int_eq(use(memory), 1);
	gpu_regions_unregister(&regions, &allocation);
	ck_assert_int_eq(use(memory), 1);
	gpu_regions_unregister(&regions, &allocation);
	ck_assert_uint_eq(seen().last_freed, 1);
}
END_TEST

START_TEST(a_connection_that_is_lost_is_an_error)
{
	char *memory = gpu_alloc(0);

	settle();
	(void)shutdown(peer.fd, SHUT_RDWR);
	ck_assert_int_eq(use(memory), -ENOTCONN);
	ck_assert_int_eq(use(memory), -ENOTCONN);
	ck_assert_msg(strstr(dsaio_error(), "test: "), "%s", dsaio_error());
}
END_TEST

static char *shared;

static void *user_main(void *arg)
{
	(void)arg;
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(use(shared + i), 1);
	return NULL;
}

START_TEST(threads_wait_for_an_import_that_is_under_way)
{
	pthread_t threads[8];

	shared = gpu_alloc(0);
	for (int i = 0; i < N_ROWS(threads); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, user_main, NULL), 0);
	for (int i = 0; i < N_ROWS(threads); i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_uint_eq(seen().n_imports, 1);
	ck_assert_uint_eq(regions.n, 1);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_allocation_is_imported_once_and_whole);
	tcase_add_test(tcase, other_memory_is_copied);
	tcase_add_test(tcase, a_range_that_passes_its_allocation_is_copied);
	tcase_add_test(tcase, a_program_may_demand_that_nothing_is_copied);
	tcase_add_test(tcase, an_address_that_comes_again_is_other_memory);
	tcase_add_test(tcase, memory_that_is_mapped_anew_is_other_memory);
	tcase_add_test(tcase, a_region_stays_while_an_op_uses_it);
	tcase_add_test(tcase, freed_memory_is_given_back_by_later_ops);
	tcase_add_test(tcase, freed_memory_is_given_back_before_an_import);
	tcase_add_loop_test(tcase, a_refusal_is_remembered, 0, N_ROWS(refusals));
	tcase_add_loop_test(tcase, a_refusal_for_now_is_forgotten, 0, N_ROWS(refusals));
	tcase_add_test(
		tcase,
		imports_that_the_daemon_does_not_take_yet_are_tried_again_where_nothing_may_be_copied);
	tcase_add_loop_test(tcase, a_refusal_is_an_error_where_nothing_may_be_copied, 0,
			    N_ROWS(refusals));
	tcase_add_test(tcase, without_the_feature_nothing_is_asked);
	tcase_add_test(tcase, regions_are_bounded);
	tcase_add_test(tcase, where_nothing_may_be_copied_a_region_goes_at_once);
	tcase_add_test(tcase, too_much_memory_is_mended_by_less);
	tcase_add_test(tcase, memory_that_is_being_given_back_is_no_reason_to_refuse_other_memory);
	tcase_add_test(tcase,
		       memory_that_another_thread_gives_back_is_no_reason_to_refuse_other_memory);
	tcase_add_test(tcase, registered_memory_stays);
	tcase_add_test(tcase, ranges_that_were_registered_during_a_refusal_count);
	tcase_add_test(tcase, a_connection_that_is_lost_is_an_error);
	tcase_add_test(tcase, threads_wait_for_an_import_that_is_under_way);
}

SUITE("client_gpu_region", add_tests)
