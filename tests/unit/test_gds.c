/*
 * Imports of GPU memory: their handles, their errors and their release.
 */
#include "tests/unit/gds_parts.h"

#include <errno.h>
#include <fcntl.h>

TEST(memory_is_mapped_and_registered_once)
{
	const struct gds_handle handle = exported(MEMORY_BYTES);
	struct gds_memory *first, *second;
	struct region a, b;

	first = import(&handle, &a);
	second = import(&handle, &b);
	ck_assert(a.kind == REGION_GPU && a.base == b.base && first == second);
	ck_assert_uint_eq(gpu.look.standin_counts().n_imported, 1);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 1);
	gds_release(first);
	ck_assert_uint_eq(gpu.look.standin_counts().n_imported, 1);
	gds_release(second);
	nothing_is_left("after the last release");

	/* It can be imported again. */
	gds_release(import(&handle, &a));
	nothing_is_left("again");
}

TEST(a_handle_with_another_buffer_id_is_another_allocation)
{
	struct gds_handle handle = exported(MEMORY_BYTES);
	struct gds_memory *first, *second;
	struct region region;
	struct error error = { 0 };
	int r;

	handle.buffer_id = 7;
	first = import(&handle, &region);
	second = import(&handle, &region);
	ck_assert_ptr_eq(first, second);
	gds_release(second);
	(void)exporter_ask(&exporter, 'f');
	/* The driver is asked for the memory that the handle names now: there is none. */
	handle.buffer_id = 8;
	r = gds_import(&handle, &second, &region, &error);
	ck_assert_msg(r == -EFAULT && strstr(error.text, "cuIpcOpenMemHandle_v2()"), "%d, %s", r,
		      error.text);
	gds_release(first);
	nothing_is_left("after both");
}

TEST(a_handle_with_another_size_is_refused_while_it_is_imported)
{
	struct gds_handle handle = exported(MEMORY_BYTES);
	struct region region;
	struct gds_memory *first = import(&handle, &region), *second;
	struct error error = { 0 };
	int r;

	handle.size_bytes--; /* which the driver's rounding would explain */
	r = gds_import(&handle, &second, &region, &error);
	ck_assert_msg(r == -ERANGE && strstr(error.text, "has been imported with 100000"), "%d, %s",
		      r, error.text);
	gds_release(first);
	nothing_is_left("after the first");
	gds_release(import(&handle, &region));
	nothing_is_left("after the second");
}

TEST(mapped_memory_comes_by_a_descriptor)
{
	const size_t bytes = 2 * (size_t)STANDIN_GRANULARITY;
	struct gds_handle handle = exported_mapped(bytes, bytes);
	struct gds_memory *memory;
	struct region region;

	memory = import(&handle, &region);
	ck_assert_int_lt(fcntl(handle.fd, F_GETFD), 0); /* taken */
	ck_assert_int_eq(gpu.look.standin_bytes((uintptr_t)region.base)[bytes - 1],
			 'a' + (bytes - 1) % 26);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 1);
	gds_release(memory);
	nothing_is_left("by a descriptor");
}

static const struct {
	const char *words;
	int result; /* of an import by IPC handle */
	const char *text;
	int result_fd;
} failures[] = {
	{ "cuCtxPushCurrent_v2=709", -EIO, "cuCtxPushCurrent_v2(): unknown error (709)", -EIO },
	{ "cuIpcOpenMemHandle_v2=400", -EFAULT, "cuIpcOpenMemHandle_v2(): unknown error (400)", 0 },
	{ "cuIpcOpenMemHandle_v2=205", -EFAULT, "(205)", 0 },
	{ "cuIpcOpenMemHandle_v2=800", -EACCES, "(800)", 0 },
	{ "cuIpcOpenMemHandle_v2=2", -ENOMEM, "(2)", 0 },
	{ "cuIpcOpenMemHandle_v2=3", -EIO, "CUDA_ERROR_NOT_INITIALIZED (3)", 0 },
	{ "cuPointerGetAttribute=1", -EFAULT, "cuPointerGetAttribute()", -EFAULT },
	{ "cuMemGetAddressRange_v2=500", -EFAULT, "cuMemGetAddressRange_v2()", -EFAULT },
	{ "cuFileBufRegister=5012", -EFAULT,
	  "cuFileBufRegister(): CU_FILE_CUDA_POINTER_INVALID (5012)", -EFAULT },
	{ "cuFileBufRegister=5011", -EIO, "cuFileBufRegister(): unknown error (999)", -EIO },
	{ "cuFileBufRegister=5010", -EIO, "CU_FILE_NVFS_DRIVER_ERROR (5010)", -EIO },
	{ "cuFileBufRegister=5001", -EIO, "CU_FILE_DRIVER_NOT_INITIALIZED", -EIO },
	{ "buf_imported=no", -EOPNOTSUPP, "CU_FILE_CUDA_MEMORY_TYPE_INVALID", 0 },
	{ "cuMemImportFromShareableHandle=801", 0, NULL, -EOPNOTSUPP },
	{ "cuMemAddressReserve=2", 0, NULL, -ENOMEM },
	{ "cuMemMap=1", 0, NULL, -EFAULT },
	{ "cuMemSetAccess=101", 0, NULL, -ENODEV },
};

TEST_TABLE(an_error_of_an_import_is_an_errno_and_a_message, failures)
{
	const struct gds_handle handle = exported(MEMORY_BYTES);
	const struct gds_handle mapped = exported_mapped(STANDIN_GRANULARITY, STANDIN_GRANULARITY);
	struct gds_memory *memory;
	struct region region;
	struct error error = { 0 };
	int r;

	gds_release(import(&handle, &region));
	words(failures[_i].words);
	r = gds_import(&handle, &memory, &region, &error);
	ck_assert_msg(r == failures[_i].result, "%s: %d, %s", failures[_i].words, r, error.text);
	if (r < 0)
		ck_assert_msg(error.code == r && strstr(error.text, "GPU memory: ") == error.text &&
				      strstr(error.text, failures[_i].text),
			      "%s: %s", failures[_i].words, error.text);
	else
		gds_release(memory);
	r = gds_import(&mapped, &memory, &region, &error);
	ck_assert_msg(r == failures[_i].result_fd, "%s: %d, %s", failures[_i].words, r, error.text);
	ck_assert_int_lt(fcntl(mapped.fd, F_GETFD), 0);
	if (r == 0)
		gds_release(memory);
	nothing_is_left(failures[_i].words);

	words("");
	gds_release(import(&handle, &region));
	nothing_is_left("without the error");
}

TEST(an_error_of_a_release_leaves_the_rest)
{
	const struct gds_handle handle = exported(MEMORY_BYTES);
	struct region region;
	struct gds_memory *memory = import(&handle, &region);

	words("cuIpcCloseMemHandle=1");
	gds_release(memory);
	words("");
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 0);
	gds_release(import(&handle, &region)); /* the mapping that is left is found, and counted */
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 0);
}

static const struct {
	const char *words;
	int result;
	const char *text;
	bool is_final;
} starts[] = {
	{ "cuInit=802", -EOPNOTSUPP, "cuInit(): unknown error (802)", true },
	{ "cuInit=100", -EOPNOTSUPP, "cuInit()", true },
	{ "cuInit=2", -ENOMEM, "cuInit()", false },
	{ "cuDeviceGetCount=3", -EOPNOTSUPP, "CUDA_ERROR_NOT_INITIALIZED", true },
	{ "cuDeviceGetUuid_v2=1", -EOPNOTSUPP, "cuDeviceGetUuid_v2()", true },
	{ "cuFileDriverOpen=5004", -EOPNOTSUPP,
	  "cuFileDriverOpen(): CU_FILE_DRIVER_VERSION_MISMATCH (5004)", true },
	{ "cuDevicePrimaryCtxRetain=999", -EIO, "cuDevicePrimaryCtxRetain()", true },
	{ "cuDevicePrimaryCtxRetain=2", -ENOMEM, "cuDevicePrimaryCtxRetain()", false },
};

TEST_TABLE(a_driver_that_fails_is_not_asked_again, starts)
{
	const struct gds_handle handle = exported(MEMORY_BYTES);
	struct gds_memory *memory;
	struct region region;
	struct error error = { 0 };
	int r;

	words(starts[_i].words);
	for (int i = 0; i < 2; i++) {
		r = gds_import(&handle, &memory, &region, &error);
		ck_assert_msg(r == starts[_i].result && error.code == r &&
				      strstr(error.text, starts[_i].text),
			      "%s: %d, %s", starts[_i].words, r, error.text);
		if (starts[_i].is_final)
			words("");
	}
	words("");
	r = gds_import(&handle, &memory, &region, &error);
	ck_assert_msg((r == 0) != starts[_i].is_final, "%s: %d, %s", starts[_i].words, r,
		      error.text);
	if (r == 0)
		gds_release(memory);
}

TEST_LOOP(libraries_that_are_not_there, 2)
{
	const struct gds_handle handle = exported(MEMORY_BYTES);
	struct gds_memory *memory;
	struct region region;
	struct error error;

	gds_driver_init(_i ? cuda_path : "/nonexistent/libcuda.so",
			_i ? "/nonexistent/libcufile.so" : cufile_path, LIMIT_MSEC);
	ck_assert_int_eq(gds_import(&handle, &memory, &region, &error), -EOPNOTSUPP);
	ck_assert_msg(
		strstr(error.text, _i ? "/nonexistent/libcufile.so" : "/nonexistent/libcuda.so"),
		"%s", error.text);
}

TEST_LOOP(a_driver_that_hangs_is_waited_for_once, 3)
{
	static const char *const calls[] = { "cuInit", "cuFileDriverOpen",
					     "cuDevicePrimaryCtxRetain" };
	const struct gds_handle handle = exported(MEMORY_BYTES);
	struct gds_memory *memory;
	struct region region;
	struct error error;
	char hang[60];

	gds_driver_init(cuda_path, cufile_path, 50);
	(void)snprintf(hang, sizeof(hang), "%s=hang", calls[_i]);
	words(hang);
	/* Where all is slow, the limit passes in an earlier call, which returns. */
	do
		ck_assert_int_eq(gds_import(&handle, &memory, &region, &error), -ETIMEDOUT);
	while (!strstr(error.text, calls[_i]) && usleep(1000) == 0);
	ck_assert_int_eq(gds_import(&handle, &memory, &region, &error), -ETIMEDOUT);
	ck_assert_msg(strstr(error.text, calls[_i]) &&
			      strstr(error.text, "has not returned within 0.05 s"),
		      "%s", error.text);
}

TEST(gpus_are_found_by_uuid)
{
	struct gds_handle handle = exported(MEMORY_BYTES);
	struct gds_memory *memory, *first;
	struct region region;
	struct error error;

	first = import(&handle, &region);
	handle.uuid[3] = 1;
	ck_assert_int_eq(gds_import(&handle, &memory, &region, &error), -ENODEV);
	for (unsigned i = 0; i < sizeof(handle.uuid); i++)
		handle.uuid[i] = (char)(0xa1 + i); /* of GPU 1, but it is on GPU 0 */
	ck_assert_int_eq(gds_import(&handle, &memory, &region, &error), -ENODEV);
	ck_assert_msg(strstr(error.text, "not on the GPU"), "%s", error.text);
	gds_release(first);
	nothing_is_left("another GPU");
}

static void is_refused(const struct gds_handle *handle, int result, const char *what)
{
	struct gds_memory *memory;
	struct region region;
	struct error error;
	int r = gds_import(handle, &memory, &region, &error);

	ck_assert_msg(r == result, "%s: %d", what, r);
	nothing_is_left(what);
}

TEST(wrong_handles_are_refused)
{
	struct gds_handle handle = exported(MEMORY_BYTES), wrong = handle;
	const CUipcMemHandle none = { 0 };

	for (unsigned i = 0; i < 32; i++) {
		wrong = handle;
		wrong.ipc[i] = (char)(wrong.ipc[i] ^ 0x41);
		is_refused(&wrong, -EFAULT, "forged");
	}
	wrong = ipc_handle(&none, MEMORY_BYTES);
	is_refused(&wrong, -EFAULT, "zeroes");
	wrong = handle;
	wrong.size_bytes = MEMORY_BYTES + 1;
	is_refused(&wrong, -ERANGE, "too long");
	wrong.size_bytes = UINT64_MAX;
	is_refused(&wrong, -ERANGE, "much too long");
	wrong = exported(3u << 20);
	wrong.size_bytes = 1;
	is_refused(&wrong, -ERANGE, "much too short: the client would be charged with a byte");
	handle = exported(MEMORY_BYTES);
	(void)exporter_ask(&exporter, 'f');
	is_refused(&handle, -EFAULT, "freed");
	handle = exported(MEMORY_BYTES);
	exporter_end(&exporter);
	is_refused(&handle, -EFAULT, "of a process that has ended");
}

TEST(wrong_descriptors_are_refused)
{
	struct gds_handle handle = exported_mapped(STANDIN_GRANULARITY, 2 * STANDIN_GRANULARITY);

	is_refused(&handle, -EFAULT, "too long");
	ck_assert_int_lt(fcntl(handle.fd, F_GETFD), 0);
	handle = exported_mapped(STANDIN_GRANULARITY, STANDIN_GRANULARITY - 1);
	is_refused(&handle, -EFAULT, "no whole pages");
	handle.size_bytes = STANDIN_GRANULARITY;
	handle.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	is_refused(&handle, -EFAULT, "a device");
	ck_assert_int_lt(fcntl(handle.fd, F_GETFD), 0);
}

TEST(memory_that_its_owner_frees_stays_until_the_release)
{
	const struct gds_handle handle = exported(MEMORY_BYTES);
	struct region region;
	struct gds_memory *memory = import(&handle, &region);
	struct block block = { .operation = BLOCK_WRITE,
			       .target = &target,
			       .region = &region,
			       .len = 4096,
			       .bytes = 4096 };
	char byte;

	target_register(&target);
	(void)exporter_ask(&exporter, 'f');
	gds_transfer(&block);
	ck_assert(block.result >= 0 && block.best == 4096);
	ck_assert_int_eq(pread(buffered_fd, &byte, 1, 3), 1);
	ck_assert_int_eq(byte, 'd');
	gds_release(memory);
	nothing_is_left("freed by its owner");
	file_end();
}

FIXTURE(setup, teardown)
TEST_MAIN
