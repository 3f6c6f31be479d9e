/*
 * Ops on GPU memory, which the library copies through pinned slabs.  A stand-in for libcuda takes the
 * place of the driver's.
 */
#include "tests/gpu/program.h"
#include "tests/gpu/ranges.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

/* ---- bytes ---- */

TEST_TABLE(reads, ranges, "a read fills GPU memory, and nothing around it")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const uint64_t off = ranges[row].off, len = ranges[row].len;
	struct dsaio_file *file;
	struct dsaio_op *op;
	char *memory, *host;

	rig_gpu(&rig, "");
	file_make_pattern(daemon_path(rig.daemon, "f"), off + len + 100, 1);
	file = rig_file(&rig, "f", O_RDONLY);
	memory = program_alloc(0, len + 64) + ranges[row].misalign;
	host = program_bytes(memory);
	for (int is_async = 0; is_async < 2; is_async++) {
		memset(host, 0xee, len + 16);
		if (is_async) {
			CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, len, off, &op));
			CHECK_EQ(op_wait(op, -1), len);
			dsaio_op_free(op);
		} else {
			CHECK_EQ(dsaio_pread(rig.handle, file, memory, len, off), len);
		}
		pattern_check(host, len, 1, off, "GPU memory");
		CHECK_EQ((uint8_t)host[len], 0xee);
	}
	CHECK_EQ(gpu.look.standin_counts().copied_bytes, 2 * len);
	CHECK_EQ(gpu.look.standin_counts().n_pageable, 0);
	rig_gone(&rig);
}

TEST_TABLE(writes, ranges, "a write takes the bytes of GPU memory, and changes none around them")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const uint64_t off = ranges[row].off, len = ranges[row].len;
	struct dsaio_file *file;
	struct dsaio_op *op;
	const char *path;
	char *memory;

	rig_gpu(&rig, "");
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, off + len + 100, 1);
	file = rig_file(&rig, "f", O_RDWR);
	memory = program_alloc(0, len + 64) + ranges[row].misalign;
	for (uint64_t seed = 2; seed < 4; seed++) {
		pattern_fill(program_bytes(memory), len, seed, off);
		if (seed == 3) {
			CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory, len, off, &op));
			CHECK_EQ(op_wait(op, -1), len);
			dsaio_op_free(op);
		} else {
			CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, len, off), len);
		}
		file_check_pattern(path, off, len, seed, off);
		file_check_pattern(path, 0, off, 1, 0);
		file_check_pattern(path, off + len, 100, 1, off + len);
	}
	CHECK_EQ(gpu.look.standin_counts().n_pageable, 0);
	rig_gone(&rig);
}

TEST(at_end, "a read that passes the end of the file ends there")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	char *memory, *host;

	rig_gpu(&rig, "");
	file_make_pattern(daemon_path(rig.daemon, "f"), 5000, 1);
	memory = program_alloc(0, MIB);
	host = program_bytes(memory);
	memset(host, 0xee, MIB);
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDONLY), memory, MIB, 1000), 4000);
	pattern_check(host, 4000, 1, 1000, "GPU memory");
	CHECK_EQ((uint8_t)host[4000], 0xee);
	rig_gone(&rig);
}

TEST(many, "many ops at a time, on two GPUs and on the host's memory")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	enum { N = 48 };
	const size_t len = 300 * KIB + 1;
	char *memory[N], *host[N];
	struct dsaio_op *ops[N];
	struct dsaio_file *file;

	rig_gpu(&rig, "gpus=2");
	file_make_pattern(daemon_path(rig.daemon, "f"), N * len, 1);
	file = rig_file(&rig, "f", O_RDONLY);
	for (int i = 0; i < N; i++) {
		memory[i] = i % 3 == 2 ? malloc(len) : program_alloc(i % 3, len);
		host[i] = i % 3 == 2 ? memory[i] : program_bytes(memory[i]);
		CHECK_CALL(dsaio_pread_async(rig.handle, file, memory[i], len, (uint64_t)i * len,
					     &ops[i]));
	}
	for (int i = 0; i < N; i++) {
		CHECK_EQ(op_wait(ops[i], -1), len);
		dsaio_op_free(ops[i]);
		pattern_check(host[i], len, 1, (uint64_t)i * len, "memory");
		if (i % 3 == 2)
			free(memory[i]);
	}
	CHECK_EQ(gpu.look.standin_counts().n_streams, 4);
	rig_gone(&rig);
}

TEST(vector, "a vectored op takes GPU memory and the host's")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_io io = { .opcode = DSAIO_READ, .n_iov = 2 };
	char buf[1000], *memory;
	struct iovec iov[2];
	struct dsaio_op *op;

	rig_gpu(&rig, "");
	file_make_pattern(daemon_path(rig.daemon, "f"), 5000, 1);
	memory = program_alloc(0, 4000);
	iov[0] = (struct iovec){ memory, 4000 };
	iov[1] = (struct iovec){ buf, sizeof(buf) };
	io.file = rig_file(&rig, "f", O_RDONLY);
	io.iov = iov;
	CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0, &op), 1);
	CHECK_EQ(op_wait(op, -1), 5000);
	dsaio_op_free(op);
	pattern_check(program_bytes(memory), 4000, 1, 0, "GPU memory");
	pattern_check(buf, 1000, 1, 4000, "host memory");
	rig_gone(&rig);
}

/* ---- the program ---- */

TEST(opened_later, "libcuda is opened after the first ops")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;
	char buf[4096], *memory;

	file_make_pattern(daemon_path(rig.daemon, "f"), 4096, 1);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_EQ(dsaio_pread(rig.handle, file, buf, 4096, 0), 4096);
	gpu_open_as("");
	start_counts = gpu.look.standin_counts();
	memory = program_alloc(0, 4096);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 4096, 0), 4096);
	pattern_check(program_bytes(memory), 4096, 1, 0, "GPU memory");
	rig_gone(&rig);
}

TEST(without, "a program without libcuda: an address of nothing is -EFAULT, and none is opened")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	void *nothing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	file_make_pattern(daemon_path(rig.daemon, "f"), 4096, 1);
	CHECK_FAILS(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDONLY), nothing, 4096, 0),
		    -EFAULT, "");
	CHECK(!dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD));
}

TEST(context, "the program's context is current before and after")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	CUcontext mine, now;
	char *memory;

	gpu_open_as("gpus=2");
	CHECK_EQ(gpu.copy.cuDevicePrimaryCtxRetain(&mine, 1), CUDA_SUCCESS);
	n_own++;
	CHECK_EQ(gpu.copy.cuCtxPushCurrent_v2(mine), CUDA_SUCCESS);
	rig_open(&rig, NULL);
	start_counts = gpu.look.standin_counts();
	CHECK_EQ(start_counts.n_current, 1);
	file_make_pattern(daemon_path(rig.daemon, "f"), 4096, 1);
	memory = program_alloc(0, 4096);
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDONLY), memory, 4096, 0), 4096);
	rig_gone(&rig);
	CHECK_EQ(gpu.copy.cuCtxPopCurrent_v2(&now), CUDA_SUCCESS);
	CHECK(now == mine);
}

TEST(trimmed, "dsaio_alloc() gets the memory that copies went through, which libcuda then forgets")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *path = test_text("%s/small.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");
	struct dsaio_file *from;
	void *pinned;
	char *memory;

	CHECK(file && fputs("[daemon]\nclient_pool_max = 8M\n", file) >= 0 && fflush(file) == 0);
	rig.daemon = daemon_start(DAEMON_ARGS("--config", path));
	rig_gpu(&rig, "");
	file_make_pattern(daemon_path(rig.daemon, "f"), MIB, 1);
	from = rig_file(&rig, "f", O_RDONLY);
	memory = program_alloc(0, MIB);
	CHECK_EQ(dsaio_pread(rig.handle, from, memory, MIB, 0), MIB);
	CHECK_EQ(gpu.look.standin_counts().n_registered, 1);
	CHECK_CALL(dsaio_alloc(rig.client, 6 * MIB, NULL, &pinned));
	CHECK_EQ(gpu.look.standin_counts().n_registered, 0);
	CHECK_CALL(dsaio_free(rig.client, pinned));
	memset(program_bytes(memory), 0, MIB);
	CHECK_EQ(dsaio_pread(rig.handle, from, memory, MIB, 0), MIB);
	pattern_check(program_bytes(memory), MIB, 1, 0, "GPU memory");
	CHECK_EQ(gpu.look.standin_counts().n_pageable, 0);
	rig_gone(&rig);
}

/* ---- errors ---- */

static const struct {
	const char *what, *standin;
	int error;
	const char *words;
} errors[] = {
	{ "the context", "cuDevicePrimaryCtxRetain=999", -EIO,
	  "GPU memory at;cuDevicePrimaryCtxRetain(): unknown error (999)" },
	{ "no memory for the context", "cuDevicePrimaryCtxRetain=2", -ENOMEM,
	  "cuDevicePrimaryCtxRetain();(2)" },
	{ "the device", "cuDeviceGet=101", -EIO, "cuDeviceGet()" },
	{ "to make it current", "cuCtxPushCurrent_v2=999", -EIO, "999" },
	{ "a stream", "cuStreamCreate=999", -EIO, "cuStreamCreate();(999)" },
	{ "a copy", "cuMemcpyHtoDAsync_v2=999 cuMemcpyDtoHAsync_v2=999", -EIO, "cuMemcpy;(999)" },
	{ "an event", "cuEventCreate=2", -ENOMEM, "cuEventCreate();(2)" },
	{ "an event behind a copy", "cuEventRecord=999", -EIO, "cuEventRecord();(999)" },
	{ "the end of a copy", "cuEventQuery=700", -EIO, "cuEventQuery();(700)" },
};

TEST_TABLE(error, errors, "an error of libcuda is the op's, with a message")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct dsaio_op *op;
	char *memory;

	rig_gpu(&rig, "");
	file_make_pattern(daemon_path(rig.daemon, "f"), 3 * MIB, 1);
	file = rig_file(&rig, "f", O_RDWR);
	memory = program_alloc(0, 3 * MIB);
	CHECK_SYS(setenv("STANDIN", errors[row].standin, 1));
	CHECK_FAILS(dsaio_pread(rig.handle, file, memory, 3 * MIB, 0), errors[row].error,
		    errors[row].words);
	CHECK_FAILS(dsaio_pwrite(rig.handle, file, memory, 3 * MIB, 0), errors[row].error,
		    errors[row].words);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 3 * MIB, 0, &op));
	CHECK_FAILS(op_wait(op, -1), errors[row].error, errors[row].words);
	dsaio_op_free(op);
	/* It passes, and the next op is fine. */
	CHECK_SYS(setenv("STANDIN", "", 1));
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, 3 * MIB, 1, 0);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 3 * MIB, 0), 3 * MIB);
	pattern_check(program_bytes(memory), 3 * MIB, 1, 0, "GPU memory");
	rig_gone(&rig);
}

TEST(unregistered, "memory that libcuda does not register: copies work")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	char *memory;

	rig_gpu(&rig, "cuMemHostRegister_v2=2");
	file_make_pattern(daemon_path(rig.daemon, "f"), MIB, 1);
	memory = program_alloc(0, MIB);
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDONLY), memory, MIB, 0), MIB);
	pattern_check(program_bytes(memory), MIB, 1, 0, "GPU memory");
	CHECK(gpu.look.standin_counts().n_pageable > 0);
	rig_gone(&rig);
}

TEST(beyond, "a range that passes the end of its allocation is -EFAULT")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory;

	rig_gpu(&rig, "");
	file_make_pattern(daemon_path(rig.daemon, "f"), 8192, 1);
	file = rig_file(&rig, "f", O_RDWR);
	memory = program_alloc(0, 4096);
	CHECK_FAILS(dsaio_pread(rig.handle, file, memory + 1, 4096, 0), -EFAULT,
		    "pread of 4096 bytes at 0;GPU memory;within one allocation");
	CHECK_FAILS(dsaio_pwrite(rig.handle, file, memory + 1, 4096, 0), -EFAULT,
		    "pwrite of 4096 bytes at 0;GPU memory;within one allocation");
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, 8192, 1, 0);
	rig_gone(&rig);
}

TEST(freed, "memory that was freed is -EFAULT")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory;

	rig_gpu(&rig, "");
	file_make_pattern(daemon_path(rig.daemon, "f"), 8192, 1);
	file = rig_file(&rig, "f", O_RDWR);
	memory = program_alloc(0, 8192);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 8192, 0), 8192);
	program_free(0, memory);
	CHECK_FAILS(dsaio_pread(rig.handle, file, memory, 8192, 0), -EFAULT, "");
	CHECK_FAILS(dsaio_pwrite(rig.handle, file, memory, 8192, 0), -EFAULT, "");
	rig_gone(&rig);
}

TEST_MAIN
