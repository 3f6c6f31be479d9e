/*
 * huge_pages = reserved: slabs are memfds on hugetlbfs, where write(2) is refused and a mapping has
 * whole huge pages.  Every kind of memory works as with other pages.
 */
#include "tests/harness.h"

#include <errno.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEED_FILE 5
#define SEED_DATA 6
#define LARGE (20 * MIB) /* more pieces than are in flight at a time, in more than one slab */
#define MEMORY_BYTES (LARGE + 2 * MIB)
#define GUARD 8192u /* bytes around a range, of the file and of memory, that do not change */
/* For the test's own memory, and for what it is copied through (32 MiB). */
#define RESERVED_BYTES (128 * MIB)

/* ---- memory to read into and write from ---- */
static uint8_t *map(int fd, int flags)
{
	void *memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);

	CHECK_MSG(memory != MAP_FAILED, "%s", strerror(errno));
	return memory;
}

static uint8_t *pinned_new(struct dsaio_client *client)
{
	void *memory;

	CHECK_CALL(dsaio_alloc(client, MEMORY_BYTES, NULL, &memory));
	return memory;
}

static uint8_t *imported_new(struct dsaio_client *client, unsigned flags)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC | flags));
	uint8_t *memory;

	CHECK_SYS(ftruncate(fd, MEMORY_BYTES));
	memory = map(fd, MAP_SHARED);
	CHECK_CALL(fd_register(client, fd, 0, MEMORY_BYTES, memory));
	return memory;
}

static uint8_t *shared_new(struct dsaio_client *client)
{
	return imported_new(client, 0);
}

static uint8_t *shared_huge_new(struct dsaio_client *client)
{
	return imported_new(client, MFD_HUGETLB | MFD_HUGE_2MB);
}

static uint8_t *private_new(struct dsaio_client *client)
{
	(void)client;
	return map(-1, MAP_PRIVATE | MAP_ANONYMOUS);
}

static const struct {
	const char *what;
	uint8_t *(*make)(struct dsaio_client *client);
} kinds[] = {
	{ "pinned", pinned_new },
	{ "imported", shared_new },
	{ "imported, of huge pages", shared_huge_new },
	{ "private", private_new },
};

static const struct {
	size_t len;
	uint64_t off;
	size_t misalign;
} ranges[] = {
	{ 1, 0, 0 },
	{ 512, 512, 512 },
	{ 4096, 0, 0 },
	{ 4096, 13, 1 },
	{ 100001, 4095, 4095 },
	{ MIB, 0, 0 },
	{ MIB + 1, 777, 0 },
	{ 3 * MIB + 17, 0, 3 },
	{ LARGE, 0, 0 },
	{ LARGE - 1, 4096 * 3 + 1, 513 },
};

static struct daemon *daemon_of_huge_pages(void)
{
	const char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");

	CHECK(file && fputs("[daemon]\nhuge_pages = reserved\n", file) >= 0 && !fflush(file));
	return daemon_start(DAEMON_ARGS("--config", path));
}

static uint64_t huge_bytes(const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	daemon_status(daemon, &answer);
	return answer.reply->status->pool->huge_bytes;
}

static int64_t op_end(struct dsaio_op *op)
{
	int64_t result = op_wait(op, -1);

	CHECK_MSG(result >= 0, "%s", dsaio_op_error(op));
	dsaio_op_free(op);
	return result;
}

/* A write of a range, and a read of it: those bytes, and no others. */
static void check_range(struct rig *rig, const char *path, uint8_t *memory, int i, bool is_async)
{
	const size_t len = ranges[i].len;
	const uint64_t off = GUARD + ranges[i].off, end = off + len;
	const char *what = test_text("%zu bytes at %" PRIu64 ", address + %zu, %s", len, off,
				     ranges[i].misalign, is_async ? "async" : "blocking");
	uint8_t *data = memory + GUARD + ranges[i].misalign;
	struct dsaio_op *op;

	file_make_pattern(path, end + GUARD, SEED_FILE);
	pattern_fill(data, len, SEED_DATA, off);
	if (is_async) {
		CHECK_CALL(dsaio_pwrite_async(rig->handle, rig->files[0], data, len, off, &op));
		CHECK_EQ(op_end(op), len);
	} else {
		CHECK_EQ(dsaio_pwrite(rig->handle, rig->files[0], data, len, off), len);
	}
	pattern_check(data, len, SEED_DATA, off, what);
	file_check_pattern(path, 0, off, SEED_FILE, 0);
	file_check_pattern(path, off, len, SEED_DATA, off);
	file_check_pattern(path, end, GUARD, SEED_FILE, end);

	memset(data - GUARD, 0xee, GUARD + len + GUARD);
	if (is_async) {
		CHECK_CALL(dsaio_pread_async(rig->handle, rig->files[0], data, len, off, &op));
		CHECK_EQ(op_end(op), len);
	} else {
		CHECK_EQ(dsaio_pread(rig->handle, rig->files[0], data, len, off), len);
	}
	pattern_check(data, len, SEED_DATA, off, what);
	for (size_t k = 0; k < GUARD; k++)
		CHECK_MSG(data[k - GUARD] == 0xee && data[len + k] == 0xee, "%s", what);
}

TEST_TABLE(ranges_of, kinds,
	   "reserved huge pages: reads and writes of any size, offset and address")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t *memory;

	huge_pages_add(RESERVED_BYTES);
	rig.daemon = daemon_of_huge_pages();
	rig_open(&rig, NULL);
	file_make_sparse(daemon_path(rig.daemon, "f"), 0);
	rig_file(&rig, "f", O_RDWR);
	memory = kinds[row].make(rig.client);
	for (int i = 0; i < (int)ARRAY_SIZE(ranges); i++)
		for (unsigned is_async = 0; is_async < 2; is_async++)
			check_range(&rig, daemon_path(rig.daemon, "f"), memory, i, is_async);
	CHECK(huge_bytes(rig.daemon) > 0); /* what misaligned memory is copied through at least */
}

TEST(wrong_address, "reserved huge pages: a wrong address of private memory is -EFAULT")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t *memory;

	huge_pages_add(RESERVED_BYTES);
	rig.daemon = daemon_of_huge_pages();
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 4 * MIB, SEED_FILE);
	rig_file(&rig, "f", O_RDWR);
	memory = private_new(rig.client);
	CHECK_SYS(mprotect(memory + MIB, MIB, PROT_NONE));
	CHECK_FAILS(dsaio_pwrite(rig.handle, rig.files[0], memory, 4 * MIB, 0), -EFAULT, "");
	CHECK_FAILS(dsaio_pread(rig.handle, rig.files[0], memory, 4 * MIB, 0), -EFAULT, "");
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, MIB, 2 * MIB), MIB);
	pattern_check(memory, MIB, SEED_FILE, 2 * MIB, "read after that");
	CHECK(huge_bytes(rig.daemon) > 0);
}

TEST_MAIN
