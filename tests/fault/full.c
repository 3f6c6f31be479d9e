/*
 * E13: the disk is full, while an extending write preallocates and while a write into a hole needs
 * blocks.  dsaio.h promises: a write is whole or fails, dsaio_op_bytes() says how many bytes from
 * its start are done, and the message of an extending write that fails says how long the file is.
 *
 * On file systems of the test's own, so as root.
 */
#include "tests/harness.h"
#include "tests/stores.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STORE_BYTES (64 * MIB)
#define LEFT_BYTES (4 * MIB) /* in the full file system */
#define OP_BYTES (16 * MIB)  /* what is asked of it */
#define SLACK_BYTES MIB	     /* file systems keep a little, and find a little more */
#define SEED_FILE 1
#define SEED_DATA 2

#define N_FULL_KINDS STORE_OVERLAY /* ext4, XFS, tmpfs */

static const struct {
	const char *what;
	struct range range; /* len: more or less than OP_BYTES */
} ways[] = {
	{ "pinned, aligned, blocking", { 0, 0, 0, true, false } },
	{ "pinned, aligned, async", { 0, 0, 0, true, true } },
	{ "pinned, odd offset and length", { 77, 13, 0, true, true } },
	{ "pinned, odd address", { 0, 4096, 5, true, true } },
	{ "private, aligned, blocking", { 0, 0, 0, false, false } },
	{ "private, aligned, async", { 0, 0, 0, false, true } },
	{ "private, odd everything", { 77, 13, 5, false, true } },
};

struct full {
	struct store store;
	struct rig rig;
	struct guarded memory;
	struct range range;
	const char *path;
	int filler_fd;
	struct dsaio_file *file;
};
#define FULL_NONE               \
	{                       \
		.filler_fd = -1 \
	}

static void full_close(struct full *full)
{
	guarded_free(&full->memory);
	rig_close(&full->rig);
	closep(&full->filler_fd);
}

/* The store, a daemon with it and one of its own for the client beside, data to write. */
static void full_open(struct full *full, enum store_kind kind, int row)
{
	struct store *store = &full->store;

	store_make(store, kind, STORE_BYTES);
	full->path = store_path(store, "f");
	full->rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("full=%s", store->path)));
	beside_start(full->rig.daemon);
	rig_open(&full->rig, NULL);
	full->range = ways[row].range;
	full->range.len += OP_BYTES;
	guarded_new(&full->memory, full->range.is_pinned ? full->rig.client : NULL, full->range.len,
		    full->range.misalign);
	pattern_fill(full->memory.memory, full->range.len, SEED_DATA, full->range.off);
	full->filler_fd = (int)CHECK_SYS(
		open(store_path(store, "filler"), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

/* Takes all room but left bytes, in ever smaller pieces. */
static void fill(struct full *full, uint64_t left)
{
	_cleanup_(closep) int keep = (int)CHECK_SYS(
		open(store_path(&full->store, "left"), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	off_t end = 0;

	if (left)
		CHECK_SYS(fallocate(keep, 0, 0, (off_t)left));
	for (off_t piece = (off_t)(64 * MIB); piece >= 4096;) {
		if (fallocate(full->filler_fd, 0, end, piece) == 0) {
			end += piece;
			continue;
		}
		CHECK_MSG(errno == ENOSPC, "%s", strerror(errno));
		piece /= 2;
	}
	CHECK_SYS(ftruncate(keep, 0)); /* unlike unlink(), that room is there at once */
}

static void empty(struct full *full)
{
	CHECK_SYS(ftruncate(full->filler_fd, 0));
}

/* "failed after N bytes: ...", "failed: ..." */
static uint64_t reported_done(const char *message)
{
	const char *after = strstr(message, "failed after ");

	return after ? strtoull(after + strlen("failed after "), NULL, 10) : 0;
}

/* "...; the file's size is now N bytes: ..." */
static int64_t reported_size(const char *message)
{
	static const char before[] = "the file's size is now ";
	const char *after = strstr(message, before);

	return after ? strtoll(after + strlen(before), NULL, 10) : -1;
}

/* The write, which must fail for want of room; returns the bytes done. */
static uint64_t write_fails(struct full *full, const char *what, bool extends)
{
	const struct range *range = &full->range;
	struct dsaio_op *op = NULL;
	int64_t result, size;
	uint64_t done;

	if (!range->is_async) {
		CHECK_FAILS(dsaio_pwrite(full->rig.handle, full->file, full->memory.memory,
					 range->len, range->off),
			    -ENOSPC, "No space left");
		done = reported_done(dsaio_error());
		size = reported_size(dsaio_error());
	} else {
		CHECK_CALL(dsaio_pwrite_async(full->rig.handle, full->file, full->memory.memory,
					      range->len, range->off, &op));
		result = op_wait(op, -1);
		check_fails(what, result, -ENOSPC, dsaio_op_error(op), "No space left", __FILE__,
			    __LINE__);
		done = dsaio_op_bytes(op);
		CHECK_EQ(reported_done(dsaio_op_error(op)), done);
		size = reported_size(dsaio_op_error(op));
		dsaio_op_free(op);
		CHECK_EQ(handle_wait(full->rig.handle, -1), -ENOSPC);
	}
	CHECK_MSG(done < range->len, "%s: all is done, and it failed", what);
	CHECK_EQ(size, extends ? (int64_t)file_size(full->path) : -1);
	guarded_check(&full->memory, what);
	pattern_check(full->memory.memory, range->len, SEED_DATA, range->off, what);
	return done;
}

static void write_succeeds(struct full *full, const char *what)
{
	const struct range *range = &full->range;

	CHECK_EQ(range_write(&full->rig, full->file, full->memory.memory, range), range->len);
	if (range->is_async)
		CHECK_EQ(handle_wait(full->rig.handle, -1), 1);
	CHECK_EQ(dsaio_fsync(full->rig.handle, full->file, 0), 0);
	guarded_check(&full->memory, what);
	file_check_pattern(full->path, range->off, range->len, SEED_DATA, range->off);
}

TEST_STORES(preallocating, N_FULL_KINDS, ways, "E13 disk full while a new file is preallocated")
{
	_cleanup_(full_close) struct full full = FULL_NONE;
	uint64_t done;

	full_open(&full, kind, row);
	fill(&full, LEFT_BYTES);
	full.file = rig_file(&full.rig, full.path, O_RDWR | O_CREAT);
	done = write_fails(&full, "preallocating", true);
	CHECK(file_size(full.path) >= (done ? full.range.off + done : 0));
	CHECK(file_size(full.path) <= full.range.off + full.range.len);
	CHECK_EQ(dsaio_file_size(full.file), file_size(full.path));
	if (done)
		file_check_pattern(full.path, full.range.off, done, SEED_DATA, full.range.off);
	beside_ok();

	empty(&full);
	write_succeeds(&full, "room again");
	CHECK_EQ(file_size(full.path), full.range.off + full.range.len);
	beside_ok();
	CHECK(daemon_is_alive(full.rig.daemon));
}

TEST_STORES(growing, N_FULL_KINDS, ways, "E13 disk full while a file grows")
{
	const uint64_t old_size = 100001;
	_cleanup_(full_close) struct full full = FULL_NONE;
	uint64_t done;

	full_open(&full, kind, row);
	file_make_pattern(full.path, old_size, SEED_FILE);
	fill(&full, LEFT_BYTES);
	full.file = rig_file(&full.rig, full.path, O_RDWR);
	done = write_fails(&full, "growing", true);
	CHECK(file_size(full.path) <= full.range.off + full.range.len);
	file_check_pattern(full.path, full.range.off, done, SEED_DATA, full.range.off);
	if (full.range.off + done < old_size)
		file_check_pattern(full.path, full.range.off + done,
				   old_size - full.range.off - done, SEED_FILE,
				   full.range.off + done);
	else
		CHECK(file_size(full.path) >= full.range.off + done);
	beside_ok();

	empty(&full);
	write_succeeds(&full, "room again");
	beside_ok();
	CHECK(daemon_is_alive(full.rig.daemon));
}

TEST_STORES(writing, N_FULL_KINDS, ways, "E13 disk full while a hole is written")
{
	const uint64_t size = 2 * OP_BYTES;
	_cleanup_(full_close) struct full full = FULL_NONE;
	uint64_t done;

	full_open(&full, kind, row);
	file_make_sparse(full.path, size);
	fill(&full, LEFT_BYTES);
	full.file = rig_file(&full.rig, full.path, O_RDWR);
	done = write_fails(&full, "writing", false);
	CHECK_MSG(done <= LEFT_BYTES + SLACK_BYTES, "%" PRIu64 " bytes done", done);
	CHECK_EQ(file_size(full.path), size);
	file_check_pattern(full.path, full.range.off, done, SEED_DATA, full.range.off);
	beside_ok();

	empty(&full);
	write_succeeds(&full, "room again");
	CHECK_EQ(file_size(full.path), size);
	beside_ok();
	CHECK(daemon_is_alive(full.rig.daemon));
}

TEST_STORES(linked, N_FULL_KINDS, ways,
	    "E13 disk full: the sync that is linked to the write is skipped")
{
	_cleanup_(full_close) struct full full = FULL_NONE;
	struct dsaio_op *ops[2];

	full_open(&full, kind, row);
	file_make_sparse(full.path, 2 * OP_BYTES);
	fill(&full, LEFT_BYTES);
	full.file = rig_file(&full.rig, full.path, O_RDWR);
	{
		const struct dsaio_io ios[] = {
			{ .opcode = DSAIO_WRITE,
			  .file = full.file,
			  .buf = full.memory.memory,
			  .len = full.range.len,
			  .off = full.range.off },
			{ .opcode = DSAIO_FSYNC, .flags = DSAIO_LINKED, .file = full.file },
		};

		CHECK_EQ(dsaio_submit(full.rig.handle, ios, sizeof(ios[0]), 2, 0, ops), 2);
	}
	CHECK_EQ(op_wait(ops[1], -1), -ECANCELED);
	CHECK_EQ(op_wait(ops[0], -1), -ENOSPC);
	dsaio_op_free_many(ops, 2);
}

TEST_STORES(overwriting, N_FULL_KINDS, ways, "E13 disk full: what has its blocks is overwritten")
{
	_cleanup_(full_close) struct full full = FULL_NONE;

	full_open(&full, kind, row);
	full.file = rig_file(&full.rig, full.path, O_RDWR | O_CREAT);
	write_succeeds(&full, "while there is room");
	fill(&full, 0);
	pattern_fill(full.memory.memory, full.range.len, SEED_DATA + 1, full.range.off);
	CHECK_EQ(range_write(&full.rig, full.file, full.memory.memory, &full.range),
		 full.range.len);
	CHECK_EQ(dsaio_fsync(full.rig.handle, full.file, 0), 0);
	file_check_pattern(full.path, full.range.off, full.range.len, SEED_DATA + 1,
			   full.range.off);
	beside_ok();
	CHECK(daemon_is_alive(full.rig.daemon));
}

TEST_MAIN
