#include "daemon/store/probe.h"

#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libaio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* The size into which a large op is cut while several clients are active; 16 suffice for a median. */
#define BLOCK_BYTES (64u << 10)
#define N_BLOCKS 16
/* Measured: on an NVMe or virtio disk at most half of a block's time passes inside io_submit (4 KiB
   reads of a cached virtio disk).  Where io_submit blocks, nearly all of it does. */
#define SHARE_WAITS 80u
/* Waking a worker thread and being woken takes as long, so a shorter io_submit gains nothing by one. */
#define INSIDE_NSEC_MIN 50000u

/* ---- a file ---- */

static const char name_prefix[] = ".dsaiod-probe";

/* Removes a named file that a daemon of this user left when it crashed. */
static void file_remove_left(const char *path)
{
	struct stat st;

	if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid())
		(void)unlink(path); /* on failure the caller tries another name */
}

/* Makes an unnamed file, or a named file that is unlinked at once. */
static int file_make_nameless(const char *dir)
{
	char path[4096];
	uint32_t random;
	size_t n;
	int fd;

	n = (size_t)snprintf(path, sizeof(path), "%s/%s-%u", dir, name_prefix, geteuid());
	if (n + sizeof("-12345678") > sizeof(path))
		return -ENAMETOOLONG;
	file_remove_left(path);
	fd = open(dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT &&
			errno != EINVAL && errno != ENOSYS))
		return fd >= 0 ? fd : -errno;
	for (int i = 0; i < 2; i++) {
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_DIRECT | O_CLOEXEC,
			  0600);
		if (fd >= 0 || errno != EEXIST)
			break;
		/* The file belongs to another user, or to a daemon that measures now. */
		if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
			return -EEXIST;
		(void)snprintf(path + n, sizeof(path) - n, "-%08" PRIx32, random);
	}
	if (fd < 0)
		return -errno;
	if (unlink(path) < 0 && errno != ENOENT) { /* that daemon removed it as a leftover */
		int r = -errno;

		closep(&fd);
		return r;
	}
	return fd;
}

/* Writes the file first: writes that extend a file block on every file system. */
static int file_lay_out(int fd, char *memory)
{
	for (int i = 0; i < N_BLOCKS; i++) {
		ssize_t n = pwrite(fd, memory, BLOCK_BYTES, (off_t)i * BLOCK_BYTES);

		if (n != (ssize_t)BLOCK_BYTES)
			return n < 0 ? -errno : -ENOSPC;
	}
	return fdatasync(fd) < 0 ? -errno : 0;
}

/* ---- blocks ---- */

struct times {
	uint64_t inside[N_BLOCKS], share[N_BLOCKS];
	int n;
};

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static uint64_t median(uint64_t *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), compare);
	return values[n / 2];
}

static int measure_block(io_context_t context, struct iocb *iocb, struct times *times)
{
	struct iocb *iocbs[] = { iocb };
	uint64_t start = clock_nsec(), inside, all;
	struct io_event event;
	int r;

	r = io_submit(context, 1, iocbs);
	inside = clock_nsec() - start;
	if (r != 1)
		return r < 0 ? r : -EIO;
	do
		r = io_getevents(context, 1, 1, &event, NULL);
	while (r == -EINTR);
	all = clock_nsec() - start;
	if (r != 1)
		return r < 0 ? r : -EIO;
	if ((int64_t)event.res != BLOCK_BYTES) /* declared unsigned */
		return (int64_t)event.res < 0 ? (int)(int64_t)event.res : -EIO;
	times->inside[times->n] = inside;
	times->share[times->n++] = all ? inside * 100 / all : 0;
	return 0;
}

/* Measures both directions; the result is the worse one. */
static int measure(io_context_t context, int fd, bool is_device, char *memory, struct probe *probe)
{
	uint64_t end = clock_nsec() + PROBE_NSEC;
	struct times times[2] = { 0 }; /* reads, writes */

	for (int i = 0; i < N_BLOCKS && (i == 0 || clock_nsec() < end); i++) {
		for (int is_write = !is_device; is_write >= 0; is_write--) {
			struct iocb iocb;
			int r;

			if (is_write)
				io_prep_pwrite(&iocb, fd, memory, BLOCK_BYTES,
					       (long long)i * BLOCK_BYTES);
			else
				io_prep_pread(&iocb, fd, memory, BLOCK_BYTES,
					      (long long)i * BLOCK_BYTES);
			r = measure_block(context, &iocb, &times[is_write]);
			if (r < 0)
				return r;
		}
	}
	for (int i = 0; i < 2; i++) {
		uint64_t share = times[i].n ? median(times[i].share, times[i].n) : 0;

		if (!times[i].n || share < probe->share_percent)
			continue;
		probe->share_percent = (uint32_t)share;
		probe->inside_nsec = median(times[i].inside, times[i].n);
	}
	return 0;
}

/* The device is read only. */
static bool asks_nowait(int fd, char *memory)
{
	struct iovec range = { .iov_base = memory, .iov_len = BLOCK_BYTES };

	return preadv2(fd, &range, 1, 0, RWF_NOWAIT) >= 0 || errno != EOPNOTSUPP;
}

void probe_measure(const char *path, bool is_device, struct probe *ret_probe)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(freep) void *memory = NULL;
	io_context_t context = NULL;
	struct probe probe = { 0 };

	if (posix_memalign(&memory, BLOCK_BYTES, BLOCK_BYTES)) {
		*ret_probe = (struct probe){ .error = -ENOMEM };
		return;
	}
	memset(memory, 0, BLOCK_BYTES);
	if (is_device)
		fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	else
		fd = file_make_nameless(path);
	if (fd < 0)
		probe.error = is_device ? -errno : fd;
	else if (!is_device)
		probe.error = file_lay_out(fd, memory);
	if (!probe.error)
		probe.error = io_setup(1, &context);
	if (!probe.error) {
		probe.knows_nowait = asks_nowait(fd, memory);
		probe.error = measure(context, fd, is_device, memory, &probe);
		(void)io_destroy(context); /* fails only if context is invalid */
	}
	*ret_probe = probe;
}

/* ---- the verdict ---- */

bool probe_judge(const struct probe *probe, const struct fs_type *fs_type,
		 char text[PROBE_TEXT_BYTES])
{
	bool waits = fs_type->may_wait;

	if (fs_type->is_tmpfs) {
		(void)snprintf(text, PROBE_TEXT_BYTES, "a copy in memory");
		return false;
	}
	if (!probe || probe->error) {
		(void)snprintf(text, PROBE_TEXT_BYTES, "%s: io_submit %s; not measured%s%s",
			       fs_type->name, waits ? "may wait" : "does not wait",
			       probe ? ": " : "", probe ? strerrordesc_np(-probe->error) : "");
		return waits;
	}
	if (probe->share_percent >= SHARE_WAITS && probe->inside_nsec >= INSIDE_NSEC_MIN) {
		(void)snprintf(text, PROBE_TEXT_BYTES, "io_submit waits: measured %" PRIu32 "%%",
			       probe->share_percent);
		return true;
	}
	if (waits && !probe->knows_nowait) {
		/* The server can change its behaviour at any time. */
		(void)snprintf(text, PROBE_TEXT_BYTES,
			       "%s: io_submit has no RWF_NOWAIT here; measured %" PRIu32 "%%",
			       fs_type->name, probe->share_percent);
		return true;
	}
	if (probe->share_percent >= SHARE_WAITS)
		(void)snprintf(text, PROBE_TEXT_BYTES,
			       "io_submit does the work, in %" PRIu64 " us: measured %" PRIu32 "%%",
			       probe->inside_nsec / 1000, probe->share_percent);
	else
		(void)snprintf(text, PROBE_TEXT_BYTES,
			       "io_submit does not wait: measured %" PRIu32 "%%",
			       probe->share_percent);
	return false;
}
