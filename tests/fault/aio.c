/*
 * C14: the kernel's budget of libaio contexts, fs.aio-max-nr, is used up by somebody else.
 *
 * Run alone: for a moment no other daemon on this machine can start a lane.
 */
#include "tests/harness.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static aio_context_t contexts[4096];
static unsigned n_contexts;

static void contexts_release(void)
{
	while (n_contexts)
		(void)syscall(SYS_io_destroy, contexts[--n_contexts]); /* they die with us anyway */
}

static uint64_t number_of(const char *path)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	uint64_t n = 0;

	CHECK_MSG(file, "%s", path);
	CHECK_EQ(fscanf(file, "%" SCNu64, &n), 1);
	return n;
}

/* Takes all that is left, in halves; the kernel frees them when this process ends. */
static void contexts_take(void)
{
	for (unsigned n = 1u << 20; n; n /= 2)
		while (n_contexts < ARRAY_SIZE(contexts) &&
		       !syscall(SYS_io_setup, n, &contexts[n_contexts]))
			n_contexts++;
	test_note("aio-nr %" PRIu64 " of aio-max-nr %" PRIu64, number_of("/proc/sys/fs/aio-nr"),
		  number_of("/proc/sys/fs/aio-max-nr"));
}

TEST(c14_store, "C14 aio-max-nr exhausted: -EAGAIN names it, and a store that runs goes on")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *dir = test_dir_in("/dev/shm");
	void *buf;

	if (number_of("/proc/sys/fs/aio-max-nr") > 4 << 20)
		test_skip("fs.aio-max-nr is too large to be used up");
	rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("m=%s", dir)));
	beside_start(rig.daemon);
	rig_open(&rig, NULL);
	file_make_pattern(test_text("%s/f", dir), 65536, 1);
	rig_file(&rig, test_text("%s/f", dir), O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, &buf));

	contexts_take();
	CHECK_FAILS(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 0), -EAGAIN, "fs.aio-max-nr");
	beside_ok();
	contexts_release();
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 0), 4096);
	pattern_check(buf, 4096, 1, 0, "read when there is room again");
	beside_ok();
}

TEST(c14_start, "C14 a daemon that starts while aio-max-nr is exhausted serves when there is room")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	void *buf;

	if (number_of("/proc/sys/fs/aio-max-nr") > 4 << 20)
		test_skip("fs.aio-max-nr is too large to be used up");
	contexts_take();
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 4096, 1);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, &buf));
	CHECK_FAILS(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDWR), buf, 4096, 0), -EAGAIN,
		    "fs.aio-max-nr");
	contexts_release();
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 0), 4096);
}

TEST(c14_lanes, "C14 too few contexts for all parts of a profile: served with the lanes there are")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_handle *handle;
	void *memory;

	if (number_of("/proc/sys/fs/aio-max-nr") > 4 << 20)
		test_skip("fs.aio-max-nr is too large to be used up");
	rig_open(&rig, NULL);
	beside_start(rig.daemon);
	CHECK_CALL(dsaio_alloc(rig.client, 8 * MIB, &memory));
	pattern_fill(memory, 8 * MIB, 1, 0);
	rig_file(&rig, "f", O_RDWR | O_CREAT);
	contexts_take();
	profile.intra_op_parallelism = 4;
	CHECK_CALL(dsaio_handle_open(rig.client, &profile, &handle));
	CHECK_EQ(dsaio_pwrite(handle, rig.files[0], memory, 8 * MIB, 0), 8 * MIB);
	contexts_release();
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, 8 * MIB, 1, 0);
	dsaio_handle_close(handle);
	beside_ok();
}

TEST_MAIN
