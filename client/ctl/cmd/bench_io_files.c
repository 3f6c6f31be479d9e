#include "client/ctl/cmd/bench_io_files.h"

#include "client/ctl/bench/buffer.h"
#include "client/ctl/bench/files.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/newfile.h"
#include "proto/util/cleanup.h"
#include "proto/util/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_BYTES (8u << 20) /* in which files are compared */

void bench_io_path(const struct bench_process *process, bool is_read, uint64_t bytes, unsigned loop,
		   char *path)
{
	(void)snprintf(path, PATH_MAX, "%s/_aio_%s_%" PRIu64 ".pt.%u_%u", process->folder,
		       is_read ? "read" : "write", bytes, process->id, loop);
}

/* Returns 0 or bench_process_fail()'s value. */
static int open_file(struct bench_process *process, const char *path, int open_flags, int *ret_fd,
		     struct stat *ret_st)
{
	_cleanup_(closep) int fd = open(path, open_flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
					0666);

	if (fd < 0 && errno == ELOOP)
		return bench_process_fail(process,
					  "%s: is a symbolic link, which is not followed: "
					  "remove it, or name another folder",
					  path);
	if (fd < 0 || fstat(fd, ret_st) < 0)
		return bench_process_fail(process, "%s: %s", path, strerror(errno));
	if (!S_ISREG(ret_st->st_mode))
		return bench_process_fail(process, "%s: is no regular file", path);
	if ((open_flags & O_ACCMODE) != O_RDONLY &&
	    (ret_st->st_uid != geteuid() || ret_st->st_nlink != 1))
		return bench_process_fail(process,
					  "%s: belongs to another user, or has another name, "
					  "and is not written: remove it, or name another "
					  "folder",
					  path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static void keep_made(struct bench_io_made *made, const struct stat *st)
{
	*made = (struct bench_io_made){ true, st->st_dev, st->st_ino, 0 };
}

bool bench_io_remove(const char *path, const struct bench_io_made *made)
{
	return made->is_partial && newfile_check_name(AT_FDCWD, path, made->dev, made->ino) == 0 &&
	       unlink(path) == 0;
}

/* Fills the file with random bytes; returns 0 or a negative errno, *ret_done bytes were written. */
static int fill_file(int fd, bool is_new, uint64_t bytes, uint64_t *ret_done)
{
	int r;

	/* Checked first, so that on a full disk a file of another size stays as it is. */
	do
		r = is_new ? newfile_reserve(fd, 0, bytes) : newfile_check_room(fd, bytes);
	while (r == -EINTR);
	if (r == 0)
		r = bench_file_fill(fd, bytes, ret_done, NULL);
	return r == 0 && ftruncate(fd, (off_t)bytes) < 0 ? -errno : r;
}

/* Makes the file of random bytes, unless it is there in that size. */
static int make_read_file(struct bench_process *process, const char *path, uint64_t bytes,
			  struct bench_io_made *made)
{
	_cleanup_(closep) int fd = -1;
	struct stat st = { .st_mode = 0 }; /* if lstat fails for another reason, open reports it */
	bool is_ours;
	int r;

	is_ours = lstat(path, &st) < 0 && errno == ENOENT;
	if (S_ISREG(st.st_mode) && (uint64_t)st.st_size == bytes)
		return 0;
	r = open_file(process, path, O_WRONLY | (is_ours ? O_CREAT | O_EXCL : 0), &fd, &st);
	if (r < 0)
		return r;
	if (is_ours)
		keep_made(made, &st);
	r = fill_file(fd, is_ours, bytes, &made->done_bytes);
	if (r == 0) {
		made->is_partial = false;
		return 0;
	}
	return bench_process_fail(process, "%s: cannot make the file to read: %s after %s%s", path,
				  strerror(-r), SIZE_TEXT(made->done_bytes),
				  r == -ENOSPC ? ": free some space, or use a smaller --io_size"
					       : "");
}

int bench_io_open_read(struct bench_process *process, const char *path, uint64_t bytes, int *ret_fd,
		       struct bench_io_made *made)
{
	struct stat st;
	int r = make_read_file(process, path, bytes, made);

	return r == 0 ? open_file(process, path, O_RDONLY, ret_fd, &st) : r;
}

int bench_io_open_write(struct bench_process *process, const char *path, int *ret_fd,
			struct bench_io_made *made)
{
	struct stat st;
	bool is_made = faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
	int r = open_file(process, path, O_WRONLY | (is_made ? O_CREAT | O_EXCL : 0), ret_fd, &st);

	if (r == 0 && is_made)
		keep_made(made, &st);
	return r;
}

int bench_io_validate(struct bench_process *process, const char *path, uint64_t bytes, bool is_read)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_(freep) uint8_t *step = NULL, *room = NULL;
	uint64_t done = 0;

	if (fd < 0 && errno == EINVAL)
		fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return bench_process_fail(process, "%s: validate: %s", path, strerror(errno));
	step = need_memory(aligned_alloc(4096, STEP_BYTES));
	room = need_memory(malloc(STEP_BYTES));
	while (done < bytes) {
		uint64_t left = bytes - done;
		size_t len = left < STEP_BYTES ? (size_t)left : STEP_BYTES, i = 0;
		ssize_t n = pread(fd, step, STEP_BYTES, (off_t)done);
		const uint8_t *expected;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return bench_process_fail(process, "%s: validate: pread at %" PRIu64 ": %s",
						  path, done, strerror(errno));
		if (n == 0)
			return bench_process_fail(
				process, "%s: validate: ends at byte %" PRIu64 " of %" PRIu64, path,
				done, bytes);
		if ((size_t)n < len)
			len = (size_t)n;
		expected = bench_process_look(process, done, room, len);
		if (!expected)
			return -EIO;
		if (memcmp(step, expected, len) != 0) {
			while (step[i] == expected[i])
				i++;
			return bench_process_fail(
				process, "%s: validate: byte %" PRIu64 " differs from what was %s",
				path, done + i, is_read ? "read" : "written");
		}
		done += len;
	}
	return 0;
}
