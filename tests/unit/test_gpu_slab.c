/*
 * Slabs of GPU memory, on the stand-ins for libcuda and libcufile.  A child exports the memory.
 */
#include "daemon/engine/gpu_slab.h"

#include "tests/unit/gpu_exporter.h"
#include "tests/unit/slab_reports.h"

#include <errno.h>
#include <fcntl.h>

#define MEMORY_BYTES 100000u

static struct standins gpu;
static struct exporter exporter;
static char cuda_path[PATH_MAX], cufile_path[PATH_MAX];

static void setup(void)
{
	const char *missing;

	ck_assert_int_eq(setenv("STANDIN", "", 1), 0);
	missing = standins_load(&gpu);
	ck_assert_msg(!missing, "%s", missing);
	exporter = exporter_start(&gpu);
	gds_init(standins_path("libcuda", cuda_path), standins_path("libcufile", cufile_path));
	pool = (struct pool){ .quota = { .name = "the daemon" },
			      .lock = POOL_LOCK_YES,
			      .is_locked = true,
			      .main_mailbox = &mailbox };
	user = (struct quota){ .name = "user 7", .parent = &pool.quota };
	client = (struct quota){ .name = "client 1", .parent = &user };
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++)
		pool.quota.limit[i] = user.limit[i] = UINT64_MAX;
	client.limit[QUOTA_GPU_BYTES] = 2 * MEMORY_BYTES;
	client.limit[QUOTA_SLABS] = 2;
	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(work_queue_new("test", 1, &work_queue), 0);
}

static void teardown(void)
{
	ck_assert(quota_is_zero(&pool.quota));
	ck_assert(pool.is_locked);
	work_queue_free(work_queue);
	mailbox_deinit(&mailbox);
	exporter_end(&exporter);
}

static struct gds_handle handle_of(const CUipcMemHandle *ipc, int fd, uint64_t bytes)
{
	struct gds_handle handle = { .is_ipc = ipc != NULL, .fd = fd, .size_bytes = bytes };

	for (unsigned i = 0; i < sizeof(handle.uuid); i++)
		handle.uuid[i] = (char)(0xa0 + i); /* of GPU 0 */
	if (ipc)
		memcpy(handle.ipc, ipc->reserved, sizeof(handle.ipc));
	return handle;
}

static int import(const struct gds_handle *handle)
{
	const struct hung_who who = { .uid = 7 };
	int r = gpu_slab_import(&pool, &client, work_queue, handle, &who, on_made, &client,
				&made_error);

	if (r < 0)
		return r;
	run_until(&n_made);
	return made_result;
}

static void drop(struct slab *slab)
{
	slab->on_freed = on_freed;
	slab->freed_arg = &client;
	slab_unref(slab);
	run_until(&n_freed);
}

START_TEST(an_allocation_is_a_slab_that_costs_nothing_of_the_pool)
{
	const CUipcMemHandle ipc = exporter_export(&exporter, MEMORY_BYTES);
	const struct gds_handle handle = handle_of(&ipc, -1, MEMORY_BYTES);
	const CUdeviceptr *base;
	char *bytes;

	ck_assert_msg(import(&handle) == 0, "%s", made_error.text);
	ck_assert_int_eq(made->region.kind, REGION_GPU);
	ck_assert_uint_eq(made->size_bytes, MEMORY_BYTES);
	ck_assert_int_eq(made->fd, -1);
	base = (const CUdeviceptr *)&made->region.base;
	bytes = gpu.look.standin_bytes(*base);
	ck_assert(bytes && memcmp(bytes, "abc", 3) == 0);
	ck_assert_uint_eq(client.used[QUOTA_GPU_BYTES], MEMORY_BYTES);
	ck_assert_uint_eq(client.used[QUOTA_SLABS], 1);
	ck_assert_uint_eq(client.used[QUOTA_POOL_BYTES], 0);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 1);
	drop(made);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 0);
	ck_assert_uint_eq(gpu.look.standin_counts().n_imported, 0);
}
END_TEST

START_TEST(it_goes_with_its_last_reference)
{
	const CUipcMemHandle ipc = exporter_export(&exporter, MEMORY_BYTES);
	const struct gds_handle handle = handle_of(&ipc, -1, MEMORY_BYTES);

	ck_assert_msg(import(&handle) == 0, "%s", made_error.text);
	slab_ref(made); /* as an op does */
	slab_unref(made);
	ck_assert_uint_eq(gpu.look.standin_counts().n_imported, 1);
	ck_assert_uint_eq(client.used[QUOTA_GPU_BYTES], MEMORY_BYTES);
	drop(made);
	ck_assert_uint_eq(gpu.look.standin_counts().n_imported, 0);
}
END_TEST

START_TEST(a_handle_that_does_not_open_gives_its_charges_back)
{
	CUipcMemHandle ipc = exporter_export(&exporter, MEMORY_BYTES);
	struct gds_handle handle;

	ipc.reserved[9] ^= 1;
	handle = handle_of(&ipc, -1, MEMORY_BYTES);
	ck_assert_int_eq(import(&handle), -EFAULT);
	ck_assert_ptr_null(made);
	ck_assert_msg(strstr(made_error.text, "cuIpcOpenMemHandle()"), "%s", made_error.text);
	ck_assert(quota_is_zero(&client));
}
END_TEST

START_TEST(a_descriptor_is_taken_unless_the_import_is_refused_at_once)
{
	int fd = exporter_export_mapped(&exporter, STANDIN_GRANULARITY);
	struct gds_handle handle = handle_of(NULL, fd, STANDIN_GRANULARITY);

	ck_assert_int_eq(import(&handle), -EDQUOT);
	ck_assert_msg(strstr(made_error.text, "client_device_max"), "%s", made_error.text);
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	handle.size_bytes = 0;
	ck_assert_int_eq(import(&handle), -EINVAL);
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	client.limit[QUOTA_GPU_BYTES] = STANDIN_GRANULARITY;
	handle.size_bytes = STANDIN_GRANULARITY;
	ck_assert_msg(import(&handle) == 0, "%s", made_error.text);
	ck_assert_int_lt(fcntl(fd, F_GETFD), 0);
	drop(made);
	ck_assert_uint_eq(gpu.look.standin_counts().n_reserved, 0);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_allocation_is_a_slab_that_costs_nothing_of_the_pool);
	tcase_add_test(tcase, it_goes_with_its_last_reference);
	tcase_add_test(tcase, a_handle_that_does_not_open_gives_its_charges_back);
	tcase_add_test(tcase, a_descriptor_is_taken_unless_the_import_is_refused_at_once);
}

SUITE("gpu_slab", add_tests)
