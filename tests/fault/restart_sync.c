/*
 * A sync in the middle of which the daemon crashes.
 *
 * Pages of the file are dirty, and the file's server fails to write them back.  Linux reports that once for each open
 * file description.  The daemon takes that report, and is killed before it can tell it.
 */
#include "tests/fuse.h"
#include "tests/private_memory.h"
#include "tests/restarting.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define FDS_MAX 80u /* a quarter of them are kept for files */

static const struct {
	const char *what;
	int write_error;
	bool is_cramped, is_cached;
	int result;
	const char *words; /* of the message */
} syncs[] = {
	{ "that failed", EIO, false, false, -EIO,
	  "fsync;writing back failed around a crash of the daemon" },
	{ "that went well", 0, false, false, 0, NULL },
	{ "that went well, of a file that was open before", 0, false, true, 0, NULL },
	{ "by a process that is short of descriptors", EIO, true, false, -ECONNRESET,
	  "fsync;may have met an error that is reported once: sync again" },
};

/* The file, whose descriptor is not kept in this process: those of other files are all that may be. */
static struct dsaio_file *file_without_descriptor(struct rig *rig, const char *path)
{
	struct rlimit before, limit;
	struct dsaio_file *file;

	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &before));
	limit = before;
	limit.rlim_cur = FDS_MAX;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	for (unsigned i = 0; i < FDS_MAX / 4; i++)
		CHECK_CALL(dsaio_open(rig->client, daemon_path(rig->daemon, test_text("%u", i)),
				      O_RDWR | O_CREAT, NULL, &file)); /* until the rig is closed */
	file = rig_file(rig, path, O_RDWR);
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &before));
	return file;
}

TEST_TABLE(syncs_again, syncs, "a sync during which the daemon crashed, and writing back")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(closep) int fd = -1;
	struct dsaio_file *file;
	struct dsaio_op *op;
	struct fuse fs;
	int64_t result;
	char *pages;

	test_needs_root();
	rig.daemon = daemon_start(DAEMON_ARGS("--user"));
	reconnecting(&rig);
	fuse_start(&fs, 0);
	if (syncs[row].is_cached) {
		CHECK_CALL(dsaio_open(rig.client, fuse_path(&fs, 'a'), O_RDWR, NULL, &file));
		dsaio_file_close(file);
	}
	file = syncs[row].is_cramped ? file_without_descriptor(&rig, fuse_path(&fs, 'a'))
				     : rig_file(&rig, fuse_path(&fs, 'a'), O_RDWR);
	CHECK_CALL(dsaio_fsync(rig.handle, file, 0));
	fd = (int)CHECK_SYS(open(fuse_path(&fs, 'a'), O_RDWR | O_CLOEXEC));
	pages = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(pages != MAP_FAILED);
	pages[0]++;
	atomic_store(&fs.control->hung_file, 'a');
	CHECK_CALL(dsaio_fsync_async(rig.handle, file, 0, &op));
	while (!atomic_load(&fs.control->n_hung))
		(void)usleep(1000);

	process_stop(rig.daemon->pid); /* the thread in fsync stops when that returns */
	atomic_store(&fs.control->write_error, syncs[row].write_error);
	fuse_answer_hung(&fs);
	daemon_hold(rig.daemon); /* it has */
	daemon_kill(rig.daemon);
	atomic_store(&fs.control->write_error, 0);
	rig.daemon = daemon_start(DAEMON_ARGS("--user"));
	result = op_wait(op, 20000000);
	if (syncs[row].result == 0)
		CHECK_EQ(result, 0);
	else
		check_fails("the sync", result, syncs[row].result,
			    result < 0 ? dsaio_op_error(op) : "", syncs[row].words, __FILE__,
			    __LINE__);
	dsaio_op_free(op);
	CHECK_CALL(dsaio_fsync(rig.handle, file, 0)); /* once is enough */
	CHECK_SYS(munmap(pages, 4096));
}

TEST_MAIN
