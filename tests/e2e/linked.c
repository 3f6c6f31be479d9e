/*
 * A linked sync waits for the writes before it, and is skipped if one of them failed.
 */
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define BLOCK ((size_t)4096)
#define FILE_MAX (64 * KIB)

struct kit {
	struct rig rig;
	struct dsaio_file *file, *other;
	uint8_t *memory;
	void *nowhere; /* cannot be read */
};

/* Writes that end behind FILE_MAX fail. */
static void kit_open(struct kit *kit)
{
	const struct rlimit limit = { FILE_MAX, FILE_MAX };
	void *memory;

	kit->rig = rig_new(NULL);
	kit->file = rig_file(&kit->rig, "f", O_RDWR | O_CREAT);
	kit->other = rig_file(&kit->rig, "other", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(kit->rig.client, 8 * BLOCK, NULL, &memory));
	kit->memory = memory;
	memset(memory, 1, 8 * BLOCK);
	kit->nowhere = mmap(NULL, 8 * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(kit->nowhere != MAP_FAILED);
	(void)signal(SIGXFSZ, SIG_IGN);
	CHECK_SYS(setrlimit(RLIMIT_FSIZE, &limit));
}

static struct dsaio_io write_of(struct dsaio_file *file, void *buf, uint64_t off)
{
	return (struct dsaio_io){
		.opcode = DSAIO_WRITE, .file = file, .buf = buf, .len = BLOCK, .off = off
	};
}

static struct dsaio_io sync_of(struct dsaio_file *file, uint32_t flags)
{
	return (struct dsaio_io){ .opcode = DSAIO_FSYNC, .flags = flags, .file = file };
}

static void submit(const struct kit *kit, const struct dsaio_io *ios, int n, struct dsaio_op **ops)
{
	CHECK_EQ(dsaio_submit(kit->rig.handle, ios, sizeof(*ios), n, 0, ops), n);
}

TEST(waits, "a linked sync ends after all writes before it, whatever memory they are of")
{
	struct kit kit;
	struct dsaio_io ios[5];
	struct dsaio_op *ops[5];
	uint8_t private[BLOCK] = { 2 };

	kit_open(&kit);
	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 3; i++)
			ios[i] = write_of(kit.file, kit.memory + i * BLOCK, i * BLOCK);
		ios[3] = write_of(kit.file, private, 3 * BLOCK);
		ios[4] = sync_of(kit.file, DSAIO_LINKED | (round % 2 ? DSAIO_DATASYNC : 0));
		submit(&kit, ios, 5, ops);
		CHECK_EQ(op_wait(ops[4], -1), 0);
		for (unsigned i = 0; i < 4; i++)
			CHECK_EQ(dsaio_op_result(ops[i]), BLOCK);
		dsaio_op_free_many(ops, 5);
	}
	rig_close(&kit.rig);
}

/* memory: from where the write that fails is; else it passes the limit on the file's size. */
static void check_skipped(struct kit *kit, void *memory, int error)
{
	struct dsaio_io ios[4];
	struct dsaio_op *ops[4];

	ios[0] = write_of(kit->file, kit->memory, 0);
	ios[1] = write_of(kit->file, memory ? memory : kit->memory, memory ? BLOCK : FILE_MAX);
	ios[2] = sync_of(kit->file, DSAIO_LINKED);
	ios[3] = sync_of(kit->file, 0);
	submit(kit, ios, 4, ops);
	CHECK_EQ(op_wait(ops[0], -1), BLOCK);
	CHECK_EQ(op_wait(ops[1], -1), error);
	CHECK_EQ(op_wait(ops[2], -1), -ECANCELED);
	CHECK(strstr(dsaio_op_error(ops[2]),
		     "a write of the file that it is linked to has failed"));
	CHECK_EQ(op_wait(ops[3], -1), 0); /* not linked */
	dsaio_op_free_many(ops, 4);
}

TEST(skipped, "a linked sync is skipped if a write before it has failed, at once or later")
{
	struct kit kit;

	kit_open(&kit);
	check_skipped(&kit, NULL, -EFBIG);
	check_skipped(&kit, kit.nowhere, -EFAULT);
	rig_close(&kit.rig);
}

TEST(vectored, "a linked sync is skipped if a part of a vectored write has failed")
{
	struct kit kit;
	struct iovec iov[3];
	struct dsaio_io ios[2];
	struct dsaio_op *ops[2];

	kit_open(&kit);
	for (unsigned i = 0; i < 3; i++)
		iov[i] = (struct iovec){ i == 1 ? kit.nowhere : kit.memory, BLOCK };
	ios[0] = (struct dsaio_io){
		.opcode = DSAIO_WRITE, .file = kit.file, .iov = iov, .n_iov = 3
	};
	ios[1] = sync_of(kit.file, DSAIO_LINKED);
	submit(&kit, ios, 2, ops);
	CHECK_EQ(op_wait(ops[0], -1), -EFAULT);
	CHECK_EQ(op_wait(ops[1], -1), -ECANCELED);
	dsaio_op_free_many(ops, 2);
	rig_close(&kit.rig);
}

TEST(forgotten,
     "a linked sync by path is skipped although its file left the cache after the write failed")
{
	enum { N = 64 };
	struct kit kit;
	struct dsaio_io ios[2 * N];
	struct dsaio_op *ops[2 * N];
	const char *path;

	kit_open(&kit);
	path = daemon_path(kit.rig.daemon, "by path");
	for (unsigned i = 0; i < 2 * N; i++) {
		ios[i] = i < N ? write_of(NULL, kit.memory, FILE_MAX) : sync_of(NULL, DSAIO_LINKED);
		ios[i].path = path;
	}
	CHECK_SYS(close((int)CHECK_SYS(open(path, O_WRONLY | O_CREAT, 0600))));
	/* The second half is another round of the same submission: between them the file is idle. */
	submit(&kit, ios, 2 * N, ops);
	for (unsigned i = 0; i < 2 * N; i++)
		CHECK_EQ(op_wait(ops[i], -1), i < N ? -EFBIG : -ECANCELED);
	dsaio_op_free_many(ops, 2 * N);
	rig_close(&kit.rig);
}

TEST(others, "failures before the submission, and of other files, skip no linked sync")
{
	struct kit kit;
	struct dsaio_io ios[3];
	struct dsaio_op *ops[3];

	kit_open(&kit);
	CHECK_EQ(dsaio_pwrite(kit.rig.handle, kit.file, kit.memory, BLOCK, FILE_MAX), -EFBIG);
	ios[0] = write_of(kit.other, kit.memory, FILE_MAX);
	ios[1] = write_of(kit.file, kit.memory, 0);
	ios[2] = sync_of(kit.file, DSAIO_LINKED);
	submit(&kit, ios, 3, ops);
	CHECK_EQ(op_wait(ops[0], -1), -EFBIG);
	CHECK_EQ(op_wait(ops[2], -1), 0);
	CHECK_EQ(op_wait(ops[1], -1), BLOCK);
	dsaio_op_free_many(ops, 3);
	rig_close(&kit.rig);
}

TEST(large, "a linked sync behind more writes than go at once")
{
	enum { N = 200 };
	struct kit kit;
	static struct dsaio_io ios[N + 1];
	static struct dsaio_op *ops[N + 1];

	kit_open(&kit);
	for (unsigned i = 0; i < N; i++)
		ios[i] = write_of(kit.file, kit.memory, i % 16 * BLOCK);
	ios[0].off = FILE_MAX; /* fails before the last of them are looked at */
	ios[N] = sync_of(kit.file, DSAIO_LINKED);
	submit(&kit, ios, N + 1, ops);
	CHECK_EQ(op_wait(ops[0], -1), -EFBIG);
	CHECK_EQ(op_wait(ops[N], -1), -ECANCELED);
	CHECK_EQ(op_wait(ops[N - 1], -1), BLOCK);
	dsaio_op_free_many(ops, N + 1);
	rig_close(&kit.rig);
}

TEST_MAIN
