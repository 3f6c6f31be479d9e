/*
 * The library has the daemon import GPU memory: which memory, from when on and for how long, and the path
 * that ops then take, and files that cuFile does not take.
 */
#include "proto/util/clock.h"
#include "tests/gpu/owner.h"
#include "tests/gpu/ranges.h"

#include <pthread.h>

#define DIRECT "gpu = direct\n"

/* ---- the rig ---- */

static void rig_gpu(struct rig *rig, const char *standin, const char *keys)
{
	rig->daemon = gpu_daemon_start(standin, keys);
	gpu_open();
	rig_open(rig, NULL);
}

/* The same, with a file of 1 MiB that can be read.  Returns as much memory of GPU 0. */
static char *rig_gpu_memory(struct rig *rig, const char *standin, const char *keys,
			    struct dsaio_file **ret_file)
{
	rig_gpu(rig, standin, keys);
	file_make_pattern(daemon_path(rig->daemon, "f"), MIB, 1);
	*ret_file = rig_file(rig, "f", O_RDONLY);
	return program_alloc(0, MIB);
}

/* The client copied nothing, and the daemon has nothing of it when it is gone. */
static void rig_gone(struct rig *rig)
{
	struct daemon *daemon = rig->daemon;

	rig_close(rig);
	*rig = (struct rig)RIG_NONE;
	CHECK_EQ(gpu.look.standin_counts().n_copies, 0);
	CHECK_EQ(gpu.look.standin_counts().n_current, 0);
	imported_wait(daemon, 0);
}

/* An op that takes that path. */
static void check_read(struct rig *rig, struct dsaio_file *file, char *memory, uint64_t len,
		       uint64_t off, enum dsaio_path path, const char *why)
{
	struct dsaio_op *op;

	memset(program_bytes(memory), 0xee, len);
	CHECK_CALL(dsaio_pread_async(rig->handle, file, memory, len, off, &op));
	check_path(op, (int64_t)len, path, why);
	pattern_check(program_bytes(memory), len, 1, off, "GPU memory");
}

/* ---- bytes ---- */

TEST_TABLE(reads, ranges, "a read fills GPU memory, and nothing around it")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const uint64_t off = ranges[row].off, len = ranges[row].len;
	struct dsaio_file *file;
	char *memory, *host;

	rig_gpu(&rig, "", DIRECT);
	file_make_pattern(daemon_path(rig.daemon, "f"), off + len + 100, 1);
	file = rig_file(&rig, "f", O_RDONLY);
	memory = program_alloc(0, len + 64) + ranges[row].misalign;
	host = program_bytes(memory);
	host[len] = 0x5a;
	check_read(&rig, file, memory, len, off, DSAIO_PATH_GPU, "");
	CHECK_EQ(host[len], 0x5a);
	memset(host, 0, len);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, len, off), len);
	pattern_check(host, len, 1, off, "GPU memory");
	CHECK_EQ(host[len], 0x5a);
	CHECK_EQ(n_imported(rig.daemon), 1);
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

	rig_gpu(&rig, "", DIRECT);
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, off + len + 100, 1);
	file = rig_file(&rig, "f", O_RDWR);
	memory = program_alloc(0, len + 64) + ranges[row].misalign;
	for (uint64_t seed = 2; seed < 4; seed++) {
		pattern_fill(program_bytes(memory), len, seed, off);
		if (seed == 3) {
			CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory, len, off, &op));
			check_path(op, (int64_t)len, DSAIO_PATH_GPU, "");
		} else {
			CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, len, off), len);
		}
		file_check_pattern(path, off, len, seed, off);
		file_check_pattern(path, 0, off, 1, 0);
		file_check_pattern(path, off + len, 100, 1, off + len);
	}
	rig_gone(&rig);
}

TEST(batch, "a batch and a vectored op take GPU memory beside the pool's")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_io ios[3] = { { .opcode = DSAIO_READ } };
	struct dsaio_op *ops[3];
	struct iovec iov[2];
	char *memory, *other;
	void *pool;

	rig_gpu(&rig, "gpus=2", DIRECT);
	file_make_pattern(daemon_path(rig.daemon, "f"), 3 * MIB, 1);
	memory = program_alloc(1, MIB);
	other = program_alloc(0, MIB);
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &pool));
	iov[0] = (struct iovec){ pool, 4096 };
	iov[1] = (struct iovec){ other, 10000 };
	for (int i = 0; i < 3; i++)
		ios[i] = (struct dsaio_io){ .opcode = DSAIO_READ,
					    .file = rig_file(&rig, "f", O_RDONLY),
					    .buf = i ? pool : memory,
					    .len = i == 2 ? 0 : 8192,
					    .off = (uint64_t)i * MIB,
					    .iov = i == 2 ? iov : NULL,
					    .n_iov = i == 2 ? 2 : 0 };
	ios[2].buf = NULL;
	ios[1].buf = (char *)pool + 8192;
	CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), 3, 0, ops), 3);
	check_path(ops[0], 8192, DSAIO_PATH_GPU, "");
	check_path(ops[1], 8192, DSAIO_PATH_SHARED, "");
	check_path(ops[2], 14096, DSAIO_PATH_GPU, "");
	pattern_check(program_bytes(memory), 8192, 1, 0, "GPU memory");
	pattern_check(pool, 4096, 1, 2 * MIB, "pool");
	pattern_check(program_bytes(other), 10000, 1, 2 * MIB + 4096, "GPU memory");
	CHECK_EQ(n_imported(rig.daemon), 2);
	rig_gone(&rig);
}

/* ---- memory that goes ---- */

struct user {
	pthread_t thread;
	struct rig *rig;
	struct dsaio_file *file;
	uint64_t number;
};

#define N_USERS 4u
#define N_TURNS 40u

static void *user_main(void *arg)
{
	const struct user *user = arg;

	for (uint64_t turn = 0; turn < N_TURNS; turn++) {
		uint64_t off = (user->number * N_TURNS + turn) * 4096;
		char *memory = program_alloc(0, MIB);

		check_read(user->rig, user->file, memory + turn, 4096, off, DSAIO_PATH_GPU, "");
		program_free(0, memory);
	}
	return NULL;
}

TEST(threads, "threads allocate and free GPU memory at the same addresses, and get their own bytes")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct user users[N_USERS];
	struct dsaio_file *file;

	rig_gpu(&rig, "reuse=1", DIRECT);
	file_make_pattern(daemon_path(rig.daemon, "f"), (uint64_t)N_USERS * N_TURNS * 4096, 1);
	file = rig_file(&rig, "f", O_RDONLY);
	for (unsigned i = 0; i < N_USERS; i++) {
		users[i] = (struct user){ .rig = &rig, .file = file, .number = i };
		CHECK_EQ(pthread_create(&users[i].thread, NULL, user_main, &users[i]), 0);
	}
	for (unsigned i = 0; i < N_USERS; i++)
		CHECK_EQ(pthread_join(users[i].thread, NULL), 0);
	while (n_imported(rig.daemon) > 2 * N_USERS)
		(void)usleep(1000); /* releases are posted; the test's time limit ends it */
	rig_gone(&rig);
}

TEST(freed_copied, "memory that was freed is released by ops that are copied, too")
{
	enum { N = 16, LEN_COPIED = 4 * KIB };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint64_t end = clock_nsec() + 60 * UINT64_C(1000000000);
	struct dsaio_file *file;
	char *memory[N], *other;

	other = rig_gpu_memory(&rig, "nvfs=2.24", "", &file);
	for (unsigned i = 0; i < N; i++) {
		memory[i] = program_alloc(0, MIB);
		CHECK_EQ(dsaio_pread(rig.handle, file, memory[i], LEN_COPIED, 0), LEN_COPIED);
	}
	CHECK(n_imported(rig.daemon) > 0);
	words_set("cuFileHandleRegister=5008");
	file_make_pattern(daemon_path(rig.daemon, "g"), MIB, 1);
	file = rig_file(&rig, "g", O_RDONLY);
	check_read(&rig, file, memory[0], LEN_COPIED, 0, DSAIO_PATH_COPIED,
		   "CU_FILE_IO_NOT_SUPPORTED");
	words_set("");
	for (unsigned i = 0; i < N; i++)
		program_free(0, memory[i]);
	do {
		check_read(&rig, file, other, LEN_COPIED, 0, DSAIO_PATH_COPIED,
			   "CU_FILE_IO_NOT_SUPPORTED");
		(void)usleep(10000);
	} while (n_imported(rig.daemon) && clock_nsec() < end);
	CHECK_EQ(n_imported(rig.daemon), 0);
}

TEST(freed_in_use, "memory that is freed during an op: the op ends, and the next one has its own")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct dsaio_op *op;
	char *memory;

	memory = rig_gpu_memory(&rig, "reuse=1", DIRECT, &file);
	words_set("cuFileRead=hold");
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 4096, 0, &op));
	held_wait("cuFileRead", true);
	program_free(0, memory);
	CHECK(program_alloc(0, MIB) == memory);
	memset(program_bytes(memory), 0x5a, 4096);
	CHECK_CALL(program_register(&rig, memory, MIB)); /* imports it, while the op is open */
	words_set("");
	check_path(op, 4096, DSAIO_PATH_GPU, "");
	CHECK_EQ(program_bytes(memory)[0], 0x5a);
	check_read(&rig, file, memory, 4096, 4096, DSAIO_PATH_GPU, "");
	imported_wait(rig.daemon, 1); /* the op's end gave the other back, at the next one */
	rig_gone(&rig);
}

TEST(mapped,
     "memory that the program maps by itself is imported as well, and anew when it is mapped anew")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory;

	rig_gpu(&rig, "", DIRECT);
	file_make_pattern(daemon_path(rig.daemon, "f"), 8 * MIB, 1);
	file = rig_file(&rig, "f", O_RDONLY);
	memory = program_reserve(4 * MIB);
	for (uint64_t i = 0; i < 4; i++) {
		program_map(memory, 4 * MIB, true);
		check_read(&rig, file, memory + 12345, MIB, i * MIB, DSAIO_PATH_GPU, "");
	}
	rig_gone(&rig);
}

/* ---- registered memory ---- */

TEST(registered, "registered memory is the daemon's at once, until it is unregistered")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	char *memory;

	rig_gpu(&rig, "", DIRECT);
	memory = program_alloc(0, MIB);
	CHECK_CALL(program_register(&rig, memory + 100, 1000));
	CHECK_CALL(program_register(&rig, memory + 4096, 1000));
	CHECK_EQ(n_imported(rig.daemon), 1);
	CHECK_CALL(dsaio_memory_unregister(rig.client, memory + 100));
	CHECK_EQ(n_imported(rig.daemon), 1);
	CHECK_CALL(dsaio_memory_unregister(rig.client, memory + 4096));
	CHECK_EQ(n_imported(rig.daemon), 0);
	CHECK_CALL(program_register(&rig, memory, MIB));
	CHECK_EQ(n_imported(rig.daemon), 1);
	CHECK_EQ(dsaio_memory_kind(rig.client, memory, MIB), DSAIO_MEMORY_CUDA);
	rig_gone(&rig);
}

/* ---- what cannot be imported ---- */

TEST(not_exported, "memory that the driver does not export is copied")
{
	static const char why[] = "cuMemExportToShareableHandle()";
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory;

	rig_gpu(&rig, "nvfs=2.24", "");
	file_make_pattern(daemon_path(rig.daemon, "f"), MIB, 1);
	file = rig_file(&rig, "f", O_RDONLY);
	check_read(&rig, file, program_alloc(0, MIB), MIB, 0, DSAIO_PATH_GPU, "");
	memory = program_reserve(2 * MIB);
	program_map(memory, 2 * MIB, false);
	check_read(&rig, file, memory + 7, 5000, 11, DSAIO_PATH_COPIED, why);
	CHECK_CALL(program_register(&rig, memory, 4096));
	check_read(&rig, file, memory, 4096, 0, DSAIO_PATH_COPIED, why);
	check_read(&rig, file, program_alloc(0, 8192), 4096, 0, DSAIO_PATH_GPU, "");
}

TEST(not_exported_strict, "where nothing may be copied, an op on memory that is not exported fails")
{
	static const char words[] = "GPU memory at;cuMemExportToShareableHandle();gpu = direct";
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_io io = { .opcode = DSAIO_READ, .n_iov = 2 };
	struct iovec iov[2];
	struct dsaio_op *op;
	char *memory, *good;

	rig_gpu(&rig, "", DIRECT);
	file_make_pattern(daemon_path(rig.daemon, "f"), MIB, 1);
	io.file = rig_file(&rig, "f", O_RDONLY);
	memory = program_reserve(2 * MIB);
	good = program_alloc(0, 8192);
	program_map(memory, 2 * MIB, false);
	CHECK_FAILS(dsaio_pread(rig.handle, io.file, memory, 4096, 0), -EOPNOTSUPP, words);
	CHECK_FAILS(dsaio_pread_async(rig.handle, io.file, memory, 4096, 0, &op), -EOPNOTSUPP,
		    words);
	CHECK_FAILS(program_register(&rig, memory, 4096), -EOPNOTSUPP, words);
	CHECK_EQ(dsaio_memory_kind(rig.client, memory, 4096), DSAIO_MEMORY_NONE);
	iov[0] = (struct iovec){ good, 8192 };
	iov[1] = (struct iovec){ memory, 8192 };
	io.iov = iov;
	CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0, &op), 1);
	CHECK_EQ(op_wait(op, -1), -EOPNOTSUPP);
	CHECK_EQ(dsaio_op_bytes(op), 8192);
	CHECK_MSG(strstr(dsaio_op_error(op), "gpu = direct"), "%s", dsaio_op_error(op));
	dsaio_op_free(op);
	check_read(&rig, io.file, good, 8192, 0, DSAIO_PATH_GPU, "");
	rig_gone(&rig);
}

static const struct {
	const char *what, *standin, *keys, *why;
} copied[] = {
	{ "more than the client may have", "nvfs=2.24", "client_device_max = 64K\n",
	  "client_device_max" },
	{ "the configuration says so", "nvfs=2.24", "gpu = copy\n", "gpu = copy" },
	{ "cuFile takes no imported memory", "nvfs=2.24 buf_imported=no", "",
	  "CU_FILE_CUDA_MEMORY_TYPE_INVALID" },
	{ "the handle does not open", "nvfs=2.24 cuIpcOpenMemHandle_v2=400", "",
	  "cuIpcOpenMemHandle_v2()" },
	{ "the driver has failed", "nvfs=2.24 cuFileDriverOpen=5004", "",
	  "CU_FILE_DRIVER_VERSION_MISMATCH" },
};

TEST_TABLE(refused, copied, "memory that the daemon refuses is copied")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory;

	memory = rig_gpu_memory(&rig, copied[row].standin, copied[row].keys, &file);
	check_read(&rig, file, memory, MIB, 0, DSAIO_PATH_COPIED, copied[row].why);
	check_read(&rig, file, memory + 7, 5000, 11, DSAIO_PATH_COPIED, copied[row].why);
	imported_wait(rig.daemon, 0);
}

static const struct {
	const char *what, *standin, *words;
	int error;
} refusals[] = {
	{ "cuFile takes no imported memory", "buf_imported=no", "CU_FILE_CUDA_MEMORY_TYPE_INVALID",
	  -EOPNOTSUPP },
	{ "the handle does not open", "cuIpcOpenMemHandle_v2=400", "cuIpcOpenMemHandle_v2()",
	  -EFAULT },
	{ "the driver has failed", "cuFileDriverOpen=5004", "CU_FILE_DRIVER_VERSION_MISMATCH",
	  -EOPNOTSUPP },
};

TEST_TABLE(refused_strict, refusals, "gpu = direct: the op fails with the message")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory = rig_gpu_memory(&rig, refusals[row].standin, DIRECT, &file);

	CHECK_FAILS(dsaio_pread(rig.handle, file, memory, 4096, 0), refusals[row].error,
		    refusals[row].words);
	rig_gone(&rig);
}

TEST(refused_transfer, "an op that cuFile refuses names the log, which has the reason")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory = rig_gpu_memory(&rig, "", DIRECT, &file), place[PATH_MAX + 32];

	(void)snprintf(place, sizeof(place), "see the daemon's log (%s)", rig.daemon->log_path);
	words_set("cuFileRead=5008");
	CHECK_FAILS(dsaio_pread(rig.handle, file, memory, 4096, 0), -EOPNOTSUPP, place);
	daemon_log_wait(rig.daemon, "CU_FILE_IO_NOT_SUPPORTED (5008)");
	words_set("");
	check_read(&rig, file, memory, 4096, 0, DSAIO_PATH_GPU, "");
	rig_gone(&rig);
}

/* ---- files that cuFile does not take ---- */

#define REFUSED "cuFileHandleRegister=5008"
#define REFUSED_WHY "/f: GPU memory: cuFileHandleRegister(): CU_FILE_IO_NOT_SUPPORTED (5008)"

/* A file of 1 MiB that is not in the cache. */
static struct dsaio_file *file_fresh(struct rig *rig, const char *name)
{
	file_make_pattern(daemon_path(rig->daemon, name), MIB, 1);
	return rig_file(rig, name, O_RDWR);
}

TEST(refused_file, "gpu = direct: an op on a file that cuFile does not take fails, and says why")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file, *good;
	char *memory, *other;
	struct dsaio_op *op;

	rig_gpu(&rig, "", DIRECT);
	file = file_fresh(&rig, "f");
	memory = program_alloc(0, MIB);
	words_set(REFUSED);
	CHECK_FAILS(dsaio_pread(rig.handle, file, memory, 4096, 0), -EOPNOTSUPP, REFUSED_WHY);
	CHECK_FAILS(dsaio_pwrite_async(rig.handle, file, memory, 5, 1, &op), -EOPNOTSUPP,
		    REFUSED_WHY);
	words_set("");
	CHECK_FAILS(dsaio_pread(rig.handle, file, memory, 4096, 0), -EOPNOTSUPP,
		    "pread: file ;" REFUSED_WHY
		    "; the daemon is configured not to have it copied (gpu = direct): move the "
		    "file to ext4 or XFS, or set gpu = auto");
	CHECK_MSG(!strstr(dsaio_error(), "GPU memory at"), "%s", dsaio_error());
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, MIB, 1, 0);
	good = file_fresh(&rig, "g");
	check_read(&rig, good, memory, 4096, 0, DSAIO_PATH_GPU, "");

	other = program_alloc(0, MIB);
	program_free(0, memory);
	do { /* the ops that failed have no reference left, so others give it back */
		check_read(&rig, good, other, 4096, 0, DSAIO_PATH_GPU, "");
		(void)usleep(10000);
	} while (n_imported(rig.daemon) != 1);
	rig_gone(&rig);
}

TEST(copied_file, "gpu = auto: ops on a file that cuFile does not take are copied, and say why")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct dsaio_op *op;
	char *memory, *other;

	rig_gpu(&rig, "nvfs=2.24", "");
	file = file_fresh(&rig, "f");
	memory = program_alloc(0, MIB);
	words_set(REFUSED);
	check_read(&rig, file, memory, MIB, 0, DSAIO_PATH_COPIED, REFUSED_WHY);
	words_set(""); /* the answer lasts as long as the file */
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory, 5000, 0, &op));
	check_path(op, 5000, DSAIO_PATH_COPIED, REFUSED_WHY);
	CHECK_EQ(n_imported(rig.daemon), 1);
	other = program_alloc(0, MIB); /* no op on this file is worth an import */
	memcpy(program_bytes(other), program_bytes(memory), 5000);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, other, 5000, 0, &op));
	check_path(op, 5000, DSAIO_PATH_COPIED, REFUSED_WHY);
	CHECK_EQ(n_imported(rig.daemon), 1);
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, MIB, 1, 0);
	check_read(&rig, file_fresh(&rig, "g"), memory, MIB, 0, DSAIO_PATH_GPU, "");
}

/* A thread that reads with a handle of its own. */
struct reader {
	struct rig rig; /* with that handle */
	struct dsaio_file *file;
	char *memory;
	uint64_t off;
	pthread_t thread;
};

static void *reader_main(void *arg)
{
	struct reader *reader = arg;

	CHECK_CALL(dsaio_handle_open(reader->rig.client, NULL, &reader->rig.handle));
	check_read(&reader->rig, reader->file, reader->memory + reader->off, 4096, reader->off,
		   DSAIO_PATH_GPU, "");
	(void)dsaio_handle_close(reader->rig.handle, -1);
	return NULL;
}

static void reader_start(struct reader *reader, const struct rig *rig, struct dsaio_file *file,
			 char *memory, uint64_t off)
{
	*reader = (struct reader){ .rig = *rig, .file = file, .memory = memory, .off = off };
	CHECK_EQ(pthread_create(&reader->thread, NULL, reader_main, reader), 0);
}

TEST(held_file, "ops on a file wait while it is registered, and no other op does")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct reader first, second, other;
	struct dsaio_file *file, *held;
	char *memory, *host;

	memory = rig_gpu_memory(&rig, "nvfs=2.24", DIRECT, &file);
	check_read(&rig, file, memory, MIB, 0, DSAIO_PATH_GPU, "");
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, (void **)&host));
	held = file_fresh(&rig, "g");
	words_set("cuFileHandleRegister=hold");
	reader_start(&first, &rig, held, memory, 0);
	held_wait("cuFileHandleRegister", true);
	reader_start(&second, &rig, held, memory, 4096);
	reader_start(&other, &rig, file, memory, 8192); /* of a file that is registered */
	CHECK_EQ(pthread_join(other.thread, NULL), 0);
	CHECK_EQ(dsaio_pread(rig.handle, held, host, 4096, 0), 4096);
	words_set("");
	CHECK_EQ(pthread_join(first.thread, NULL), 0);
	CHECK_EQ(pthread_join(second.thread, NULL), 0);
	CHECK_CALL(dsaio_free(rig.client, host));
	rig_gone(&rig);
}

/* ---- clients and daemons ---- */

TEST(two_clients, "two clients of a process use one allocation, and each other's end harms none")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE, second = RIG_NONE;
	struct dsaio_file *files[2];
	char *memory;

	rig_gpu(&rig, "", DIRECT);
	second.daemon = rig.daemon;
	rig_open(&second, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), MIB, 1);
	files[0] = rig_file(&rig, "f", O_RDONLY);
	files[1] = rig_file(&second, "f", O_RDONLY);
	memory = program_alloc(0, MIB);
	for (uint64_t i = 0; i < 8; i++)
		check_read(i % 2 ? &second : &rig, files[i % 2], memory + i * 4096, 4096, i * 8192,
			   DSAIO_PATH_GPU, "");
	CHECK_EQ(n_imported(rig.daemon), 1);
	rig_close(&second);
	second = (struct rig)RIG_NONE;
	check_read(&rig, files[0], memory, MIB, 0, DSAIO_PATH_GPU, "");
	rig_gone(&rig);
}

TEST(daemon_killed,
     "the daemon is killed during ops: they end once, and the memory is the program's")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *ops[8];
	struct dsaio_file *file;
	char *memory;

	memory = rig_gpu_memory(&rig, "", DIRECT, &file);
	words_set("cuFileRead=hold");
	for (int i = 0; i < 8; i++)
		CHECK_CALL(dsaio_pread_async(rig.handle, file, memory + i * 4096, 4096,
					     (uint64_t)i * 4096, &ops[i]));
	held_wait("cuFileRead", true);
	daemon_kill(rig.daemon);
	for (int i = 0; i < 8; i++) {
		CHECK_EQ(op_wait(ops[i], -1), -ECONNRESET);
		dsaio_op_free(ops[i]);
	}
	CHECK_FAILS(dsaio_pread(rig.handle, file, memory, 4096, 0), -ENOTCONN, "");
	CHECK_FAILS(dsaio_pread(rig.handle, file, program_alloc(0, 4096), 4096, 0), -ENOTCONN, "");
	CHECK_EQ(program_register(&rig, memory, 4096), -ENOTCONN);
	memset(program_bytes(memory), 1, MIB);
	program_free(0, memory);
}

TEST(forked, "a child of a fork has nothing of it, and the parent goes on")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory;
	pid_t pid;

	memory = rig_gpu_memory(&rig, "", DIRECT, &file);
	check_read(&rig, file, memory, 4096, 0, DSAIO_PATH_GPU, "");
	CHECK_CALL(program_register(&rig, memory, MIB));
	pid = (pid_t)CHECK_SYS(fork());
	if (!pid) {
		CHECK_FAILS(dsaio_pread(rig.handle, file, memory, 4096, 0), -EPERM, "fork");
		CHECK_FAILS(program_register(&rig, memory, 1), -EPERM, "fork");
		CHECK_EQ(dsaio_memory_unregister(rig.client, memory), 0);
		CHECK_EQ(dsaio_memory_kind(rig.client, memory, 1), -EPERM);
		CHECK_EQ(dsaio_memory_gpu(rig.client, memory), -EPERM);
		(void)dsaio_disconnect(rig.client);
		_exit(0);
	}
	child_wait_ok(pid);
	CHECK_EQ(n_imported(rig.daemon), 1);
	check_read(&rig, file, memory, MIB, 0, DSAIO_PATH_GPU, "");
	rig_gone(&rig);
}

TEST_MAIN
