/*
 * Imports of GPU memory as slabs of a client, on the stand-ins for libcuda and libcufile.  A child exports the memory.
 */
#include "tests/unit/gds_parts.h"

#include "tests/unit/control_probe.h"

/* A host with GPUs, whose probe has ended. */
static void gpu_setup(void)
{
	setup();
	session_setup();
	session->quota.limit[QUOTA_GPU_BYTES] = 2 * MEMORY_BYTES;
	session->user->quota.limit[QUOTA_GPU_BYTES] = UINT64_MAX;
	probe_begin(cuda_path, cufile_path, GPU_PROBE_MSEC);
	CONTROL_UNTIL(!gpu_probe_is_running(c.service.gpu.probe));
}

static void gpu_teardown(void)
{
	probe_teardown();
	nothing_is_left("at the end");
	file_end();
	teardown();
}

/* Imports the handle's allocation, by call 1.  Returns its slab. */
static struct slab *imported(const struct gds_handle *handle)
{
	ck_assert_msg(probe_import(1, handle, true) == 0, "%s", c.error.text);
	CONTROL_UNTIL(answers[1].is_done);
	ck_assert_msg(answers[1].result == 0, "%s", answers[1].text);
	return id_table_get(&session->objects.slabs, answers[1].id);
}

TEST(an_allocation_is_a_slab_that_costs_nothing_of_the_pool_and_goes_with_its_last_reference)
{
	const struct gds_handle handle = exported(MEMORY_BYTES);
	struct slab *slab = imported(&handle);
	const char *bytes = gpu.look.standin_bytes((uintptr_t)slab->region.base);

	ck_assert_int_eq(slab->region.kind, REGION_GPU);
	ck_assert_uint_eq(slab->size_bytes, MEMORY_BYTES);
	ck_assert_int_eq(slab->fd, -1);
	ck_assert(bytes && memcmp(bytes, "abc", 3) == 0);
	ck_assert_uint_eq(session->gpu.n_imports, 0);
	ck_assert_uint_eq(session->quota.used[QUOTA_SLABS], 1);
	ck_assert_uint_eq(session->quota.used[QUOTA_POOL_BYTES], 0);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 1);
	slab_ref(slab); /* as an op does */
	ck_assert_int_eq(
		session_slab_free(session, slab->id, control_call(session, 2, 0), &c.error), 0);
	control_settle();
	ck_assert_uint_eq(gpu.look.standin_counts().n_imported, 1);
	ck_assert_uint_eq(session->quota.used[QUOTA_GPU_BYTES], MEMORY_BYTES);
	slab_unref(slab);
	CONTROL_UNTIL(answers[2].is_done);
	ck_assert_uint_eq(session->quota.used[QUOTA_GPU_BYTES], 0);
	nothing_is_left("after the last reference");
}

TEST(a_handle_that_does_not_open_releases_its_charges)
{
	struct gds_handle handle = exported(MEMORY_BYTES);

	handle.ipc[9] ^= 1;
	ck_assert_int_eq(probe_import(1, &handle, true), 0);
	CONTROL_UNTIL(answers[1].is_done);
	ck_assert_int_eq(answers[1].result, -EFAULT);
	ck_assert_msg(strstr(answers[1].text, "cuIpcOpenMemHandle_v2()"), "%s", answers[1].text);
	ck_assert(quota_is_zero(&session->quota));
}

TEST(a_slab_that_is_refused_at_once_costs_nothing_and_its_descriptor_is_closed)
{
	struct gds_handle handle = exported_mapped(STANDIN_GRANULARITY, STANDIN_GRANULARITY);
	const struct gds_handle none = { .fd = -1 };

	ck_assert_int_eq(probe_import(1, &none, true), -EINVAL);
	ck_assert_int_eq(probe_import(1, &handle, true), -EDQUOT);
	ck_assert_msg(strstr(c.error.text, "client_device_max"), "%s", c.error.text);
	CONTROL_UNTIL(!session->n_closings);
	ck_assert(!control_is_open(handle.fd));
	handle = exported_mapped(STANDIN_GRANULARITY, STANDIN_GRANULARITY);
	session->quota.limit[QUOTA_GPU_BYTES] = STANDIN_GRANULARITY;
	(void)imported(&handle);
	ck_assert(!control_is_open(handle.fd));
}

FIXTURE(gpu_setup, gpu_teardown)
TEST_MAIN
