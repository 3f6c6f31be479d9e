/*
 * A table of faults: what an engine can do to one request of an op, at its submission and at its completion, at the
 * first block, in the middle and at the last.
 *
 * Each cell: the op ends with the right errno, message and bytes done; its other blocks are done; no byte
 * beside its range has changed; nothing changes after its end; the next op works.  Then nothing has leaked.
 */
#include "daemon/engine/fault.h"
#include "tests/fuse.h"
#include "tests/restarting.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK (64 * KIB)
#define N_BLOCKS 8u
#define LEN (N_BLOCKS * BLOCK)
/* The op's range in the file, with as much around it. */
#define START LEN
#define FILE_LEN (3 * LEN)
#define SEED_OLD 1
#define SEED_NEW 2
#define DELAY_USEC 20000
#define FUSE_USEC 500
#define FAULT_LINE " of operation "
#define AT_LIBAIO (1u << ENGINE_LIBAIO)
#define AT_THREADS (1u << ENGINE_THREADS)
#define SYNCS (1u << BLOCK_FSYNC | 1u << BLOCK_FDATASYNC)

static const struct row {
	const char *what;
	enum store_kind store;	     /* N_STORE_KINDS: FUSE, where threads are the engine */
	uint32_t engines, operation; /* enum block_operation */
	bool at_completion;
} rows[] = {
	{ "libaio, read, submission", STORE_EXT4, AT_LIBAIO, BLOCK_READ, false },
	{ "libaio, read, completion", STORE_EXT4, AT_LIBAIO, BLOCK_READ, true },
	{ "libaio, write, submission", STORE_EXT4, AT_LIBAIO, BLOCK_WRITE, false },
	{ "libaio, write, completion", STORE_EXT4, AT_LIBAIO, BLOCK_WRITE, true },
	{ "libaio on tmpfs, read, submission", STORE_TMPFS, AT_LIBAIO, BLOCK_READ, false },
	{ "libaio on tmpfs, read, completion", STORE_TMPFS, AT_LIBAIO, BLOCK_READ, true },
	{ "threads on tmpfs, write, submission", STORE_TMPFS, AT_THREADS, BLOCK_WRITE, false },
	{ "threads on tmpfs, write, completion", STORE_TMPFS, AT_THREADS, BLOCK_WRITE, true },
	{ "threads, read, submission", N_STORE_KINDS, AT_THREADS, BLOCK_READ, false },
	{ "threads, read, completion", N_STORE_KINDS, AT_THREADS, BLOCK_READ, true },
	{ "threads, sync, submission", STORE_EXT4, AT_THREADS, BLOCK_FSYNC, false },
	{ "threads, sync, completion", STORE_EXT4, AT_THREADS, BLOCK_FSYNC, true },
	{ "threads, extension, submission", STORE_EXT4, AT_THREADS, BLOCK_EXTEND, false },
	{ "threads, extension, completion", STORE_EXT4, AT_THREADS, BLOCK_EXTEND, true },
};

enum { KIND_HELD = 9 };
static const struct {
	const char *name;
	enum fault_kind kind;
	int error;
} kinds[] = {
	{ "EIO", FAULT_ERROR, EIO },	      { "ENOSPC", FAULT_ERROR, ENOSPC },
	{ "EDQUOT", FAULT_ERROR, EDQUOT },    { "EROFS", FAULT_ERROR, EROFS },
	{ "EAGAIN", FAULT_ERROR, EAGAIN },    { "EINTR", FAULT_ERROR, EINTR },
	{ "short", FAULT_SHORT, 0 },	      { "scant", FAULT_SCANT, 0 },
	{ "delayed", FAULT_DELAY, 0 },	      { "held", FAULT_NEVER, 0 },
	{ "out of order", FAULT_REORDER, 0 },
};

struct scene {
	const struct row *row;
	struct store store;
	struct fuse fuse;
	struct rig rig;
	struct fault_plan *plan;
	struct guarded memory, poke;
	struct dsaio_file *file;
	const char *path;
	uint64_t seed;	  /* of the file */
	const char *cell; /* for messages */
};

/* The request that got the fault. */
struct hit {
	uint64_t off; /* in the op */
	uint32_t len;
};

static struct fault_plan *plan_new(const char *path)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(
		open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
	void *plan;

	CHECK_SYS(ftruncate(fd, sizeof(struct fault_plan)));
	plan = mmap(NULL, sizeof(struct fault_plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(plan != MAP_FAILED);
	return plan;
}

static void plan_end(struct scene *scene)
{
	scene->plan->kind = FAULT_NONE;
	atomic_fetch_add(&scene->plan->serial, 1);
}

static void plan_set(struct scene *scene, unsigned kind, unsigned k)
{
	const struct row *row = scene->row;
	struct fault_plan *plan = scene->plan;

	plan->kind = (uint32_t)kinds[kind].kind;
	plan->error = (uint32_t)kinds[kind].error;
	plan->operations = row->operation == BLOCK_FSYNC ? SYNCS : 1u << row->operation;
	plan->engines = row->engines;
	plan->at_completion = row->at_completion;
	plan->skip = k;
	plan->n = 1;
	plan->delay_usec = DELAY_USEC;
	atomic_fetch_add(&plan->serial, 1);
}

static bool is_read(const struct scene *scene)
{
	return scene->row->operation == BLOCK_READ;
}

static bool moves_bytes(const struct scene *scene)
{
	return scene->row->operation <= BLOCK_WRITE;
}

static bool is_fuse(const struct scene *scene)
{
	return scene->row->store == N_STORE_KINDS;
}

/* Reads of FUSE take a while: the other blocks of an op that has failed are still under way. */
static void slow_down(const struct scene *scene, bool is_slow)
{
	if (is_fuse(scene))
		atomic_store(&scene->fuse.control->delay_usec, is_slow ? FUSE_USEC : 0);
}

static void scene_init(struct scene *scene, const struct row *row)
{
	const char *plan_path = test_text("%s/plan", test_dir());
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;

	*scene = (struct scene){ .row = row, .rig = RIG_NONE };
	scene->seed = SEED_OLD;
	if (is_fuse(scene)) {
		test_needs_root();
		fuse_start(&scene->fuse, 0);
		scene->store.path = scene->fuse.dir;
		scene->seed = FUSE_SEED;
		scene->path = fuse_path(&scene->fuse, 'a');
		atomic_store(&scene->fuse.control->delay_usec,
			     500); /* so that it is seen to wait */
	} else {
		store_make(&scene->store, row->store, 0);
		scene->path = store_path(&scene->store, "f");
	}
	scene->plan = plan_new(plan_path);
	scene->rig.daemon = daemon_start(DAEMON_ARGS(
		"--store", test_text("faulty=%s", scene->store.path), "--fault-plan", plan_path));
	if (is_fuse(scene))
		daemon_log_wait(scene->rig.daemon, "worker threads are its engine");
	slow_down(scene, false);
	profile.block_size = (uint32_t)BLOCK;
	profile.queue_depth = N_BLOCKS;
	rig_open(&scene->rig, &profile);
	guarded_new(&scene->memory, scene->rig.client, LEN, 0);
	guarded_new(&scene->poke, scene->rig.client, 4096, 0);
}

static void scene_deinit(struct scene *scene)
{
	guarded_free(&scene->memory);
	guarded_free(&scene->poke);
	rig_close(&scene->rig);
}

/* The file as before each op: an extension has only what lies before its range. */
static void file_reset(struct scene *scene)
{
	const bool extends = scene->row->operation == BLOCK_EXTEND;

	if (scene->file)
		dsaio_file_close(scene->file);
	CHECK_CALL(dsaio_file_drop(scene->rig.client, scene->path));
	if (!is_fuse(scene))
		file_make_pattern(scene->path, extends ? START : FILE_LEN, SEED_OLD);
	CHECK_CALL(dsaio_open(scene->rig.client, scene->path, O_RDWR, NULL, &scene->file));
	memset(scene->memory.memory, 0, LEN);
	if (!is_read(scene))
		pattern_fill(scene->memory.memory, LEN, SEED_NEW, START);
}

static void op_start(struct scene *scene, struct dsaio_op **ret_op)
{
	struct dsaio_handle *handle = scene->rig.handle;

	if (scene->row->operation == BLOCK_FSYNC)
		CHECK_CALL(dsaio_fsync_async(handle, scene->file, 0, ret_op));
	else if (is_read(scene))
		CHECK_CALL(dsaio_pread_async(handle, scene->file, scene->memory.memory, LEN, START,
					     ret_op));
	else
		CHECK_CALL(dsaio_pwrite_async(handle, scene->file, scene->memory.memory, LEN, START,
					      ret_op));
}

/* Another op of the channel wakes the lane. */
static void poke(struct scene *scene)
{
	CHECK_EQ(dsaio_pread(scene->rig.handle, scene->file, scene->poke.memory, 4096, 0), 4096);
	pattern_check(scene->poke.memory, 4096, scene->seed, 0, scene->cell);
}

/* The newest line of the log about a fault, after n_before of them. */
static struct hit hit_read(const struct scene *scene, unsigned n_before)
{
	_cleanup_(fclosep) FILE *log = fopen(scene->rig.daemon->log_path, "re");
	char line[1024], last[1024] = "";
	struct hit hit = { 0 };
	unsigned n = 0;

	CHECK(log);
	while (fgets(line, sizeof(line), log))
		if (strstr(line, FAULT_LINE)) {
			n++;
			memcpy(last, line, sizeof(last));
		}
	CHECK_MSG(n == n_before + 1, "%s: %u faults", scene->cell, n - n_before);
	CHECK_MSG(sscanf(strstr(last, FAULT_LINE), FAULT_LINE "%*u, %" SCNu32 " bytes at %" SCNu64,
			 &hit.len, &hit.off) == 2,
		  "%s", last);
	hit.off -= moves_bytes(scene) ? START : 0;
	return hit;
}

/* The errno that the op ends with, or 0.  *ret_done: its bytes done. */
static int expected(const struct scene *scene, unsigned kind, const struct hit *hit,
		    uint64_t *ret_done)
{
	const struct row *row = scene->row;
	const bool is_libaio = row->engines == AT_LIBAIO;
	const int error = kinds[kind].error;

	*ret_done = row->operation == BLOCK_FSYNC ? 0 : LEN;
	switch (kinds[kind].kind) {
	case FAULT_ERROR:
		/* The lane repeats the request, or a worker carries it out. */
		if (is_libaio && (error == EAGAIN || error == EINTR))
			return 0;
		*ret_done = moves_bytes(scene) ? hit->off : 0;
		return error;
	case FAULT_SHORT:
	case FAULT_SCANT:
		/* The threads continue a short call themselves.  One that is short in the end is at the
		   end of the file or, as a write, has an error without a number. */
		if (is_libaio || !row->at_completion || !moves_bytes(scene))
			return 0;
		*ret_done = hit->off + (kinds[kind].kind == FAULT_SHORT ? hit->len - 1 : 1);
		return is_read(scene) ? 0 : EIO;
	default:
		return 0;
	}
}

/* Each byte of the range that was to be written is the old or the new one; those done are new. */
static void check_written(const struct scene *scene, uint64_t done)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(scene->path, O_RDONLY | O_CLOEXEC));
	static uint8_t bytes[LEN], old[LEN], new[LEN];
	const ssize_t n = CHECK_SYS(pread(fd, bytes, LEN, START));

	CHECK_MSG((uint64_t)n >= done, "%s: %zd bytes there", scene->cell, n);
	pattern_fill(old, LEN, SEED_OLD, START);
	pattern_fill(new, LEN, SEED_NEW, START);
	if (scene->row->operation == BLOCK_EXTEND)
		memset(old, 0, LEN);
	for (ssize_t i = 0; i < n; i++)
		CHECK_MSG(bytes[i] == new[i] || ((uint64_t)i >= done && bytes[i] == old[i]),
			  "%s: byte %zd is neither", scene->cell, i);
	/* Blocks beside the one with the fault are done, in a write of several that failed, too. */
	file_check_pattern(scene->path, 0, START, SEED_OLD, 0);
	if (scene->row->operation != BLOCK_EXTEND)
		file_check_pattern(scene->path, START + LEN, FILE_LEN - START - LEN, SEED_OLD,
				   START + LEN);
}

static void check_bytes(const struct scene *scene, uint64_t done)
{
	guarded_check(&scene->memory, scene->cell);
	if (is_read(scene)) {
		pattern_check(scene->memory.memory, done, scene->seed, START, scene->cell);
		file_check_pattern(scene->path, 0, FILE_LEN, scene->seed, 0);
	} else if (scene->row->operation != BLOCK_FSYNC) {
		check_written(scene, done);
	}
}

/* After its end the op changes nothing. */
static void check_drained(struct scene *scene)
{
	if (!is_read(scene))
		return;
	memset(scene->memory.memory, 0x5a, LEN);
	poke(scene);
	for (size_t i = 0; i < LEN; i++)
		CHECK_MSG(scene->memory.memory[i] == 0x5a, "%s: byte %zu came after the end",
			  scene->cell, i);
}

static void op_check(struct scene *scene, struct dsaio_op *op, int error, uint64_t done)
{
	const int64_t result = op_wait(op, 20000000), wanted = error ? -error : (int64_t)done;

	CHECK_MSG(result == wanted, "%s: %" PRId64 " instead of %" PRId64 ": %s", scene->cell,
		  result, wanted, dsaio_op_error(op));
	CHECK_MSG(dsaio_op_bytes(op) == done, "%s: %" PRIu64 " bytes instead of %" PRIu64,
		  scene->cell, dsaio_op_bytes(op), done);
	if (error)
		CHECK_MSG(strstr(dsaio_op_error(op), scene->path) &&
				  strstr(dsaio_op_error(op), strerror(error)),
			  "%s: %s", scene->cell, dsaio_op_error(op));
	dsaio_op_free(op);
}

static void cell(struct scene *scene, unsigned kind, unsigned k)
{
	const unsigned n_before = daemon_log_count(scene->rig.daemon, FAULT_LINE);
	/* A sync or an extension has nothing to cut. */
	const bool is_cut = kinds[kind].kind == FAULT_SHORT || kinds[kind].kind == FAULT_SCANT;
	struct dsaio_op *op;
	struct hit hit = { 0 };
	uint64_t done;
	int error;

	scene->cell = test_text("%s, %s at block %u", scene->row->what, kinds[kind].name, k);
	file_reset(scene);
	plan_set(scene, kind, k);
	slow_down(scene, true);
	op_start(scene, &op);
	if (kinds[kind].kind == FAULT_NEVER) {
		while (daemon_log_count(scene->rig.daemon, FAULT_LINE) == n_before)
			(void)poll(NULL, 0, 1);
		CHECK_MSG(!op_is_done(op), "%s", scene->cell);
		plan_end(scene);
		poke(scene);
	}
	(void)op_wait(op, 20000000);
	slow_down(scene, false);
	if (!is_cut || moves_bytes(scene))
		hit = hit_read(scene, n_before);
	error = expected(scene, kind, &hit, &done);
	op_check(scene, op, error, done);
	check_bytes(scene, done);
	check_drained(scene);
	plan_end(scene);

	file_reset(scene);
	op_start(scene, &op);
	op_check(scene, op, 0, scene->row->operation == BLOCK_FSYNC ? 0 : LEN);
	check_bytes(scene, LEN);
}

TEST_TABLE(table, rows, "a fault at one block")
{
	static const unsigned blocks[] = { 0, N_BLOCKS / 2, N_BLOCKS - 1 };
	_cleanup_(scene_deinit) struct scene scene;
	struct usage before;

	scene_init(&scene, &rows[row]);
	cell(&scene, 0, 0); /* the threads and the memory that stay */
	before = daemon_usage_settled(scene.rig.daemon);
	for (unsigned kind = 0; kind < ARRAY_SIZE(kinds); kind++)
		for (unsigned k = 0; k < (moves_bytes(&scene) ? ARRAY_SIZE(blocks) : 1); k++)
			cell(&scene, kind, blocks[k]);
	daemon_usage_back(scene.rig.daemon, &before);
}

/* A scene of that row whose next request gets the fault. */
static void scene_begin(struct scene *scene, unsigned row, const char *cell, unsigned kind)
{
	scene_init(scene, &rows[row]);
	scene->cell = cell;
	file_reset(scene);
	plan_set(scene, kind, 0);
}

TEST(hung,
     "a block that the device does not answer is reported with its store and age, until it returns")
{
	_cleanup_(scene_deinit) struct scene scene;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	const Wire__StatusReply *status;
	struct dsaio_op *op;

	scene_begin(&scene, 0, "hung", KIND_HELD);
	op_start(&scene, &op);
	daemon_log_wait(scene.rig.daemon, ": block has not come back for ");
	CHECK(daemon_log_has(scene.rig.daemon, "store t: block has not") ||
	      daemon_log_has(scene.rig.daemon, "store faulty: block has not"));
	CHECK(daemon_log_has(scene.rig.daemon, "dmesg") &&
	      !daemon_log_has(scene.rig.daemon, "pkill"));
	daemon_status(scene.rig.daemon, &answer);
	status = answer.reply->status;
	CHECK_EQ(status->n_hung, 1);
	CHECK(strcmp(status->hung[0]->what, "block") == 0);
	CHECK_EQ(status->hung[0]->uid, geteuid());
	CHECK(status->hung[0]->usec >= 5000000);
	poke(&scene); /* others are served */
	CHECK(!op_is_done(op));
	plan_end(&scene);
	poke(&scene);
	op_check(&scene, op, 0, LEN);
	daemon_log_wait(scene.rig.daemon, ": block came back after ");
	CHECK_EQ(daemon_log_count(scene.rig.daemon, ": block has not come back for "), 1);
}

TEST(truncated, "a plan that is cut beneath the daemon has no faults")
{
	_cleanup_(scene_deinit) struct scene scene;
	struct dsaio_op *op;

	scene_begin(&scene, 0, "truncated", 0);
	CHECK_SYS(truncate(test_text("%s/plan", test_dir()), 0));
	op_start(&scene, &op);
	op_check(&scene, op, 0, LEN);
}

TEST(stop, "a daemon that stops while a block is held ends when the plan changes")
{
	_cleanup_(scene_deinit) struct scene scene;
	struct dsaio_op *op;

	scene_begin(&scene, 0, "stop", KIND_HELD);
	op_start(&scene, &op);
	daemon_log_wait(scene.rig.daemon, FAULT_LINE);
	CHECK_SYS(kill(scene.rig.daemon->pid, SIGTERM));
	daemon_log_wait(scene.rig.daemon, "stopping on");
	plan_end(&scene);
	daemon_wait_end(scene.rig.daemon, 0);
	CHECK_EQ(op_wait(op, 20000000), LEN);
	dsaio_op_free(op);
}

static long switches(void)
{
	static const char word[] = "voluntary_ctxt_switches:";
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/task");
	char line[256], name[32];
	long n, sum = 0;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		_cleanup_(fclosep) FILE *file = fopen(
			test_text("/proc/self/task/%s/status", entry->d_name), "re");
		bool is_ours = false;

		while (file && fgets(line, sizeof(line), file)) {
			if (sscanf(line, "Name: %31s", name) == 1)
				is_ours = strcmp(name, "dsaio") == 0;
			else if (is_ours && strncmp(line, word, strlen(word)) == 0 &&
				 sscanf(line + strlen(word), "%ld", &n) == 1)
				sum += n;
		}
	}
	(void)closedir(dir);
	return sum;
}

TEST(rest, "the library's thread sleeps after a copied op that waited for another was cancelled")
{
	_cleanup_(scene_deinit) struct scene scene;
	struct dsaio_op *first, *second;
	void *private;
	long before;

	scene_begin(&scene, 2, "rest", KIND_HELD); /* writes, by libaio */
	CHECK_EQ(posix_memalign(&private, 4096, LEN), 0);
	op_start(&scene, &first);
	daemon_log_wait(scene.rig.daemon, FAULT_LINE);
	CHECK_CALL(dsaio_pwrite_async(scene.rig.handle, scene.file, private, LEN, START, &second));
	(void)poll(NULL, 0, 20);
	CHECK_CALL(dsaio_op_cancel(second));
	(void)op_wait(second, -1);
	plan_end(&scene);
	op_check(&scene, first, 0, LEN);
	dsaio_op_free(second);
	free(private);
	(void)poll(NULL, 0, 100);
	before = switches();
	(void)poll(NULL, 0, 500);
	CHECK_MSG(switches() - before < 20, "%ld wake-ups in 0.5 s", switches() - before);
}

TEST(two_crashes, "an op that is in flight at two crashes in a row is not submitted a third time")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *path = test_text("%s/plan", test_dir());
	struct fault_plan *plan = plan_new(path);
	struct dsaio_file *file;
	struct dsaio_op *op;
	void *memory;

	plan->kind = FAULT_NEVER;
	plan->operations = 1u << BLOCK_READ;
	plan->engines = AT_LIBAIO | AT_THREADS;
	plan->n = 1;
	atomic_fetch_add(&plan->serial, 1);
	rig.daemon = daemon_start(DAEMON_ARGS("--fault-plan", path));
	reconnecting(&rig);
	file_make_pattern(daemon_path(rig.daemon, "f"), BLOCK, SEED_OLD);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, BLOCK, 0, &op));
	for (int i = 0; i < 2; i++) {
		while (!daemon_log_has(rig.daemon, FAULT_LINE)) /* waits see that it is gone */
			CHECK_EQ(dsaio_op_wait(op, 10000, &(int64_t){ 0 }), -ETIMEDOUT);
		daemon_kill(rig.daemon);
		rig.daemon = daemon_start(i ? NULL : DAEMON_ARGS("--fault-plan", path));
	}
	CHECK_EQ(op_wait(op, -1), -ECONNRESET);
	CHECK(strstr(dsaio_op_error(op), "two crashes"));
	dsaio_op_free(op);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, BLOCK, 0), BLOCK);
}

static const struct {
	const char *what, *words;
	mode_t mode;
	size_t bytes;
	uid_t uid;
} wrong[] = {
	{ "that others may write", "may change it", 0666, 64, 0 },
	{ "of another user", "may change it", 0644, 64, 65533 },
	{ "that is too short", "no regular file of at least", 0644, 4, 0 },
};

TEST_TABLE(refused, wrong, "a plan of faults is refused")
{
	const char *path = test_text("%s/plan", test_dir());
	const struct daemon_options options = { .args = DAEMON_ARGS("--fault-plan", path) };
	char *said;

	test_needs_root();
	(void)plan_new(path);
	CHECK_SYS(truncate(path, (off_t)wrong[row].bytes));
	CHECK_SYS(chmod(path, wrong[row].mode));
	CHECK_SYS(chown(path, wrong[row].uid, 0));
	CHECK_EQ(daemon_start_fails(&options, &said), 2);
	CHECK_MSG(strstr(said, wrong[row].words), "%s", said);
}

TEST_MAIN
