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
#define N_MEASURED 8

static struct dsaio_file *client_begin(struct rig *rig, struct daemon *daemon)
{
	rig->daemon = daemon;
	rig_open(rig, NULL);
	if (access(daemon_path(daemon, "f"), F_OK) < 0)
		file_make_pattern(daemon_path(daemon, "f"), FILE_BYTES, 1);
	return rig_file(rig, "f", O_RDWR);
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

/* Ops that measure.  Each way has half of them. */
static void measure(struct rig *rig, struct dsaio_file *file, char *memory, bool is_write)
{
	unsigned n_copied = 0;
	char why[256];

	for (unsigned i = 0; i < N_MEASURED; i++) {
		bool is_copied = way_of(rig, file, memory, is_write, why) == DSAIO_WAY_COPIED;

		CHECK_MSG(is_copied ? strstr(why, "measure which way") != NULL : !*why, "%s", why);
		n_copied += is_copied;
	}
	CHECK_EQ(n_copied, N_MEASURED / 2);
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
	struct daemon *daemon = gpu_daemon_start("", "");
	const enum dsaio_way way = speeds[row].way;
	struct dsaio_file *file;
	char *memory, why[256];

	gpu_open();
	memory = program_alloc(0, MIB);
	file = client_begin(&rig, daemon);
	words_set(speeds[row].words);
	measure(&rig, file, memory, false);
	words_set("");
	for (unsigned i = 0; i < N_MEASURED; i++) {
		CHECK_EQ(way_of(&rig, file, memory, false, why), way);
		CHECK_MSG(*speeds[row].why ? strstr(why, speeds[row].why) != NULL : !*why, "%s",
			  why);
	}
	CHECK(status_has(daemon, false, way));
	CHECK(!status_has(daemon, true, way));

	file = client_begin(&next, daemon);
	for (unsigned i = 0; i < N_MEASURED; i++)
		CHECK_EQ(way_of(&next, file, memory, false, NULL), way);
	words_set(speeds[row].words); /* writes are another matter */
	measure(&next, file, memory, true);
	CHECK_EQ(way_of(&next, file, memory, true, NULL), way);
	CHECK(status_has(daemon, true, way));
}

TEST(forgotten, "a daemon that is started again, maybe with another driver, has it measured anew")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE, next = RIG_NONE;
	struct daemon *daemon = gpu_daemon_start("", "");
	struct dsaio_file *file;
	char *memory;

	gpu_open();
	memory = program_alloc(0, MIB);
	file = client_begin(&rig, daemon);
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
	struct daemon *daemon = gpu_daemon_start("", engines[row].keys);
	struct dsaio_file *file;
	char *memory;

	gpu_open();
	memory = program_alloc(0, MIB);
	file = client_begin(&rig, daemon);
	for (unsigned i = 0; i < 2 * N_MEASURED; i++)
		CHECK_EQ(way_of(&rig, file, memory, false, NULL), engines[row].way);
}

TEST(failed, "ops that fail are not measured")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct daemon *daemon = gpu_daemon_start("", "");
	struct dsaio_file *file;
	char *memory;

	gpu_open();
	memory = program_alloc(0, MIB);
	file = client_begin(&rig, daemon);
	words_set("cuFileRead=5008 cuMemcpyHtoDAsync_v2=1");
	for (unsigned i = 0; i < N_MEASURED; i++)
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
	struct daemon *daemon = gpu_daemon_start("", "");
	struct dsaio_file *file;
	struct dsaio_op *op;
	char *memory;

	gpu_open();
	memory = program_alloc(0, MIB);
	file = client_begin(&rig, daemon);
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

/* Their ways alternate, and the slower way is the earlier one's half of the time. */
TEST_TABLE(order, speeds, "ops that overlap keep their order while their ways alternate")
{
	enum { N = 12 };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct daemon *daemon = gpu_daemon_start("", "");
	struct dsaio_op *ops[N], *reads[N];
	struct dsaio_file *file;
	char *memory, *into;

	gpu_open();
	memory = program_alloc(0, N * LEN);
	into = program_alloc(0, N * LEN);
	file = client_begin(&rig, daemon);
	words_set(row ? "cufile_nsec_per_kib=100000" : "nsec_per_kib=100000");
	for (unsigned i = 0; i < N; i++) {
		pattern_fill(program_bytes(memory + i * LEN), LEN, 100 + i, 0);
		CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory + i * LEN, LEN, 0, &ops[i]));
		CHECK_CALL(dsaio_pread_async(rig.handle, file, into + i * LEN, LEN, 0, &reads[i]));
	}
	for (unsigned i = 0; i < N; i++) {
		CHECK_EQ(op_wait(ops[i], -1), LEN);
		CHECK_EQ(op_wait(reads[i], -1), LEN);
		pattern_check(program_bytes(into + i * LEN), LEN, 100 + i, 0, "GPU memory");
		dsaio_op_free(ops[i]);
		dsaio_op_free(reads[i]);
	}
	file_check_pattern(daemon_path(daemon, "f"), 0, LEN, 100 + N - 1, 0);
}

TEST_MAIN
