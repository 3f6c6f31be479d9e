/*
 * dsaio_submit: many ops by one call.
 */
#include "tests/harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define SEED 6
#define BLOCK ((size_t)4096)

static struct dsaio_io read_of(struct dsaio_file *file, void *buf, size_t len, uint64_t off)
{
	return (struct dsaio_io){
		.opcode = DSAIO_READ, .file = file, .buf = buf, .len = len, .off = off
	};
}

TEST(mixed, "a batch of reads, writes and syncs by file and by path keeps the order of its ops")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const char *path, *fresh;
	struct dsaio_file *file;
	struct dsaio_completion ended[6];
	struct dsaio_op *ops[6];
	uint8_t private[1000], *memory;
	int marks[6];
	void *start;

	path = daemon_path(rig.daemon, "f");
	fresh = daemon_path(rig.daemon, "fresh");
	file_make_pattern(path, 64 * BLOCK, SEED);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 8 * BLOCK, NULL, &start));
	memory = start;
	pattern_fill(memory, 2 * BLOCK, SEED + 1, 0);
	{
		struct dsaio_io ios[] = {
			{ .opcode = DSAIO_WRITE, .path = fresh, .buf = memory, .len = 2 * BLOCK },
			{ .opcode = DSAIO_READ,
			  .path = fresh,
			  .buf = memory + 2 * BLOCK,
			  .len = 2 * BLOCK },
			{ .opcode = DSAIO_FSYNC, .flags = DSAIO_DATASYNC, .path = fresh },
			read_of(file, private, sizeof(private), 77),
			{ .opcode = DSAIO_READ,
			  .path = path,
			  .buf = memory + 4 * BLOCK,
			  .len = BLOCK,
			  .off = BLOCK },
			{ .opcode = DSAIO_FSYNC, .file = file },
		};
		for (size_t i = 0; i < ARRAY_SIZE(ios); i++)
			ios[i].user_data = &marks[i];
		CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), ARRAY_SIZE(ios), 0,
				      ops),
			 ARRAY_SIZE(ios));
	}
	CHECK_EQ(op_wait(ops[0], -1), 2 * BLOCK);
	CHECK_EQ(op_wait(ops[1], -1), 2 * BLOCK);
	CHECK_EQ(op_wait(ops[2], -1), 0);
	CHECK_EQ(op_wait(ops[3], -1), sizeof(private));
	CHECK_EQ(op_wait(ops[4], -1), BLOCK);
	CHECK_EQ(op_wait(ops[5], -1), 0);
	CHECK_EQ(dsaio_handle_reap(rig.handle, ended, sizeof(ended[0]), 6, 6, -1), 6);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		for (size_t k = 0; k < ARRAY_SIZE(ops); k++)
			CHECK(ended[i].op != ops[k] || ended[i].user_data == &marks[k]);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		dsaio_op_free(ops[i]);
	CHECK_EQ(handle_wait(rig.handle, -1), 0);
	pattern_check(memory + 2 * BLOCK, 2 * BLOCK, SEED + 1, 0, "what the batch wrote");
	pattern_check(private, sizeof(private), SEED, 77, "private");
	pattern_check(memory + 4 * BLOCK, BLOCK, SEED, BLOCK, "by path");
	file_check_pattern(fresh, 0, 2 * BLOCK, SEED + 1, 0);
}

TEST(large, "a batch that is larger than its ring")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	enum { N = 1000 };
	static struct dsaio_io ios[N];
	struct dsaio_file *file;
	void *memory;

	(void)dsaio_handle_close(rig.handle, -1);
	options.entries = 16;
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &rig.handle));
	file_make_pattern(daemon_path(rig.daemon, "f"), N * BLOCK, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, N * BLOCK, NULL, &memory));
	for (unsigned i = 0; i < N; i++)
		ios[i] = read_of(file, (char *)memory + i * BLOCK, BLOCK, i * BLOCK);
	CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), 0, 0, NULL), 0);
	CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), N, 0, NULL), N);
	CHECK_EQ(handle_wait(rig.handle, -1), N);
	pattern_check(memory, N * BLOCK, SEED, 0, "read");
}

static struct iovec one_buffer;

static const struct {
	const char *what;
	struct dsaio_io io;
	int error;
	const char *words;
	bool no_file;
} wrong[] = {
	{ "no opcode", { .opcode = 0 }, -EINVAL, "opcode 0", false },
	{ "an opcode too large", { .opcode = 5 }, -EINVAL, "opcode 5", false },
	{ "an unknown flag",
	  { .opcode = DSAIO_READ, .flags = 1u << 30 },
	  -E2BIG,
	  "version (" DSAIO_VERSION,
	  false },
	{ "a field of a later version",
	  { .opcode = DSAIO_READ, .zero = 1 },
	  -E2BIG,
	  "dsaio_io",
	  false },
	{ "a flag of a sync",
	  { .opcode = DSAIO_WRITE, .flags = DSAIO_LINKED },
	  -EINVAL,
	  "DSAIO_FSYNC",
	  false },
	{ "a read that is a sync, too",
	  { .opcode = DSAIO_READ, .flags = DSAIO_DSYNC },
	  -EINVAL,
	  "DSAIO_WRITE",
	  false },
	{ "file and path", { .opcode = DSAIO_READ, .path = "/x" }, -EINVAL, "/x", false },
	{ "neither", { .opcode = DSAIO_READ }, -EINVAL, "file", true },
	{ "no such path",
	  { .opcode = DSAIO_READ, .path = "/nowhere/x" },
	  -ENOENT,
	  "/nowhere/x",
	  true },
	{ "a sync of a range", { .opcode = DSAIO_FSYNC, .len = 1 }, -EINVAL, "sync", false },
	{ "n_iov without iov", { .opcode = DSAIO_READ, .n_iov = 1 }, -EINVAL, "set iov", false },
	{ "iov and len",
	  { .opcode = DSAIO_READ, .iov = &one_buffer, .n_iov = 1, .len = 1 },
	  -EINVAL,
	  "n_iov 1",
	  false },
	{ "too many iov",
	  { .opcode = DSAIO_READ, .iov = &one_buffer, .n_iov = 1025 },
	  -EINVAL,
	  "1024",
	  false },
	{ "a sync with iov",
	  { .opcode = DSAIO_FSYNC, .iov = &one_buffer, .n_iov = 1 },
	  -EINVAL,
	  "sync",
	  false },
	{ "a time of -2", { .opcode = DSAIO_READ, .timeout_usec = -2 }, -EINVAL, "-2", false },
	{ "a write of what is open for reading",
	  { .opcode = DSAIO_WRITE },
	  -EBADF,
	  "writing",
	  false },
};

TEST_TABLE(partial, wrong, "a batch is started up to the first that is refused")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_op *ops[4] = { NULL };
	struct dsaio_file *file;
	struct dsaio_io ios[4];
	void *memory;

	file_make_pattern(daemon_path(rig.daemon, "f"), 4 * BLOCK, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, 4 * BLOCK, NULL, &memory));
	for (unsigned i = 0; i < 4; i++)
		ios[i] = read_of(file, (char *)memory + i * BLOCK, BLOCK, i * BLOCK);
	ios[2] = wrong[row].io;
	ios[2].file = wrong[row].no_file ? NULL : file;
	CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), 4, 0, ops), 2);
	CHECK_MSG(strstr(dsaio_error(), wrong[row].words), "%s", dsaio_error());
	CHECK(ops[1] && !ops[2] && !ops[3]);
	CHECK_EQ(op_wait(ops[0], -1), BLOCK);
	CHECK_EQ(op_wait(ops[1], -1), BLOCK);
	CHECK_FAILS(dsaio_submit(rig.handle, &ios[2], sizeof(struct dsaio_io), 2, 0, NULL),
		    wrong[row].error, wrong[row].words);
	CHECK_EQ(handle_wait(rig.handle, -1), 2);
	CHECK_FAILS(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), -1, 0, NULL), -EINVAL,
		    "-1");
	CHECK_FAILS(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), 1, 2, NULL), -E2BIG,
		    "0x2");
	CHECK_FAILS(dsaio_submit(rig.handle, NULL, sizeof(struct dsaio_io), 1, 0, NULL), -EINVAL,
		    "ios");
}

TEST(nowait, "DSAIO_NOWAIT starts what the ring has room for, and sleeps for no more")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	struct dsaio_file *file;
	struct dsaio_io ios[8];
	void *memory;

	(void)dsaio_handle_close(rig.handle, -1);
	options.entries = 4;
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &rig.handle));
	file_make_pattern(daemon_path(rig.daemon, "f"), 8 * BLOCK, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, 8 * BLOCK, NULL, &memory));
	for (unsigned i = 0; i < 8; i++)
		ios[i] = read_of(file, (char *)memory + i * BLOCK, BLOCK, i * BLOCK);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, BLOCK, 0), BLOCK); /* the channel is open */
	process_stop(rig.daemon->pid);
	CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), 8, DSAIO_NOWAIT, NULL), 4);
	CHECK_MSG(strstr(dsaio_error(), "4 entries"), "%s", dsaio_error());
	CHECK_FAILS(
		dsaio_submit(rig.handle, ios + 4, sizeof(struct dsaio_io), 4, DSAIO_NOWAIT, NULL),
		-EAGAIN, "DSAIO_NOWAIT");
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	CHECK_EQ(handle_wait(rig.handle, -1), 4);
	CHECK_EQ(dsaio_submit(rig.handle, ios + 4, sizeof(struct dsaio_io), 4, DSAIO_NOWAIT, NULL),
		 4);
	CHECK_EQ(handle_wait(rig.handle, -1), 4);
	pattern_check(memory, 8 * BLOCK, SEED, 0, "read");
}

TEST(timeouts, "an io's timeout_usec takes precedence over the handle's")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	const size_t len = 64 * MIB;
	struct dsaio_file *file;
	struct dsaio_op *ops[3];
	struct dsaio_io ios[3];
	void *memory;

	/* 16384 blocks, one after the other: no device does them in that time. */
	profile.queue_depth = 1;
	profile.block_size = 4096;
	options.profile = &profile;
	options.op_timeout_usec = 5000;
	rig_open(&rig, NULL);
	(void)dsaio_handle_close(rig.handle, -1);
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &rig.handle));
	file_make_pattern(daemon_path(rig.daemon, "f"), len, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, len, NULL, &memory));
	for (unsigned i = 0; i < 3; i++)
		ios[i] = read_of(file, memory, len, 0);
	ios[1].timeout_usec = -1;
	ios[2].timeout_usec = 3600000000;
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(dsaio_submit(rig.handle, &ios[i], sizeof(struct dsaio_io), 1, 0, &ops[i]),
			 1);
	CHECK_EQ(op_wait(ops[0], -1), -ETIMEDOUT);
	CHECK_EQ(op_wait(ops[1], -1), len);
	CHECK_EQ(op_wait(ops[2], -1), len);
	(void)dsaio_handle_close(rig.handle, -1);
	CHECK_CALL(profile_open(rig.client, &profile, &rig.handle)); /* without a limit */
	ios[0].timeout_usec = 5000;
	CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), 1, 0, &ops[0]), 1);
	CHECK_EQ(op_wait(ops[0], -1), -ETIMEDOUT);
}

struct reaper {
	struct dsaio_handle *handle;
	pthread_t thread;
	unsigned n_wanted;
};

static void *reaper_run(void *arg)
{
	struct reaper *r = arg;
	struct dsaio_completion taken[16];

	for (unsigned n_taken = 0; n_taken < r->n_wanted;) {
		int n = dsaio_handle_reap(r->handle, taken, sizeof(taken[0]), 1, ARRAY_SIZE(taken),
					  20000);

		if (n == -ETIMEDOUT)
			continue;
		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			unsigned *mark = taken[i].user_data;

			CHECK(mark);
			CHECK_EQ(++*mark, 1);
			dsaio_op_free(taken[i].op);
		}
		n_taken += (unsigned)n;
	}
	return NULL;
}

TEST(user_data, "a thread reaped an op whose user_data was still to come")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	enum { N = 20000, AT_ONCE = 8 };
	_cleanup_(freep) unsigned *marks = calloc(N, sizeof(*marks));
	struct dsaio_io ios[AT_ONCE];
	struct dsaio_op *ops[AT_ONCE];
	struct reaper reaper;
	struct dsaio_file *file;
	void *memory;

	CHECK(marks);
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 16 * BLOCK, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, AT_ONCE * BLOCK, NULL, &memory));
	reaper = (struct reaper){ .handle = rig.handle, .n_wanted = N };
	CHECK_EQ(pthread_create(&reaper.thread, NULL, reaper_run, &reaper), 0);
	for (unsigned i = 0; i < N; i += AT_ONCE) {
		for (unsigned k = 0; k < AT_ONCE; k++) {
			/* Every second one ends before its call has returned. */
			ios[k] = read_of(file, (char *)memory + k * BLOCK, BLOCK,
					 k % 2 ? k * BLOCK : 64 * BLOCK);
			ios[k].user_data = &marks[i + k];
		}
		CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), AT_ONCE, 0, ops),
			 AT_ONCE);
	}
	CHECK_EQ(pthread_join(reaper.thread, NULL), 0);
	for (unsigned i = 0; i < N; i++)
		CHECK_EQ(marks[i], 1);
}

TEST(stores, "a batch over two stores")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	enum { N = 64 };
	struct dsaio_io ios[N];
	struct dsaio_file *files[2];
	char *shm;
	void *memory;

	shm = test_text("%s/f", test_dir_in("/dev/shm"));
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), N * BLOCK, SEED);
	file_make_pattern(shm, N * BLOCK, SEED);
	files[0] = rig_file(&rig, "f", O_RDONLY);
	files[1] = rig_file(&rig, shm, O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, N * BLOCK, NULL, &memory));
	for (unsigned i = 0; i < N; i++)
		ios[i] = read_of(files[i % 2], (char *)memory + i * BLOCK, BLOCK, i * BLOCK);
	CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), N, 0, NULL), N);
	CHECK_EQ(handle_wait(rig.handle, -1), N);
	pattern_check(memory, N * BLOCK, SEED, 0, "read");
}

TEST(gone, "the daemon is killed under a batch: each op ends once")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	enum { N = 64 };
	struct dsaio_io ios[N];
	struct dsaio_op *ops[N];
	struct dsaio_file *file;
	void *memory;

	file_make_pattern(daemon_path(rig.daemon, "f"), N * BLOCK, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, N * BLOCK, NULL, &memory));
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, BLOCK, 0), BLOCK);
	for (unsigned i = 0; i < N; i++)
		ios[i] = read_of(file, (char *)memory + i * BLOCK, BLOCK, i * BLOCK);
	process_stop(rig.daemon->pid);
	CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), N, 0, ops), N);
	daemon_kill(rig.daemon);
	for (unsigned i = 0; i < N; i++) {
		CHECK_EQ(op_wait(ops[i], -1), -ECONNRESET);
		dsaio_op_free(ops[i]);
	}
	CHECK_EQ(handle_wait(rig.handle, -1), -ECONNRESET);
	CHECK_FAILS(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), N, 0, NULL), -ENOTCONN,
		    "submit");
}

/* ---- several buffers ---- */

static const struct {
	const char *what;
	size_t lens[6];	  /* up to the first 0 */
	unsigned private; /* bit i: the i-th buffer is private memory */
	uint64_t off;
} vectors[] = {
	{ "aligned, pinned", { 4096, 8192, 4096, 65536 }, 0, 4096 },
	{ "one buffer", { 12288 }, 0, 0 },
	{ "aligned, pinned and private", { 4096, 8192, 1 << 20, 65536 }, 6, 8192 },
	{ "odd lengths, pinned", { 100, 5000, 1, 4095, 9000 }, 0, 77 },
	{ "odd lengths, private", { 100, 5000, 1, 4095, 9000 }, 31, 4000 },
	{ "odd lengths, both", { 3, 70000, 1, 4095, 300000, 5 }, 42, 12345 },
};

/* Buffers of that row, in `iov`; returns their number. */
static unsigned vector_new(struct rig *rig, int row, struct iovec *iov, size_t *ret_len)
{
	unsigned n = 0;

	for (*ret_len = 0; n < 6 && vectors[row].lens[n]; n++) {
		iov[n].iov_len = vectors[row].lens[n];
		*ret_len += iov[n].iov_len;
		if (vectors[row].private & 1u << n)
			iov[n].iov_base = malloc(iov[n].iov_len);
		else
			CHECK_CALL(
				dsaio_alloc(rig->client, iov[n].iov_len, NULL, &iov[n].iov_base));
		CHECK(iov[n].iov_base);
	}
	return n;
}

/* Those of dsaio_alloc() go with the client. */
static void vector_free(int row, const struct iovec *iov, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (vectors[row].private & 1u << i)
			free(iov[i].iov_base);
}

static void vector_fill(const struct iovec *iov, unsigned n, uint64_t seed, uint64_t pos)
{
	for (unsigned i = 0; i < n; pos += iov[i++].iov_len)
		pattern_fill(iov[i].iov_base, iov[i].iov_len, seed, pos);
}

static void vector_check(const struct iovec *iov, unsigned n, uint64_t seed, uint64_t pos)
{
	for (unsigned i = 0; i < n; pos += iov[i++].iov_len)
		pattern_check(iov[i].iov_base, iov[i].iov_len, seed, pos, "a buffer");
}

TEST_TABLE(vectored, vectors, "one op writes and reads several buffers")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const uint64_t off = vectors[row].off;
	struct dsaio_io ios[2] = { { .opcode = DSAIO_WRITE }, { .opcode = DSAIO_READ } };
	struct iovec from[6], to[6];
	struct dsaio_op *ops[2];
	struct dsaio_file *file;
	unsigned n;
	size_t len;

	file_make_pattern(daemon_path(rig.daemon, "f"), 2 * MIB, SEED);
	file = rig_file(&rig, "f", O_RDWR);
	n = vector_new(&rig, row, from, &len);
	(void)vector_new(&rig, row, to, &len);
	for (unsigned i = 0; i < 2; i++) {
		ios[i].file = file;
		ios[i].off = off;
		ios[i].iov = i ? to : from;
		ios[i].n_iov = n;
	}
	for (unsigned round = 1; round < 20; round++) {
		vector_fill(from, n, SEED + round, off);
		CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), 2,
				      round % 2 ? 0 : DSAIO_NOWAIT, ops),
			 2);
		CHECK_EQ(op_wait(ops[1], -1), len);
		CHECK_EQ(op_wait(ops[0], -1), len);
		CHECK_EQ(dsaio_op_bytes(ops[0]), len);
		vector_check(to, n, SEED + round, off);
		file_check_pattern(daemon_path(rig.daemon, "f"), off, len, SEED + round, off);
		dsaio_op_free(ops[0]);
		dsaio_op_free(ops[1]);
		CHECK_EQ(handle_wait(rig.handle, -1), 2);
	}
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, off, SEED, 0);
	file_check_pattern(daemon_path(rig.daemon, "f"), off + len, 2 * MIB - off - len, SEED,
			   off + len);
	vector_free(row, from, n);
	vector_free(row, to, n);
}

TEST(vectored_end, "a vectored read at the end of the file leaves the buffers behind it alone")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct iovec iov[3];
	struct dsaio_io io = { .opcode = DSAIO_READ, .iov = iov, .n_iov = 3 };
	uint8_t *memory;
	struct dsaio_op *op;
	void *start;

	file_make_pattern(daemon_path(rig.daemon, "f"), BLOCK + 100, SEED);
	io.file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, 3 * BLOCK, NULL, &start));
	memory = start;
	memset(memory, 0xee, 3 * BLOCK);
	for (unsigned i = 0; i < 3; i++)
		iov[i] = (struct iovec){ memory + i * BLOCK, BLOCK };
	CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0, &op), 1);
	CHECK_EQ(op_wait(op, -1), BLOCK + 100);
	dsaio_op_free(op);
	pattern_check(memory, BLOCK + 100, SEED, 0, "read");
	for (size_t i = BLOCK + 100; i < 3 * BLOCK; i++)
		CHECK_EQ(memory[i], 0xee);
	io.off = 2 * BLOCK;
	CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0, &op), 1);
	CHECK_EQ(op_wait(op, -1), 0);
	dsaio_op_free(op);
}

/* A file "f" of four blocks, and a write of n blocks of pinned memory to it. */
static void write_open(struct rig *rig, struct dsaio_io *io, struct iovec *iov, unsigned n)
{
	void *memory;

	rig_open(rig, NULL);
	file_make_pattern(daemon_path(rig->daemon, "f"), 4 * BLOCK, SEED);
	CHECK_CALL(dsaio_alloc(rig->client, 4 * BLOCK, NULL, &memory));
	for (unsigned i = 0; i < n; i++)
		iov[i] = (struct iovec){ (char *)memory + i * BLOCK, BLOCK };
	*io = (struct dsaio_io){
		.opcode = DSAIO_WRITE, .file = rig_file(rig, "f", O_RDWR), .iov = iov, .n_iov = n
	};
}

TEST(vectored_fails, "a vectored op's result is that of its first part that failed")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct iovec iov[4];
	struct dsaio_io io;
	struct dsaio_op *op;

	write_open(&rig, &io, iov, 4);
	iov[1].iov_base = iov[3].iov_base = (void *)(uintptr_t)BLOCK; /* nothing is there */
	CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0, &op), 1);
	CHECK_EQ(op_wait(op, -1), -EFAULT);
	CHECK_EQ(dsaio_op_bytes(op), BLOCK);
	CHECK_MSG(strstr(dsaio_op_error(op), "16384 bytes at 0"), "%s", dsaio_op_error(op));
	dsaio_op_free(op);
	CHECK_EQ(handle_wait(rig.handle, -1), -EFAULT);
	iov[1].iov_base = iov[3].iov_base = iov[0].iov_base;
	CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0, &op), 1);
	CHECK_EQ(op_wait(op, -1), 4 * BLOCK);
	dsaio_op_free(op);
}

TEST(vectored_many, "1024 buffers through a ring of four entries, freed early and cancelled")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	enum { N = 1024 };
	static struct iovec iov[N];
	struct dsaio_io io = { .opcode = DSAIO_READ, .iov = iov, .n_iov = N };
	struct dsaio_op *op;
	void *memory;
	int64_t r;

	(void)dsaio_handle_close(rig.handle, -1);
	options.entries = 4;
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &rig.handle));
	file_make_pattern(daemon_path(rig.daemon, "f"), N * BLOCK, SEED);
	io.file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, N * BLOCK, NULL, &memory));
	for (unsigned i = 0; i < N; i++)
		iov[i] = (struct iovec){ (char *)memory + i * BLOCK, BLOCK };
	CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0, &op), 1);
	dsaio_op_free(op);
	CHECK_EQ(handle_wait(rig.handle, -1), 1);
	pattern_check(memory, N * BLOCK, SEED, 0, "read");
	/* More than there is room for: the rest is put by the library's thread. */
	memset(memory, 0, N * BLOCK);
	CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, DSAIO_NOWAIT, &op), 1);
	CHECK_EQ(op_wait(op, -1), N * BLOCK);
	dsaio_op_free(op);
	pattern_check(memory, N * BLOCK, SEED, 0, "read without waiting");
	for (unsigned round = 0; round < 10; round++) {
		CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, DSAIO_NOWAIT,
				      &op),
			 1);
		CHECK_CALL(dsaio_op_cancel(op));
		r = op_wait(op, -1);
		CHECK_MSG(r == -ECANCELED || r == (int64_t)(N * BLOCK), "%" PRId64, r);
		dsaio_op_free(op);
	}
	(void)dsaio_handle_wait(rig.handle, -1, NULL);
}

TEST(vectored_gone, "the daemon is killed under a vectored op")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct iovec iov[3];
	struct dsaio_io io;
	struct dsaio_op *op;

	write_open(&rig, &io, iov, 3);
	CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0, NULL), 1);
	CHECK_EQ(handle_wait(rig.handle, -1), 1);
	process_stop(rig.daemon->pid);
	CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0, &op), 1);
	CHECK_EQ(dsaio_op_wait(op, 1000, NULL), -ETIMEDOUT);
	daemon_kill(rig.daemon);
	CHECK_EQ(op_wait(op, -1), -ECONNRESET);
	dsaio_op_free(op);
}

TEST_MAIN
