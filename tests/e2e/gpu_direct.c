/*
 * Ops of the library on GPU memory and files of which the daemon or cuFile refuses one.  (gpu_import.c has ops that
 * are direct.)
 */
#include "tests/gpu/owner.h"

#define MEMORY_BYTES (4 * MIB)
#define FILE_BYTES (8 * MIB)
#define DIRECT "engine = gds\n"

/* A client of the daemon, with memory of a GPU and a file. */
struct kit {
	struct rig rig;
	struct dsaio_file *file;
	CUdeviceptr memory;
};

static void kit_open(struct kit *kit, struct daemon *daemon, const char *name)
{
	*kit = (struct kit){ .rig = RIG_NONE };
	kit->rig.daemon = daemon;
	rig_open(&kit->rig, NULL);
	file_make_pattern(daemon_path(daemon, name), FILE_BYTES, 1);
	kit->file = rig_file(&kit->rig, name, O_RDWR);
	kit->memory = gpu_alloc(MEMORY_BYTES);
}

static void kit_close(struct kit *kit)
{
	gpu_free(kit->memory);
	rig_close(&kit->rig);
}

static void *buffer(CUdeviceptr memory)
{
	return (void *)(uintptr_t)memory;
}

/* Reads len bytes at off of the file into the memory's start. */
static void check_read(const struct kit *kit, CUdeviceptr memory, uint64_t off, uint64_t len)
{
	memset(bytes_of(memory), 0xee, len);
	CHECK_EQ(dsaio_pread(kit->rig.handle, kit->file, buffer(memory), len, off), len);
	pattern_check(bytes_of(memory), len, 1, off, "GPU memory");
}

/* ---- the path that is not there ---- */

static const struct {
	const char *what, *standin, *words;
	int error;
} refusals[] = {
	{ "cuFile takes no imported memory", "buf_imported=no", "CU_FILE_CUDA_MEMORY_TYPE_INVALID",
	  -EOPNOTSUPP },
	{ "the handle does not open", "cuIpcOpenMemHandle_v2=400", "cuIpcOpenMemHandle()",
	  -EFAULT },
	{ "the driver has failed", "cuFileDriverOpen=5004", "CU_FILE_DRIVER_VERSION_MISMATCH",
	  -EOPNOTSUPP },
};

TEST_TABLE(refused, refusals, "engine = gds: the op fails with the sentence")
{
	struct kit kit;

	kit_open(&kit, gpu_start(refusals[row].standin, DIRECT), "f");
	CHECK_FAILS(dsaio_pread(kit.rig.handle, kit.file, buffer(kit.memory), 4096, 0),
		    refusals[row].error, refusals[row].words);
	CHECK_EQ(gpu.look.standin_counts().n_copies, 0);
	kit_close(&kit);
}

TEST(refused_transfer, "an op that cuFile refuses names the log, which has the reason")
{
	char place[PATH_MAX + 32];
	struct kit kit;

	kit_open(&kit, gpu_start("", DIRECT), "f");
	(void)snprintf(place, sizeof(place), "see the daemon's log (%s)", kit.rig.daemon->log_path);
	words_set("cuFileRead=5008");
	CHECK_FAILS(dsaio_pread(kit.rig.handle, kit.file, buffer(kit.memory), 4096, 0), -EOPNOTSUPP,
		    place);
	daemon_log_wait(kit.rig.daemon, "CU_FILE_IO_NOT_SUPPORTED (5008)");
	words_set("");
	check_read(&kit, kit.memory, 0, 4096);
	kit_close(&kit);
}

/* ---- files that cuFile does not take ---- */

#define REFUSED "cuFileHandleRegister=5008"
#define REFUSED_WHY "CU_FILE_IO_NOT_SUPPORTED (5008)"

/* The file of a path that is not in the cache. */
static struct dsaio_file *file_fresh(struct kit *kit, const char *name)
{
	file_make_pattern(daemon_path(kit->rig.daemon, name), FILE_BYTES, 1);
	return rig_file(&kit->rig, name, O_RDWR);
}

TEST(refused_file, "engine = gds: an op on a file that cuFile does not take fails, and says why")
{
	CUdeviceptr other;
	struct dsaio_op *op;
	struct kit kit;

	kit_open(&kit, gpu_start("", DIRECT), "f");
	words_set(REFUSED);
	CHECK_FAILS(dsaio_pread(kit.rig.handle, kit.file, buffer(kit.memory), 4096, 0), -EOPNOTSUPP,
		    "/f: GPU memory: cuFileHandleRegister(): " REFUSED_WHY);
	CHECK_FAILS(dsaio_pwrite_async(kit.rig.handle, kit.file, buffer(kit.memory), 5, 1, &op),
		    -EOPNOTSUPP, REFUSED_WHY);
	words_set("");
	CHECK_FAILS(dsaio_pread(kit.rig.handle, kit.file, buffer(kit.memory), 4096, 0), -EOPNOTSUPP,
		    "pread: file ;/f: GPU memory: cuFileHandleRegister(): " REFUSED_WHY
		    "; the daemon is configured not to have it copied (engine = gds): move the "
		    "file to ext4 or XFS, or set engine = auto");
	CHECK_MSG(!strstr(dsaio_error(), "GPU memory at"), "%s", dsaio_error());
	file_check_pattern(daemon_path(kit.rig.daemon, "f"), 0, FILE_BYTES, 1, 0);
	CHECK_EQ(gpu.look.standin_counts().n_copies, 0);
	kit.file = file_fresh(&kit, "g");
	check_read(&kit, kit.memory, 0, 4096);

	other = gpu_alloc(MIB);
	gpu_free(kit.memory);
	kit.memory = other;
	do { /* the ops that failed have no reference left, so others give it back */
		check_read(&kit, kit.memory, 0, 4096);
		(void)usleep(10000);
	} while (n_imported(kit.rig.daemon) != 1);
	kit_close(&kit);
}

static void check_copied(const struct kit *kit, struct dsaio_op *op, int64_t result)
{
	check_path(op, result, DSAIO_WAY_COPIED,
		   "/f: GPU memory: cuFileHandleRegister(): " REFUSED_WHY);
	pattern_check(bytes_of(kit->memory), (uint64_t)result, 1, 0, "GPU memory");
}

TEST(copied_file, "engine = auto: ops on a file that cuFile does not take are copied, and say why")
{
	CUdeviceptr other;
	struct dsaio_op *op;
	struct kit kit;

	kit_open(&kit, gpu_start("nvfs=2.24", ""), "f");
	words_set(REFUSED);
	CHECK_CALL(dsaio_pread_async(kit.rig.handle, kit.file, buffer(kit.memory), MIB, 0, &op));
	check_copied(&kit, op, MIB);
	words_set(""); /* the answer lasts as long as the file */
	CHECK_CALL(dsaio_pwrite_async(kit.rig.handle, kit.file, buffer(kit.memory), 5000, 0, &op));
	check_copied(&kit, op, 5000);
	CHECK_EQ(n_imported(kit.rig.daemon), 1);
	other = gpu_alloc(MIB); /* no op on this file is worth an import */
	memcpy(bytes_of(other), bytes_of(kit.memory), 5000);
	CHECK_CALL(dsaio_pwrite_async(kit.rig.handle, kit.file, buffer(other), 5000, 0, &op));
	check_copied(&kit, op, 5000);
	CHECK_EQ(n_imported(kit.rig.daemon), 1);
	gpu_free(other);

	kit.file = file_fresh(&kit, "g"); /* another file goes directly */
	CHECK_CALL(dsaio_pread_async(kit.rig.handle, kit.file, buffer(kit.memory), MIB, 0, &op));
	check_path(op, MIB, DSAIO_WAY_GPU, "");
	kit_close(&kit);
}

/* A thread that reads with a handle of its own. */
struct reader {
	struct kit *kit;
	struct dsaio_file *file;
	uint64_t off;
	int way;
	pthread_t thread;
};

static void *reader_main(void *arg)
{
	struct reader *reader = arg;
	struct dsaio_handle *handle;
	struct dsaio_op *op;

	CHECK_CALL(dsaio_handle_open(reader->kit->rig.client, NULL, &handle));
	CHECK_CALL(dsaio_pread_async(handle, reader->file,
				     buffer(reader->kit->memory + reader->off), 4096, reader->off,
				     &op));
	CHECK_EQ(op_wait(op, -1), 4096);
	reader->way = dsaio_op_way(op);
	dsaio_op_free(op);
	dsaio_handle_close(handle);
	return NULL;
}

static void reader_start(struct reader *reader, struct kit *kit, struct dsaio_file *file,
			 uint64_t off)
{
	*reader = (struct reader){ .kit = kit, .file = file, .off = off };
	CHECK_EQ(pthread_create(&reader->thread, NULL, reader_main, reader), 0);
}

static void reader_end(struct reader *reader)
{
	CHECK_EQ(pthread_join(reader->thread, NULL), 0);
	CHECK_EQ(reader->way, DSAIO_WAY_GPU);
}

TEST(held_file, "ops on a file wait while it is registered, and no other op does")
{
	struct reader first, second, other;
	struct dsaio_file *held;
	char *host;
	struct kit kit;

	kit_open(&kit, gpu_start("nvfs=2.24", DIRECT), "f");
	check_read(&kit, kit.memory, 0, MIB);
	CHECK_CALL(dsaio_alloc(kit.rig.client, 4096, (void **)&host));
	held = file_fresh(&kit, "g");
	words_set("cuFileHandleRegister=hold");
	reader_start(&first, &kit, held, 0);
	held_wait("cuFileHandleRegister", true);
	reader_start(&second, &kit, held, 4096);
	reader_start(&other, &kit, kit.file, 8192); /* of a file that is registered */
	reader_end(&other);
	CHECK_EQ(dsaio_pread(kit.rig.handle, held, host, 4096, 0), 4096);
	words_set("");
	reader_end(&first);
	reader_end(&second);
	pattern_check(bytes_of(kit.memory), 3 * 4096, 1, 0, "GPU memory");
	CHECK_CALL(dsaio_free(kit.rig.client, host));
	kit_close(&kit);
}

TEST_TABLE(copied, refusals, "engine = auto: the bytes are copied")
{
	struct kit kit;

	kit_open(&kit, gpu_start(test_text("nvfs=2.24 %s", refusals[row].standin), ""), "f");
	check_read(&kit, kit.memory, 77, MIB);
	CHECK(gpu.look.standin_counts().n_copies > 0);
	kit_close(&kit);
}

TEST_MAIN
