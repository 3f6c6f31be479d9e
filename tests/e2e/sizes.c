/*
 * Any size, any offset, any address, on each kind of store: what was asked for is done, byte by
 * byte, and no byte beside it changes, neither in the file nor in memory.
 */
#include "tests/harness.h"
#include "tests/stores.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEED_FILE 11
#define SEED_DATA 22

static const struct {
	const char *what;
	size_t len;
} sizes[] = {
	{ "0 bytes", 0 },	{ "1 byte", 1 },	  { "511 bytes", 511 },
	{ "512 bytes", 512 },	{ "513 bytes", 513 },	  { "4095 bytes", 4095 },
	{ "4096 bytes", 4096 }, { "4097 bytes", 4097 },	  { "1 MiB - 1", MIB - 1 },
	{ "1 MiB", MIB },	{ "1 MiB + 1", MIB + 1 },
};

/* How far from a page's start; 512 is enough for many devices, the others for none. */
static const size_t misalignments[] = { 0, 1, 512, 4095 };
static const uint64_t offsets[] = { 0, 1, 512, 4095, 4096, 3 * 4096 + 777 };

TEST_STORES(any_size, N_STORE_KINDS, sizes, "sizes")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct store store;

	store_make(&store, kind, 0);
	store_rig_open(&rig, &store);
	if (kind != STORE_RAW)
		file_make_sparse(store_path(&store, "f"), 0);
	file = rig_file(&rig, store_path(&store, "f"), O_RDWR);
	/* Under a sanitizer each size takes every second offset, from size to size the others. */
	for (size_t i = test_is_slow() ? (size_t)row % 2 : 0; i < ARRAY_SIZE(offsets);
	     i += test_is_slow() ? 2 : 1)
		for (size_t j = 0; j < ARRAY_SIZE(misalignments); j++)
			for (unsigned k = 0; k < 4; k++)
				store_check_range(&rig, &store, file, "f",
						  &(struct range){ .len = sizes[row].len,
								   .off = offsets[i],
								   .misalign = misalignments[j],
								   .is_pinned = k & 1,
								   .is_async = k & 2 });
}

/* ---- blocks smaller than the file's alignment ---- */

static const struct {
	const char *what;
	uint32_t block_size, parallelism;
} blocks[] = {
	{ "512 bytes, 3 parts", 512, 3 },
	{ "1024 bytes, as DeepSpeed's tests", 1024, 2 },
	{ "1536 bytes", 1536, 1 },
};

TEST_STORES(small_blocks, N_STORE_KINDS, blocks, "blocks as small as 512 bytes")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT, got = DSAIO_PROFILE_INIT;
	struct dsaio_file *file;
	struct store store;

	profile.block_size = blocks[row].block_size;
	profile.intra_op_parallelism = blocks[row].parallelism;
	store_make(&store, kind, 0);
	store_rig_open(&rig, &store);
	(void)dsaio_handle_close(rig.handle, -1);
	rig.handle = NULL;
	CHECK_CALL(profile_open(rig.client, &profile, &rig.handle));
	CHECK_CALL(dsaio_handle_profile(rig.handle, NULL, &got, NULL));
	CHECK_EQ(got.block_size, blocks[row].block_size);
	if (kind != STORE_RAW)
		file_make_sparse(store_path(&store, "f"), 0);
	file = rig_file(&rig, store_path(&store, "f"), O_RDWR);
	for (unsigned k = 0; k < 4; k++)
		for (size_t i = 0; i < ARRAY_SIZE(offsets); i += 2)
			store_check_range(&rig, &store, file, "f",
					  &(struct range){ .len = 3 * 65536 + 1536,
							   .off = offsets[i],
							   .misalign = i % 4 ? 512 : 0,
							   .is_pinned = k & 1,
							   .is_async = k & 2 });
}

/* ---- growing, holes and the end of a file ---- */

static void check_grow(struct rig *rig, const struct store *store)
{
	static const size_t lens[] = { 1, 511, 4096, 4097, 100000, MIB + 1 };
	_cleanup_(guarded_free) struct guarded g = { 0 };
	struct dsaio_file *file;
	uint64_t end = 0;

	file = rig_file(rig, store_path(store, "new"), O_RDWR | O_CREAT | O_EXCL);
	guarded_new(&g, rig->client, 2 * MIB, 0);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		pattern_fill(g.memory, lens[i], SEED_DATA, end);
		CHECK_EQ(dsaio_pwrite(rig->handle, file, g.memory, lens[i], end), lens[i]);
		end += lens[i];
		CHECK_EQ(dsaio_file_size(file), end);
		CHECK_EQ(file_size(store_path(store, "new")), end);
	}
	file_check_pattern(store_path(store, "new"), 0, end, SEED_DATA, 0);
}

static void check_keep(struct rig *rig, const struct store *store)
{
	_cleanup_(guarded_free) struct guarded g = { 0 };
	const char *path;

	path = store_path(store, "f");
	file_make_pattern(path, MIB, SEED_FILE);
	guarded_new(&g, rig->client, 8192, 0);
	pattern_fill(g.memory, 8192, SEED_DATA, 0);
	CHECK_EQ(dsaio_pwrite(rig->handle,
			      rig_file(rig, store_path(store, "f"), O_WRONLY | O_CREAT), g.memory,
			      8192, 0),
		 8192);
	CHECK_EQ(file_size(path), MIB);
	file_check_pattern(path, 0, 8192, SEED_DATA, 0);
	file_check_pattern(path, 8192, MIB - 8192, SEED_FILE, 8192);
}

static void check_hole_read(struct rig *rig, const struct store *store)
{
	_cleanup_(freep) uint8_t *zeros = calloc(1, MIB);
	static const struct {
		uint64_t off;
		size_t len;
	} ranges[] = { { 0, MIB }, { 4096, 65536 }, { 777, 100001 }, { 3 * GIB + 5, 4097 } };
	struct dsaio_file *file;

	CHECK(zeros);
	file_make_sparse(store_path(store, "holes"), 4 * GIB);
	file = rig_file(rig, store_path(store, "holes"), O_RDONLY);
	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
		for (unsigned pinned = 0; pinned < 2; pinned++) {
			_cleanup_(guarded_free) struct guarded g = { 0 };

			guarded_new(&g, pinned ? rig->client : NULL, ranges[i].len, 0);
			memset(g.memory, 0xee, g.len);
			CHECK_EQ(dsaio_pread(rig->handle, file, g.memory, g.len, ranges[i].off),
				 g.len);
			CHECK(!memcmp(g.memory, zeros, g.len));
			guarded_check(&g, "a hole");
		}
}

static void check_hole_write(struct rig *rig, const struct store *store)
{
	_cleanup_(guarded_free) struct guarded g = { 0 };
	_cleanup_(freep) uint8_t *zeros = calloc(1, MIB), *got = malloc(MIB);
	const uint64_t off = 2 * GIB + 4096 * 3;
	struct dsaio_file *file;
	const char *path;
	struct stat st;

	CHECK(zeros && got);
	path = store_path(store, "holes");
	file_make_sparse(path, 4 * GIB);
	file = rig_file(rig, store_path(store, "holes"), O_RDWR);
	guarded_new(&g, rig->client, 64 * KIB, 0);
	pattern_fill(g.memory, g.len, SEED_DATA, off);
	CHECK_EQ(dsaio_pwrite(rig->handle, file, g.memory, g.len, off), g.len);
	file_check_pattern(path, off, g.len, SEED_DATA, off);
	CHECK_EQ(dsaio_pread(rig->handle, file, got, MIB, off - MIB), MIB);
	CHECK(!memcmp(got, zeros, MIB));
	CHECK_EQ(dsaio_pread(rig->handle, file, got, MIB, off + g.len), MIB);
	CHECK(!memcmp(got, zeros, MIB));
	CHECK_EQ(file_size(path), 4 * GIB);
	CHECK_SYS(stat(path, &st));
	CHECK((uint64_t)st.st_blocks * 512 < 16 * MIB);
}

static void check_hole_grow(struct rig *rig, const struct store *store)
{
	_cleanup_(guarded_free) struct guarded g = { 0 };
	_cleanup_(freep) uint8_t *zeros = calloc(1, MIB), *got = malloc(MIB);
	struct dsaio_file *file;
	const char *path;
	struct stat st;

	CHECK(zeros && got);
	path = store_path(store, "f");
	file = rig_file(rig, store_path(store, "f"), O_RDWR | O_CREAT);
	guarded_new(&g, rig->client, 4096, 0);
	pattern_fill(g.memory, g.len, SEED_DATA, GIB);
	CHECK_EQ(dsaio_pwrite(rig->handle, file, g.memory, g.len, GIB), g.len);
	CHECK_EQ(dsaio_file_size(file), GIB + 4096);
	CHECK_EQ(dsaio_pread(rig->handle, file, got, MIB, GIB - MIB), MIB);
	CHECK(!memcmp(got, zeros, MIB));
	CHECK_SYS(stat(path, &st));
	CHECK((uint64_t)st.st_blocks * 512 < 16 * MIB);
}

static void check_truncate(struct rig *rig, const struct store *store)
{
	struct dsaio_file *file;
	uint8_t buf[4096];

	file_make_pattern(store_path(store, "f"), 65536, SEED_FILE);
	file = rig_file(rig, store_path(store, "f"), O_RDWR);
	CHECK_EQ(dsaio_file_size(file), 65536);
	CHECK_EQ(dsaio_file_truncate(file, 10001), 0);
	CHECK_EQ(dsaio_file_size(file), 10001);
	CHECK_EQ(file_size(store_path(store, "f")), 10001);
	CHECK_EQ(dsaio_pread(rig->handle, file, buf, sizeof(buf), 8192), 10001 - 8192);
	pattern_check(buf, 10001 - 8192, SEED_FILE, 8192, "before the new end");
	CHECK_EQ(dsaio_file_truncate(file, 20000), 0);
	CHECK_EQ(dsaio_pread(rig->handle, file, buf, sizeof(buf), 12288), 4096);
	for (size_t i = 0; i < sizeof(buf); i++)
		CHECK(!buf[i]);
}

static const struct {
	const char *what;
	void (*check)(struct rig *rig, const struct store *store);
} shapes[] = {
	{ "a file ends at exactly the last byte that was written", check_grow },
	{ "a shorter rewrite keeps the rest of the file", check_keep },
	{ "holes are read as zeros", check_hole_read },
	{ "a write into a hole leaves the holes around it zero and unallocated", check_hole_write },
	{ "a write far behind the end leaves a hole", check_hole_grow },
	{ "dsaio_file_truncate() and dsaio_file_size() tell the same as the file", check_truncate },
};

TEST_STORES(shape, N_FILE_STORE_KINDS, shapes, "growing and holes")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct store store;

	store_make(&store, kind, 0);
	store_rig_open(&rig, &store);
	shapes[row].check(&rig, &store);
}

static const struct {
	const char *what;
	uint64_t size;
	uint64_t off;
	size_t len;
	int64_t result;
} ends[] = {
	{ "exactly to an aligned end", 65536, 61440, 4096, 4096 },
	{ "exactly to an odd end", 65537, 61440, 4097, 4097 },
	{ "across an aligned end", 65536, 61440, 8192, 4096 },
	{ "across an odd end, aligned", 65537, 65536, 4096, 1 },
	{ "across an odd end, in the middle of a block", 66000, 61440, 16384, 4560 },
	{ "across an odd end, odd offset", 66000, 61441, 16384, 4559 },
	{ "from the end", 65536, 65536, 4096, 0 },
	{ "from an odd end", 65537, 65537, 4096, 0 },
	{ "behind the end", 65536, 131072, 4096, 0 },
	{ "far behind the end, odd", 65536, (UINT64_C(1) << 40) + 7, 4097, 0 },
	{ "of an empty file", 0, 0, 4096, 0 },
	{ "of many blocks across the end", 3 * MIB + 100, MIB, 16 * MIB, 2 * MIB + 100 },
};

TEST_STORES(end, N_FILE_STORE_KINDS, ends, "a read at the end of the file")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct store store;

	store_make(&store, kind, 0);
	store_rig_open(&rig, &store);
	file_make_pattern(store_path(&store, "f"), ends[row].size, SEED_FILE);
	file = rig_file(&rig, store_path(&store, "f"), O_RDONLY);
	for (unsigned k = 0; k < 8; k++) {
		_cleanup_(guarded_free) struct guarded g = { 0 };
		_cleanup_(freep) uint8_t *rest = malloc(ends[row].len);
		size_t done = (size_t)ends[row].result;
		const char *what = test_text("%s, %s, address + %u", k & 1 ? "pinned" : "private",
					     k & 2 ? "async" : "blocking", k & 4 ? 9 : 0);

		const struct range range = { .len = ends[row].len,
					     .off = ends[row].off,
					     .is_async = k & 2 };

		CHECK(rest);
		memset(rest, 0xee, ends[row].len);
		guarded_new(&g, k & 1 ? rig.client : NULL, ends[row].len, k & 4 ? 9 : 0);
		memset(g.memory, 0xee, g.len);
		CHECK_MSG(range_read(&rig, file, g.memory, &range) == ends[row].result, "%s", what);
		pattern_check(g.memory, done, SEED_FILE, ends[row].off, what);
		CHECK_MSG(!memcmp(g.memory + done, rest, g.len - done),
			  "%s: the rest of the buffer has changed", what);
		guarded_check(&g, what);
	}
}

/* ---- a raw block device ---- */

TEST(raw_device, "a raw block device as a store: any range, up to its end")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	static const struct {
		uint64_t off;
		size_t len;
	} ranges[] = { { 0, 4096 }, { 512, 1536 }, { 777, 100001 }, { 8 * MIB, 4 * MIB } };
	const char *image = test_text("%s/image", test_dir());
	const uint64_t size = 16 * MIB;
	struct dsaio_file *file;
	const char *path;
	uint8_t buf[8192];

	file_make_pattern(image, size, SEED_FILE);
	path = loop_device(image, 512);
	rig.daemon = daemon_start_with(&(struct daemon_options){
		.store_dir = "", .args = DAEMON_ARGS("--store", test_text("raw=%s", path)) });
	rig_open(&rig, NULL);
	file = rig_file(&rig, path, O_RDWR);
	CHECK_EQ(dsaio_file_size(file), size);
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(ranges); i++) {
		_cleanup_(guarded_free) struct guarded g = { 0 };
		uint64_t off = ranges[i / 2].off;

		guarded_new(&g, i % 2 ? rig.client : NULL, ranges[i / 2].len, 0);
		pattern_fill(g.memory, g.len, SEED_DATA + i, off);
		CHECK_EQ(dsaio_pwrite(rig.handle, file, g.memory, g.len, off), g.len);
		CHECK_EQ(dsaio_fsync(rig.handle, file, 0), 0);
		memset(g.memory, 0, g.len);
		CHECK_EQ(dsaio_pread(rig.handle, file, g.memory, g.len, off), g.len);
		pattern_check(g.memory, g.len, SEED_DATA + i, off, "the device");
		guarded_check(&g, "the device");
	}
	CHECK_EQ(dsaio_pread(rig.handle, file, buf, 8192, size - 4096), 4096);
	pattern_check(buf, 4096, SEED_FILE, size - 4096, "the device's end");
	CHECK_EQ(dsaio_pread(rig.handle, file, buf, 8192, size), 0);
	CHECK(dsaio_pwrite(rig.handle, file, buf, 8192, size - 4096) < 0); /* not whole: fails */
}

TEST_MAIN
