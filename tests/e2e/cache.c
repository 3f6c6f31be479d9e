/*
 * The file cache: what costs no open(2) the second time, what is noticed, what is bounded, and that
 * the space of deleted files comes back.
 *
 * How often the library really opened a file is read in $DSAIO_DEBUG's file.
 */
#include "tests/stores.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEED 12
#define BLOCK ((size_t)4096)
#define NOBODY 65533

/* ---- how often a file was opened ---- */

/* Before the first call of the library. */
static void count_opens(void)
{
	CHECK_SYS(setenv("DSAIO_DEBUG", test_text("%s/debug", test_dir()), 1));
}

/* Lines of the debug file with that text. */
static unsigned debug_lines(const char *text)
{
	_cleanup_(fclosep) FILE *file = fopen(test_text("%s/debug", test_dir()), "re");
	_cleanup_(freep) char *line = NULL;
	size_t size = 0;
	unsigned n = 0;

	while (file && getline(&line, &size, file) >= 0)
		if (strstr(line, text))
			n++;
	return n;
}

/* All files, or one. */
static unsigned n_opens(const char *path)
{
	return path ? debug_lines(test_text(" open %s: file ", path)) : debug_lines(": file 0x");
}

static unsigned n_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir); /* was only read */
	return n - 3;	     /* ".", ".." and its own */
}

static void check_file(struct rig *rig, struct dsaio_file *file, void *memory, uint64_t seed)
{
	CHECK_EQ(dsaio_pread(rig->handle, file, memory, BLOCK, 0), BLOCK);
	pattern_check(memory, BLOCK, seed, 0, "read");
}

static struct dsaio_file *open_file(struct rig *rig, const char *path, int flags)
{
	struct dsaio_file *file;

	CHECK_CALL(dsaio_file_open(rig->client, path, flags, &file));
	return file;
}

static void open_check_close(struct rig *rig, const char *path, int flags, void *memory,
			     uint64_t seed)
{
	struct dsaio_file *file = open_file(rig, path, flags);

	check_file(rig, file, memory, seed);
	dsaio_file_close(file);
}

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
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, &memory));
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
	CHECK_CALL(dsaio_alloc(rig.client, 4 * BLOCK, &start));
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
	CHECK_CALL(dsaio_truncate(file, 100));
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
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, &memory));
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
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *path;
	void *memory;

	rig_open(&rig, NULL);
	obey_modes();
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, &memory));
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
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, &memory));
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
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(closep) int fd = -1;
	const char *path;
	void *memory;
	int flags, r;

	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, &memory));
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
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	const char *path;
	void *memory;

	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, &memory));
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
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file, *old;
	const char *path;
	void *memory;

	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, &memory));
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, BLOCK, SEED);
	old = open_file(&rig, path, O_RDWR);
	CHECK_FAILS(dsaio_file_open(rig.client, path, O_RDWR | O_CREAT | O_EXCL, &file), -EEXIST,
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
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *held;
	void *memory;

	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, &memory));
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
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *held, *file;
	const char *paths[2];
	void *memory;
	int fd;

	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, &memory));
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
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, &memory));
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, BLOCK, SEED);
	open_check_close(&rig, path, O_RDONLY, memory, SEED);
	held = open_file(&rig, path, O_RDWR);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		CHECK_FAILS(dsaio_file_open(rig.client, path, O_RDONLY, &file), -EPERM, "fork");
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

/* ---- bounds ---- */

static struct daemon *daemon_with_files(unsigned client_files)
{
	char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");

	CHECK(file);
	CHECK(fprintf(file, "[daemon]\nclient_files = %u\nuser_files = %u\n", client_files,
		      2 * client_files) > 0);
	CHECK(fflush(file) == 0);
	return daemon_start(DAEMON_ARGS("--config", path));
}

static uint32_t files_of_client(const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	uint32_t n = 0;

	daemon_status(daemon, &answer);
	for (size_t i = 0; i < answer.reply->status->n_clients; i++)
		n += answer.reply->status->clients[i]->files;
	return n;
}

static char *numbered(const struct daemon *daemon, unsigned i)
{
	return daemon_path(daemon, test_text("%u", i));
}

TEST(bound, "idle files make room, the longest idle first, and at the bound those in use remain")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const unsigned max = 64, kept = max - max / 8, n = 200;
	struct dsaio_file *used[64], *file;
	void *memory;

	count_opens();
	rig.daemon = daemon_with_files(max);
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, &memory));
	for (unsigned i = 0; i < n; i++)
		file_make_pattern(numbered(rig.daemon, i), BLOCK, i);

	for (unsigned i = 0; i < n; i++) {
		open_check_close(&rig, numbered(rig.daemon, i), O_RDONLY, memory, i);
		open_check_close(&rig, numbered(rig.daemon, 0), O_RDONLY, memory, 0);
	}
	CHECK_EQ(n_opens(NULL), n); /* the first is never the longest idle */
	CHECK_EQ(files_of_client(rig.daemon), kept);
	for (unsigned i = n - kept + 1; i < n; i++)
		open_check_close(&rig, numbered(rig.daemon, i), O_RDONLY, memory, i);
	CHECK_EQ(n_opens(NULL), n);

	/* In use there can be as many as the daemon grants; then it says no. */
	for (unsigned i = 0; i < max; i++)
		used[i] = open_file(&rig, numbered(rig.daemon, i), O_RDONLY);
	CHECK_FAILS(dsaio_file_open(rig.client, numbered(rig.daemon, max), O_RDONLY, &file),
		    -EMFILE, "");
	dsaio_file_close(used[0]);
	open_check_close(&rig, numbered(rig.daemon, max), O_RDONLY, memory, max);
	for (unsigned i = 1; i < max; i++) {
		check_file(&rig, used[i], memory, i);
		dsaio_file_close(used[i]);
	}
	CHECK_EQ(files_of_client(rig.daemon), kept);
}

/* Writes, grows, measures and cuts it, and leaves block 0 as it was. */
static void use_file(struct rig *rig, struct dsaio_file *file, void *memory, uint64_t seed)
{
	pattern_fill(memory, BLOCK, seed, BLOCK);
	CHECK_EQ(dsaio_pwrite(rig->handle, file, memory, BLOCK, BLOCK), BLOCK);
	CHECK_EQ(dsaio_pwrite(rig->handle, file, (char *)memory + 50, 50, BLOCK + 50), 50);
	CHECK_EQ(dsaio_file_size(file), 2 * BLOCK);
	memset(memory, 0, BLOCK);
	CHECK_EQ(dsaio_pread(rig->handle, file, memory, BLOCK, BLOCK), BLOCK);
	pattern_check(memory, BLOCK, seed, BLOCK, "what was written");
	CHECK_CALL(dsaio_truncate(file, BLOCK));
}

TEST(descriptors, "2,000 files are in use at once in a process that may have 256 descriptors")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const unsigned n = 2000, n_used = 100;
	_cleanup_(freep) struct dsaio_file **files = calloc(n, sizeof(*files));
	struct rlimit limit;
	unsigned before;
	uint8_t *memory;
	void *start;

	test_time_limit(120);
	CHECK(files);
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, n * BLOCK, &start));
	memory = start;
	for (unsigned i = 0; i < n; i++)
		file_make_pattern(numbered(rig.daemon, i), BLOCK, i);
	check_file(&rig, rig_file(&rig, "0", O_RDWR), memory, 0); /* makes the channel */
	before = n_fds();
	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 256;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));

	for (unsigned i = 0; i < n; i++) {
		files[i] = open_file(&rig, numbered(rig.daemon, i), O_RDWR);
		CHECK_CALL(dsaio_pread_async(rig.handle, files[i], memory + i * BLOCK, BLOCK, 0,
					     NULL));
	}
	CHECK_EQ(handle_wait(rig.handle, -1), n);
	for (unsigned i = 0; i < n; i++)
		pattern_check(memory + i * BLOCK, BLOCK, i, 0, "read");
	test_note("%u descriptors for %u files", n_fds() - before, n);
	CHECK(n_fds() - before <= 64);
	for (unsigned i = 0; i < n; i += n / n_used)
		use_file(&rig, files[i], memory, i);
	CHECK(n_fds() - before <= 64);
	for (unsigned i = 0; i < n; i++) {
		CHECK_EQ(dsaio_file_size(files[i]), BLOCK);
		dsaio_file_close(files[i]);
	}
	CHECK(n_fds() <= before);
	for (unsigned i = 0; i < n; i += n / n_used) /* again, from the cache */
		open_check_close(&rig, numbered(rig.daemon, i), O_RDWR, memory, i);
	CHECK(n_fds() <= before);
	limit.rlim_cur = limit.rlim_max;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
}

/* ---- threads ---- */

#define N_THREADS 8
#define N_ROUNDS 200
#define N_SHARED 4

struct crowd {
	struct rig *rig;
	_Atomic unsigned next;
};

/* Each file is of one seed whole, old or new; and is replaced all the time. */
static void *crowd_run(void *arg)
{
	struct crowd *crowd = arg;
	unsigned me = atomic_fetch_add(&crowd->next, 1);
	struct rig *rig = crowd->rig;
	struct dsaio_handle *handle;
	uint64_t random = me + 1;
	void *memory;

	CHECK_CALL(dsaio_handle_open(rig->client, NULL, &handle));
	CHECK_CALL(dsaio_alloc(rig->client, BLOCK, &memory));
	for (unsigned i = 0; i < N_ROUNDS; i++) {
		unsigned which = (unsigned)(test_random(&random) % (N_SHARED + 1));
		bool is_own = which == N_SHARED;
		char *path = numbered(rig->daemon, is_own ? 100 + me : which);
		int flags = test_random(&random) % 2 ? O_RDWR : O_RDONLY;
		struct dsaio_file *file;

		CHECK_CALL(dsaio_file_open(rig->client, path, flags, &file));
		CHECK_EQ(dsaio_pread(handle, file, memory, BLOCK, 0), BLOCK);
		if (pattern_compare(memory, BLOCK, which, 0) >= 0)
			pattern_check(memory, BLOCK, which + 1000, 0, path);
		if (test_random(&random) % 2) /* closed with an op open */
			CHECK_CALL(dsaio_pread_async(handle, file, memory, BLOCK, 0, NULL));
		dsaio_file_close(file);
		CHECK(handle_wait(handle, -1) >= 0);
		if (test_random(&random) % 8 == 0) {
			char *fresh = test_text("%s.%u", path, me);

			file_make_pattern(fresh, BLOCK, which + (i % 2 ? 1000 : 0));
			CHECK_SYS(rename(fresh, path));
		}
	}
	dsaio_handle_close(handle);
	return NULL;
}

TEST(threads, "threads open, read, replace and close the same and different paths")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct crowd crowd = { .rig = &rig };
	pthread_t threads[N_THREADS];

	test_time_limit(120);
	rig_open(&rig, NULL);
	for (unsigned i = 0; i < N_SHARED; i++)
		file_make_pattern(numbered(rig.daemon, i), BLOCK, i);
	for (unsigned i = 0; i < N_THREADS; i++)
		file_make_pattern(numbered(rig.daemon, 100 + i), BLOCK, N_SHARED);
	for (unsigned i = 0; i < N_THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, crowd_run, &crowd), 0);
	for (unsigned i = 0; i < N_THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* ---- space ---- */

/* A file system of the test's own, so that nobody else moves its free space. */
static const char *own_tmpfs(void)
{
	const char *dir = test_dir_in(test_dir());

	mounts_private();
	if (mount("none", dir, "tmpfs", 0, "size=256m") < 0)
		test_skip("needs to mount a tmpfs: %s", strerror(errno));
	return dir;
}

static uint64_t free_bytes(const char *dir)
{
	struct statfs fs;

	CHECK_SYS(statfs(dir, &fs));
	return (uint64_t)fs.f_bfree * (uint64_t)fs.f_bsize;
}

/* Nobody tells of it: looks each 50 ms, without a call of the library.  Returns seconds. */
static double wait_free(const char *dir, uint64_t bytes)
{
	int64_t start = now_usec();

	while (free_bytes(dir) < bytes) {
		if (now_usec() - start > 15000000)
			test_fail("after 15 s %" PRIu64 " of %" PRIu64 " bytes are free",
				  free_bytes(dir), bytes);
		(void)poll(NULL, 0, 50);
	}
	return (double)(now_usec() - start) / 1e6;
}

TEST(space, "the space of a deleted file comes back while the program only sleeps")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const size_t bytes = 100 * MIB;
	const char *dir = own_tmpfs(), *path, *open_path;
	struct dsaio_file *file, *open_one;
	uint64_t before;
	void *memory;

	test_time_limit(120);
	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = dir });
	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "swapped");
	open_path = daemon_path(rig.daemon, "open");
	CHECK_CALL(dsaio_alloc(rig.client, MIB, &memory));
	file_make_pattern(open_path, BLOCK, SEED);
	open_one = open_file(&rig, open_path, O_RDWR);
	CHECK_SYS(unlink(open_path)); /* as long as the program has it, it stays */
	before = free_bytes(dir);

	for (int round = 0; round < 3; round++) {
		double seconds;

		file_make_pattern(path, bytes, SEED);
		file = open_file(&rig, path, O_RDWR);
		for (size_t off = 0; off < bytes; off += MIB)
			CHECK_EQ(dsaio_pread(rig.handle, file, memory, MIB, off), MIB);
		CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 100, 100), 100); /* unaligned */
		dsaio_file_close(file);
		CHECK(free_bytes(dir) <= before - bytes);
		CHECK_SYS(unlink(path));
		seconds = wait_free(dir, before);
		test_note("df before = after, %.1f s after the file was deleted", seconds);
	}
	check_file(&rig, open_one, memory, SEED);
	CHECK_EQ(dsaio_pwrite(rig.handle, open_one, memory, BLOCK, BLOCK), BLOCK);
	CHECK_EQ(dsaio_file_size(open_one), 2 * BLOCK);
	dsaio_file_close(open_one);
	(void)wait_free(dir, before + BLOCK);
}

TEST_MAIN
