#include "client/ctl/bench/files.h"

#include "client/ctl/bench/buffer.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/newfile.h"
#include "client/ctl/ui/stop.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define PIECE_BYTES (8u << 20)	 /* at which files are filled */
#define SPARE_BYTES (4ull << 20) /* for what a file system needs beside the bytes: a guess */

static uint64_t bytes_of(const struct bench_place *place, uint64_t io_size)
{
	return place->file_bytes ? place->file_bytes : io_size;
}

static int check_space(const struct ctl *ctl, const struct bench_place *places, unsigned n_places,
		       uint64_t io_size, unsigned n_files)
{
	for (unsigned i = 0; i < n_places; i++) {
		char needed_text[UNITS_TEXT_BYTES], free_text[UNITS_TEXT_BYTES];
		uint64_t needed = 0, each, free_bytes;
		struct statvfs fs;

		for (unsigned k = 0; k < n_places; k++)
			if (places[k].file_system == places[i].file_system &&
			    (__builtin_mul_overflow(bytes_of(&places[k], io_size), n_files,
						    &each) ||
			     __builtin_add_overflow(needed, each, &needed)))
				needed = UINT64_MAX;
		if (statvfs(places[i].folder, &fs) < 0)
			return ctl_fail(ctl, "%s: %s", places[i].folder, strerror(errno));
		free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
		if (needed <= free_bytes && free_bytes - needed >= SPARE_BYTES)
			continue;
		return ctl_fail(ctl,
				"%s: the test files need %s, and %s has %s free: give a smaller "
				"size, or another folder",
				places[i].folder, units_format_size(needed_text, needed),
				places[i].mount, units_format_size(free_text, free_bytes));
	}
	return CTL_OK;
}

/* Writes direct, so that the file is not in the page cache afterwards; only the unaligned tail is
   buffered. */
int bench_file_fill(int fd, uint64_t bytes, uint64_t *done_bytes, struct progress *progress)
{
	_cleanup_(freep) uint8_t *piece = need_memory(aligned_alloc(4096, PIECE_BYTES));

	(void)fcntl(fd, F_SETFL, O_DIRECT); /* not on every file system */
	for (uint64_t done = 0; done < bytes;) {
		uint64_t left = bytes - done;
		size_t len = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
		ssize_t n;

		if (stop_signal())
			return -EINTR;
		if (len % 4096 != 0)
			(void)fcntl(fd, F_SETFL, 0); /* O_DIRECT off */
		bench_fill_random(piece, len);
		n = pwrite(fd, piece, len, (off_t)done);
		if (n < 0 && errno == EINVAL && (fcntl(fd, F_GETFL) & O_DIRECT)) {
			(void)fcntl(fd, F_SETFL, 0); /* not here */
			continue;
		}
		if (n < 0 && errno != EINTR)
			return -errno;
		done += n > 0 ? (uint64_t)n : 0;
		*done_bytes += n > 0 ? (uint64_t)n : 0;
		if (progress)
			progress_update(progress, *done_bytes);
	}
	(void)fcntl(fd, F_SETFL, 0);
	/* Synced now, so that write-back is not measured later. */
	if (fsync(fd) < 0)
		return -errno;
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* only advice */
	return 0;
}

static int make_file(struct ctl *ctl, const char *folder, uint64_t bytes, bool keep,
		     uint64_t *done_bytes, struct progress *progress, int *ret_fd)
{
	char path[PATH_MAX + 32];
	int r;

	(void)snprintf(path, sizeof(path), "%s/_dsaioctl_bench.XXXXXX", folder);
	*ret_fd = mkostemp(path, O_CLOEXEC);
	if (*ret_fd < 0 || (!keep && unlink(path) < 0))
		return ctl_fail(ctl, "%s: cannot make a test file: %s", folder, strerror(errno));
	if (keep)
		ctl_note(ctl, "the test file is kept: %s", path);
	r = newfile_reserve(*ret_fd, 0, bytes);
	if (r == 0)
		r = bench_file_fill(*ret_fd, bytes, done_bytes, progress);
	if (r < 0 && stop_signal())
		return stop_status();
	return r < 0 ? ctl_fail(ctl, "%s: cannot fill a test file of %s: %s", folder,
				SIZE_TEXT(bytes), strerror(-r))
		     : CTL_OK;
}

int bench_files_make(struct ctl *ctl, const struct bench_place *places, unsigned n_places,
		     bool reads, bool writes, uint64_t io_size, bool keep,
		     struct bench_files **ret_files)
{
	struct bench_files *files = need_memory(
		malloc(sizeof(*files) + n_places * sizeof(files->fds[0])));
	const bool wanted[] = { [BENCH_READ] = reads, [BENCH_WRITE] = writes };
	uint64_t done_bytes = 0, all_bytes = 0;
	struct progress progress;
	int r;

	files->n_places = n_places;
	memset(files->fds, -1, n_places * sizeof(files->fds[0]));
	r = check_space(ctl, places, n_places, io_size, reads && writes ? 2 : 1);
	for (unsigned i = 0; i < n_places; i++)
		all_bytes += (reads && writes ? 2 : 1) * bytes_of(&places[i], io_size);
	progress_start(&progress, "making test files", all_bytes);
	for (unsigned i = 0; i < 2 * n_places && r == CTL_OK; i++)
		if (wanted[i % 2])
			r = make_file(ctl, places[i / 2].folder, bytes_of(&places[i / 2], io_size),
				      keep, &done_bytes, &progress, &files->fds[i / 2][i % 2]);
	progress_stop(&progress);
	if (r != CTL_OK) {
		bench_files_free(files);
		return r;
	}
	*ret_files = files;
	return CTL_OK;
}

void bench_files_free(struct bench_files *files)
{
	for (unsigned i = 0; files && i < files->n_places; i++) {
		closep(&files->fds[i][BENCH_READ]);
		closep(&files->fds[i][BENCH_WRITE]);
	}
	free(files);
}
