/*
 * E12: what happens to a file while the library has it cached: idle, open, or with ops open on it.
 *
 * Opened again, the path is what it is now; what is still open is the inode that it was.
 */
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define A 1 /* the file's bytes */
#define B 2 /* another's */
#define C 3 /* those that the library writes */
#define BYTES ((uint64_t)16384)
#define ROOM ((uint64_t)65536)
#define N_OPS 32
#define NOBODY 65534

/* The file at path and another, side by side in a directory of their own. */
struct scene {
	const char *dir, *path, *other;
};

/* ---- deeds ---- */

static void append(const char *path, uint64_t len, uint64_t seed, uint64_t pos)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_WRONLY | O_CLOEXEC));
	uint8_t bytes[BYTES];

	CHECK(len <= BYTES);
	pattern_fill(bytes, len, seed, pos);
	CHECK_EQ(pwrite(fd, bytes, len, (off_t)pos), len);
}

static void delete_it(const struct scene *s)
{
	CHECK_SYS(unlink(s->path));
}

static void make_anew(const struct scene *s)
{
	CHECK_SYS(unlink(s->path));
	file_make_pattern(s->path, BYTES, B);
}

static void truncate_all(const struct scene *s)
{
	CHECK_SYS(truncate(s->path, 0));
}

static void truncate_part(const struct scene *s)
{
	CHECK_SYS(truncate(s->path, 4196));
}

static void truncate_and_write(const struct scene *s)
{
	CHECK_SYS(truncate(s->path, 0));
	append(s->path, 8192, B, 0);
}

static void replace(const struct scene *s)
{
	CHECK_SYS(rename(s->other, s->path));
}

static void rename_over(const struct scene *s)
{
	CHECK_SYS(rename(s->path, s->other));
}

static void swap(const struct scene *s)
{
	CHECK_SYS(renameat2(AT_FDCWD, s->path, AT_FDCWD, s->other, RENAME_EXCHANGE));
}

static void move_and_return(const struct scene *s)
{
	rename_over(s);
	CHECK_SYS(rename(s->other, s->path));
}

static void grow(const struct scene *s)
{
	append(s->path, 1000, A, BYTES);
}

static void write_in_place(const struct scene *s)
{
	append(s->path, BYTES, B, 0);
}

static void link_it(const struct scene *s)
{
	CHECK_SYS(unlink(s->other));
	CHECK_SYS(link(s->path, s->other));
}

static void link_and_delete(const struct scene *s)
{
	link_it(s);
	delete_it(s);
}

static void link_other_there(const struct scene *s)
{
	delete_it(s);
	CHECK_SYS(link(s->other, s->path));
}

static void make_symlink(const struct scene *s)
{
	delete_it(s);
	CHECK_SYS(symlink(s->other, s->path));
}

static void make_directory(const struct scene *s)
{
	delete_it(s);
	CHECK_SYS(mkdir(s->path, 0755));
}

static void make_fifo(const struct scene *s)
{
	delete_it(s);
	CHECK_SYS(mkfifo(s->path, 0644));
}

static void replace_directory(const struct scene *s)
{
	CHECK_SYS(rename(s->dir, test_text("%s.old", s->dir)));
	CHECK_SYS(mkdir(s->dir, 0755));
	file_make_pattern(s->path, BYTES, B);
}

static const struct {
	const char *what;
	void (*deed)(const struct scene *scene);
	int error; /* of opening it again; else: */
	uint64_t len, seed;
	bool is_same; /* inode: what is open sees it, too */
} deeds[] = {
	{ "deleted", delete_it, -ENOENT, 0, 0, false },
	{ "deleted and made anew", make_anew, 0, BYTES, B, false },
	{ "truncated to nothing", truncate_all, 0, 0, A, true },
	{ "truncated within a block", truncate_part, 0, 4196, A, true },
	{ "truncated and written", truncate_and_write, 0, 8192, B, true },
	{ "replaced by another", replace, 0, BYTES, B, false },
	{ "renamed over another", rename_over, -ENOENT, 0, 0, false },
	{ "swapped with another", swap, 0, BYTES, B, false },
	{ "moved away and back", move_and_return, 0, BYTES, A, true },
	{ "grown", grow, 0, BYTES + 1000, A, true },
	{ "written in place", write_in_place, 0, BYTES, B, true },
	{ "linked", link_it, 0, BYTES, A, true },
	{ "linked, its first name deleted", link_and_delete, -ENOENT, 0, 0, false },
	{ "another linked at its place", link_other_there, 0, BYTES, B, false },
	{ "a symbolic link at its place", make_symlink, 0, BYTES, B, false },
	{ "a directory at its place", make_directory, -EISDIR, 0, 0, false },
	{ "a FIFO at its place", make_fifo, -EOPNOTSUPP, 0, 0, false },
	{ "its directory replaced", replace_directory, 0, BYTES, B, false },
};

/* ---- when ---- */

enum when { IDLE, OPEN, IN_USE };

static void check_read(struct rig *rig, struct dsaio_file *file, void *memory, uint64_t len,
		       uint64_t seed)
{
	memset(memory, 0xee, ROOM);
	CHECK_EQ(dsaio_pread(rig->handle, file, memory, ROOM, 0), len);
	pattern_check(memory, len, seed, 0, "read");
	CHECK_EQ(dsaio_file_size(file), len);
}

static void scene_make(struct scene *scene, const struct daemon *daemon)
{
	scene->dir = daemon_path(daemon, "d");
	scene->path = daemon_path(daemon, "d/f");
	scene->other = daemon_path(daemon, "d/g");
	CHECK_SYS(mkdir(scene->dir, 0755));
	file_make_pattern(scene->path, BYTES, A);
	file_make_pattern(scene->other, BYTES, B);
}

static void check_deed(struct daemon *daemon, int row, enum when when)
{
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
	struct dsaio_file *file, *held;
	struct scene scene;
	void *memory, *busy;

	scene_make(&scene, daemon);
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, ROOM, NULL, &memory));
	CHECK_CALL(dsaio_alloc(rig.client, N_OPS * BYTES, NULL, &busy));
	CHECK_CALL(dsaio_open(rig.client, scene.path, O_RDWR, NULL, &held));
	check_read(&rig, held, memory, BYTES, A);

	for (unsigned i = 0; when == IN_USE && i < N_OPS; i++)
		CHECK_CALL(dsaio_pread_async(rig.handle, held, (char *)busy + i * BYTES, BYTES, 0,
					     NULL));
	if (when == IDLE)
		dsaio_file_close(held);
	deeds[row].deed(&scene);
	if (when == IN_USE) /* what they read is of before, or after */
		CHECK_EQ(handle_wait(rig.handle, -1), N_OPS);

	if (deeds[row].error) {
		CHECK_FAILS(dsaio_open(rig.client, scene.path, O_RDWR, NULL, &file),
			    deeds[row].error, scene.path);
	} else {
		CHECK_CALL(dsaio_open(rig.client, scene.path, O_RDWR, NULL, &file));
		check_read(&rig, file, memory, deeds[row].len, deeds[row].seed);
	}
	if (when != IDLE) {
		if (deeds[row].is_same)
			check_read(&rig, held, memory, deeds[row].len, deeds[row].seed);
		else
			check_read(&rig, held, memory, BYTES, A);
	}
	if (!deeds[row].error) { /* and what is written goes to where the path is now */
		pattern_fill(memory, ROOM, C, 0);
		CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, ROOM, 0), ROOM);
		file_check_pattern(scene.path, 0, ROOM, C, 0);
		CHECK_EQ(file_size(scene.path), ROOM);
		dsaio_file_close(file);
	}
	if (when != IDLE) {
		if (!deeds[row].is_same)
			check_read(&rig, held, memory, BYTES, A);
		dsaio_file_close(held);
	}
}

static int fault_row;
static enum when fault_when;

static void deed_body(struct daemon *daemon)
{
	check_deed(daemon, fault_row, fault_when);
}

TEST_TABLE(e12_idle, deeds, "E12 idle in the cache, and then")
{
	fault_row = row;
	fault_when = IDLE;
	fault_run(deed_body);
}

TEST_TABLE(e12_open, deeds, "E12 cached and open, and then")
{
	fault_row = row;
	fault_when = OPEN;
	fault_run(deed_body);
}

TEST_TABLE(e12_in_use, deeds, "E12 cached and with ops open, and then")
{
	fault_row = row;
	fault_when = IN_USE;
	fault_run(deed_body);
}

/* ---- rights ---- */

static const struct {
	const char *what;
	mode_t file_mode, dir_mode;
	int read_error, write_error;
} rights[] = {
	{ "all are taken", 0, 0755, -EACCES, -EACCES },
	{ "those to write are taken", 0444, 0755, 0, -EACCES },
	{ "those to read are taken", 0222, 0755, -EACCES, 0 },
	{ "its directory is closed", 0666, 0600, -EACCES, -EACCES },
	{ "none are taken", 0666, 0755, 0, 0 },
};

static void check_open(struct dsaio_client *client, const char *path, int flags, int error)
{
	struct dsaio_file *file;

	if (error) {
		CHECK_FAILS(dsaio_open(client, path, flags, NULL, &file), error, path);
	} else {
		CHECK_CALL(dsaio_open(client, path, flags, NULL, &file));
		dsaio_file_close(file);
	}
}

/* An ordinary user: file modes apply. */
static void rights_of_a_user(struct daemon *daemon, int row)
{
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
	struct dsaio_file *held;
	struct scene scene;
	void *memory;

	scene_make(&scene, daemon);
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, ROOM, NULL, &memory));
	check_open(rig.client, scene.path, O_RDONLY, 0);
	check_open(rig.client, scene.path, O_WRONLY, 0);
	CHECK_CALL(dsaio_open(rig.client, scene.path, O_RDWR, NULL, &held));

	CHECK_SYS(chmod(scene.path, rights[row].file_mode));
	CHECK_SYS(chmod(scene.dir, rights[row].dir_mode));
	check_open(rig.client, scene.path, O_RDONLY, rights[row].read_error);
	check_open(rig.client, scene.path, O_WRONLY, rights[row].write_error);
	check_read(&rig, held, memory, BYTES, A); /* what is open stays so */
	CHECK_SYS(chmod(scene.dir, 0755));
	CHECK_SYS(chmod(scene.path, 0666));
	check_open(rig.client, scene.path, O_RDONLY, 0);
	check_open(rig.client, scene.path, O_WRONLY, 0);
	dsaio_file_close(held);
}

static void rights_body(struct daemon *daemon)
{
	pid_t pid;

	CHECK_SYS(chmod(test_dir(), 0777));
	CHECK_SYS(chmod(daemon->store_dir, 0777));
	CHECK_SYS(chmod(daemon->socket_path, 0666));
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		if (geteuid() == 0)
			child_become(NOBODY);
		rights_of_a_user(daemon, fault_row);
		_exit(0);
	}
	child_wait_ok(pid);
}

TEST_TABLE(e12_rights, rights, "E12 cached, and then of its rights")
{
	fault_row = row;
	fault_run(rights_body);
}

TEST_MAIN
