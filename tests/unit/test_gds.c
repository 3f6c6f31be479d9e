/*
 * Imports of GPU memory and transfers to it, on the stand-ins for libcuda and libcufile.  A child lends the
 * memory.
 */
#include "daemon/engine/gds.h"

#include "daemon/engine/engine.h"
#include "daemon/engine/gds_driver.h"
#include "tests/unit/gpu_lender.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#define MEMORY_BYTES 100000u
#define FILE_BYTES 200000u
#define LIMIT_MSEC 600000u /* never, as far as a test can see */

static struct standins gpu;
static struct lender lender;
static char path[100], cuda_path[PATH_MAX], cufile_path[PATH_MAX];
static struct target target;
static int buffered_fd;

/* The stand-ins read them at each call. */
static void words(const char *text)
{
	char new[120];
	int fd;

	(void)snprintf(new, sizeof(new), "%s.new", path);
	fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (int)strlen(text));
	(void)close(fd);
	ck_assert_int_eq(rename(new, path), 0);
}

/* Waits until a call is held. */
static void await_held(const char *call)
{
	char held[200];

	(void)snprintf(held, sizeof(held), "%s.%s", path, call);
	while (access(held, F_OK) < 0)
		(void)usleep(1000);
}

static char byte_at(uint64_t off)
{
	return (char)(off * 7 + off / 4096);
}

static void file_make(void)
{
	const char *tmp = getenv("TMPDIR");
	static char bytes[FILE_BYTES];
	char name[PATH_MAX];

	(void)snprintf(name, sizeof(name), "%s/dsaio-gds-XXXXXX", tmp ? tmp : "/var/tmp");
	buffered_fd = mkostemp(name, O_CLOEXEC);
	ck_assert_int_ge(buffered_fd, 0);
	target = (struct target){ .fd = open(name, O_RDWR | O_DIRECT | O_CLOEXEC),
				  .offset_align = 512,
				  .memory_align = 512,
				  .about = { .file = "w0.bin" } };
	ck_assert_int_ge(target.fd, 0);
	ck_assert_int_eq(unlink(name), 0);
	atomic_init(&target.buffered_fd, buffered_fd);
	for (size_t i = 0; i < FILE_BYTES; i++)
		bytes[i] = byte_at(i);
	ck_assert_int_eq(write(buffered_fd, bytes, FILE_BYTES), FILE_BYTES);
	ck_assert_int_eq(fsync(buffered_fd), 0);
}

static void setup(void)
{
	char standin[160];
	const char *missing;
	int fd;

	(void)strcpy(path, "/tmp/dsaio-gds-XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	(void)snprintf(standin, sizeof(standin), "gpus=2 file=%s", path);
	ck_assert_int_eq(setenv("STANDIN", standin, 1), 0);
	missing = standins_load(&gpu);
	ck_assert_msg(!missing, "%s", missing);
	lender = lender_start(&gpu);
	gds_driver_init(standins_path("libcuda", cuda_path),
			standins_path("libcufile", cufile_path), LIMIT_MSEC);
	file_make();
}

static void teardown(void)
{
	/* This thread has left all contexts, and no memory is left where the test has released it. */
	ck_assert_uint_eq(gpu.look.standin_counts().n_current, 0);
	lender_end(&lender);
	(void)unlink(path);
}

static struct gds_handle ipc_handle(const CUipcMemHandle *ipc, uint64_t bytes)
{
	struct gds_handle handle = { .is_ipc = true, .fd = -1, .size_bytes = bytes };

	for (unsigned i = 0; i < sizeof(handle.uuid); i++)
		handle.uuid[i] = (char)(0xa0 + i); /* of GPU 0 */
	memcpy(handle.ipc, ipc->reserved, sizeof(handle.ipc));
	return handle;
}

static struct gds_handle lend(uint64_t bytes)
{
	const CUipcMemHandle ipc = lender_lend(&lender, bytes);

	return ipc_handle(&ipc, bytes);
}

static struct gds_handle lend_mapped(uint64_t bytes, uint64_t said_bytes)
{
	const CUipcMemHandle none = { 0 };
	struct gds_handle handle = ipc_handle(&none, said_bytes);

	handle.is_ipc = false;
	handle.fd = lender_lend_mapped(&lender, bytes);
	return handle;
}

/* A file as each test's, which is closed as a struct file is. */
static void file_end(void)
{
	if (target.on_close)
		target.on_close(&target);
	(void)close(target.fd);
	(void)close(buffered_fd);
}

static void nothing_is_left(const char *what)
{
	const struct standin_cuda cuda = gpu.look.standin_counts();
	const struct standin_cufile cufile = gpu.see.standin_cufile_counts();

	ck_assert_msg(!cuda.n_imported && !cuda.n_reserved && !cuda.n_handles && !cuda.n_current,
		      "%s: %u %u %u %u", what, cuda.n_imported, cuda.n_reserved, cuda.n_handles,
		      cuda.n_current);
	ck_assert_msg(!cufile.n_buffers, "%s: %u", what, cufile.n_buffers);
}

static struct gds_memory *import(const struct gds_handle *handle, struct region *ret_region)
{
	struct gds_memory *memory = NULL;
	struct error error;
	int r = gds_import(handle, &memory, ret_region, &error);

	ck_assert_msg(r == 0, "%d, %s", r, error.text);
	return memory;
}

/* ---- imports ---- */

START_TEST(memory_is_mapped_and_registered_once)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
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
END_TEST

START_TEST(a_handle_with_another_buffer_id_is_another_allocation)
{
	struct gds_handle handle = lend(MEMORY_BYTES);
	struct gds_memory *first, *second;
	struct region region;
	struct error error = { 0 };
	int r;

	handle.buffer_id = 7;
	first = import(&handle, &region);
	second = import(&handle, &region);
	ck_assert_ptr_eq(first, second);
	gds_release(second);
	(void)lender_ask(&lender, 'f');
	/* The driver is asked for the memory that the handle names now: there is none. */
	handle.buffer_id = 8;
	r = gds_import(&handle, &second, &region, &error);
	ck_assert_msg(r == -EFAULT && strstr(error.text, "cuIpcOpenMemHandle()"), "%d, %s", r,
		      error.text);
	gds_release(first);
	nothing_is_left("after both");
}
END_TEST

START_TEST(a_handle_with_another_size_is_refused_while_it_is_imported)
{
	struct gds_handle handle = lend(MEMORY_BYTES);
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
END_TEST

START_TEST(mapped_memory_comes_by_a_descriptor)
{
	const size_t bytes = 2 * (size_t)STANDIN_GRANULARITY;
	struct gds_handle handle = lend_mapped(bytes, bytes);
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
END_TEST

static const struct {
	const char *words;
	int result; /* of an import by IPC handle */
	const char *text;
	int result_fd;
} failures[] = {
	{ "cuCtxPushCurrent_v2=709", -EIO, "cuCtxPushCurrent(): unknown error (709)", -EIO },
	{ "cuIpcOpenMemHandle_v2=400", -EFAULT, "cuIpcOpenMemHandle(): unknown error (400)", 0 },
	{ "cuIpcOpenMemHandle_v2=205", -EFAULT, "(205)", 0 },
	{ "cuIpcOpenMemHandle_v2=800", -EACCES, "(800)", 0 },
	{ "cuIpcOpenMemHandle_v2=2", -ENOMEM, "(2)", 0 },
	{ "cuIpcOpenMemHandle_v2=3", -EIO, "CUDA_ERROR_NOT_INITIALIZED (3)", 0 },
	{ "cuPointerGetAttribute=1", -EFAULT, "cuPointerGetAttribute()", -EFAULT },
	{ "cuMemGetAddressRange_v2=500", -EFAULT, "cuMemGetAddressRange()", -EFAULT },
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

START_TEST(an_error_of_an_import_is_an_errno_and_a_sentence)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
	const struct gds_handle mapped = lend_mapped(STANDIN_GRANULARITY, STANDIN_GRANULARITY);
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
END_TEST

START_TEST(an_error_of_a_release_leaves_the_rest)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
	struct region region;
	struct gds_memory *memory = import(&handle, &region);

	words("cuIpcCloseMemHandle=1");
	gds_release(memory);
	words("");
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 0);
	gds_release(import(&handle, &region)); /* the mapping that is left is found, and counted */
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 0);
}
END_TEST

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

START_TEST(a_driver_that_fails_is_not_asked_again)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
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
END_TEST

START_TEST(libraries_that_are_not_there)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
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
END_TEST

START_TEST(a_driver_that_hangs_is_waited_for_once)
{
	static const char *const calls[] = { "cuInit", "cuFileDriverOpen",
					     "cuDevicePrimaryCtxRetain" };
	const struct gds_handle handle = lend(MEMORY_BYTES);
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
END_TEST

START_TEST(gpus_are_found_by_uuid)
{
	struct gds_handle handle = lend(MEMORY_BYTES);
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
END_TEST

static void is_refused(const struct gds_handle *handle, int result, const char *what)
{
	struct gds_memory *memory;
	struct region region;
	struct error error;
	int r = gds_import(handle, &memory, &region, &error);

	ck_assert_msg(r == result, "%s: %d", what, r);
	nothing_is_left(what);
}

START_TEST(wrong_handles_are_refused)
{
	struct gds_handle handle = lend(MEMORY_BYTES), wrong = handle;
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
	wrong = lend(3u << 20);
	wrong.size_bytes = 1;
	is_refused(&wrong, -ERANGE, "much too short: the client would be charged with a byte");
	handle = lend(MEMORY_BYTES);
	(void)lender_ask(&lender, 'f');
	is_refused(&handle, -EFAULT, "freed");
	handle = lend(MEMORY_BYTES);
	lender_end(&lender);
	is_refused(&handle, -EFAULT, "of a process that has ended");
}
END_TEST

START_TEST(wrong_descriptors_are_refused)
{
	struct gds_handle handle = lend_mapped(STANDIN_GRANULARITY, 2 * STANDIN_GRANULARITY);

	is_refused(&handle, -EFAULT, "too long");
	ck_assert_int_lt(fcntl(handle.fd, F_GETFD), 0);
	handle = lend_mapped(STANDIN_GRANULARITY, STANDIN_GRANULARITY - 1);
	is_refused(&handle, -EFAULT, "no whole pages");
	handle.size_bytes = STANDIN_GRANULARITY;
	handle.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	is_refused(&handle, -EFAULT, "a device");
	ck_assert_int_lt(fcntl(handle.fd, F_GETFD), 0);
}
END_TEST

START_TEST(memory_that_its_owner_frees_stays_until_the_release)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
	struct region region;
	struct gds_memory *memory = import(&handle, &region);
	struct block block = { .operation = BLOCK_WRITE,
			       .target = &target,
			       .region = &region,
			       .len = 4096,
			       .bytes = 4096 };
	char byte;

	(void)lender_ask(&lender, 'f');
	gds_transfer(&block);
	ck_assert(block.result >= 0 && block.best == 4096);
	ck_assert_int_eq(pread(buffered_fd, &byte, 1, 3), 1);
	ck_assert_int_eq(byte, 'd');
	gds_release(memory);
	nothing_is_left("freed by its owner");
	file_end();
}
END_TEST

/* ---- transfers ---- */

/* All at once, and in short transfers. */
static const char *const manners[] = { "", "most=3000" };

static const struct {
	const char *what;
	uint64_t off;
	uint32_t len, done;
	uint64_t region_off;
} reads[] = {
	{ "aligned", 4096, 8192, 8192, 0 },
	{ "a byte", 5000, 1, 1, 0 },
	{ "across units, to any address", 4000, 9000, 9000, 77 },
	{ "up to the end", 190001, FILE_BYTES - 190001, FILE_BYTES - 190001, 1 },
	{ "across the end", 199990, 5000, 10, 0 },
	{ "behind it", 1 << 20, 5000, 0, 0 },
	{ "up to the end of the memory", 0, 50000, 50000, MEMORY_BYTES - 50000 },
};

static struct block make(enum block_operation operation, const struct region *region, uint64_t off,
			 uint32_t len, uint64_t region_off)
{
	return (struct block){ .operation = (uint8_t)operation,
			       .target = &target,
			       .region = region,
			       .off = off,
			       .region_off = region_off,
			       .len = len,
			       .bytes = len };
}

/* The memory's bytes outside of a range are as they were lent. */
static void only_has_changed(const char *bytes, uint64_t off, uint64_t len, const char *what)
{
	for (uint64_t i = 0; i < MEMORY_BYTES; i++)
		if ((i < off || i >= off + len) && bytes[i] != (char)('a' + i % 26))
			ck_abort_msg("%s: byte %d", what, (int)i);
}

START_TEST(reads_of_any_range)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
	struct region region;
	struct gds_memory *memory = import(&handle, &region);
	const char *bytes = gpu.look.standin_bytes((uintptr_t)region.base);

	for (int row = 0; row < N_ROWS(reads); row++) {
		struct block block = make(BLOCK_READ, &region, reads[row].off, reads[row].len,
					  reads[row].region_off);

		block.is_bounced = reads[row].off % 512 || reads[row].len % 512;
		lender_fill((char *)(uintptr_t)bytes, MEMORY_BYTES);
		words(manners[_i]);
		gds_transfer(&block);
		ck_assert_msg(block.result >= 0 && block.best == reads[row].done, "%s: %u, %d",
			      reads[row].what, block.best, (int)block.result);
		for (uint32_t i = 0; i < block.best; i++)
			if (bytes[reads[row].region_off + i] != byte_at(reads[row].off + i))
				ck_abort_msg("%s: byte %u", reads[row].what, i);
		only_has_changed(bytes, reads[row].region_off, reads[row].done, reads[row].what);
	}
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, 1);
	ck_assert_uint_gt(gpu.see.standin_cufile_counts().n_reads, 0);
	gds_release(memory);
	nothing_is_left("reads");
	file_end();
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, 0);
}
END_TEST

static const struct {
	const char *what;
	uint64_t off;
	uint32_t len;
	uint64_t region_off;
	bool is_buffered;
} writes[] = {
	{ "whole units", 4096, 8192, 0, false },
	{ "whole units from any address", 8192, 4096, 33, false },
	{ "sectors that are no units", 512, 512, 0, false },
	{ "a sector before units", 3584, 512 + 8192, 512, false },
	{ "units and a sector", 4096, 4096 + 512, 0, false },
	{ "sectors at both ends", 3584, 512 + 4096 + 1024, 0, false },
	{ "a byte", 4999, 1, 5, true },
	{ "much, at any place", 5001, 70001, 3, true },
	{ "behind the end", FILE_BYTES + 1, 100, 0, true },
};

START_TEST(writes_change_their_range_only)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
	struct region region;
	struct gds_memory *memory = import(&handle, &region);
	static char bytes[FILE_BYTES], now[FILE_BYTES];

	words(manners[_i]);
	for (int row = 0; row < N_ROWS(writes); row++) {
		struct block block = make(BLOCK_WRITE, &region, writes[row].off, writes[row].len,
					  writes[row].region_off);

		block.is_buffered = writes[row].is_buffered;
		for (size_t i = 0; i < FILE_BYTES; i++)
			bytes[i] = byte_at(i);
		ck_assert_int_eq(pwrite(buffered_fd, bytes, FILE_BYTES, 0), FILE_BYTES);
		ck_assert_int_eq(ftruncate(buffered_fd, FILE_BYTES), 0);
		ck_assert_int_eq(fsync(buffered_fd), 0);
		gds_transfer(&block);
		ck_assert_msg(block.result >= 0 && block.best == writes[row].len, "%s: %u, %d",
			      writes[row].what, block.best, (int)block.result);
		for (size_t i = 0; i < FILE_BYTES; i++)
			if (i - writes[row].off < writes[row].len)
				bytes[i] = (char)('a' +
						  (writes[row].region_off + i - writes[row].off) %
							  26);
		ck_assert_int_eq(pread(buffered_fd, now, FILE_BYTES, 0), FILE_BYTES);
		ck_assert_msg(memcmp(now, bytes, FILE_BYTES) == 0, "%s", writes[row].what);
	}
	/* cuFile has written whole units only, since it would change bytes around others. */
	ck_assert_uint_gt(gpu.see.standin_cufile_counts().n_writes, 0);
	if (_i != 1)
		ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_unaligned_writes, 0);
	gds_release(memory);
	nothing_is_left("writes");
	file_end();
}
END_TEST

static const struct {
	const char *words;
	bool is_write, is_buffered;
	int result;
} errors[] = {
	{ "cuFileRead=5", false, false, -EIO },
	{ "cuFileRead=28", false, false, -ENOSPC },
	{ "cuFileRead=4", false, false, -EINTR },
	{ "cuFileRead=5011", false, false, -EIO },
	{ "cuFileRead=5012", false, false, -EFAULT },
	{ "cuFileRead=5014", false, false, -EFAULT },
	{ "cuFileRead=5022", false, false, -EINVAL },
	{ "cuFileRead=5008", false, false, -EOPNOTSUPP },
	{ "cuFileRead=5036", false, false, -ENOMEM },
	{ "cuFileRead=2000000000", false, false, -EIO },
	{ "cuFileRead=5008", true, false, 0 },
	{ "cuFileWrite=28", true, false, -ENOSPC },
	{ "cuFileWrite=5044", true, false, -EIO },
	{ "cuFileWrite=5044", true, true, 0 },
	{ "cuMemcpyDtoH_v2=700", true, true, -EIO },
	{ "cuMemcpyDtoH_v2=700", true, false, 0 },
	{ "cuCtxPushCurrent_v2=709", false, false, -EIO },
	{ "cuCtxPushCurrent_v2=709", true, true, -EIO },
	{ "cuFileHandleRegister=5028", true, false, -EIO },
	{ "cuFileHandleRegister=5025", false, false, -EACCES },
	{ "cuFileHandleRegister=5008", false, false, -EOPNOTSUPP },
};

START_TEST(an_error_of_a_transfer_is_an_errno)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
	struct region region;
	struct gds_memory *memory = import(&handle, &region);
	struct block block = make(errors[_i].is_write ? BLOCK_WRITE : BLOCK_READ, &region, 4096,
				  8192, 0),
		     again = block;

	words(errors[_i].words);
	block.is_buffered = errors[_i].is_buffered;
	gds_transfer(&block);
	ck_assert_msg(errors[_i].result ? block.result == errors[_i].result && !block.best
					: block.result >= 0 && block.best == 8192,
		      "%s: %d", errors[_i].words, (int)block.result);
	words("");
	gds_transfer(&again);
	ck_assert(again.result >= 0 && again.best == 8192);
	gds_release(memory);
	nothing_is_left(errors[_i].words);
	file_end();
}
END_TEST

START_TEST(of_a_file_that_cufile_refuses_no_byte_is_copied)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
	struct region region;
	struct gds_memory *memory = import(&handle, &region);
	struct block block = make(BLOCK_READ, &region, 4096, 8192, 0);
	const uint64_t n_copies = gpu.look.standin_counts().n_copies;

	words("cuFileHandleRegister=5008");
	for (int i = 0; i < 2; i++) {
		gds_transfer(&block);
		ck_assert(block.result == -EOPNOTSUPP && !block.best);
		ck_assert(!target.on_close);
	}
	for (int i = 0; i < 3; i++) { /* a head, a tail, and a part of the buffered description */
		struct block end = make(BLOCK_WRITE, &region, i == 1 ? 4096 : 4097, 5, 0);

		end.is_buffered = i == 2;
		gds_transfer(&end);
		ck_assert_msg(end.result == -EOPNOTSUPP && !end.best, "%d: %d", i, (int)end.result);
	}
	ck_assert_uint_eq(gpu.look.standin_counts().n_copies, n_copies);
	gds_release(memory);
	file_end();
}
END_TEST

START_TEST(a_transfer_that_makes_no_progress_ends)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
	struct region region;
	struct gds_memory *memory = import(&handle, &region);
	struct block block = make(_i ? BLOCK_WRITE : BLOCK_READ, &region, 4096, 8192, 0);

	words("most=0");
	gds_transfer(&block);
	ck_assert(block.result == 0 && block.best == 0);
	gds_release(memory);
	file_end();
}
END_TEST

START_TEST(memory_that_cannot_be_pinned_works_unregistered)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
	struct region region;
	struct gds_memory *memory;
	struct block block = make(BLOCK_READ, &region, 4096, 8192, 100);

	words("cuFileBufRegister=5036");
	memory = import(&handle, &region);
	gds_transfer(&block);
	ck_assert(block.result >= 0 && block.best == 8192);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_unregistered, 1);
	gds_release(memory);
	nothing_is_left("unregistered");
	file_end();
}
END_TEST

/* ---- threads ---- */

struct task {
	pthread_t thread;
	struct gds_handle handle;
	struct gds_memory *memory;
	struct region region;
	struct block block;
	int result;
	unsigned n_current;
	_Atomic bool is_done;
};

static void *import_main(void *arg)
{
	struct task *task = arg;
	struct error error;

	task->result = gds_import(&task->handle, &task->memory, &task->region, &error);
	task->n_current = gpu.look.standin_counts().n_current;
	task->is_done = true;
	return NULL;
}

static void *transfer_main(void *arg)
{
	struct task *task = arg;

	gds_transfer(&task->block);
	task->n_current = gpu.look.standin_counts().n_current;
	task->is_done = true;
	return NULL;
}

static void *release_main(void *arg)
{
	struct task *task = arg;

	gds_release(task->memory);
	task->n_current = gpu.look.standin_counts().n_current;
	task->is_done = true;
	return NULL;
}

static void task_start(struct task *task, void *(*run)(void *arg))
{
	task->is_done = false;
	ck_assert_int_eq(pthread_create(&task->thread, NULL, run, task), 0);
}

static void task_end(struct task *task)
{
	ck_assert_int_eq(pthread_join(task->thread, NULL), 0);
	ck_assert_uint_eq(task->n_current, 0);
}

START_TEST(imports_of_a_handle_wait_for_the_first)
{
	const struct gds_handle handle = lend(MEMORY_BYTES), other = lend(MEMORY_BYTES);
	struct task tasks[3] = { { .handle = handle }, { .handle = handle }, { .handle = handle } };
	struct region region;

	gds_release(import(&other, &region));
	words("cuIpcOpenMemHandle_v2=hold");
	task_start(&tasks[0], import_main);
	await_held("cuIpcOpenMemHandle_v2");
	task_start(&tasks[1], import_main);
	task_start(&tasks[2], import_main);
	words("");
	for (int i = 0; i < 3; i++)
		task_end(&tasks[i]);
	for (int i = 0; i < 3; i++)
		ck_assert(tasks[i].result == 0 && tasks[i].region.base == tasks[0].region.base);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 1);
	for (int i = 0; i < 3; i++)
		gds_release(tasks[i].memory);
	nothing_is_left("three imports");
}
END_TEST

START_TEST(an_import_waits_for_the_release_of_its_handle)
{
	struct task release = { .handle = lend(MEMORY_BYTES) }, next = { .handle = release.handle };

	release.memory = import(&release.handle, &release.region);
	words("cuFileBufDeregister=hold");
	task_start(&release, release_main);
	await_held("cuFileBufDeregister");
	task_start(&next, import_main);
	words("");
	task_end(&release);
	task_end(&next);
	ck_assert_int_eq(next.result, 0);
	ck_assert_uint_eq(gpu.look.standin_counts().n_imported, 1);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 1);
	gds_release(next.memory);
	nothing_is_left("after both");
}
END_TEST

START_TEST(a_file_is_registered_once)
{
	struct task tasks[3] = { { .handle = lend(MEMORY_BYTES) } };
	struct gds_memory *memory = import(&tasks[0].handle, &tasks[0].region);

	words("cuFileHandleRegister=hold");
	for (int i = 0; i < 3; i++)
		tasks[i].block = make(BLOCK_READ, &tasks[0].region, 4096u * (unsigned)i, 4096,
				      4096u * (unsigned)i);
	task_start(&tasks[0], transfer_main);
	await_held("cuFileHandleRegister");
	task_start(&tasks[1], transfer_main);
	task_start(&tasks[2], transfer_main);
	words("");
	for (int i = 0; i < 3; i++) {
		task_end(&tasks[i]);
		ck_assert(tasks[i].block.result >= 0 && tasks[i].block.best == 4096);
	}
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, 1);
	file_end();
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, 0);
	gds_release(memory);
}
END_TEST

static const struct {
	const char *words;
	int result;
} registrations[] = {
	{ "", 0 },
	{ "cuFileHandleRegister=5008", -EOPNOTSUPP },
	{ "cuFileHandleRegister=5030", -EOPNOTSUPP }, /* whatever it is, the file cannot be used */
	{ "cuFileHandleRegister=5036", -ENOMEM },
	{ "cuCtxPushCurrent_v2=709", -EIO },
};

START_TEST(a_file_is_registered_before_its_first_transfer)
{
	const struct gds_handle handle = lend(MEMORY_BYTES);
	struct error error;
	struct gds_memory *memory;
	struct region region;
	struct block block;

	/* Before any import: this starts the driver. */
	words(registrations[_i].words);
	for (int i = 0; i < 2; i++) {
		int r = gds_register(&target, handle.uuid, &error);

		ck_assert_msg(r == registrations[_i].result, "%s: %d", registrations[_i].words, r);
		ck_assert(r == 0 || (error.code == r && error.text[0]));
	}
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, !registrations[_i].result);
	words("");
	ck_assert_int_eq(gds_register(&target, handle.uuid, &error), 0);
	memory = import(&handle, &region);
	block = make(BLOCK_READ, &region, 4096, 8192, 0);
	gds_transfer(&block);
	ck_assert(block.result >= 0 && block.best == 8192);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, 1);
	gds_release(memory);
	file_end();
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, 0);
	nothing_is_left(registrations[_i].words);
}
END_TEST

static const char *const hangs[] = {
	"cuFileRead",	     "cuFileHandleRegister", "cuIpcOpenMemHandle_v2",
	"cuFileBufRegister", "cuFileBufDeregister",  "cuIpcCloseMemHandle"
};

/* Waits until the thread is in the call: a held call becomes one that never returns. */
static void hang(struct task *task, void *(*run)(void *arg), const char *call)
{
	char text[60];

	(void)snprintf(text, sizeof(text), "%s=hold", call);
	words(text);
	task_start(task, run);
	await_held(call);
}

START_TEST(a_call_that_hangs_holds_its_thread_only)
{
	const struct gds_handle a = lend(MEMORY_BYTES), b = lend(MEMORY_BYTES);
	struct target hung_target = target;
	struct task task = { .handle = a }, other = { .handle = b };
	struct gds_memory *memory;
	struct region region;

	hung_target.fd = fcntl(target.fd, F_DUPFD_CLOEXEC, 0);
	if (_i != 2 && _i != 3)
		task.memory = import(&a, &task.region);
	task.block = make(BLOCK_READ, &task.region, 4096, 4096, 0);
	task.block.target = &hung_target;
	hang(&task, _i < 2 ? transfer_main : _i < 4 ? import_main : release_main, hangs[_i]);

	/* Others come to the same call, and return from it when its word is gone; the first hangs on. */
	task_start(&other, import_main);
	if (_i < 2 || _i > 3) {
		task_end(&other);
		ck_assert_int_eq(other.result, 0);
		other.block = make(BLOCK_WRITE, &other.region, 4096, 4096, 0);
		if (_i != 1) {
			task_start(&other, transfer_main);
			task_end(&other);
			ck_assert(other.block.result >= 0 && other.block.best == 4096);
		}
	}
	ck_assert(!task.is_done);
	words("");
	task_end(&task);
	if (_i == 2 || _i == 3)
		task_end(&other);
	memory = import(&b, &region);
	gds_release(memory);
	gds_release(other.memory);
	if (_i < 4)
		gds_release(task.memory);
	nothing_is_left(hangs[_i]);
	if (hung_target.on_close)
		hung_target.on_close(&hung_target);
	file_end();
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, memory_is_mapped_and_registered_once);
	tcase_add_test(tcase, a_handle_with_another_buffer_id_is_another_allocation);
	tcase_add_test(tcase, a_handle_with_another_size_is_refused_while_it_is_imported);
	tcase_add_test(tcase, mapped_memory_comes_by_a_descriptor);
	tcase_add_loop_test(tcase, an_error_of_an_import_is_an_errno_and_a_sentence, 0,
			    N_ROWS(failures));
	tcase_add_test(tcase, an_error_of_a_release_leaves_the_rest);
	tcase_add_loop_test(tcase, a_driver_that_fails_is_not_asked_again, 0, N_ROWS(starts));
	tcase_add_loop_test(tcase, libraries_that_are_not_there, 0, 2);
	tcase_add_loop_test(tcase, a_driver_that_hangs_is_waited_for_once, 0, 3);
	tcase_add_test(tcase, gpus_are_found_by_uuid);
	tcase_add_test(tcase, wrong_handles_are_refused);
	tcase_add_test(tcase, wrong_descriptors_are_refused);
	tcase_add_test(tcase, memory_that_its_owner_frees_stays_until_the_release);
	tcase_add_loop_test(tcase, reads_of_any_range, 0, N_ROWS(manners));
	tcase_add_loop_test(tcase, writes_change_their_range_only, 0, N_ROWS(manners));
	tcase_add_test(tcase, of_a_file_that_cufile_refuses_no_byte_is_copied);
	tcase_add_loop_test(tcase, an_error_of_a_transfer_is_an_errno, 0, N_ROWS(errors));
	tcase_add_loop_test(tcase, a_transfer_that_makes_no_progress_ends, 0, 2);
	tcase_add_test(tcase, memory_that_cannot_be_pinned_works_unregistered);
	tcase_add_test(tcase, imports_of_a_handle_wait_for_the_first);
	tcase_add_test(tcase, an_import_waits_for_the_release_of_its_handle);
	tcase_add_test(tcase, a_file_is_registered_once);
	tcase_add_loop_test(tcase, a_file_is_registered_before_its_first_transfer, 0,
			    N_ROWS(registrations));
	tcase_add_loop_test(tcase, a_call_that_hangs_holds_its_thread_only, 0, N_ROWS(hangs));
}

SUITE("gds", add_tests)
