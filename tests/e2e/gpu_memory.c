/*
 * GPU memory that a program registers.  A stand-in for libcuda takes the place of the driver's.
 */
#include "tests/gpu/owner.h"

static void rig_gpu(struct rig *rig, const char *standin)
{
	CHECK_SYS(setenv("STANDIN", standin, 1));
	gpu_open();
	rig_open(rig, NULL);
}

/* ---- registered memory ---- */

TEST(registered, "ranges of an allocation are registered and unregistered, and ops take them")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	char *memory, *other;

	rig_gpu(&rig, "gpus=2");
	file_make_pattern(daemon_path(rig.daemon, "f"), MIB, 1);
	memory = program_alloc(1, MIB);
	other = program_alloc(0, MIB);
	CHECK_EQ(dsaio_memory_kind(rig.client, memory, 1), DSAIO_MEMORY_NONE);
	CHECK_EQ(dsaio_memory_gpu(rig.client, memory + 5), 1);
	CHECK_EQ(dsaio_memory_gpu(rig.client, other), 0);
	CHECK_CALL(program_register(&rig, memory + 100, 4096));
	CHECK_CALL(program_register(&rig, memory + 4196, 4096));
	CHECK_CALL(program_register(&rig, other, MIB));
	CHECK_EQ(dsaio_memory_kind(rig.client, memory + 100, 4096), DSAIO_MEMORY_CUDA);
	CHECK_EQ(dsaio_memory_kind(rig.client, memory + 101, 4096), DSAIO_MEMORY_NONE);
	CHECK_EQ(dsaio_memory_kind(rig.client, memory + 99, 1), DSAIO_MEMORY_NONE);
	CHECK(is_registered(rig.client, other + 7, MIB - 7));
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDONLY), other, MIB, 0), MIB);
	pattern_check(program_bytes(other), MIB, 1, 0, "GPU memory");
	CHECK_CALL(dsaio_memory_unregister(rig.client, memory + 100));
	CHECK_FAILS(dsaio_memory_unregister(rig.client, memory + 100), -EINVAL,
		    "memory_unregister");
	CHECK_EQ(dsaio_memory_kind(rig.client, memory + 100, 1), DSAIO_MEMORY_NONE);
	CHECK_EQ(dsaio_memory_kind(rig.client, memory + 4196, 1), DSAIO_MEMORY_CUDA);
	CHECK_CALL(program_register(&rig, memory, 4196));
	/* The client ends with ranges that are registered. */
}

TEST(not_registered, "what is no range of a GPU's memory is not registered")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	char *memory, buf[64];

	rig_gpu(&rig, "");
	memory = program_alloc(0, MIB);
	CHECK_FAILS(program_register(&rig, buf, sizeof(buf)), -EINVAL, "is not GPU memory");
	CHECK_FAILS(program_register(&rig, NULL, 1), -EINVAL, "NULL");
	CHECK_FAILS(program_register(&rig, memory, 0), -EINVAL, "0 bytes");
	CHECK_FAILS(program_register(&rig, memory + 1, MIB), -ERANGE, "1048576 bytes;allocation");
	CHECK_CALL(program_register(&rig, memory + 1000, 1000));
	CHECK_FAILS(program_register(&rig, memory + 999, 2), -EEXIST, "registered already");
	CHECK_FAILS(program_register(&rig, memory + 1999, 2), -EEXIST, "registered already");
	CHECK_EQ(dsaio_memory_kind(rig.client, memory + 1000, 1000), DSAIO_MEMORY_CUDA);
	CHECK_FAILS(dsaio_memory_gpu(rig.client, buf), -ENOENT, "is not GPU memory");
	CHECK_FAILS(dsaio_memory_gpu(rig.client, NULL), -ENOENT, "");
	CHECK_FAILS(dsaio_memory_gpu(NULL, memory), -EINVAL, "memory_gpu");
}

TEST(register_without, "a program without libcuda has no GPU memory")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	char buf[64];

	CHECK_FAILS(program_register(&rig, buf, sizeof(buf)), -EINVAL, "is not GPU memory");
	CHECK_FAILS(dsaio_memory_gpu(rig.client, buf), -ENOENT, "");
}

TEST(register_freed,
     "memory that was freed is not registered any more, also if its address comes again")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	char *memory;

	rig_gpu(&rig, "reuse=1");
	memory = program_alloc(0, MIB);
	CHECK_CALL(program_register(&rig, memory, MIB));
	program_free(0, memory);
	CHECK_EQ(dsaio_memory_kind(rig.client, memory, MIB), DSAIO_MEMORY_NONE);
	CHECK(program_alloc(0, MIB) == memory);
	CHECK_EQ(dsaio_memory_kind(rig.client, memory, MIB), DSAIO_MEMORY_NONE);
	CHECK_CALL(program_register(&rig, memory, 4096));
	CHECK_EQ(dsaio_memory_kind(rig.client, memory, 4096), DSAIO_MEMORY_CUDA);
	CHECK_EQ(dsaio_memory_kind(rig.client, memory, 4097), DSAIO_MEMORY_NONE);
	program_free(0, memory);
	CHECK_CALL(dsaio_memory_unregister(rig.client, memory)); /* the finalizer comes late */
	CHECK_EQ(dsaio_memory_unregister(rig.client, memory), -EINVAL);
}

TEST(register_left, "registered memory may be unregistered after dsaio_disconnect()")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_client *client;
	char *memory;

	rig_gpu(&rig, "");
	memory = program_alloc(0, MIB);
	(void)dsaio_handle_close(TAKE_PTR(rig.handle), -1);
	CHECK_CALL(program_register(&rig, memory, 4096));
	client = TAKE_PTR(rig.client);
	(void)dsaio_disconnect(client);
	CHECK_CALL(dsaio_memory_unregister(client, memory));
}

TEST(register_mapped, "memory that is mapped anew at its place is not the registered one")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	char *memory;

	rig_gpu(&rig, "");
	memory = program_reserve(2 * MIB);
	program_map(memory, 2 * MIB, true);
	CHECK_CALL(program_register(&rig, memory + 4096, 4096));
	CHECK_EQ(dsaio_memory_kind(rig.client, memory + 4096, 4096), DSAIO_MEMORY_CUDA);
	program_map(memory, 2 * MIB, true);
	CHECK_EQ(dsaio_memory_kind(rig.client, memory + 4096, 4096), DSAIO_MEMORY_NONE);
}

static const struct {
	const char *what, *standin, *words;
} failures[] = {
	{ "the number", "cuPointerGetAttribute=999", "is not GPU memory" },
	{ "the context", "cuDevicePrimaryCtxRetain=999", "cuDevicePrimaryCtxRetain();(999)" },
	{ "the range", "cuMemGetAddressRange_v2=3", "cuMemGetAddressRange(): CUDA_ERROR_NOT" },
};

TEST_TABLE(register_fails, failures, "memory of which libcuda says too little is not registered")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	char *memory;

	rig_gpu(&rig, "");
	memory = program_alloc(0, 4096);
	CHECK_SYS(setenv("STANDIN", failures[row].standin, 1));
	CHECK_FAILS(program_register(&rig, memory, 4096), row ? -EOPNOTSUPP : -EINVAL,
		    failures[row].words);
	CHECK_SYS(setenv("STANDIN", "", 1));
	CHECK_EQ(gpu.look.standin_counts().n_current, 0);
	CHECK_CALL(program_register(&rig, memory, 4096));
}

/* ---- the path that an op took ---- */

TEST(paths, "an op tells which path it took, and why GPU memory was copied")
{
	static const char why[] = "no GPU on this host";
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_io io = { .opcode = DSAIO_READ, .n_iov = 3 };
	char private[4096], *memory;
	struct iovec iov[3];
	struct dsaio_file *file;
	struct dsaio_op *op;
	void *pool;

	rig_gpu(&rig, "");
	file_make_pattern(daemon_path(rig.daemon, "f"), MIB, 1);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &pool));
	memory = program_alloc(0, 4096);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, pool, 4096, 0, &op));
	check_path(op, 4096, DSAIO_PATH_SHARED, "");
	CHECK_CALL(dsaio_pread_async(rig.handle, file, private, 4096, 0, &op));
	check_path(op, 4096, DSAIO_PATH_COPIED, "");
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 4096, 0, &op));
	check_path(op, 4096, DSAIO_PATH_COPIED, why);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 4096, MIB, &op));
	check_path(op, 0, DSAIO_PATH_NONE, "");
	CHECK_CALL(dsaio_fsync_async(rig.handle, file, 0, &op));
	check_path(op, 0, DSAIO_PATH_NONE, "");
	iov[0] = (struct iovec){ pool, 4096 };
	iov[1] = (struct iovec){ memory, 4096 };
	iov[2] = (struct iovec){ pool, 4096 };
	io.file = file;
	io.iov = iov;
	CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0, &op), 1);
	check_path(op, 3 * 4096, DSAIO_PATH_COPIED, why);
	CHECK_EQ(dsaio_op_path(NULL), -EINVAL);
}

TEST_MAIN
