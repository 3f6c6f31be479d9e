/*
 * dsaio_open: names, flags and mode; and one file that is open several times.
 */
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEED 8
#define BLOCK ((size_t)4096)
#define NOBODY 65534

static int open_with(struct rig *rig, const char *name, int flags, uint32_t uri, uint32_t mode,
		     struct dsaio_file **ret_file)
{
	struct dsaio_open_options options = DSAIO_OPEN_OPTIONS_INIT;

	options.flags = uri;
	options.mode = mode;
	return dsaio_open(rig->client, name, flags, &options, ret_file);
}

TEST(names, "a path and its URI are the same file")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *by_path, *by_uri;
	uint8_t buf[BLOCK];
	char *path;

	path = daemon_path(rig.daemon, "with space");
	file_make_pattern(path, BLOCK, SEED);
	CHECK_CALL(dsaio_open(rig.client, path, O_RDONLY, NULL, &by_path));
	CHECK_CALL(open_with(&rig, test_text("file://%s%%20space", daemon_path(rig.daemon, "with")),
			     O_RDONLY, DSAIO_OPEN_URI, 0, &by_uri));
	CHECK_EQ(dsaio_pread(rig.handle, by_uri, buf, BLOCK, 0), BLOCK);
	pattern_check(buf, BLOCK, SEED, 0, "by URI");
	CHECK_EQ(dsaio_file_size(by_path), BLOCK);
	CHECK_EQ(dsaio_pwrite(rig.handle, by_path, buf, BLOCK, 0), -EBADF); /* for reading alone */
	dsaio_file_close(by_path);
	CHECK_EQ(dsaio_pread(rig.handle, by_uri, buf, BLOCK, 0), BLOCK);
	dsaio_file_close(by_uri);
	/* Without the flag it is a path. */
	CHECK_FAILS(dsaio_open(rig.client, test_text("file://%s", path), O_RDONLY, NULL, &by_path),
		    -ENOENT, "file://");
}

static const struct {
	const char *what, *name; /* NULL: in the store */
	int flags;
	uint32_t options, mode;
	int error;
	const char *words;
} wrong[] = {
	{ "an unknown scheme", "s3://pool/x", O_RDONLY, DSAIO_OPEN_URI, 0, -EPROTONOSUPPORT,
	  "s3;" DSAIO_VERSION },
	{ "another host", "file://host/x", O_RDONLY, DSAIO_OPEN_URI, 0, -EINVAL, "file://host/x" },
	{ "appending", NULL, O_WRONLY | O_APPEND, 0, 0, -EINVAL, "O_APPEND" },
	{ "a flag of a later version", NULL, O_RDONLY, 32, 0, -E2BIG, "0x20;" DSAIO_VERSION },
	{ "a mode that is none", NULL, O_RDONLY, 0, 010000, -EINVAL, "010000" },
	{ "no such file", "/nowhere/x", O_RDONLY, 0, 0, -ENOENT, "/nowhere/x" },
	{ "there is one", NULL, O_WRONLY | O_CREAT | O_EXCL, 0, 0, -EEXIST, "f" },
};

TEST_TABLE(refused, wrong, "dsaio_open refuses")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;
	char *path;

	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, BLOCK, SEED);
	CHECK_FAILS(open_with(&rig, wrong[row].name ? wrong[row].name : path, wrong[row].flags,
			      wrong[row].options, wrong[row].mode, &file),
		    wrong[row].error, wrong[row].words);
	CHECK_EQ(file_size(path), BLOCK);
	CHECK_CALL(dsaio_open(rig.client, path, O_RDONLY, NULL, &file));
	dsaio_file_close(file);
}

TEST(modes, "a file that dsaio_open makes has its mode, less the umask; one that exists keeps it")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const int make = O_RDWR | O_CREAT;
	static const struct {
		const char *name;
		uint32_t mode, got;
	} files[] = { { "default", 0, 0640 }, { "private", 0600, 0600 }, { "all", 0777, 0750 } };
	struct dsaio_file *file;
	uint8_t buf[BLOCK] = { 1 };
	struct stat st;

	(void)umask(027);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		char *path = daemon_path(rig.daemon, files[i].name);

		CHECK_CALL(open_with(&rig, path, make, 0, files[i].mode, &file));
		CHECK_EQ(dsaio_pwrite(rig.handle, file, buf, BLOCK, 0), BLOCK);
		dsaio_file_close(file);
		CHECK_SYS(stat(path, &st));
		CHECK_EQ(st.st_mode & 07777, files[i].got);
		CHECK_CALL(open_with(&rig, path, make | O_TRUNC, 0, 0444, &file));
		dsaio_file_close(file);
		CHECK_SYS(stat(path, &st));
		CHECK_EQ(st.st_mode & 07777, files[i].got);
		CHECK_EQ(st.st_size, 0);
	}
}

/* ---- one path, open several times ---- */

struct user {
	struct rig *rig;
	pthread_t thread;
	_Atomic bool *must_end;
	unsigned n_rounds;
};

/* Opens, reads and closes all the time. */
static void *user_run(void *arg)
{
	struct user *u = arg;
	const char *path = daemon_path(u->rig->daemon, "f");
	uint8_t buf[BLOCK];

	while (!atomic_load(u->must_end)) {
		uint64_t off = u->n_rounds++ % 16 * BLOCK;
		struct dsaio_file *file;

		CHECK_CALL(dsaio_open(u->rig->client, path, O_RDONLY, NULL, &file));
		CHECK_EQ(dsaio_pread(u->rig->handle, file, buf, BLOCK, off), BLOCK);
		pattern_check(buf, BLOCK, SEED, off, "of a thread");
		dsaio_file_close(file);
	}
	return NULL;
}

TEST(several, "threads open and close a path while another uses its own open of it")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	_Atomic bool must_end = false;
	struct user users[3];
	struct dsaio_file *file;
	uint8_t buf[BLOCK];

	file_make_pattern(daemon_path(rig.daemon, "f"), 16 * BLOCK, SEED);
	CHECK_CALL(dsaio_open(rig.client, daemon_path(rig.daemon, "f"), O_RDONLY, NULL, &file));
	for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
		users[i] = (struct user){ .rig = &rig, .must_end = &must_end };
		CHECK_EQ(pthread_create(&users[i].thread, NULL, user_run, &users[i]), 0);
	}
	for (unsigned i = 0; i < 3000; i++) {
		CHECK_EQ(dsaio_pread(rig.handle, file, buf, BLOCK, i % 16 * BLOCK), BLOCK);
		pattern_check(buf, BLOCK, SEED, i % 16 * BLOCK, "of the own open");
		CHECK_EQ(dsaio_file_size(file), 16 * BLOCK);
	}
	atomic_store(&must_end, true);
	for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
		CHECK_EQ(pthread_join(users[i].thread, NULL), 0);
		CHECK(users[i].n_rounds);
	}
	dsaio_file_close(file);
}

TEST(several_replaced, "a file that was replaced stays what it was for those that have it open")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *before, *same, *after;
	uint8_t buf[BLOCK];
	char *path, *next;

	path = daemon_path(rig.daemon, "f");
	next = daemon_path(rig.daemon, "next");
	file_make_pattern(path, BLOCK, SEED);
	file_make_pattern(next, BLOCK, SEED + 1);
	CHECK_CALL(dsaio_open(rig.client, path, O_RDONLY, NULL, &before));
	CHECK_CALL(dsaio_open(rig.client, path, O_RDONLY, NULL, &same));
	CHECK_SYS(rename(next, path));
	CHECK_CALL(dsaio_open(rig.client, path, O_RDONLY, NULL, &after));
	dsaio_file_close(same);
	CHECK_EQ(dsaio_pread(rig.handle, before, buf, BLOCK, 0), BLOCK);
	pattern_check(buf, BLOCK, SEED, 0, "before");
	CHECK_EQ(dsaio_pread(rig.handle, after, buf, BLOCK, 0), BLOCK);
	pattern_check(buf, BLOCK, SEED + 1, 0, "after");
	dsaio_file_close(after);
	CHECK_EQ(dsaio_pread(rig.handle, before, buf, BLOCK, 0), BLOCK);
	pattern_check(buf, BLOCK, SEED, 0, "before, again");
	dsaio_file_close(before);
}

/* ---- descriptors ---- */

TEST(foreign, "a descriptor that this user cannot open anew takes writes of whole sectors")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(closep) int fd = -1;
	struct dsaio_file *file;
	const char *path;
	void *memory;
	size_t align;

	test_needs_root();
	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, 2 * BLOCK, SEED);
	fd = (int)CHECK_SYS(open(path, O_RDWR | O_DIRECT | O_CLOEXEC));
	CHECK_SYS(chmod(path, 0));
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	CHECK_SYS(seteuid(NOBODY));
	CHECK_CALL(dsaio_file_from_fd(rig.client, fd, &file));
	CHECK_SYS(seteuid(0));
	align = dsaio_file_alignment(file);
	pattern_fill(memory, align, SEED + 1, align);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, align, align), align);
	CHECK_FAILS(dsaio_pwrite(rig.handle, file, memory, 1, 0), -EACCES,
		    "cannot be reopened;dsaio_file_alignment()");
	dsaio_file_close(file);
	file_check_pattern(path, 0, align, SEED, 0);
	file_check_pattern(path, align, align, SEED + 1, align);
	CHECK_CALL(dsaio_open(rig.client, path, O_RDONLY, NULL, &file));
	CHECK_EQ(dsaio_file_alignment(file), align); /* the device's, as of all reads */
	dsaio_file_close(file);
	CHECK_CALL(dsaio_open(rig.client, path, O_RDWR, NULL, &file));
	CHECK_EQ(dsaio_file_alignment(file), 4096);
	dsaio_file_close(file);
	CHECK_CALL(dsaio_free(rig.client, memory));
}

TEST_MAIN
