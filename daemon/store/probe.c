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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The size into which a large op is cut while several clients are active. */
#define BLOCK_BYTES (64u << 10)
/* Waking a worker thread and being woken takes as long, so a shorter io_submit gains nothing by one. */
#define WORK_NSEC_MIN 50000u
/* Blocks in each direction, however slow they are: one or two may differ on a busy host. */
#define N_BLOCKS_MIN 5

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
	for (int i = 0; i < PROBE_BLOCKS; i++) {
		ssize_t n = pwrite(fd, memory, BLOCK_BYTES, (off_t)i * BLOCK_BYTES);

		if (n != (ssize_t)BLOCK_BYTES)
			return n < 0 ? -errno : -ENOSPC;
	}
	return fdatasync(fd) < 0 ? -errno : 0;
}

/* ---- blocks ---- */

/* How often the thread slept.  When another thread took the processor from it, that does not count. */
static long thread_n_sleeps(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_THREAD, &usage); /* no error possible */
	return usage.ru_nvcsw;
}

static int measure_block(io_context_t context, struct iocb *iocb, struct probe_block *ret_block)
{
	struct timespec none = { 0 };
	struct iocb *iocbs[] = { iocb };
	long n_sleeps = thread_n_sleeps();
	uint64_t nsec = clock_thread_nsec();
	struct io_event event;
	int r;

	r = io_submit(context, 1, iocbs);
	nsec = clock_thread_nsec() - nsec;
	n_sleeps = thread_n_sleeps() - n_sleeps;
	if (r != 1)
		return r < 0 ? r : -EIO;
	r = io_getevents(context, 0, 1, &event, &none);
	*ret_block = (struct probe_block){ .has_slept = n_sleeps > 0,
					   .was_done = r == 1,
					   .cpu_nsec = nsec };
	while (r == 0 || r == -EINTR)
		r = io_getevents(context, 1, 1, &event, NULL);
	if (r != 1)
		return r < 0 ? r : -EIO;
	if ((int64_t)event.res != BLOCK_BYTES) /* declared unsigned */
		return (int64_t)event.res < 0 ? (int)(int64_t)event.res : -EIO;
	return 0;
}

static int measure(io_context_t context, int fd, bool is_device, char *memory, struct probe *probe)
{
	uint64_t end = clock_nsec() + PROBE_NSEC;

	for (int i = 0; i < PROBE_BLOCKS && (i < N_BLOCKS_MIN || clock_nsec() < end); i++) {
		for (int is_write = !is_device; is_write >= 0; is_write--) {
			struct iocb iocb;
			int r;

			if (is_write)
				io_prep_pwrite(&iocb, fd, memory, BLOCK_BYTES,
					       (long long)i * BLOCK_BYTES);
			else
				io_prep_pread(&iocb, fd, memory, BLOCK_BYTES,
					      (long long)i * BLOCK_BYTES);
			r = measure_block(context, &iocb, &probe->blocks[is_write][i]);
			if (r < 0)
				return r;
			probe->n_blocks[is_write]++;
		}
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

static bool has_waited(const struct probe_block *block)
{
	return block->was_done && (block->has_slept || block->cpu_nsec >= WORK_NSEC_MIN);
}

/* Blocks of one direction. */
struct count {
	const char *direction;
	unsigned n, n_waited;
};

/* Counts the blocks of the direction in which more of them waited. */
static struct count count_waited(const struct probe *probe)
{
	struct count counts[2] = { { .direction = "reads" }, { .direction = "writes" } };

	for (int i = 0; i < 2; i++)
		for (counts[i].n = 0; counts[i].n < probe->n_blocks[i]; counts[i].n++)
			counts[i].n_waited += has_waited(&probe->blocks[i][counts[i].n]);
	return counts[1].n_waited > counts[0].n_waited ? counts[1] : counts[0];
}

bool probe_judge(const struct probe *probe, const struct fs_type *fs_type,
		 char text[PROBE_TEXT_BYTES])
{
	bool may_wait = fs_type->may_wait;
	struct count count;

	if (fs_type->is_tmpfs) {
		(void)snprintf(text, PROBE_TEXT_BYTES, "a copy in memory");
		return false;
	}
	if (!probe || probe->error) {
		(void)snprintf(text, PROBE_TEXT_BYTES, "%s: io_submit %s; not measured%s%s",
			       fs_type->name, may_wait ? "may wait" : "does not wait",
			       probe ? ": " : "", probe ? strerrordesc_np(-probe->error) : "");
		return may_wait;
	}
	count = count_waited(probe);
	/* Single blocks may sleep anywhere, for example behind a commit of the journal. */
	if (count.n_waited > count.n / 2) {
		(void)snprintf(text, PROBE_TEXT_BYTES, "io_submit waits: measured in %u of %u %s",
			       count.n_waited, count.n, count.direction);
		return true;
	}
	if (may_wait && !probe->knows_nowait) {
		/* The server can change its behaviour at any time. */
		(void)snprintf(
			text, PROBE_TEXT_BYTES,
			"%s: io_submit has no RWF_NOWAIT here; measured to wait in %u of %u %s",
			fs_type->name, count.n_waited, count.n, count.direction);
		return true;
	}
	(void)snprintf(text, PROBE_TEXT_BYTES, "io_submit does not wait: measured in %u of %u %s",
		       count.n - count.n_waited, count.n, count.direction);
	return false;
}
