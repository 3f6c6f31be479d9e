/*
 * Direct and buffered writes of one sparse file by a channel of little depth.  The kernel returns
 * direct writes to holes (RWF_NOWAIT), and they wait for the mode lock while they count in the depth.
 * The buffered write that the lock was reserved for waited for depth: no op of the file, of whatever
 * client, ended any more.
 */
#include "tests/harness.h"
#include "tests/victim.h"

#include <fcntl.h>

#define BLOCK (64u << 10)
#define DEPTH_MAX 8u

static const struct {
	const char *what;
	uint32_t depth;
} depths[] = {
	{ "depth 1", 1 }, { "depth 2", 2 },	    { "depth 3", 3 },
	{ "depth 4", 4 }, { "depth 8", DEPTH_MAX },
};

TEST_TABLE(returned, depths, "returned blocks that fill the depth keep no mode lock from others")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	const unsigned n = depths[row].depth + 2;
	struct dsaio_op *ops[DEPTH_MAX + 2];
	char *memory;

	profile.block_size = BLOCK;
	profile.queue_depth = depths[row].depth;
	rig_open(&rig, &profile);
	CHECK_CALL(dsaio_alloc(rig.client, (size_t)n * 2 * BLOCK, NULL, (void **)&memory));
	for (int round = 0; round < 20; round++) {
		struct dsaio_io ios[DEPTH_MAX + 2] = { 0 };
		char *path = daemon_path(rig.daemon, test_text("f%d", round));
		struct dsaio_file *file;

		file_make_sparse(path, 64 << 20);
		CHECK_CALL(dsaio_open(rig.client, path, O_RDWR, NULL, &file));
		for (unsigned i = 0; i < n; i++) {
			bool is_buffered = i == 0 || i == 2;
			uint32_t odd = is_buffered ? 100 : 0;

			ios[i] = (struct dsaio_io){ .opcode = DSAIO_WRITE,
						    .file = file,
						    .off = (uint64_t)(i + 1) * (4 << 20) + odd,
						    .buf = memory + (size_t)i * 2 * BLOCK + odd,
						    .len = is_buffered ? 100 : BLOCK };
		}
		CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(struct dsaio_io), (int)n, 0, ops), n);
		for (unsigned i = 0; i < n; i++) {
			int64_t result;

			CHECK_CALL(dsaio_op_wait(ops[i], 20000000, &result));
			CHECK_EQ(result, ios[i].len);
			dsaio_op_free(ops[i]);
		}
		dsaio_file_close(file);
	}
}
TEST_MAIN
