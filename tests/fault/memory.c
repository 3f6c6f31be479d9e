/*
 * Memory of the program's own that is not what it seems: E1 to E3 as the library meets them.  What
 * a client by hand can try is in import_raw.c.
 */
#include "tests/harness.h"
#include "tests/scissors.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEED 23
#define BYTES (4 * MIB)

/* A client with memory that it has imported, and a file with a pattern. */
struct kit {
	struct rig rig;
	struct dsaio_file *file;
	int fd;
	uint8_t *memory;
};

static void kit_open(struct kit *kit, struct daemon *daemon)
{
	void *memory;

	*kit = (struct kit){ .rig = { .daemon = daemon } };
	rig_open(&kit->rig, NULL);
	file_make_pattern(daemon_path(daemon, "f"), BYTES, SEED);
	kit->file = rig_file(&kit->rig, "f", O_RDWR);
	kit->fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC));
	CHECK_SYS(ftruncate(kit->fd, BYTES));
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, kit->fd, 0);
	CHECK(memory != MAP_FAILED);
	kit->memory = memory;
}

static void kit_close(struct kit *kit)
{
	closep(&kit->fd);
	CHECK_SYS(munmap(kit->memory, BYTES));
	rig_close(&kit->rig);
}

/* With memory that is there it serves. */
static void kit_check_works(struct kit *kit)
{
	CHECK_SYS(ftruncate(kit->fd, BYTES));
	file_make_pattern(daemon_path(kit->rig.daemon, "f"), BYTES, SEED);
	CHECK_EQ(dsaio_pread(kit->rig.handle, kit->file, kit->memory, BYTES, 0), BYTES);
	pattern_check(kit->memory, BYTES, SEED, 0, "read");
}

FAULT(e1_library, "E1 imported memory smaller than claimed, or cut before it is used")
{
	struct kit kit;

	kit_open(&kit, daemon);
	CHECK_FAILS(fd_register(kit.rig.client, kit.fd, 0, BYTES + 1, kit.memory), -ERANGE,
		    "4194305;4194304;ftruncate");
	CHECK_SYS(ftruncate(kit.fd, BYTES / 2));
	CHECK_FAILS(fd_register(kit.rig.client, kit.fd, 0, BYTES, kit.memory), -ERANGE, "2097152");
	CHECK_SYS(ftruncate(kit.fd, BYTES));
	CHECK_CALL(fd_register(kit.rig.client, kit.fd, 0, BYTES, kit.memory));
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(e2_library, "E2 imported memory on a disk's file system: refused, used as private memory")
{
	_cleanup_(closep) int disk = -1;
	struct kit kit;
	void *memory;

	kit_open(&kit, daemon);
	file_make_sparse(daemon_path(daemon, "memory"), BYTES);
	disk = (int)CHECK_SYS(open(daemon_path(daemon, "memory"), O_RDWR | O_CLOEXEC));
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, disk, 0);
	CHECK(memory != MAP_FAILED);
	CHECK_FAILS(fd_register(kit.rig.client, disk, 0, BYTES, memory), -EOPNOTSUPP,
		    "tmpfs;hugetlbfs");
	CHECK_EQ(dsaio_pread(kit.rig.handle, kit.file, memory, BYTES, 0), BYTES);
	pattern_check(memory, BYTES, SEED, 0, "read");
	CHECK_SYS(munmap(memory, BYTES));
	kit_close(&kit);
}

static const struct {
	const char *what;
	bool is_imported;
	size_t shift; /* of the address */
} cuts[] = {
	{ "imported", true, 0 },
	{ "imported, at another distance from a page than the file's bytes", true, 3 },
	{ "not imported, so copied", false, 0 },
};

/* Whole, or -EFAULT; never a signal to this process. */
static void check_result(int64_t result, size_t len)
{
	if (result != (int64_t)len)
		CHECK_FAILS(result, -EFAULT, "pread;buffer");
}

static void run_beside_scissors(struct kit *kit, size_t row)
{
	uint8_t *memory = kit->memory + cuts[row].shift;
	const size_t len = BYTES / 4 - 4096;
	unsigned n_whole = 0, n = 0;

	for (int64_t end = now_usec() + 1000000; now_usec() < end; n++) {
		struct dsaio_op *ops[4];
		int64_t r;

		for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
			CHECK_CALL(dsaio_pread_async(kit->rig.handle, kit->file,
						     memory + i * BYTES / 4, len, i * BYTES / 4,
						     &ops[i]));
		for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
			r = op_wait(ops[i], -1);
			check_result(r, len);
			n_whole += r == (int64_t)len;
			dsaio_op_free(ops[i]);
		}
		check_result(dsaio_pread(kit->rig.handle, kit->file, memory, len, 0), len);
		r = dsaio_pwrite(kit->rig.handle, kit->file, memory, len, 0);
		CHECK(r == (int64_t)len || r == -EFAULT);
		(void)dsaio_handle_wait(kit->rig.handle, -1,
					NULL); /* tells the first that failed */
	}
	test_note("%s: %u of %u ops were whole", cuts[row].what, n_whole, 4 * n);
}

FAULT(e3_library, "E3 shared memory that its owner shrinks and punches while the library uses it")
{
	for (size_t row = 0; row < ARRAY_SIZE(cuts); row++) {
		struct scissors scissors;
		struct kit kit;

		kit_open(&kit, daemon);
		if (cuts[row].is_imported)
			CHECK_CALL(fd_register(kit.rig.client, kit.fd, 0, BYTES, kit.memory));
		scissors_start(&scissors, kit.fd, BYTES);
		run_beside_scissors(&kit, row);
		beside_ok();
		scissors_stop(&scissors);
		kit_check_works(&kit);
		kit_close(&kit);
	}
}

FAULT(e3_unmapped, "E3 memory that is unmapped while imported: its ops harm nobody")
{
	struct kit kit;

	kit_open(&kit, daemon);
	CHECK_CALL(fd_register(kit.rig.client, kit.fd, 0, BYTES, kit.memory));
	/* Gone, but kept free: others may map memory there. */
	CHECK(mmap(kit.memory, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      kit.memory);
	/* The daemon has a mapping of its own: the file still gets what was asked for. */
	CHECK_EQ(dsaio_pread(kit.rig.handle, kit.file, kit.memory, BYTES, 0), BYTES);
	CHECK_FAILS(dsaio_pread(kit.rig.handle, kit.file, kit.memory + 1, BYTES - 1, 0), -EFAULT,
		    "pread");
	CHECK_CALL(dsaio_memory_unregister(kit.rig.client, kit.memory));
	CHECK_FAILS(dsaio_pread(kit.rig.handle, kit.file, kit.memory, BYTES, 0), -EFAULT, "pread");
	CHECK(mmap(kit.memory, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, kit.fd, 0) ==
	      kit.memory);
	pattern_check(kit.memory, BYTES, SEED, 0, "what the daemon read");
	kit_check_works(&kit);
	kit_close(&kit);
}

TEST_MAIN
