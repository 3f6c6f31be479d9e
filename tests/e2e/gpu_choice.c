/*
 * engine = auto: the program's first ops measure which way of GPU memory is faster, and later ops, and later
 * clients of the user, take it.
 */
#include "tests/gpu/owner.h"

/* 0.4 s for an op of LEN bytes, against well under 1 ms for a way that is not slowed down; on a busy machine under
   a sanitizer that was 64 ms.  Less than what the daemon calls a hang. */
#define SLOW_DIRECT "cufile_nsec_per_kib=6000000"
#define SLOW_COPIES "nsec_per_kib=6000000"
#define LEN (64 * KIB)
#define FILE_BYTES (4 * MIB)
#define N_MEASURED 9 /* at most: 4 of each way, and a copied one before that */

static struct dsaio_file *client_begin(struct rig *rig, struct daemon *daemon)
{
	rig->daemon = daemon;
	rig_open(rig, NULL);
	if (access(daemon_path(daemon, "f"), F_OK) < 0)
		file_make_pattern(daemon_path(daemon, "f"), FILE_BYTES, 1);
	return rig_file(rig, "f", O_RDWR);
}

/* The first client of a new daemon, with GPU memory. */
static struct dsaio_file *gpu_begin(struct rig *rig, const char *standin, const char *keys,
				    size_t bytes, char **ret_memory)
{
	struct daemon *daemon = gpu_daemon_start(standin, keys);

	gpu_open();
	*ret_memory = program_alloc(0, bytes);
	return client_begin(rig, daemon);
}

/* Runs an op, which must go well.  Returns its way. */
static enum dsaio_way way_of(struct rig *rig, struct dsaio_file *file, char *memory, bool is_write,
			     char *ret_why)
{
	struct dsaio_op *op;
	int way;

	if (is_write)
		CHECK_CALL(dsaio_pwrite_async(rig->handle, file, memory, LEN, 0, &op));
	else
		CHECK_CALL(dsaio_pread_async(rig->handle, file, memory, LEN, 0, &op));
	CHECK_EQ(op_wait(op, -1), LEN);
	pattern_check(program_bytes(memory), LEN, 1, 0, "GPU memory");
	way = dsaio_op_way(op);
	if (ret_why)
		(void)snprintf(ret_why, 256, "%s", dsaio_op_why(op));
	dsaio_op_free(op);
	return (enum dsaio_way)way;
}

/* Blocking ops, one at a time: all of them count. */
static void blocking(struct rig *rig, struct dsaio_file *file, char *memory, bool is_write,
		     unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		CHECK_EQ(is_write ? dsaio_pwrite(rig->handle, file, memory, LEN, 0)
				  : dsaio_pread(rig->handle, file, memory, LEN, 0),
			 LEN);
}

static void measure(struct rig *rig, struct dsaio_file *file, char *memory, bool is_write)
{
	blocking(rig, file, memory, is_write, N_MEASURED);
}

static const struct {
	const char *what, *words;
	enum dsaio_way way;
	const char *why;
} speeds[] = {
	{ "copies are slow", SLOW_COPIES, DSAIO_WAY_GPU, "" },
	{ "cuFile is slow", SLOW_DIRECT, DSAIO_WAY_COPIED, "copies are faster: " },
};

/* Does the status have such a rate?  All of them are of that way. */
static bool status_has(const struct daemon *daemon, bool is_write, enum dsaio_way way)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	const Wire__Gpus *gpus;
	bool has = false;

	daemon_status(daemon, &answer);
	gpus = answer.reply->status->gpus;
	for (size_t i = 0; i < gpus->n_measured; i++)
		for (size_t j = 0; j < gpus->measured[i]->n_rates; j++) {
			const Wire__GpuRate *rate = gpus->measured[i]->rates[j];

			CHECK_EQ(gpus->measured[i]->uid, getuid());
			CHECK_EQ(rate->len_class, 0);
			CHECK((rate->direct_rate > rate->copied_rate) == rate->is_direct);
			CHECK(rate->is_direct == (way == DSAIO_WAY_GPU));
			has |= rate->is_write == is_write;
		}
	return has;
}

TEST_TABLE(faster, speeds, "the faster way stays, for this client and the next")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE, next = RIG_NONE;
	const enum dsaio_way way = speeds[row].way;
	struct dsaio_file *file;
	char *memory, why[256];

	file = gpu_begin(&rig, "nvfs=2.24", "", MIB, &memory);
	words_set(speeds[row].words);
	measure(&rig, file, memory, false);
	words_set("");
	for (unsigned i = 0; i < N_MEASURED; i++) {
		CHECK_EQ(way_of(&rig, file, memory, false, why), way);
		CHECK_MSG(*speeds[row].why ? strstr(why, speeds[row].why) != NULL : !*why, "%s",
			  why);
	}
	CHECK(status_has(rig.daemon, false, way));
	CHECK(!status_has(rig.daemon, true, way));

	file = client_begin(&next, rig.daemon);
	for (unsigned i = 0; i < N_MEASURED; i++)
		CHECK_EQ(way_of(&next, file, memory, false, NULL), way);
	words_set(speeds[row].words); /* writes are another matter */
	measure(&next, file, memory, true);
	CHECK_EQ(way_of(&next, file, memory, true, NULL), way);
	CHECK(status_has(rig.daemon, true, way));
}

TEST(forgotten, "a daemon that is started again, maybe with another driver, has it measured anew")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE, next = RIG_NONE;
	struct dsaio_file *file;
	struct daemon *daemon;
	char *memory;

	file = gpu_begin(&rig, "nvfs=2.24", "", MIB, &memory);
	daemon = rig.daemon;
	words_set(SLOW_DIRECT);
	measure(&rig, file, memory, false);
	CHECK_EQ(way_of(&rig, file, memory, false, NULL), DSAIO_WAY_COPIED);
	rig_close(&rig);
	rig = (struct rig)RIG_NONE;
	daemon_stop(daemon);
	daemon = daemon_start(DAEMON_ARGS("--config", test_text("%s/gpus.conf", test_dir())));
	file = client_begin(&next, daemon);
	words_set(SLOW_COPIES);
	measure(&next, file, memory, false);
	CHECK_EQ(way_of(&next, file, memory, false, NULL), DSAIO_WAY_GPU);
}

static const struct {
	const char *what, *keys;
	enum dsaio_way way;
} engines[] = {
	{ "gds", "engine = gds\n", DSAIO_WAY_GPU },
	{ "libaio", "engine = libaio\n", DSAIO_WAY_COPIED },
};

TEST_TABLE(engine, engines, "an engine that the configuration names is not measured")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory;

	file = gpu_begin(&rig, "nvfs=2.24", engines[row].keys, MIB, &memory);
	for (unsigned i = 0; i < 2 * N_MEASURED; i++)
		CHECK_EQ(way_of(&rig, file, memory, false, NULL), engines[row].way);
}

TEST(failed, "failures of both ways tell nothing")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory;

	file = gpu_begin(&rig, "nvfs=2.24", "", MIB, &memory);
	words_set("cuFileRead=5008 cuMemcpyHtoDAsync_v2=1");
	for (unsigned i = 0; i < 8; i++)
		CHECK(dsaio_pread(rig.handle, file, memory, LEN, 0) < 0);
	words_set(SLOW_DIRECT);
	measure(&rig, file, memory, false);
	CHECK_EQ(way_of(&rig, file, memory, false, NULL), DSAIO_WAY_COPIED);
}

/* Waits until one of the calls is held. */
static void held_wait_any(const char *const calls[2])
{
	while (access(words_path(test_text(".%s", calls[0])), F_OK) < 0 &&
	       access(words_path(test_text(".%s", calls[1])), F_OK) < 0)
		(void)usleep(1000); /* nobody tells; the test's time limit ends it */
}

TEST(cancelled, "ops that are cancelled are not measured, also if they are done")
{
	static const char *const calls[] = { "cuFileRead", "cuMemcpyHtoDAsync_v2" };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct dsaio_op *op;
	char *memory;

	file = gpu_begin(&rig, "nvfs=2.24", "", MIB, &memory);
	for (unsigned i = 0; i < N_MEASURED; i++) {
		words_set(test_text("%s=hold %s=hold", calls[0], calls[1]));
		CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, LEN, 0, &op));
		held_wait_any(calls);
		CHECK_CALL(dsaio_op_cancel(op));
		words_set("");
		(void)op_wait(op, -1); /* cancelled or done */
		dsaio_op_free(op);
		held_wait(calls[0], false);
		held_wait(calls[1], false);
	}
	measure(&rig, file, memory, false);
}

/* The first write is alone, and so copied: direct ones of its kind have counted. */
TEST_TABLE(order, speeds, "ops that overlap keep their order if their ways differ")
{
	enum { N = 12 };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *ops[N], *reads[N];
	struct dsaio_file *file;
	char *memory, *into;

	file = gpu_begin(&rig, "nvfs=2.24", "", N * LEN, &memory);
	into = program_alloc(0, N * LEN);
	blocking(&rig, file, memory, true, 4);
	words_set(row ? "cufile_nsec_per_kib=100000" : "nsec_per_kib=100000");
	for (unsigned i = 0; i < N; i++) {
		pattern_fill(program_bytes(memory + i * LEN), LEN, 100 + i, 0);
		CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory + i * LEN, LEN, 0, &ops[i]));
		CHECK_CALL(dsaio_pread_async(rig.handle, file, into + i * LEN, LEN, 0, &reads[i]));
	}
	for (unsigned i = 0; i < N; i++) {
		CHECK_EQ(op_wait(ops[i], -1), LEN);
		CHECK_EQ(dsaio_op_way(ops[i]), i ? DSAIO_WAY_GPU : DSAIO_WAY_COPIED);
		CHECK_EQ(op_wait(reads[i], -1), LEN);
		pattern_check(program_bytes(into + i * LEN), LEN, 100 + i, 0, "GPU memory");
		dsaio_op_free(ops[i]);
		dsaio_op_free(reads[i]);
	}
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, LEN, 100 + N - 1, 0);
}

/*
 * A direct op ends when the program looks, a copied one by itself.  The first row's program looks so late that
 * copies, which are far slower than cuFile, seem faster.
 */
static const struct {
	const char *what, *words;
	unsigned computes_msec;
	enum dsaio_way way;
} patterns[] = {
	{ "copies are slow", "nsec_per_kib=300000", 400, DSAIO_WAY_GPU },
	{ "cuFile is slow", SLOW_DIRECT, 20, DSAIO_WAY_COPIED },
};

TEST_TABLE(computing, patterns, "a program that computes before it waits has the faster way")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	enum dsaio_way way = DSAIO_WAY_NONE;
	struct dsaio_file *file;
	struct dsaio_op *op;
	char *memory;

	file = gpu_begin(&rig, "nvfs=2.24", "", MIB, &memory);
	words_set(patterns[row].words);
	for (unsigned i = 0; i < N_MEASURED + 3; i++) {
		CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, LEN, 0, &op));
		(void)usleep(patterns[row].computes_msec * 1000); /* it computes */
		CHECK_EQ(op_wait(op, -1), LEN);
		way = (enum dsaio_way)dsaio_op_way(op);
		dsaio_op_free(op);
	}
	CHECK_EQ(way, patterns[row].way);
}

TEST_TABLE(burst, speeds, "ops that overlap all go the usual way, and do not count")
{
	enum { N = 32 };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *ops[N];
	struct dsaio_file *file;
	char *memory;

	file = gpu_begin(&rig, "nvfs=2.24", "", N * LEN, &memory);
	words_set("cufile_nsec_per_kib=100000"); /* so that the program waits for them */
	for (unsigned i = 0; i < N; i++)
		CHECK_CALL(dsaio_pread_async(rig.handle, file, memory + i * LEN, LEN, 0, &ops[i]));
	for (unsigned i = 0; i < N; i++) {
		CHECK_EQ(op_wait(ops[i], -1), LEN);
		CHECK_EQ(dsaio_op_way(ops[i]), DSAIO_WAY_GPU);
		dsaio_op_free(ops[i]);
	}
	words_set(speeds[row].words);
	CHECK_EQ(way_of(&rig, file, memory, false, NULL), DSAIO_WAY_GPU); /* none has counted */
	measure(&rig, file, memory, false);
	CHECK_EQ(way_of(&rig, file, memory, false, NULL), speeds[row].way);
}

TEST(full, "with a full pool no op is copied, whether copies are measured or chosen")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE, full = RIG_NONE, next = RIG_NONE;
	struct dsaio_file *file;
	char *memory;
	void *rest;

	file = gpu_begin(&full, "nvfs=2.24", "client_pool_max = 4M\n", MIB, &memory);
	CHECK_CALL(dsaio_alloc(full.client, 4 * MIB, &rest));
	blocking(&full, file, memory, false, 4 * N_MEASURED);
	CHECK_EQ(way_of(&full, file, memory, false, NULL), DSAIO_WAY_GPU);

	file = client_begin(&rig, full.daemon);
	words_set(SLOW_DIRECT);
	measure(&rig, file, memory, false);
	CHECK_EQ(way_of(&rig, file, memory, false, NULL), DSAIO_WAY_COPIED);
	words_set("");
	file = client_begin(&next, full.daemon);
	CHECK_EQ(way_of(&next, file, memory, false, NULL), DSAIO_WAY_COPIED);
	CHECK_CALL(dsaio_alloc(next.client, 4 * MIB, &rest)); /* takes what the copies had */
	for (unsigned i = 0; i < N_MEASURED; i++)
		CHECK_EQ(way_of(&next, file, memory, false, NULL), DSAIO_WAY_GPU);
}

static const struct {
	const char *what, *words;
	unsigned n_well; /* ops before that */
	enum dsaio_way way;
	const char *why;
} failures[] = {
	{ "cuFile fails", "cuFileRead=5008", 0, DSAIO_WAY_COPIED,
	  "two ops failed directly: Operation not supported" },
	{ "copies fail", "cuMemcpyHtoDAsync_v2=1", 4, DSAIO_WAY_GPU, "" },
};

TEST_TABLE(failing, failures, "a way that fails is left after two ops")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory, why[256];

	file = gpu_begin(&rig, "nvfs=2.24", "", MIB, &memory);
	words_set(failures[row].words);
	blocking(&rig, file, memory, false, failures[row].n_well);
	for (unsigned i = 0; i < 2; i++)
		CHECK(dsaio_pread(rig.handle, file, memory, LEN, 0) < 0);
	for (unsigned i = 0; i < 2 * N_MEASURED; i++)
		CHECK_EQ(way_of(&rig, file, memory, false, why), failures[row].way);
	CHECK_MSG(strcmp(why, failures[row].why) == 0, "%s", why);
}

TEST(compatibility, "where cuFile itself copies, the library's copies are the usual way")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory;

	file = gpu_begin(&rig, "", "", MIB, &memory);
	CHECK_EQ(way_of(&rig, file, memory, false, NULL), DSAIO_WAY_COPIED);
}

TEST(asked, "an op asks libcuda once whose memory it is")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	uint64_t n_asked;
	char *memory;

	file = gpu_begin(&rig, "", "", MIB, &memory);
	blocking(&rig, file, memory, false, 1);
	n_asked = gpu.look.standin_counts().n_asked;
	blocking(&rig, file, memory, false, 1);
	n_asked = gpu.look.standin_counts().n_asked - n_asked;
	/* Type and GPU, whether the allocation is the same, and once a second whether it is gone. */
	CHECK_MSG(n_asked >= 3 && n_asked <= 4, "%" PRIu64, n_asked);
}

TEST_MAIN
