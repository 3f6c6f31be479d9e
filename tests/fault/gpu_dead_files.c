/*
 * First ops of files on GPU memory while cuFile's registration of other files does not return, or takes its time.
 * Stand-ins for libcuda and libcufile take the place of the vendor's.
 */
#include "tests/fuse.h"
#include "tests/gpu/host.h"

#include <pthread.h>

/* A thread that reads the start of a file into GPU memory. */
struct reader {
	struct rig *rig;
	struct dsaio_file *file;
	CUdeviceptr memory;
	struct dsaio_handle *handle;
	pthread_t thread;
	int64_t result; /* of the submission, or the op */
	enum dsaio_path path;
	char text[512];
};

static void *reader_main(void *arg)
{
	struct reader *reader = arg;
	struct dsaio_op *op;

	reader->result = dsaio_pread_async(reader->handle, reader->file,
					   (void *)(uintptr_t)reader->memory, 4096, 0, &op);
	if (reader->result == 0) {
		CHECK_CALL(dsaio_op_wait(op, -1, &reader->result));
		reader->path = (enum dsaio_path)dsaio_op_path(op);
		dsaio_op_free(op);
	}
	if (reader->result < 0)
		(void)snprintf(reader->text, sizeof(reader->text), "%s", dsaio_error());
	return NULL;
}

static void reader_start(struct reader *reader, struct rig *rig, struct dsaio_file *file,
			 CUdeviceptr memory)
{
	*reader = (struct reader){ .rig = rig, .file = file, .memory = memory };
	CHECK_CALL(dsaio_handle_open(rig->client, NULL, &reader->handle));
	CHECK_EQ(pthread_create(&reader->thread, NULL, reader_main, reader), 0);
}

static void reader_end(struct reader *reader)
{
	CHECK_EQ(pthread_join(reader->thread, NULL), 0);
	(void)dsaio_handle_close(reader->handle, -1);
}

static void reader_ok(struct reader *reader, bool is_direct)
{
	reader_end(reader);
	CHECK_MSG(reader->result == 4096, "%s", reader->text);
	if (is_direct)
		CHECK_EQ(reader->path, DSAIO_PATH_GPU);
	pattern_check(bytes_of(reader->memory), 4096, 1, 0, "GPU memory");
}

static struct dsaio_file *file_new(struct rig *rig, const char *name)
{
	file_make_pattern(daemon_path(rig->daemon, name), 4096, 1);
	return rig_file(rig, name, O_RDONLY);
}

/* A file's first op, in the place of an endless wait: the test's time limit ends it. */
static void healthy_ok(struct rig *rig, const char *name, CUdeviceptr memory)
{
	struct reader reader;

	reader_start(&reader, rig, file_new(rig, name), memory);
	reader_ok(&reader, true);
}

enum { N_DEAD = 6 }; /* more than a user has threads for calls of the driver */

static const struct {
	const char *what, *keys;
	unsigned n_hung;
} dead[] = {
	{ "direct", "gpu = direct\n", N_DEAD },
	{ "auto", "", N_DEAD },
	/* The registrations of a store have half of a quarter of the requests. */
	{ "direct, and the store's share of requests is taken",
	  "gpu = direct\nclient_handles = 32\n", 1 },
};

TEST_TABLE(dead_files, dead,
	   "files of a dead file system delay no op on other files, and no import, and the log "
	   "says what frees them")
{
	struct rig rig = RIG_NONE, other = RIG_NONE;
	struct reader readers[N_DEAD];
	struct daemon *daemon;
	CUdeviceptr memory;
	struct fuse fs;

	test_needs_root();
	daemon_stop(gpu_start("nvfs=2.24", dead[row].keys));
	fuse_start(&fs, 0);
	daemon = daemon_start(
		DAEMON_ARGS("--user", "--config", test_text("%s/gpus.conf", test_dir())));
	probe_wait(daemon);
	rig.daemon = other.daemon = daemon;
	rig_open(&rig, NULL);
	rig_open(&other, NULL);
	memory = gpu_alloc(MIB);
	healthy_ok(&rig, "first", memory);
	for (unsigned i = 0; i < N_DEAD; i++)
		CHECK_CALL(dsaio_open(rig.client, fuse_path(&fs, (char)('a' + i)), O_RDONLY, NULL,
				      &readers[i].file));
	atomic_store(&fs.control->hung_pid, daemon->pid);
	for (unsigned i = 0; i < N_DEAD; i++)
		reader_start(&readers[i], &rig, readers[i].file, gpu_alloc(4096));
	while (atomic_load(&fs.control->n_hung) < dead[row].n_hung)
		(void)usleep(1000); /* nobody tells; the test's time limit ends it */

	healthy_ok(&rig, "first", memory);
	healthy_ok(&rig, "second", memory);
	healthy_ok(&rig, "third", gpu_alloc(MIB));
	healthy_ok(&other, "fourth", gpu_alloc(MIB));

	daemon_log_wait(daemon, "cuFileHandleRegister has not come back");
	CHECK(!daemon_log_has(daemon, "nvidia-smi"));
	fuse_free_as_reported(daemon);
	for (unsigned i = 0; i < N_DEAD; i++) {
		reader_end(&readers[i]);
		CHECK(readers[i].result < 0);
	}
	rig_close(&other);
	rig_close(&rig);
}

/* A thread that submits two ops at once. */
struct batch {
	struct dsaio_handle *handle;
	struct dsaio_io ios[2];
	struct dsaio_op *ops[2];
	int n;
};

static void *batch_main(void *arg)
{
	struct batch *batch = arg;

	batch->n = dsaio_submit(batch->handle, batch->ios, sizeof(struct dsaio_io), 2, 0,
				batch->ops);
	return NULL;
}

TEST(batch, "ops of a batch start although a later one asks about a file, and has no answer")
{
	struct batch batch = { .n = 0 };
	struct rig rig = RIG_NONE;
	pthread_t thread;
	void *memory;

	rig.daemon = gpu_start("nvfs=2.24", "gpu = direct\n");
	probe_wait(rig.daemon);
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &memory));
	batch.handle = rig.handle;
	for (unsigned i = 0; i < 2; i++)
		batch.ios[i] = (struct dsaio_io){ .opcode = DSAIO_READ,
						  .file = file_new(&rig, test_text("f%u", i)),
						  .len = 4096,
						  .buf = memory };
	batch.ios[1].buf = (void *)(uintptr_t)gpu_alloc(MIB);
	memset(memory, 0, 4096);
	words_set("cuFileHandleRegister=hold");
	CHECK_EQ(pthread_create(&thread, NULL, batch_main, &batch), 0);
	held_wait("cuFileHandleRegister", true);
	while (!*(volatile uint64_t *)memory)
		(void)usleep(1000); /* nobody tells; the test's time limit ends it */
	words_set("");
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(batch.n, 2);
	for (unsigned i = 0; i < 2; i++)
		CHECK_EQ(op_wait(batch.ops[i], -1), 4096);
	pattern_check(memory, 4096, 1, 0, "host memory");
	rig_close(&rig);
}

static const struct {
	const char *what, *keys;
	bool is_direct;
} many[] = {
	{ "direct", "gpu = direct\nclient_handles = 16\n", true },
	{ "auto", "client_handles = 16\n", false },
};

TEST_TABLE(many_files, many,
	   "more files at once than the daemon registers: none of their ops fails")
{
	enum { N = 8 };
	struct rig rig = RIG_NONE;
	struct reader readers[N];
	CUdeviceptr memory;

	rig.daemon = gpu_start("nvfs=2.24", many[row].keys);
	probe_wait(rig.daemon);
	rig_open(&rig, NULL);
	memory = gpu_alloc(MIB);
	healthy_ok(&rig, "first", memory);
	words_set("cuFileHandleRegister=20ms");
	for (unsigned i = 0; i < N; i++)
		reader_start(&readers[i], &rig, file_new(&rig, test_text("f%u", i)),
			     memory + i * 4096);
	for (unsigned i = 0; i < N; i++)
		reader_ok(&readers[i], many[row].is_direct);
	rig_close(&rig);
}

TEST_MAIN
