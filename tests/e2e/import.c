/*
 * Imported memory: shared memory of the program's own is used without a copy, wherever it comes
 * from; what is not the mapping that the program says is refused.
 */
#include "tests/harness.h"

#include <errno.h>
#include <linux/memfd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEED 17
#define BYTES (8 * MIB)

static uint8_t *map(int fd, size_t bytes, off_t off, int flags)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, off);

	CHECK_MSG(memory != MAP_FAILED, "%s", strerror(errno));
	return memory;
}

static int memfd_of(size_t bytes)
{
	int fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC));

	CHECK_SYS(ftruncate(fd, (off_t)bytes));
	return fd;
}

static int shm_of(size_t bytes)
{
	const char *path = test_text("%s/tensor", test_dir_in("/dev/shm"));
	int fd = (int)CHECK_SYS(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));

	CHECK_SYS(ftruncate(fd, (off_t)bytes));
	return fd;
}

static int hugetlb_of(size_t bytes)
{
	int fd;

	huge_pages_add(bytes);
	fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB));
	CHECK_SYS(ftruncate(fd, (off_t)bytes));
	return fd;
}

static const struct {
	const char *what;
	int (*make)(size_t bytes);
} kinds[] = {
	{ "a memfd", memfd_of },
	{ "a file in /dev/shm", shm_of },
	{ "hugetlbfs", hugetlb_of },
};

/* This client's slabs, as the daemon reports them. */
static uint64_t pool_bytes(const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	daemon_status(daemon, &answer);
	return answer.reply->status->pool->used_bytes;
}

TEST_TABLE(use, kinds, "imported memory is read into and written from without a copy")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;
	struct dsaio_op *op;
	uint8_t *memory, *again;
	const char *path;
	int fd;

	fd = kinds[row].make(BYTES);
	memory = map(fd, BYTES, 0, MAP_SHARED);
	CHECK(!is_registered(rig.client, memory, BYTES));
	CHECK_CALL(fd_register(rig.client, fd, 0, BYTES, memory));
	CHECK(is_registered(rig.client, memory, BYTES));
	CHECK(is_registered(rig.client, memory + 1, 100));
	CHECK(!is_registered(rig.client, memory + 1, BYTES));
	again = map(fd, BYTES, 0, MAP_SHARED);
	closep(&fd);

	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, BYTES + 100, SEED);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, BYTES, 0), BYTES);
	pattern_check(memory, BYTES, SEED, 0, "read");
	pattern_check(again, BYTES, SEED, 0, "seen by another mapping");
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory + 13, BYTES - 4096, 13, &op));
	CHECK_EQ(dsaio_free(rig.client, memory), -EINVAL);
	CHECK_EQ(op_wait(op, -1), BYTES - 4096);
	dsaio_op_free(op);
	pattern_check(memory + 13, BYTES - 4096, SEED, 13, "an odd range");
	pattern_fill(memory, BYTES, SEED + 1, 0);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, BYTES - 512, 0), BYTES - 512);
	file_check_pattern(path, 0, BYTES - 512, SEED + 1, 0);
	CHECK_EQ(pool_bytes(rig.daemon), BYTES); /* no slab to copy through was needed */
	/* At another distance from a page's start than the file's bytes: it is copied. */
	CHECK_EQ(dsaio_pread(rig.handle, file, memory + 1, BYTES - 1, 100), BYTES - 1);
	pattern_check(memory + 1, BYTES - 612, SEED + 1, 100, "at another distance");

	CHECK_CALL(dsaio_memory_unregister(rig.client, memory));
	CHECK(!is_registered(rig.client, memory, 1));
	pattern_check(memory + 1, BYTES - 612, SEED + 1, 100, "still there");
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, BYTES, 0), BYTES); /* as private memory */
	pattern_check(memory, BYTES - 512, SEED + 1, 0, "copied");
	CHECK_SYS(munmap(memory, BYTES));
	CHECK_SYS(munmap(again, BYTES));
}

TEST(part, "a part of a file, mapped in pieces, in a process that has much mapped")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const size_t off = 3 * 4096, bytes = MIB + 100;
	int fd = memfd_of(4 * MIB);
	struct dsaio_file *file;
	uint8_t *memory, *all;

	for (unsigned i = 0; i < 2000; i++) /* each a line in the kernel's list */
		(void)map(-1, 4096, 0, (i % 2 ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS);
	all = map(fd, 4 * MIB, 0, MAP_SHARED);
	memory = map(fd, 2 * MIB, (off_t)off, MAP_SHARED);
	CHECK_SYS(mprotect(memory + 64 * KIB, 64 * KIB, PROT_READ));
	CHECK_CALL(fd_register(rig.client, fd, off, bytes, memory));
	file_make_pattern(daemon_path(rig.daemon, "f"), bytes, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, bytes, 0), bytes);
	pattern_check(all + off, bytes, SEED, 0, "the file's part");
	for (size_t i = 0; i < 4096; i++)
		CHECK(!all[off - 4096 + i] && !all[off + bytes + i]);
	CHECK_CALL(dsaio_memory_unregister(rig.client, memory));
	closep(&fd);
}

TEST(refused, "another mapping, or memory of another kind, is refused with the reason")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	int fd = memfd_of(BYTES), other = memfd_of(BYTES), disk, read_only, sealed;
	uint8_t *memory, *private, *disk_memory, *sealed_memory;
	void *pinned;

	file_make_pattern(daemon_path(rig.daemon, "f"), BYTES, SEED);
	disk = (int)CHECK_SYS(open(daemon_path(rig.daemon, "f"), O_RDWR | O_CLOEXEC));
	read_only = (int)CHECK_SYS(open(test_text("/proc/self/fd/%d", fd), O_RDONLY | O_CLOEXEC));
	sealed = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	CHECK_SYS(ftruncate(sealed, 4096));
	CHECK_SYS(fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE));
	sealed_memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, sealed, 0);
	memory = map(fd, BYTES, 0, MAP_SHARED);
	private = map(fd, BYTES, 0, MAP_PRIVATE);
	disk_memory = map(disk, BYTES, 0, MAP_SHARED);

	CHECK_FAILS(fd_register(NULL, fd, 0, BYTES, memory), -EINVAL, "memory_register: ");
	CHECK_FAILS(fd_register(rig.client, fd, 0, BYTES, NULL), -EINVAL, "NULL");
	CHECK_FAILS(fd_register(rig.client, fd, 0, 0, memory), -EINVAL, "0 bytes");
	CHECK_FAILS(fd_register(rig.client, fd, 0, 4096, memory + 1), -EINVAL, "4096");
	CHECK_FAILS(fd_register(rig.client, fd, 1, 4096, memory), -EINVAL, "4096");
	CHECK_FAILS(fd_register(rig.client, -1, 0, BYTES, memory), -EBADF, "-1");
	CHECK_FAILS(fd_register(rig.client, fd, 0, BYTES + 1, memory), -ERANGE, "8388608");
	CHECK_FAILS(fd_register(rig.client, fd, BYTES + 4096, 1, memory), -ERANGE, "8388608");
	CHECK_FAILS(fd_register(rig.client, fd, 0, BYTES, private), -EINVAL, "MAP_SHARED");
	CHECK_FAILS(fd_register(rig.client, fd, 4096, 4096, memory), -EINVAL, "MAP_SHARED");
	CHECK_FAILS(fd_register(rig.client, other, 0, BYTES, memory), -EINVAL, "MAP_SHARED");
	CHECK_FAILS(fd_register(rig.client, disk, 0, BYTES, disk_memory), -EOPNOTSUPP,
		    "shared memory: ;tmpfs");
	CHECK_FAILS(fd_register(rig.client, read_only, 0, BYTES, memory), -EACCES, "");
	CHECK_FAILS(fd_register(rig.client, sealed, 0, 4096, sealed_memory), -EACCES, "SEAL");
	CHECK_FAILS(dsaio_memory_unregister(rig.client, memory), -EINVAL, "memory_unregister: ");

	CHECK_CALL(fd_register(rig.client, fd, 0, MIB, memory));
	CHECK_FAILS(fd_register(rig.client, fd, 0, MIB, memory), -EEXIST, "already");
	CHECK_FAILS(fd_register(rig.client, fd, MIB - 4096, MIB, memory + MIB - 4096), -EEXIST,
		    "already");
	CHECK_CALL(fd_register(rig.client, fd, MIB, MIB, memory + MIB)); /* beside it */
	CHECK_FAILS(dsaio_memory_unregister(rig.client, memory + 4096), -EINVAL, "start");
	CHECK_FAILS(dsaio_free(rig.client, memory), -EINVAL, "dsaio_alloc");
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &pinned));
	CHECK_FAILS(dsaio_memory_unregister(rig.client, pinned), -EINVAL, "registered memory");
	CHECK_CALL(dsaio_memory_unregister(rig.client, memory));
	CHECK_CALL(dsaio_memory_unregister(rig.client, NULL));
	CHECK_FAILS(dsaio_memory_unregister(rig.client, memory), -EINVAL, "before");
	CHECK_CALL(fd_register(rig.client, fd, 0, MIB, memory)); /* and again */
}

TEST(busy, "memory that an open op uses is not forgotten")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	int fd = memfd_of(BYTES);
	struct dsaio_file *file;
	struct dsaio_op *op;
	uint8_t *memory;

	file_make_pattern(daemon_path(rig.daemon, "f"), BYTES, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	memory = map(fd, BYTES, 0, MAP_SHARED);
	CHECK_CALL(fd_register(rig.client, fd, 0, BYTES, memory));
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 4096, 0), 4096);
	process_stop(rig.daemon->pid);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, BYTES, 0, &op));
	CHECK_FAILS(dsaio_memory_unregister(rig.client, memory), -EBUSY, "open op");
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	CHECK_EQ(op_wait(op, -1), BYTES);
	dsaio_op_free(op);
	CHECK_CALL(dsaio_memory_unregister(rig.client, memory));
}

TEST_MAIN
