/*
 * dsaio_file_drop(): closed files leave the cache, and with it the daemon, at once.
 */
#include "tests/file_opens.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_FILES 300u

/* Descriptors of the process (or of this one: 0) that are files below that directory. */
static unsigned n_held(pid_t pid, const char *below)
{
	DIR *dir = opendir(pid ? test_text("/proc/%d/fd", pid) : "/proc/self/fd");
	struct dirent *entry;
	unsigned n = 0;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		char target[PATH_MAX];
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		target[len < 0 ? 0 : len] = 0;
		n += strncmp(target, below, strlen(below)) == 0;
	}
	(void)closedir(dir); /* was only read */
	return n;
}

TEST(one, "a closed file is dropped in all access modes, and opened anew afterwards")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *path, *other;
	struct dsaio_file *file;
	void *memory;

	count_opens();
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	path = daemon_path(rig.daemon, "f");
	other = daemon_path(rig.daemon, "other");
	file_make_pattern(path, BLOCK, SEED);
	file_make_pattern(other, BLOCK, SEED);
	open_check_close(&rig, other, O_RDONLY, memory, SEED);
	open_check_close(&rig, path, O_RDONLY, memory, SEED);
	file = open_file(&rig, path, O_RDWR);
	pattern_fill(memory, 100, SEED, 7);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 100, 7), 100); /* a buffered one, too */
	CHECK_FAILS(dsaio_file_drop(rig.client, path), -EBUSY, test_text("%s;close it", path));
	dsaio_file_close(file);
	CHECK_EQ(n_held(0, path), 0);
	CHECK(n_held(rig.daemon->pid, path) > 0);
	CHECK_CALL(dsaio_file_drop(rig.client, path));
	CHECK_EQ(n_held(rig.daemon->pid, path), 0);
	CHECK_CALL(dsaio_file_drop(rig.client, path));
	CHECK_CALL(dsaio_file_drop(rig.client, daemon_path(rig.daemon, "never opened")));

	open_check_close(&rig, other, O_RDONLY, memory, SEED);
	CHECK_EQ(n_opens(other), 1);
	open_check_close(&rig, path, O_RDWR, memory, SEED);
	CHECK_EQ(n_opens(path), 3);
}

TEST(by_descriptor, "a file that came as a descriptor is dropped by the kernel's name of it")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(closep) int fd = -1;
	struct dsaio_file *file;
	const char *path;

	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, BLOCK, SEED);
	fd = (int)CHECK_SYS(open(path, O_RDONLY | O_CLOEXEC));
	CHECK_CALL(dsaio_file_from_fd(rig.client, fd, &file));
	dsaio_file_close(file);
	CHECK_EQ(n_held(rig.daemon->pid, path), 1);
	CHECK_CALL(dsaio_file_drop(rig.client, path));
	CHECK_EQ(n_held(rig.daemon->pid, path), 0);
}

TEST(all, "all closed files are dropped together; those in use stay")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *used;
	const char *dir;
	void *memory;

	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	dir = daemon_path(rig.daemon, "d");
	CHECK_SYS(mkdir(dir, 0755));
	for (unsigned i = 0; i < N_FILES; i++) {
		file_make_pattern(test_text("%s/%u", dir, i), BLOCK, i);
		open_check_close(&rig, test_text("%s/%u", dir, i), O_RDONLY, memory, i);
	}
	used = open_file(&rig, test_text("%s/0", dir), O_RDONLY);
	CHECK_EQ(n_held(rig.daemon->pid, dir), N_FILES);
	CHECK_CALL(dsaio_file_drop(rig.client, NULL));
	CHECK_EQ(n_held(rig.daemon->pid, dir), 1);
	check_file(&rig, used, memory, 0);
	dsaio_file_close(used);
	CHECK_CALL(dsaio_file_drop(rig.client, NULL));
	CHECK_EQ(n_held(rig.daemon->pid, dir), 0);
	CHECK_EQ(n_held(0, dir), 0);
}

TEST(executed, "a program that was written is executed after it was dropped")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(closep) int fd = (int)CHECK_SYS(open("/bin/true", O_RDONLY | O_CLOEXEC));
	struct dsaio_file *file;
	struct stat st;
	void *memory;
	char *path;
	pid_t pid;

	CHECK_SYS(fstat(fd, &st));
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, (size_t)st.st_size, NULL, &memory));
	CHECK_EQ(pread(fd, memory, (size_t)st.st_size, 0), st.st_size);
	path = daemon_path(rig.daemon, "true");
	file = open_file(&rig, path, O_WRONLY | O_CREAT);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, (size_t)st.st_size, 0), st.st_size);
	dsaio_file_close(file);
	CHECK_SYS(chmod(path, 0755));
	CHECK_CALL(dsaio_file_drop(rig.client, path));
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		(void)execl(path, path, (char *)NULL);
		_exit(1);
	}
	child_wait_ok(pid);
}

TEST(errors, "a drop without a client, in a forked child, and after the daemon has gone")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *path;
	pid_t pid;

	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "f");
	CHECK_FAILS(dsaio_file_drop(NULL, path), -EINVAL, "file_drop");
	dsaio_file_close(open_file(&rig, path, O_RDWR | O_CREAT));
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		CHECK_FAILS(dsaio_file_drop(rig.client, path), -EPERM, "fork");
		_exit(0);
	}
	child_wait_ok(pid);
	daemon_kill(rig.daemon);
	CHECK_FAILS(dsaio_file_drop(rig.client, path), -ENOTCONN, "");
	CHECK_FAILS(dsaio_file_drop(rig.client, path), -ENOTCONN, "file_drop");
}

TEST(stopped, "a daemon that is stopped: the drop ends after 10 s, and the client goes on with it")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *path;
	int64_t start;
	void *memory;

	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, BLOCK, NULL, &memory));
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, BLOCK, SEED);
	open_check_close(&rig, path, O_RDONLY, memory, SEED);
	open_check_close(&rig, path, O_RDWR, memory, SEED);
	CHECK_SYS(kill(rig.daemon->pid, SIGSTOP));
	start = now_usec();
	CHECK_FAILS(dsaio_file_drop(rig.client, path), -ETIMEDOUT, test_text("%s;10 s", path));
	CHECK(now_usec() - start >= 10 * 1000000);
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	open_check_close(&rig, path, O_RDONLY, memory, SEED);
	CHECK_CALL(dsaio_file_drop(rig.client, NULL));
	CHECK_EQ(n_held(rig.daemon->pid, path), 0);
}

TEST_MAIN
