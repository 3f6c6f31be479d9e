/*
 * A file that grows is shared: whatever fails, what another process has written stays.
 *
 * A neighbour, in a process of its own, extends the file behind the range of a write that fails:
 * for want of room, by a cancel, by its time-out.  In this process fallocate(2) and ftruncate(2)
 * are watched.  The library needs neither for a write.  Where it calls them all the same, they let
 * the neighbour write at the worst moment.
 */
#include "tests/harness.h"
#include "tests/stores.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SEED_OURS 1
#define SEED_THEIRS 2
#define RECORD_BYTES (64 * KIB)
#define RECORDS 32u

/* ---- the neighbour ---- */

enum neighbour_kind { NEIGHBOUR_PLAIN, NEIGHBOUR_DIRECT, NEIGHBOUR_DAEMON };

/* Shared with the neighbour. */
struct board {
	_Atomic uint32_t n_wanted; /* records that it may write */
	_Atomic uint32_t n_tried;
	_Atomic bool is_durable[RECORDS]; /* written and synced without an error */
};

static struct {
	struct board *board;
	pid_t pid;
	const char *path;
	uint64_t off; /* of the first record */
	enum neighbour_kind kind;
	_Atomic bool is_armed; /* watched calls let it write */
	unsigned n_truncations, n_allocations;
} watch;

static void neighbour_write(int fd, struct rig *rig, const void *memory, uint32_t i)
{
	const uint64_t off = watch.off + i * RECORD_BYTES;
	int64_t r;

	if (watch.kind == NEIGHBOUR_DAEMON) {
		r = dsaio_pwrite(rig->handle, rig->files[0], memory, RECORD_BYTES, off);
		if (r == (int64_t)RECORD_BYTES)
			r = dsaio_fsync(rig->handle, rig->files[0], 0);
	} else {
		r = pwrite(fd, memory, RECORD_BYTES, (off_t)off);
		r = r == (int64_t)RECORD_BYTES ? fsync(fd) : -1;
	}
	atomic_store(&watch.board->is_durable[i], r == 0);
	atomic_store(&watch.board->n_tried, i + 1);
}

static _Noreturn void neighbour_main(const struct daemon *daemon)
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	void *memory = mmap(NULL, RECORD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	int fd = -1;

	CHECK(memory != MAP_FAILED);
	if (watch.kind == NEIGHBOUR_DAEMON) {
		rig.client = client_open(daemon);
		CHECK_CALL(dsaio_handle_open(rig.client, NULL, &rig.handle));
		rig_file(&rig, watch.path, O_RDWR);
	} else if (watch.kind == NEIGHBOUR_DIRECT) {
		fd = open_direct(watch.path, O_RDWR);
	} else {
		fd = (int)CHECK_SYS(open(watch.path, O_RDWR | O_CLOEXEC));
	}
	for (uint32_t i = 0; i < RECORDS; i++) {
		while (atomic_load(&watch.board->n_wanted) <= i)
			(void)usleep(1000);
		pattern_fill(memory, RECORD_BYTES, SEED_THEIRS, watch.off + i * RECORD_BYTES);
		neighbour_write(fd, &rig, memory, i);
	}
	_exit(0); /* what it has open goes with it */
}

/* Forks it; the file is there. */
static void neighbour_start(enum neighbour_kind kind, const struct daemon *daemon, const char *path,
			    uint64_t off)
{
	watch.board = mmap(NULL, sizeof(*watch.board), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(watch.board != MAP_FAILED);
	watch.path = path;
	watch.off = off;
	watch.kind = kind;
	watch.pid = (pid_t)CHECK_SYS(fork());
	if (watch.pid == 0)
		neighbour_main(daemon);
}

/* It tries so many records in all; waits until it has. */
static void neighbour_reach(uint32_t n_records)
{
	if (n_records > RECORDS)
		n_records = RECORDS;
	if (atomic_load(&watch.board->n_wanted) < n_records)
		atomic_store(&watch.board->n_wanted, n_records);
	while (atomic_load(&watch.board->n_tried) < n_records)
		(void)usleep(1000);
}

/* Every record that was reported to it exists.  Returns their number. */
static unsigned neighbour_check(void)
{
	unsigned n_durable = 0;

	neighbour_reach(RECORDS);
	child_wait_ok(watch.pid);
	for (uint32_t i = 0; i < RECORDS; i++) {
		const uint64_t off = watch.off + i * RECORD_BYTES;

		if (!atomic_load(&watch.board->is_durable[i]))
			continue;
		n_durable++;
		CHECK_MSG(file_size(watch.path) >= off + RECORD_BYTES,
			  "record %u ends at %" PRIu64 ", the file at %" PRIu64, i,
			  off + RECORD_BYTES, file_size(watch.path));
		file_check_pattern(watch.path, off, RECORD_BYTES, SEED_THEIRS, off);
	}
	return n_durable;
}

/* ---- watched calls; in place of the C library's: the linker takes the first ---- */

/* Another record, or two: one at least began after this call did. */
static void let_neighbour_write(void)
{
	if (watch.is_armed)
		neighbour_reach(atomic_load(&watch.board->n_tried) + 2);
}

int fallocate(int fd, int mode, off_t off, off_t len)
{
	long r = syscall(SYS_fallocate, fd, mode, off, len);
	int error = errno;

	watch.n_allocations += watch.is_armed;
	let_neighbour_write();
	errno = error;
	return (int)r;
}

int ftruncate(int fd, off_t size)
{
	watch.n_truncations += watch.is_armed;
	let_neighbour_write();
	return (int)syscall(SYS_ftruncate, fd, size);
}

/* ---- no room ---- */

#define STORE_BYTES (64 * MIB)
#define LEFT_BYTES (4 * MIB)
#define OP_BYTES (16 * MIB)

/* Takes all room but left bytes. */
static void fill(const struct store *store, uint64_t left)
{
	_cleanup_(closep) int keep = (int)CHECK_SYS(
		open(store_path(store, "left"), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	_cleanup_(closep) int fd = (int)CHECK_SYS(
		open(store_path(store, "filler"), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	off_t end = 0;

	CHECK_SYS(fallocate(keep, 0, 0, (off_t)left));
	for (off_t piece = (off_t)(64 * MIB); piece >= 4096;) {
		if (fallocate(fd, 0, end, piece) == 0) {
			end += piece;
			continue;
		}
		CHECK_MSG(errno == ENOSPC, "%s", strerror(errno));
		piece /= 2;
	}
	CHECK_SYS(ftruncate(keep, 0)); /* unlike unlink(), that room is there at once */
}

static const struct {
	const char *what;
	enum neighbour_kind kind;
	bool is_pinned;
} no_room[] = {
	{ "pinned; it by write(2)", NEIGHBOUR_PLAIN, true },
	{ "private; it by write(2)", NEIGHBOUR_PLAIN, false },
	{ "pinned; it by the daemon, too", NEIGHBOUR_DAEMON, true },
};

TEST_STORES(full, STORE_OVERLAY, no_room,
	    "a write finds the disk full: what a neighbour wrote behind it and synced stays")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(guarded_free) struct guarded memory = { 0 };
	struct store store;
	const char *path;
	unsigned n_failed = 0, n_durable;
	struct dsaio_op *op;

	store_make(&store, kind, STORE_BYTES);
	path = store_path(&store, "f");
	rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("full=%s", store.path)));
	file_make_pattern(path, 4096, SEED_OURS);
	{ /* its records have their blocks, so they do not fail for want of room */
		_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_RDWR | O_CLOEXEC));

		CHECK_SYS(fallocate(fd, 1 /* FALLOC_FL_KEEP_SIZE */, OP_BYTES,
				    RECORDS * RECORD_BYTES));
	}
	fill(&store, LEFT_BYTES);
	neighbour_start(no_room[row].kind, rig.daemon, path, OP_BYTES);
	rig_open(&rig, NULL);
	guarded_new(&memory, no_room[row].is_pinned ? rig.client : NULL, OP_BYTES, 0);
	pattern_fill(memory.memory, OP_BYTES, SEED_OURS, 0);
	rig_file(&rig, path, O_RDWR);
	for (uint32_t i = 0; i < RECORDS; i += 4) { /* it writes while we fail */
		watch.is_armed = true;
		CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], memory.memory, OP_BYTES, 0,
					      &op));
		if (atomic_load(&watch.board->n_wanted) < i + 4)
			atomic_store(&watch.board->n_wanted, i + 4);
		n_failed += op_wait(op, -1) == -ENOSPC;
		watch.is_armed = false;
		dsaio_op_free(op);
		neighbour_reach(i + 4);
	}
	CHECK(n_failed);
	n_durable = neighbour_check();
	test_note("%u of %u records were written and synced", n_durable, RECORDS);
	CHECK(n_durable);
	CHECK_EQ(watch.n_truncations, 0);
	CHECK_EQ(watch.n_allocations, 0);
	CHECK(daemon_is_alive(rig.daemon));
}

/* ---- stopped ---- */

static const struct {
	const char *what;
	enum neighbour_kind kind;
	bool is_timeout, is_pinned;
} stopped[] = {
	{ "cancelled; it by O_DIRECT", NEIGHBOUR_DIRECT, false, true },
	{ "cancelled; it by the daemon, too", NEIGHBOUR_DAEMON, false, true },
	{ "private memory, cancelled; it by O_DIRECT", NEIGHBOUR_DIRECT, false, false },
	{ "timed out; it by O_DIRECT", NEIGHBOUR_DIRECT, true, true },
};

TEST_TABLE(stop, stopped, "a write is stopped: what a neighbour wrote behind it stays")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	_cleanup_(guarded_free) struct guarded memory = { 0 };
	/* One small block at a time, so that there is much to stop. */
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	struct dsaio_handle *handle;
	const uint64_t len = 32 * MIB;
	struct dsaio_op *op;
	uint64_t size;
	const char *path;

	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, 4096, SEED_OURS);
	neighbour_start(stopped[row].kind, rig.daemon, path, len);
	profile.block_size = 4096;
	profile.queue_depth = 1;
	options.profile = &profile;
	if (stopped[row].is_timeout)
		options.op_timeout_usec = 20000;
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &handle));
	guarded_new(&memory, stopped[row].is_pinned ? rig.client : NULL, len, 0);
	rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_pwrite_async(handle, rig.files[0], memory.memory, len, 0, &op));
	watch.is_armed = true;
	if (!stopped[row].is_timeout)
		CHECK_CALL(dsaio_op_cancel(op));
	CHECK_EQ(op_wait(op, -1), stopped[row].is_timeout ? -ETIMEDOUT : -ECANCELED);
	watch.is_armed = false;
	size = file_size(path);
	CHECK(dsaio_op_bytes(op) < len);
	CHECK(strstr(dsaio_op_error(op),
		     test_text("the file's size is now %" PRIu64 " bytes", size)));
	CHECK_EQ(neighbour_check(), RECORDS);
	CHECK_EQ(watch.n_truncations, 0);
	dsaio_op_free(op);
	(void)dsaio_handle_close(handle, -1);
}

/* ---- too large ---- */

static const struct {
	const char *what;
	bool is_pinned;
} large[] = { { "pinned", true }, { "private", false } };

TEST_STORES(too_large, STORE_TMPFS, large,
	    "a write that has no room in the file system leaves others room until it comes there")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(guarded_free) struct guarded memory = { 0 };
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	const uint64_t room = 160 * MIB, len = 256 * MIB;
	struct dsaio_handle *handle;
	struct store store;
	struct statvfs fs;
	struct dsaio_op *op;
	const char *path;

	store_make(&store, kind, 320 * MIB);
	path = store_path(&store, "f");
	file_make_pattern(path, 4096, SEED_OURS);
	fill(&store, room);
	/* Its records are another file's. */
	file_make_pattern(store_path(&store, "theirs"), 4096, SEED_THEIRS);
	rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("large=%s", store.path)));
	neighbour_start(NEIGHBOUR_PLAIN, rig.daemon, store_path(&store, "theirs"), 4096);
	rig_open(&rig, NULL);
	profile.block_size = 4096;
	profile.queue_depth = 1;
	CHECK_CALL(profile_open(rig.client, &profile, &handle));
	guarded_new(&memory, large[row].is_pinned ? rig.client : NULL, len, 0);
	rig_file(&rig, path, O_RDWR);
	watch.is_armed = true;
	CHECK_CALL(dsaio_pwrite_async(handle, rig.files[0], memory.memory, len, 0, &op));
	watch.is_armed = false;
	while (file_size(path) == 4096 && !op_is_done(op)) /* its first step */
		(void)usleep(1000);
	CHECK_EQ(neighbour_check(), RECORDS);
	CHECK_SYS(statvfs(store.path, &fs));
	test_note("%" PRIu64 " MiB are left", (uint64_t)fs.f_bfree * fs.f_frsize / MIB);
	CHECK_MSG(!op_is_done(op), "%s", dsaio_op_error(op));
	CHECK_CALL(dsaio_op_cancel(op));
	CHECK_EQ(op_wait(op, -1), -ECANCELED);
	dsaio_op_free(op);
	(void)dsaio_handle_close(handle, -1);
}

/* ---- whole ---- */

static const struct {
	const char *what;
	uint64_t len, off;
	bool is_pinned;
} whole[] = {
	{ "aligned", 200 * MIB, 0, true },
	{ "odd ends", 200 * MIB + 77, 4096 + 13, true },
	{ "private memory, odd ends", 130 * MIB + 77, 13, false },
};

TEST_STORES(steps, STORE_OVERLAY, whole,
	    "a write of several steps is whole, and the file no longer")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(guarded_free) struct guarded memory = { 0 };
	struct store store;
	const char *path;

	store_make(&store, kind, 0);
	path = store_path(&store, "f");
	rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("steps=%s", store.path)));
	rig_open(&rig, NULL);
	guarded_new(&memory, whole[row].is_pinned ? rig.client : NULL, whole[row].len,
		    whole[row].off % 4096);
	pattern_fill(memory.memory, whole[row].len, SEED_OURS, whole[row].off);
	rig_file(&rig, path, O_RDWR | O_CREAT);
	CHECK_EQ(dsaio_pwrite(rig.handle, rig.files[0], memory.memory, whole[row].len,
			      whole[row].off),
		 whole[row].len);
	CHECK_EQ(file_size(path), whole[row].off + whole[row].len);
	file_check_pattern(path, whole[row].off, whole[row].len, SEED_OURS, whole[row].off);
}

/* ---- room ahead ---- */

/* A write of OWN_BYTES at 0 that says how long the file may become. */
#define OWN_BYTES MIB

struct kit {
	struct raw raw;
	struct raw_slab slab;
	struct raw_file file;
	struct raw_channel channel;
};

static void kit_open(struct kit *kit, const struct daemon *daemon, const char *path)
{
	*kit = (struct kit){ .raw = RAW_NONE };
	file_make_sparse(path, 0);
	raw_open(&kit->raw, daemon);
	raw_slab(&kit->raw, OWN_BYTES, &kit->slab);
	raw_file(&kit->raw, path, O_RDWR, &kit->file);
	raw_channel(&kit->raw, raw_handle(&kit->raw), kit->file.store, 64, true, &kit->channel);
}

static int64_t kit_grow(struct kit *kit, uint64_t grow_end)
{
	return raw_run_one(&kit->channel, (struct ring_entry){ .opcode = RING_OP_WRITE,
							       .file = kit->file.id,
							       .slab = kit->slab.id,
							       .len = OWN_BYTES,
							       .grow_end = grow_end });
}

static void kit_close(struct kit *kit)
{
	raw_slab_unmap(&kit->slab);
	raw_channel_unmap(&kit->channel);
	raw_close(&kit->raw);
}

TEST(no_room_ahead, "a write that fits is whole where there is no room for those behind it")
{
	struct store store;
	struct daemon *daemon;
	struct kit kit;

	store_make(&store, STORE_EXT4, 32 * MIB);
	daemon = daemon_start_with(&(struct daemon_options){ .store_dir = store.path });
	kit_open(&kit, daemon, daemon_path(daemon, "f"));
	CHECK_EQ(kit_grow(&kit, 64 * MIB), OWN_BYTES);
	kit_close(&kit);
}

TEST(forgotten, "the room that was made ahead is forgotten with the last op of a file")
{
	struct daemon *daemon = daemon_start(NULL);
	const char *path = daemon_path(daemon, "f");
	uint64_t size;
	struct kit kit;

	kit_open(&kit, daemon, path);
	CHECK_EQ(kit_grow(&kit, 8 * MIB), OWN_BYTES);
	size = file_size(path);
	if (size == OWN_BYTES)
		test_skip("no room is made ahead on this file system");
	CHECK_SYS(truncate(path, 0)); /* unnoticed by the daemon */
	CHECK_EQ(kit_grow(&kit, 8 * MIB), OWN_BYTES);
	CHECK_EQ(file_size(path), size);
	kit_close(&kit);
}

TEST_MAIN
