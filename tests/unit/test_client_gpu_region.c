/*
 * Which memory has a region, until when, and how many there are.
 */
#include "tests/unit/client_regions.h"

#include "client/lib/dsaio.h"

TEST(an_allocation_is_imported_once_and_whole)
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

TEST(other_memory_is_copied)
{
	char *memory = gpu_alloc(0), buf[16];

	ck_assert_int_eq(use(buf), 0);
	ck_assert_int_eq(use(NULL), 0);
	ck_assert_uint_eq(seen().n_imports, 0);
	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_PATH__GPU_COPY);
	ck_assert_int_eq(use(memory), 0);
	client_begin(0, WIRE__GPU_PATH__GPU_AUTO);
	ck_assert_int_eq(use(memory), 0);
	ck_assert_uint_eq(seen().n_imports, 0);
}

TEST(a_range_that_passes_its_allocation_is_copied)
{
	char *memory = gpu_alloc(0);
	struct buffer_place place;

	ck_assert_int_eq(ref(memory + 1, BYTES, &place), 0);
	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_PATH__GPU_DIRECT);
	ck_assert_int_eq(ref(memory + 1, BYTES, &place), -EFAULT);
	ck_assert_msg(strstr(dsaio_error(), "within one allocation"), "%s", dsaio_error());
}

TEST(a_program_may_demand_that_nothing_is_copied)
{
	char *memory = gpu_alloc(0), buf[16];

	client_begin_with(0, WIRE__GPU_PATH__GPU_COPY, true);
	ck_assert_int_eq(use(memory), -EOPNOTSUPP);
	ck_assert_msg(strstr(dsaio_error(), "as the test wants it") &&
			      strstr(dsaio_error(), "DSAIO_GPU_DIRECT"),
		      "%s", dsaio_error());
	ck_assert_int_eq(use(buf), 0);
	client_begin_with(RING_FEATURE_DEVICE, WIRE__GPU_PATH__GPU_AUTO, true);
	refuse(0, -ENODEV);
	ck_assert_int_eq(use(memory), -ENODEV);
	ck_assert_msg(strstr(dsaio_error(), "DSAIO_GPU_DIRECT"), "%s", dsaio_error());
	ck_assert_int_eq(use(gpu_alloc(0)), 1);
	/* the daemon would copy, but need not */
	client_begin_with(RING_FEATURE_DEVICE, WIRE__GPU_PATH__GPU_COPY, true);
	ck_assert_int_gt(use(gpu_alloc(0)), 0);
	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_PATH__GPU_COPY);
	ck_assert_int_eq(use(gpu_alloc(0)), 0);
}

TEST(an_address_that_comes_again_is_other_memory)
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

TEST(memory_that_is_mapped_anew_is_other_memory)
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
	settle();
	ck_assert_uint_eq(seen().n_imports, 2);
	ck_assert_uint_eq(seen().last_freed, 2);
}

/* The daemon has freed the first region, and no other, when it has served all. */
static void first_is_freed(void)
{
	settle();
	ck_assert_uint_eq(seen().n_freed, 1);
	ck_assert_uint_eq(seen().last_freed, 1);
}

TEST(a_region_stays_while_an_op_uses_it)
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

TEST(freed_memory_is_released_by_later_ops)
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

TEST(freed_memory_is_released_before_an_import)
{
	char *memory = gpu_alloc(0), *other = gpu_alloc(0);

	ck_assert_int_eq(use(memory), 1);
	gpu_free(memory);
	ck_assert_int_eq(use(other), 2);
	ck_assert_uint_eq(seen().last_freed, 1);
	ck_assert_uint_eq(regions.n, 1);
}

TEST(regions_are_bounded)
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

TEST(where_nothing_may_be_copied_a_region_goes_at_once)
{
	struct buffer_place place;

	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_PATH__GPU_DIRECT);
	ck_assert_int_eq(ref(gpu_alloc(0), 1, &place), 1);
	for (unsigned i = 0; i < N_MAX; i++)
		ck_assert_int_eq(use(gpu_alloc(0)), (int)i + 2);
	ck_assert_uint_eq(seen().last_freed, 2); /* not 1: an op uses it */
	buffer_unref(place.piece);
}

TEST(registered_memory_stays)
{
	char *memory = gpu_alloc(0);

	regions.pause_nsec = 0;
	ck_assert_int_eq(gpu_memory_register(&regions, memory + 1, BYTES - 1), 0);
	ck_assert_int_eq(gpu_memory_register(&regions, memory, 1), 0);
	for (unsigned i = 0; i < 2 * N_MAX; i++)
		ck_assert_int_eq(use(gpu_alloc(0)), (int)i + 2);
	ck_assert_int_eq(use(memory), 1);
	unregister(memory);
	ck_assert_int_eq(use(memory), 1);
	unregister(memory + 1);
	ck_assert_uint_eq(seen().last_freed, 1);
	ck_assert_int_eq(use(memory), 2 * N_MAX + 2);
}

TEST(a_connection_that_is_lost_is_an_error)
{
	char *memory = gpu_alloc(0);

	settle();
	(void)shutdown(peer.fd, SHUT_RDWR);
	ck_assert_int_eq(use(memory), -ENOTCONN);
	ck_assert_int_eq(use(memory), -ENOTCONN);
	ck_assert_msg(strstr(dsaio_error(), "test: "), "%s", dsaio_error());
}

static char *shared;

static void *user_main(void *arg)
{
	(void)arg;
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(use(shared + i), 1);
	return NULL;
}

TEST(threads_wait_for_an_import_that_is_under_way)
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

FIXTURE(setup, teardown)
TEST_MAIN
