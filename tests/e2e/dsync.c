/*
 * DSAIO_DSYNC: at the end of such a write its bytes are on the device.  The device, a loop device, counts the flushes
 * that it is asked for.
 */
#include "tests/stores.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#define FILE_BYTES MIB
#define SEED 7

/* Flushes and writes that the store's device has done. */
struct counts {
	uint64_t flushes, writes;
};

static struct counts device_counts(const struct store *store)
{
	_cleanup_(fclosep) FILE *file = NULL;
	struct counts counts;
	struct stat st;

	CHECK_SYS(stat(store->path, &st));
	file = fopen(test_text("/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev)),
		     "re");
	CHECK(file);
	if (fscanf(file,
		   "%*u %*u %*u %*u %" SCNu64 " %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %" SCNu64,
		   &counts.writes, &counts.flushes) != 2)
		test_skip("this kernel counts no flushes");
	return counts;
}

static const struct {
	const char *what;
	size_t len, misalign;
	uint64_t off;
	bool is_private, is_vector, by_path;
} writes[] = {
	{ "aligned", 64 * KIB, 0, 0, false, false, false },
	{ "in several blocks", FILE_BYTES, 0, 0, false, false, false },
	{ "at an odd offset", 5000, 0, 777, false, false, false },
	{ "from an odd address", 64 * KIB, 5, 4096, false, false, false },
	{ "beyond the end", FILE_BYTES, 0, FILE_BYTES, false, false, false },
	{ "from private memory", 64 * KIB, 0, 0, true, false, false },
	{ "vectored", 64 * KIB, 0, 0, false, true, false },
	{ "by path", 64 * KIB, 0, 0, false, false, true },
};

static void write_one(struct rig *rig, const struct dsaio_io *io, size_t len)
{
	struct dsaio_op *op;

	CHECK_CALL(dsaio_submit(rig->handle, io, sizeof(*io), 1, 0, &op));
	CHECK_EQ(op_wait(op, -1), len);
	dsaio_op_free(op);
}

TEST_TABLE(flushes, writes, "a write with DSAIO_DSYNC is on the device at its end")
{
	enum { N = 5 };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_io io = { .opcode = DSAIO_WRITE };
	struct counts before, without, with;
	struct guarded memory;
	struct iovec iov[2];
	struct store store;
	const char *path;

	test_needs_root();
	store_make(&store, STORE_EXT4, 64 * MIB);
	path = store_path(&store, "f");
	profile.block_size = 256 * KIB;
	rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("loop=%s", store.path)));
	rig_open(&rig, &profile);
	file_make_pattern(path, FILE_BYTES, SEED + 1);
	io.file = rig_file(&rig, path, O_RDWR);
	guarded_new(&memory, writes[row].is_private ? NULL : rig.client, writes[row].len,
		    writes[row].misalign);
	pattern_fill(memory.memory, writes[row].len, SEED, writes[row].off);
	iov[0] = (struct iovec){ memory.memory, writes[row].len / 2 };
	iov[1] = (struct iovec){ memory.memory + writes[row].len / 2, writes[row].len / 2 };
	io.off = writes[row].off;
	if (writes[row].is_vector) {
		io.iov = iov;
		io.n_iov = 2;
	} else {
		io.buf = memory.memory;
		io.len = writes[row].len;
	}
	CHECK_CALL(dsaio_fsync(rig.handle, io.file, 0));
	if (writes[row].by_path) {
		io.file = NULL;
		io.path = path;
	}
	before = device_counts(&store);
	if (!before.flushes)
		test_skip("this device has no cache to flush");
	write_one(&rig, &io,
		  writes[row].len); /* one that extends may flush by itself: only the first */
	without = device_counts(&store);
	io.flags = DSAIO_DSYNC;
	for (unsigned i = 0; i < N; i++)
		write_one(&rig, &io, writes[row].len);
	with = device_counts(&store);
	test_note("%s: %" PRIu64 " flushes without, %" PRIu64 " with, %" PRIu64 " writes",
		  writes[row].what, without.flushes - before.flushes,
		  with.flushes - without.flushes, with.writes - without.writes);
	CHECK(with.flushes - without.flushes >= N);
	file_check_pattern(path, writes[row].off, writes[row].len, SEED, writes[row].off);
	guarded_free(&memory);
}

TEST_MAIN
