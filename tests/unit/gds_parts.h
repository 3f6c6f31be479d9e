/*
 * For unit tests: imports of GPU memory on the stand-ins for libcuda and libcufile, and a file.  A child exports the
 * memory.
 */
#ifndef DSAIO_TESTS_UNIT_GDS_PARTS_H
#define DSAIO_TESTS_UNIT_GDS_PARTS_H

#include "daemon/engine/engine.h"
#include "daemon/engine/gds.h"
#include "daemon/engine/gds_driver.h"
#include "tests/unit/gpu_exporter.h"
#include "tests/unit/suite.h"

#include <fcntl.h>

#define MEMORY_BYTES 100000u
#define FILE_BYTES 200000u
#define LIMIT_MSEC 600000u /* never, as far as a test can see */

static struct standins gpu;
static struct exporter exporter;
static char words_path[100], cuda_path[PATH_MAX], cufile_path[PATH_MAX];
static struct target target;
static int buffered_fd;

/* The stand-ins read them at each call. */
static inline void words(const char *text)
{
	char new[120];
	int fd;

	(void)snprintf(new, sizeof(new), "%s.new", words_path);
	fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (int)strlen(text));
	(void)close(fd);
	ck_assert_int_eq(rename(new, words_path), 0);
}

/* Waits until a call is held. */
static inline void await_held(const char *call)
{
	char held[200];

	(void)snprintf(held, sizeof(held), "%s.%s", words_path, call);
	while (access(held, F_OK) < 0)
		(void)usleep(1000);
}

static inline char byte_at(uint64_t off)
{
	return (char)(off * 7 + off / 4096);
}

static inline void target_make(void)
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

static inline void setup(void)
{
	char standin[160];
	const char *missing;
	int fd;

	missing = standins_load(&gpu); /* before there is a file that a failure would leave */
	ck_assert_msg(!missing, "%s", missing);
	(void)strcpy(words_path, "/tmp/dsaio-gds-XXXXXX");
	fd = mkstemp(words_path);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	(void)snprintf(standin, sizeof(standin), "gpus=2 file=%s", words_path);
	ck_assert_int_eq(setenv("STANDIN", standin, 1), 0);
	exporter = exporter_start(&gpu);
	gds_driver_init(standins_path("libcuda", cuda_path),
			standins_path("libcufile", cufile_path), LIMIT_MSEC);
	target_make();
}

static inline void teardown(void)
{
	/* This thread has left all contexts, and no memory is left where the test has released it. */
	ck_assert_uint_eq(gpu.look.standin_counts().n_current, 0);
	exporter_end(&exporter);
	(void)unlink(words_path);
}

static inline struct gds_handle ipc_handle(const CUipcMemHandle *ipc, uint64_t bytes)
{
	struct gds_handle handle = { .is_ipc = true, .fd = -1, .size_bytes = bytes };

	for (unsigned i = 0; i < sizeof(handle.uuid); i++)
		handle.uuid[i] = (char)(0xa0 + i); /* of GPU 0 */
	memcpy(handle.ipc, ipc->reserved, sizeof(handle.ipc));
	return handle;
}

static inline struct gds_handle exported(uint64_t bytes)
{
	const CUipcMemHandle ipc = exporter_export(&exporter, bytes);

	return ipc_handle(&ipc, bytes);
}

static inline struct gds_handle exported_mapped(uint64_t bytes, uint64_t said_bytes)
{
	const CUipcMemHandle none = { 0 };
	struct gds_handle handle = ipc_handle(&none, said_bytes);

	handle.is_ipc = false;
	handle.fd = exporter_export_mapped(&exporter, bytes);
	return handle;
}

/* A file as each test's, which is closed as a struct file is. */
static inline void file_end(void)
{
	if (target.on_close)
		target.on_close(&target);
	(void)close(target.fd);
	(void)close(buffered_fd);
}

static inline void nothing_is_left(const char *what)
{
	const struct standin_cuda cuda = gpu.look.standin_counts();
	const struct standin_cufile cufile = gpu.see.standin_cufile_counts();

	ck_assert_msg(!cuda.n_imported && !cuda.n_reserved && !cuda.n_handles && !cuda.n_current,
		      "%s: %u %u %u %u", what, cuda.n_imported, cuda.n_reserved, cuda.n_handles,
		      cuda.n_current);
	ck_assert_msg(!cufile.n_buffers, "%s: %u", what, cufile.n_buffers);
}

static inline struct gds_memory *import(const struct gds_handle *handle, struct region *ret_region)
{
	struct gds_memory *memory = NULL;
	struct error error;
	int r = gds_import(handle, &memory, ret_region, &error);

	ck_assert_msg(r == 0, "%d, %s", r, error.text);
	return memory;
}

static inline void target_register(struct target *file)
{
	struct error error;
	int r = gds_register(file, ipc_handle(&(CUipcMemHandle){ 0 }, 0).uuid, &error);

	ck_assert_msg(r == 0, "%d, %s", r, error.text);
}

static inline struct block make(enum block_operation operation, const struct region *region,
				uint64_t off, uint32_t len, uint64_t region_off)
{
	return (struct block){ .operation = (uint8_t)operation,
			       .target = &target,
			       .region = region,
			       .off = off,
			       .region_off = region_off,
			       .len = len,
			       .bytes = len };
}

#endif
