/*
 * Calls on files and ops that are short: allocation, blocking ops by path, detached ops, arrays of structs
 * of another size.
 */
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define BLOCK ((size_t)4096)
#define SEED 4

TEST(allocate, "dsaio_file_allocate takes space, and makes the file longer")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file = rig_file(&rig, "f", O_RDWR | O_CREAT), *reader;
	uint8_t buf[BLOCK];
	struct stat st;

	CHECK_CALL(dsaio_file_allocate(file, BLOCK, MIB, 0));
	CHECK_EQ(dsaio_file_size(file), BLOCK + MIB);
	CHECK_SYS(stat(daemon_path(rig.daemon, "f"), &st));
	CHECK((size_t)st.st_blocks * 512 >= MIB);
	pattern_fill(buf, BLOCK, SEED, 0);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, buf, BLOCK, MIB), BLOCK);
	CHECK_EQ(dsaio_file_size(file), BLOCK + MIB);
	CHECK_EQ(dsaio_pread(rig.handle, file, buf, BLOCK, BLOCK), BLOCK);
	for (size_t i = 0; i < BLOCK; i++)
		CHECK_EQ(buf[i], 0);
	reader = rig_file(&rig, "f", O_RDONLY);
	CHECK_FAILS(dsaio_file_allocate(reader, 0, BLOCK, 0), -EBADF, "f;not open for writing");
	CHECK_FAILS(dsaio_file_truncate(reader, 0), -EBADF, "f;not open for writing");
	CHECK_FAILS(dsaio_file_allocate(file, 0, 0, 0), -EINVAL, "f;0 bytes");
	CHECK_FAILS(dsaio_file_allocate(file, INT64_MAX, 1, 0), -EINVAL, "f to");
	CHECK_FAILS(dsaio_file_allocate(file, 0, 1, 1), -E2BIG, "0x1;" DSAIO_VERSION);
	CHECK_FAILS(dsaio_file_allocate(NULL, 0, 1, 0), -EINVAL, "file");
}

TEST(too_long, "a file that would pass RLIMIT_FSIZE is an error, not a SIGXFSZ")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	const struct rlimit limit = { MIB, MIB };

	CHECK_CALL(dsaio_file_truncate(file, 2 * MIB));
	CHECK_SYS(setrlimit(RLIMIT_FSIZE, &limit));
	CHECK_FAILS(dsaio_file_truncate(file, 3 * MIB), -EFBIG, "f to 3145728");
	CHECK_FAILS(dsaio_file_allocate(file, 2 * MIB, MIB, 0), -EFBIG, "f to 3145728");
	CHECK_CALL(dsaio_file_truncate(file, MIB / 2));
	CHECK_EQ(dsaio_file_size(file), MIB / 2);
}

TEST(by_path, "blocking reads and writes by path")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	char *path = daemon_path(rig.daemon, "new");
	uint8_t buf[BLOCK + 10];

	pattern_fill(buf, sizeof(buf), SEED, 0);
	CHECK_FAILS(dsaio_pread_path(rig.handle, path, buf, 1, 0), -ENOENT, "new");
	CHECK_EQ(dsaio_pwrite_path(rig.handle, path, buf, sizeof(buf), 0), sizeof(buf));
	memset(buf, 0, sizeof(buf));
	CHECK_EQ(dsaio_pread_path(rig.handle, path, buf, sizeof(buf), 0), sizeof(buf));
	pattern_check(buf, sizeof(buf), SEED, 0, "by path");
	CHECK_EQ(dsaio_pread_path(rig.handle, path, buf, 100, BLOCK), 10);
}

TEST(detached, "a detached op needs no free; one that failed is returned with its message")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_completion ended[3];
	struct dsaio_op *ops[3];
	struct dsaio_file *file;
	uint8_t buf[BLOCK];
	void *nowhere = mmap(NULL, BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(nowhere != MAP_FAILED);
	file_make_pattern(daemon_path(rig.daemon, "f"), BLOCK, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	{
		const struct dsaio_io ios[3] = {
			{ DSAIO_READ, DSAIO_DETACHED, file, .buf = buf, .len = BLOCK,
			  .user_data = buf },
			{ DSAIO_READ, 0, file, .buf = buf, .len = BLOCK },
			{ DSAIO_READ, DSAIO_DETACHED, file, .buf = nowhere, .len = BLOCK },
		};

		CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(ios[0]), 3, 0, ops), 3);
	}
	CHECK(!ops[0] && ops[1] && !ops[2]);
	CHECK_EQ(dsaio_handle_reap(rig.handle, ended, sizeof(ended[0]), 3, 3, -1), 3);
	for (unsigned i = 0; i < 3; i++) {
		const struct dsaio_completion *c = &ended[i];

		if (c->result < 0) {
			CHECK_EQ(c->result, -EFAULT);
			CHECK_EQ(c->flags, DSAIO_COMPLETION_FREE);
			CHECK_MSG(strstr(dsaio_op_error(c->op), "pread"), "%s",
				  dsaio_op_error(c->op));
			dsaio_op_free(c->op);
			continue;
		}
		CHECK_EQ(c->result, BLOCK);
		CHECK_EQ(c->bytes, BLOCK);
		CHECK_EQ(c->flags, 0);
		CHECK(c->op == (c->user_data == buf ? NULL : ops[1]));
	}
	CHECK_EQ(dsaio_op_result(ops[1]), BLOCK);
	dsaio_op_free(ops[1]);
	CHECK_EQ(dsaio_handle_close(rig.handle, -1), 0); /* the error was seen */
	rig.handle = NULL;
}

TEST(sizes, "arrays of structs of a later version, and sizes that no version has")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct later_io {
		struct dsaio_io io;
		uint64_t more;
	} ios[2] = { { .more = 0 } };
	struct later_completion {
		struct dsaio_completion completion;
		uint64_t more;
	} ended[2];
	struct dsaio_file *file;
	uint8_t buf[2 * BLOCK];

	file_make_pattern(daemon_path(rig.daemon, "f"), 2 * BLOCK, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	for (unsigned i = 0; i < 2; i++)
		ios[i].io = (struct dsaio_io){
			DSAIO_READ,   .file = file,	.buf = buf + i * BLOCK,
			.len = BLOCK, .off = i * BLOCK, .user_data = &ended[i]
		};
	CHECK_EQ(dsaio_submit(rig.handle, &ios[0].io, sizeof(ios[0]), 2, 0, NULL), 2);
	memset(ended, 0xff, sizeof(ended));
	CHECK_EQ(dsaio_handle_reap(rig.handle, &ended[0].completion, sizeof(ended[0]), 2, 2, -1),
		 2);
	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQ(ended[i].completion.result, BLOCK);
		CHECK_EQ(ended[i].more, 0); /* what the library does not know */
	}
	CHECK(ended[0].completion.user_data != ended[1].completion.user_data);
	pattern_check(buf, sizeof(buf), SEED, 0, "read");
	ios[1].more = 1;
	CHECK_EQ(dsaio_submit(rig.handle, &ios[0].io, sizeof(ios[0]), 2, 0, NULL), 1);
	CHECK_FAILS(dsaio_submit(rig.handle, &ios[1].io, sizeof(ios[0]), 1, 0, NULL), -E2BIG,
		    "dsaio_io;" DSAIO_VERSION);
	CHECK_FAILS(dsaio_submit(rig.handle, &ios[0].io, 8, 1, 0, NULL), -EINVAL, "dsaio_io is 8");
	CHECK_FAILS(dsaio_handle_reap(rig.handle, &ended[0].completion, 8, 1, 1, -1), -EINVAL,
		    "dsaio_completion is 8");
	CHECK_EQ(handle_wait(rig.handle, -1), 1);
}

TEST_MAIN
