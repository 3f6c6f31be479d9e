/*
 * The file cache: what costs no open(2) the second time, and what is noticed.
 */
#include "tests/file_opens.h"
#include "tests/stores.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- what is found ---- */

TEST(again, "a file that was opened before is opened again without open(2)")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file, *twice;
	const char *path;
	void *memory;
	int fd;

	count_opens();
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, BLOCK, SEED);

	for (int i = 0; i < 3; i++)
		open_check_close(&rig, path, O_RDONLY, memory, SEED);
	open_check_close(&rig, path, O_RDONLY | O_CREAT | O_CLOEXEC, memory, SEED);
	CHECK_EQ(n_opens(path), 1);
	for (int i = 0; i < 3; i++) /* another access mode is another description */
		open_check_close(&rig, path, O_RDWR, memory, SEED);
	CHECK_EQ(n_opens(path), 2);

	file = open_file(&rig, path, O_RDWR);
	twice = open_file(&rig, path, O_RDWR);
	dsaio_file_close(file);
	check_file(&rig, twice, memory, SEED);
	dsaio_file_close(twice);
	CHECK_EQ(n_opens(path), 2);

	fd = (int)CHECK_SYS(open(path, O_RDONLY | O_CLOEXEC));
	for (int i = 0; i < 3; i++) {
		CHECK_CALL(dsaio_file_from_fd(rig.client, fd, &file));
		check_file(&rig, file, memory, SEED);
		dsaio_file_close(file);
	}
	CHECK_EQ(n_opens(path), 3);
	CHECK_SYS(close(fd));
	CHECK_FAILS(dsaio_file_from_fd(rig.client, fd, &file), -EBADF, "");
}

TEST(writes, "an idle file that is opened again is written, grows, is cut: all without open(2)")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	const char *path;
	void *start;
	uint8_t *memory;

	count_opens();
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, 4 * BLOCK, NULL, &start));
	memory = start;
	pattern_fill(memory, 4 * BLOCK, SEED, 0);
	path = daemon_path(rig.daemon, "f");

	for (size_t n = 1; n <= 4; n++) {
		file = open_file(&rig, path, O_RDWR | O_CREAT);
		CHECK_EQ(dsaio_pwrite(rig.handle, file, memory + (n - 1) * BLOCK, BLOCK,
				      (n - 1) * BLOCK),
			 BLOCK);
		CHECK_EQ(dsaio_file_size(file), n * BLOCK);
		dsaio_file_close(file);
		file_check_pattern(path, 0, n * BLOCK, SEED, 0);
	}
	/* unaligned writes use another description, which stays with the file */
	for (size_t n = 0; n < 3; n++) {
		file = open_file(&rig, path, O_RDWR);
		CHECK_EQ(dsaio_pwrite(rig.handle, file, memory + 4 * BLOCK - 100, 100,
				      4 * BLOCK - 100),
			 100);
		dsaio_file_close(file);
	}
	file_check_pattern(path, 0, 4 * BLOCK, SEED, 0);

	file = open_file(&rig, path, O_RDWR | O_TRUNC);
	CHECK_EQ(dsaio_file_size(file), 0);
	CHECK_EQ(file_size(path), 0);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, BLOCK, 0), BLOCK);
	dsaio_file_close(file);
	file = open_file(&rig, path, O_RDWR);
	CHECK_CALL(dsaio_file_truncate(file, 100));
	dsaio_file_close(file);
	CHECK_EQ(file_size(path), 100);
	CHECK_EQ(n_opens(path), 1);
}

static void read_by_path(struct rig *rig, const char *path, void *memory, uint64_t seed)
{
	CHECK_CALL(dsaio_pread_path_async(rig->handle, path, memory, BLOCK, 0, NULL));
	CHECK_EQ(handle_wait(rig->handle, -1), 1);
	pattern_check(memory, BLOCK, seed, 0, "read by path");
}

static void write_by_path(struct rig *rig, const char *path, void *memory, uint64_t seed)
{
	pattern_fill(memory, BLOCK, seed, 0);
	CHECK_CALL(dsaio_pwrite_path_async(rig->handle, path, memory, BLOCK, 0, NULL));
	CHECK_EQ(handle_wait(rig->handle, -1), 1);
	file_check_pattern(path, 0, BLOCK, seed, 0);
}

TEST(by_path, "reads and writes by path share one open file, where both are allowed")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *path, *other;
	void *memory;

	count_opens();
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	path = daemon_path(rig.daemon, "f");
	for (unsigned i = 0; i < 3; i++) {
		write_by_path(&rig, path, memory, SEED + i);
		read_by_path(&rig, path, memory, SEED + i);
	}
	CHECK_EQ(n_opens(path), 1);

	/* Another file by that name. */
	other = daemon_path(rig.daemon, "other");
	file_make_pattern(other, BLOCK, SEED + 9);
	CHECK_SYS(rename(other, path));
	read_by_path(&rig, path, memory, SEED + 9);
	CHECK_EQ(n_opens(path), 2);

	/* A file that was only read is opened for reading, also where it could be written. */
	write_by_path(&rig, path, memory, SEED + 10);
	read_by_path(&rig, path, memory, SEED + 10);
	CHECK_EQ(n_opens(path), 3);

	CHECK_FAILS(dsaio_pread_path_async(rig.handle, other, memory, BLOCK, 0, NULL), -ENOENT,
		    "open ");
}

/* Root, too, is refused what a file's mode does not allow. */
static void obey_modes(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	CHECK_SYS(syscall(SYS_capget, &header, data));
	data[0].effective &= ~(1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
	CHECK_SYS(syscall(SYS_capset, &header, data));
}

TEST(by_path_rights, "by path, each op needs the right that it uses, and no other")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const char *path;
	void *memory;

	obey_modes();
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	path = daemon_path(rig.daemon, "f");
	write_by_path(&rig, path, memory, SEED);
	CHECK_SYS(chmod(path, 0400)); /* open for both: a read goes on, a write does not */
	read_by_path(&rig, path, memory, SEED);
	CHECK_FAILS(dsaio_pwrite_path_async(rig.handle, path, memory, BLOCK, 0, NULL), -EACCES,
		    "open ");
	CHECK_SYS(chmod(path, 0200));
	CHECK_FAILS(dsaio_pread_path_async(rig.handle, path, memory, BLOCK, 0, NULL), -EACCES,
		    "open ");
	CHECK_CALL(dsaio_pwrite_path_async(rig.handle, path, memory, BLOCK, 0, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), 1);
	CHECK_SYS(chmod(path, 0600));
	read_by_path(&rig, path, memory, SEED);
	write_by_path(&rig, path, memory, SEED);

	/* A file server's thread that works for another user. */
	(void)setfsuid(NOBODY);
	if (setfsuid((uid_t)-1) == NOBODY)
		CHECK_FAILS(dsaio_pread_path_async(rig.handle, path, memory, BLOCK, 0, NULL),
			    -EACCES, "open ");
	(void)setfsuid(geteuid());
	read_by_path(&rig, path, memory, SEED);
}

/* From now on setfsuid(2) kills this process, as filters do with calls that they do not know. */
static void forbid_setfsuid(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setfsuid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

	CHECK_SYS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		test_skip("needs filters of system calls: %s", strerror(errno));
}

TEST(by_path_seccomp,
     "a filter that kills for setfsuid(2), set after the first reads by path, harms none")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *path;
	void *memory;

	count_opens();
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	path = daemon_path(rig.daemon, "f");
	write_by_path(&rig, path, memory, SEED);
	read_by_path(&rig, path, memory, SEED);
	forbid_setfsuid();
	read_by_path(&rig, path, memory, SEED);
	write_by_path(&rig, path, memory, SEED + 1);
	CHECK_EQ(n_opens(path), 1); /* they are of the cache */
}

TEST(by_path_immutable, "a file that became immutable is not written by path")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	_cleanup_(closep) int fd = -1;
	const char *path;
	void *memory;
	int flags, r;

	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	path = daemon_path(rig.daemon, "f");
	write_by_path(&rig, path, memory, SEED);
	fd = (int)CHECK_SYS(open(path, O_RDONLY | O_CLOEXEC));
	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
		test_skip("the file system has no immutable files");
	flags |= FS_IMMUTABLE_FL;
	if (ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0)
		test_skip("files can be made immutable only with CAP_LINUX_IMMUTABLE");
	r = dsaio_pwrite_path_async(rig.handle, path, memory, BLOCK, 0, NULL);
	flags &= ~FS_IMMUTABLE_FL;
	CHECK_SYS(ioctl(fd, FS_IOC_SETFLAGS, &flags));
	CHECK_EQ(r, -EPERM);
	write_by_path(&rig, path, memory, SEED + 1);
}

TEST(no_proc, "without /proc a file is written at odd offsets all the same")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;
	const char *path;
	void *memory;

	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	pattern_fill(memory, 100, SEED, 7);
	path = daemon_path(rig.daemon, "f");
	mounts_private();
	/* private, or the host would lose its own */
	if (mount(NULL, "/proc", NULL, MS_PRIVATE, NULL) < 0 ||
	    mount("none", "/proc", "tmpfs", 0, "size=1m") < 0)
		test_skip("needs to mount a tmpfs over /proc: %s", strerror(errno));
	file = open_file(&rig, path, O_RDWR | O_CREAT);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 100, 7), 100);
	dsaio_file_close(file);
	CHECK_SYS(umount("/proc"));
	file_check_pattern(path, 7, 100, SEED, 7);
}

TEST(excl, "O_EXCL never finds what is cached: it fails, or makes a file anew")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file, *old;
	const char *path;
	void *memory;

	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, BLOCK, SEED);
	old = open_file(&rig, path, O_RDWR);
	CHECK_FAILS(dsaio_open(rig.client, path, O_RDWR | O_CREAT | O_EXCL, NULL, &file), -EEXIST,
		    path);
	CHECK_SYS(unlink(path));
	file = open_file(&rig, path, O_RDWR | O_CREAT | O_EXCL);
	CHECK_EQ(dsaio_file_size(file), 0);
	dsaio_file_close(file);
	check_file(&rig, old, memory, SEED);
	dsaio_file_close(old);
	file = open_file(&rig, path, O_RDWR);
	CHECK_EQ(dsaio_file_size(file), 0);
	dsaio_file_close(file);
}

/* ---- what is noticed ---- */

TEST(directory, "the same relative path in another directory is another file")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *held;
	void *memory;

	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	for (int i = 0; i < 2; i++) {
		const char *dir = daemon_path(rig.daemon, i ? "b" : "a");

		CHECK_SYS(mkdir(dir, 0755));
		file_make_pattern(test_text("%s/f", dir), BLOCK, SEED + (uint64_t)i);
	}
	CHECK_SYS(chdir(daemon_path(rig.daemon, "a")));
	held = open_file(&rig, "f", O_RDONLY);
	for (int i = 0; i < 4; i++) {
		CHECK_SYS(chdir(daemon_path(rig.daemon, i % 2 ? "a" : "b")));
		open_check_close(&rig, "f", O_RDONLY, memory, i % 2 ? SEED : SEED + 1);
		check_file(&rig, held, memory, SEED);
		CHECK_EQ(dsaio_file_size(held), BLOCK);
	}
	dsaio_file_close(held);
	CHECK_SYS(chdir("/"));
}

TEST(number, "a descriptor's number that is used again for another file is another file")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *held, *file;
	const char *paths[2];
	void *memory;
	int fd;

	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	for (int i = 0; i < 2; i++) {
		paths[i] = daemon_path(rig.daemon, i ? "b" : "a");
		file_make_pattern(paths[i], BLOCK, SEED + (uint64_t)i);
	}
	fd = (int)CHECK_SYS(open(paths[0], O_RDWR | O_CLOEXEC));
	CHECK_CALL(dsaio_file_from_fd(rig.client, fd, &held));
	for (int i = 1; i < 5; i++) {
		int other = (int)CHECK_SYS(open(paths[i % 2], O_RDWR | O_CLOEXEC));

		CHECK_EQ(dup3(other, fd, O_CLOEXEC), fd);
		CHECK_SYS(close(other));
		CHECK_CALL(dsaio_file_from_fd(rig.client, fd, &file));
		check_file(&rig, file, memory, SEED + (uint64_t)(i % 2));
		dsaio_file_close(file);
		check_file(&rig, held, memory, SEED);
	}
	/* The same file, opened for reading: a description cached for writing is not used. */
	CHECK_SYS(close(fd));
	CHECK_EQ(open(paths[0], O_RDONLY | O_CLOEXEC), fd);
	CHECK_CALL(dsaio_file_from_fd(rig.client, fd, &file));
	CHECK_FAILS(dsaio_pwrite(rig.handle, file, memory, BLOCK, 0), -EBADF, paths[0]);
	dsaio_file_close(file);
	/* A descriptor that appends is refused, whatever had its number. */
	CHECK_SYS(close(fd));
	CHECK_EQ(open(paths[0], O_RDWR | O_APPEND | O_CLOEXEC), fd);
	CHECK_FAILS(dsaio_file_from_fd(rig.client, fd, &file), -EINVAL, "O_APPEND");
	CHECK_SYS(close(fd));
	dsaio_file_close(held);
}

TEST(child, "a forked child finds nothing in the cache, and the parent is undisturbed")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file, *held;
	const char *path;
	void *memory;
	pid_t pid;

	count_opens();
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, BLOCK, SEED);
	open_check_close(&rig, path, O_RDONLY, memory, SEED);
	held = open_file(&rig, path, O_RDWR);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		CHECK_FAILS(dsaio_open(rig.client, path, O_RDONLY, NULL, &file), -EPERM, "fork");
		CHECK_FAILS(dsaio_file_size(held), -EPERM, "fork");
		dsaio_file_close(held);
		_exit(0);
	}
	child_wait_ok(pid);
	check_file(&rig, held, memory, SEED);
	dsaio_file_close(held);
	open_check_close(&rig, path, O_RDONLY, memory, SEED);
	open_check_close(&rig, path, O_RDWR, memory, SEED);
	CHECK_EQ(n_opens(path), 2);
}

TEST_MAIN
