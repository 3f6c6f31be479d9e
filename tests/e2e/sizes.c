/*
 * Any size, any offset, any address: what was asked for is done, byte by byte, and no byte
 * beside it changes, neither in the file nor in memory.
 */
#include "tests/harness.h"

#include <errno.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SEED_FILE 11
#define SEED_DATA 22
#define FILE_GUARD (64 * KIB) /* of the file, before and behind the range */

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

static int64_t end_op(struct dsaio_op *op)
{
	int64_t result = dsaio_op_wait(op, -1);

	CHECK_EQ(dsaio_op_test(op), 1);
	CHECK_EQ(dsaio_op_result(op), result);
	dsaio_op_free(op);
	return result;
}

static int64_t write_some(struct rig *rig, struct dsaio_file *file, const void *memory, size_t len,
			  uint64_t off, bool async)
{
	struct dsaio_op *op = NULL;

	if (!async)
		return dsaio_pwrite(rig->handle, file, memory, len, off);
	CHECK_CALL(dsaio_pwrite_async(rig->handle, file, memory, len, off, &op));
	return end_op(op);
}

static int64_t read_some(struct rig *rig, struct dsaio_file *file, void *memory, size_t len,
			 uint64_t off, bool async)
{
	struct dsaio_op *op = NULL;

	if (!async)
		return dsaio_pread(rig->handle, file, memory, len, off);
	CHECK_CALL(dsaio_pread_async(rig->handle, file, memory, len, off, &op));
	return end_op(op);
}

/* One write and one read of the range, with all that must hold around it. */
static void check_range(struct rig *rig, struct dsaio_file *file, const char *path, size_t len,
			uint64_t off, size_t misalign, bool pinned, bool async)
{
	_cleanup_(guarded_free) struct guarded g = { 0 };
	const char *what = test_text("%zu bytes at %" PRIu64 ", address + %zu, %s, %s", len, off,
				     misalign, pinned ? "pinned" : "private",
				     async ? "async" : "blocking");
	uint64_t before = off < FILE_GUARD ? off : FILE_GUARD;

	file_make_pattern(path, off + len + FILE_GUARD, SEED_FILE);
	guarded_new(&g, pinned ? rig->client : NULL, len, misalign);

	pattern_fill(g.memory, len, SEED_DATA, off);
	CHECK_EQ(write_some(rig, file, g.memory, len, off, async), len);
	guarded_check(&g, what);
	pattern_check(g.memory, len, SEED_DATA, off, what);
	file_check_pattern(path, off - before, before, SEED_FILE, off - before);
	file_check_pattern(path, off, len, SEED_DATA, off);
	file_check_pattern(path, off + len, FILE_GUARD, SEED_FILE, off + len);
	CHECK_EQ(file_size(path), off + len + FILE_GUARD);

	memset(g.memory, 0xee, len);
	CHECK_EQ(read_some(rig, file, g.memory, len, off, async), len);
	guarded_check(&g, what);
	pattern_check(g.memory, len, SEED_DATA, off, what);
}

static void check_size(struct rig *rig, size_t len)
{
	static const uint64_t offsets[] = { 0, 1, 512, 4095, 4096, 3 * 4096 + 777 };
	const char *path = daemon_path(rig->daemon, "f");
	struct dsaio_file *file = rig_file(rig, "f", O_RDWR | O_CREAT);

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
		for (size_t j = 0; j < ARRAY_SIZE(misalignments); j++)
			for (unsigned k = 0; k < 4; k++)
				check_range(rig, file, path, len, offsets[i], misalignments[j],
					    k & 1, k & 2);
}

TEST_TABLE(disk, sizes, "sizes")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;

	rig_open(&rig, NULL);
	check_size(&rig, sizes[row].len);
}

static void memory_rig_open(struct rig *rig)
{
	const char *dir = test_dir_in("/dev/shm");
	struct statfs fs;

	CHECK_SYS(statfs(dir, &fs));
	if ((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < 64 * MIB)
		test_skip("/dev/shm has no room");
	rig->daemon = daemon_start_with(&(struct daemon_options){ .store_dir = dir });
	rig_open(rig, NULL);
}

TEST_TABLE(memory, sizes, "sizes on tmpfs")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;

	memory_rig_open(&rig);
	check_size(&rig, sizes[row].len);
}

static const struct {
	const char *what;
	uint64_t off;
	size_t misalign;
	bool pinned, async;
} large[] = {
	{ "pinned, aligned, blocking", 0, 0, true, false },
	{ "pinned, aligned, async", 4096, 0, true, true },
	{ "pinned, odd offset and address", 12345, 77, true, true },
	{ "private, odd offset and address", 4097, 3, false, false },
	{ "private, aligned, async", 0, 0, false, true },
};

TEST_TABLE(large_disk, large, "400 MiB")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;

	test_time_limit(300);
	rig_open(&rig, NULL);
	check_range(&rig, rig_file(&rig, "f", O_RDWR | O_CREAT), daemon_path(rig.daemon, "f"),
		    400 * MIB, large[row].off, large[row].misalign, large[row].pinned,
		    large[row].async);
}

TEST(large_odd_size, "400 MiB less one byte at an odd offset, into a new file")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(guarded_free) struct guarded g = { 0 };
	const uint64_t off = 333;
	const size_t len = 400 * MIB - 1;
	struct dsaio_file *file;

	test_time_limit(300);
	rig_open(&rig, NULL);
	file = rig_file(&rig, "new", O_RDWR | O_CREAT);
	guarded_new(&g, rig.client, len, 5);
	pattern_fill(g.memory, len, SEED_DATA, off);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, g.memory, len, off), len);
	guarded_check(&g, "written");
	CHECK_EQ(file_size(daemon_path(rig.daemon, "new")), off + len);
	file_check_pattern(daemon_path(rig.daemon, "new"), off, len, SEED_DATA, off);
}

/* ---- growing, holes and the end of a file ---- */

TEST(grow, "a file ends at exactly the last byte that was written")
{
	static const size_t lens[] = { 1, 511, 4096, 4097, 100000, MIB + 1 };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(guarded_free) struct guarded g = { 0 };
	struct dsaio_file *file;
	uint64_t end = 0;

	rig_open(&rig, NULL);
	file = rig_file(&rig, "new", O_RDWR | O_CREAT | O_EXCL);
	guarded_new(&g, rig.client, 2 * MIB, 0);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		pattern_fill(g.memory, lens[i], SEED_DATA, end);
		CHECK_EQ(dsaio_pwrite(rig.handle, file, g.memory, lens[i], end), lens[i]);
		end += lens[i];
		CHECK_EQ(dsaio_file_size(file), end);
		CHECK_EQ(file_size(daemon_path(rig.daemon, "new")), end);
	}
	file_check_pattern(daemon_path(rig.daemon, "new"), 0, end, SEED_DATA, 0);
}

TEST(keep, "a shorter rewrite keeps the rest of the file")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(guarded_free) struct guarded g = { 0 };
	const char *path;

	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, MIB, SEED_FILE);
	guarded_new(&g, rig.client, 8192, 0);
	pattern_fill(g.memory, 8192, SEED_DATA, 0);
	CHECK_EQ(dsaio_pwrite(rig.handle, rig_file(&rig, "f", O_WRONLY | O_CREAT), g.memory, 8192,
			      0),
		 8192);
	CHECK_EQ(file_size(path), MIB);
	file_check_pattern(path, 0, 8192, SEED_DATA, 0);
	file_check_pattern(path, 8192, MIB - 8192, SEED_FILE, 8192);
}

TEST(sparse_read, "holes are read as zeros")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(freep) uint8_t *zeros = calloc(1, MIB);
	static const struct {
		uint64_t off;
		size_t len;
	} ranges[] = { { 0, MIB }, { 4096, 65536 }, { 777, 100001 }, { 3 * GIB + 5, 4097 } };
	struct dsaio_file *file;

	CHECK(zeros);
	rig_open(&rig, NULL);
	file_make_sparse(daemon_path(rig.daemon, "holes"), 4 * GIB);
	file = rig_file(&rig, "holes", O_RDONLY);
	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
		for (unsigned pinned = 0; pinned < 2; pinned++) {
			_cleanup_(guarded_free) struct guarded g = { 0 };

			guarded_new(&g, pinned ? rig.client : NULL, ranges[i].len, 0);
			memset(g.memory, 0xee, g.len);
			CHECK_EQ(dsaio_pread(rig.handle, file, g.memory, g.len, ranges[i].off),
				 g.len);
			CHECK(!memcmp(g.memory, zeros, g.len));
			guarded_check(&g, "a hole");
		}
}

TEST(sparse_write, "a write into a hole leaves the holes around it zero and unallocated")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(guarded_free) struct guarded g = { 0 };
	_cleanup_(freep) uint8_t *zeros = calloc(1, MIB), *got = malloc(MIB);
	const uint64_t off = 2 * GIB + 4096 * 3;
	struct dsaio_file *file;
	const char *path;
	struct stat st;

	CHECK(zeros && got);
	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "holes");
	file_make_sparse(path, 4 * GIB);
	file = rig_file(&rig, "holes", O_RDWR);
	guarded_new(&g, rig.client, 64 * KIB, 0);
	pattern_fill(g.memory, g.len, SEED_DATA, off);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, g.memory, g.len, off), g.len);
	file_check_pattern(path, off, g.len, SEED_DATA, off);
	CHECK_EQ(dsaio_pread(rig.handle, file, got, MIB, off - MIB), MIB);
	CHECK(!memcmp(got, zeros, MIB));
	CHECK_EQ(dsaio_pread(rig.handle, file, got, MIB, off + g.len), MIB);
	CHECK(!memcmp(got, zeros, MIB));
	CHECK_EQ(file_size(path), 4 * GIB);
	CHECK_SYS(stat(path, &st));
	CHECK((uint64_t)st.st_blocks * 512 < 16 * MIB);
}

TEST(sparse_grow, "a write far behind the end leaves a hole")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(guarded_free) struct guarded g = { 0 };
	_cleanup_(freep) uint8_t *zeros = calloc(1, MIB), *got = malloc(MIB);
	struct dsaio_file *file;
	const char *path;
	struct stat st;

	CHECK(zeros && got);
	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "f");
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	guarded_new(&g, rig.client, 4096, 0);
	pattern_fill(g.memory, g.len, SEED_DATA, GIB);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, g.memory, g.len, GIB), g.len);
	CHECK_EQ(dsaio_file_size(file), GIB + 4096);
	CHECK_EQ(dsaio_pread(rig.handle, file, got, MIB, GIB - MIB), MIB);
	CHECK(!memcmp(got, zeros, MIB));
	CHECK_SYS(stat(path, &st));
	CHECK((uint64_t)st.st_blocks * 512 < 16 * MIB);
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

static void check_end(struct rig *rig, int row)
{
	struct dsaio_file *file;

	file_make_pattern(daemon_path(rig->daemon, "f"), ends[row].size, SEED_FILE);
	file = rig_file(rig, "f", O_RDONLY);
	for (unsigned k = 0; k < 8; k++) {
		_cleanup_(guarded_free) struct guarded g = { 0 };
		_cleanup_(freep) uint8_t *rest = malloc(ends[row].len);
		size_t done = (size_t)ends[row].result;
		const char *what = test_text("%s, %s, address + %u", k & 1 ? "pinned" : "private",
					     k & 2 ? "async" : "blocking", k & 4 ? 9 : 0);

		CHECK(rest);
		memset(rest, 0xee, ends[row].len);
		guarded_new(&g, k & 1 ? rig->client : NULL, ends[row].len, k & 4 ? 9 : 0);
		memset(g.memory, 0xee, g.len);
		CHECK_MSG(read_some(rig, file, g.memory, g.len, ends[row].off, k & 2) ==
				  ends[row].result,
			  "%s", what);
		pattern_check(g.memory, done, SEED_FILE, ends[row].off, what);
		CHECK_MSG(!memcmp(g.memory + done, rest, g.len - done),
			  "%s: the rest of the buffer has changed", what);
		guarded_check(&g, what);
	}
}

TEST_TABLE(end_disk, ends, "a read at the end of the file")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;

	rig_open(&rig, NULL);
	check_end(&rig, row);
}

TEST_TABLE(end_memory, ends, "a read at the end of the file on tmpfs")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;

	memory_rig_open(&rig);
	check_end(&rig, row);
}

/* ---- a raw block device ---- */

/* A loop device over a file; it goes when the last descriptor of it is closed. */
static const char *loop_device(const char *image)
{
	_cleanup_(closep) int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	_cleanup_(closep) int file = (int)CHECK_SYS(open(image, O_RDWR | O_CLOEXEC));
	struct loop_config config = { .fd = (uint32_t)file,
				      .block_size = 512,
				      .info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO };
	const char *path;
	int n, fd;

	test_needs_root();
	if (control < 0)
		test_skip("needs /dev/loop-control");
	n = ioctl(control, LOOP_CTL_GET_FREE);
	if (n < 0)
		test_skip("needs a loop device: %s", strerror(errno));
	path = test_text("/dev/loop%d", n);
	fd = open(path, O_RDWR | O_CLOEXEC); /* held to the test's end */
	if (fd < 0 || ioctl(fd, LOOP_CONFIGURE, &config) < 0)
		test_skip("needs a loop device: %s: %s", path, strerror(errno));
	return path;
}

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
	path = loop_device(image);
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
		CHECK_EQ(dsaio_fsync(rig.handle, file), 0);
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

TEST(truncate_then_read, "dsaio_truncate() and dsaio_file_size() tell the same as the file")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	uint8_t buf[4096];

	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 65536, SEED_FILE);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_EQ(dsaio_file_size(file), 65536);
	CHECK_EQ(dsaio_truncate(file, 10001), 0);
	CHECK_EQ(dsaio_file_size(file), 10001);
	CHECK_EQ(file_size(daemon_path(rig.daemon, "f")), 10001);
	CHECK_EQ(dsaio_pread(rig.handle, file, buf, sizeof(buf), 8192), 10001 - 8192);
	pattern_check(buf, 10001 - 8192, SEED_FILE, 8192, "before the new end");
	CHECK_EQ(dsaio_truncate(file, 20000), 0);
	CHECK_EQ(dsaio_pread(rig.handle, file, buf, sizeof(buf), 12288), 4096);
	for (size_t i = 0; i < sizeof(buf); i++)
		CHECK(!buf[i]);
}

TEST_MAIN
