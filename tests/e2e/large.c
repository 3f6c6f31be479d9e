/*
 * Large ranges, at any offset and address, on each kind of store: as sizes.c has it for small ones.
 *
 * A range of 400 MiB has more blocks than the queue depth.  Each row has that length on one kind of
 * store, so that each kind has it, too.  On the others, and under a sanitizer, which slows the
 * comparing down much, it has 40 MiB: all of 400 MiB would be written and read 15 GiB in all.
 */
#include "tests/harness.h"
#include "tests/stores.h"

static struct range scaled(struct range range, enum store_kind kind, int row)
{
	if (test_is_slow() || row % N_STORE_KINDS != (int)kind)
		range.len -= 360 * MIB;
	return range;
}

static const struct {
	const char *what;
	struct range range;
} large[] = {
	{ "pinned, aligned, blocking", { 400 * MIB, 0, 0, true, false } },
	{ "pinned, aligned, async", { 400 * MIB, 4096, 0, true, true } },
	{ "pinned, odd offset and address", { 400 * MIB, 12345, 77, true, true } },
	{ "pinned, odd offset, aligned address", { 400 * MIB + 77, 13, 0, true, false } },
	{ "private, odd offset and address", { 400 * MIB, 4097, 3, false, false } },
	{ "private, aligned, async", { 400 * MIB, 0, 0, false, true } },
	{ "one byte less, pinned, odd offset and address", { 400 * MIB - 1, 333, 5, true, false } },
};

TEST_STORES(large_range, N_STORE_KINDS, large, "a large range")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const struct range range = scaled(large[row].range, kind, row);
	struct dsaio_file *file;
	struct store store;

	store_make(&store, kind, 0);
	store_rig_open(&rig, &store);
	if (kind != STORE_RAW)
		file_make_sparse(store_path(&store, "f"), 0);
	file = rig_file(&rig, store_path(&store, "f"), O_RDWR);
	store_check_range(&rig, &store, file, "f", &range);
}

static const struct {
	const char *what;
	struct range range;
} fresh[] = {
	{ "one byte less, at an odd offset", { 400 * MIB - 1, 333, 5, true, false } },
};

TEST_STORES(large_fresh, N_FILE_STORE_KINDS, fresh, "a large range into a new file")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(guarded_free) struct guarded g = { 0 };
	const struct range range = scaled(fresh[row].range, kind, row);
	struct store store;

	store_make(&store, kind, 0);
	store_rig_open(&rig, &store);
	guarded_new(&g, rig.client, range.len, range.misalign);
	pattern_fill(g.memory, range.len, 1, range.off);
	CHECK_EQ(range_write(&rig, rig_file(&rig, store_path(&store, "new"), O_RDWR | O_CREAT),
			     g.memory, &range),
		 range.len);
	guarded_check(&g, "written");
	CHECK_EQ(file_size(store_path(&store, "new")), range.off + range.len);
	file_check_pattern(store_path(&store, "new"), range.off, range.len, 1, range.off);
}

TEST_MAIN
