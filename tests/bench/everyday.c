/*
 * The measures of everyday use: many small files by path, private memory, odd ranges, a daemon
 * that has to be started first; and what RWF_NOWAIT costs, which the lanes use among others.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/clock.h"
#include "tests/bench/contest.h"
#include "tests/bench/deepnvme.h"
#include "tests/bench/statistics.h"

/* ---- many small files ---- */

#define FILES 1000u
#define SMALL_FILE_BYTES ((uint64_t)64 << 10)
#define SMALL_NAME "small" /* fio calls them small.0.0 to small.0.999 */

static void small_path(const struct bench *b, unsigned i, char *ret_path, size_t size)
{
	(void)snprintf(ret_path, size, "%s/" SMALL_NAME ".0.%u", b->dir, i); /* dir is short */
}

static int small_files_make(struct bench *b)
{
	char path[4200];

	for (unsigned i = 0; i < FILES; i++) {
		_cleanup_(closep) int fd = -1;

		small_path(b, i, path, sizeof(path));
		fd = open(path, O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
		/* The memory was filled by the first read: nothing that could be compressed. */
		if (fd < 0 || write(fd, b->memory, SMALL_FILE_BYTES) != (ssize_t)SMALL_FILE_BYTES ||
		    fsync(fd) < 0) {
			fprintf(stderr, "bench: cannot write %s: %s\n", path, strerror(errno));
			return -EIO;
		}
	}
	return 0;
}

/* As a training step reads its tensors: each is opened by its path and closed, every time. */
static int ours_files(struct bench *b, double *ret_usec)
{
	static struct dsaio_file *files[FILES];
	const int64_t start = now_nsec();
	char path[4200];
	int64_t n_ended;
	int r = 0;

	for (unsigned i = 0; i < FILES; i++) {
		small_path(b, i, path, sizeof(path));
		if (dsaio_open(b->client, path, O_RDONLY, NULL, &files[i]) < 0 ||
		    dsaio_pread_async(b->handle, files[i], b->memory + i * SMALL_FILE_BYTES,
				      SMALL_FILE_BYTES, 0, NULL) < 0)
			return failed(path);
	}
	if (dsaio_handle_wait(b->handle, -1, &n_ended) < 0 || n_ended != FILES)
		r = failed("wait");
	for (unsigned i = 0; i < FILES; i++)
		dsaio_file_close(files[i]);
	*ret_usec = (double)(now_nsec() - start) / 1e3 / FILES;
	return r;
}

/*
 * fio opens and closes each file, too, while it measures: so both sides do the same, and what a
 * file cache spares is ours to win.  (Its ways to choose the next file, and to have few or all
 * open, were tried: they differ by less than the rounds do.)
 */
static int fio_files(struct bench *b, double *ret_usec)
{
	return fio_run_files(b->dir, SMALL_NAME, FILES, SMALL_FILE_BYTES, ret_usec);
}

/* ---- the same as DeepNVMe does it ---- */

static struct deepnvme *deepnvme; /* of the point that was chosen */

static int deepnvme_failed(const char *path, int64_t r)
{
	fprintf(stderr, "bench: DeepNVMe's algorithm, %s: %s\n", path, strerror((int)-r));
	return -EIO;
}

static int deepnvme_files(struct bench *b, double *ret_usec)
{
	const int64_t start = now_nsec();
	char path[4200];
	int64_t r;

	for (unsigned i = 0; i < FILES; i++) {
		small_path(b, i, path, sizeof(path));
		r = deepnvme_submit(deepnvme, false, path, b->memory + i * SMALL_FILE_BYTES,
				    SMALL_FILE_BYTES, 0);
		if (r < 0) {
			(void)deepnvme_wait(deepnvme); /* the first error tells */
			return deepnvme_failed(path, r);
		}
	}
	r = deepnvme_wait(deepnvme);
	*ret_usec = (double)(now_nsec() - start) / 1e3 / FILES;
	return r == FILES ? 0 : deepnvme_failed("wait", r);
}

/* The point at which run takes the least time. */
static int deepnvme_choose(struct bench *b, const struct row *row,
			   int (*run)(struct bench *, double *))
{
	double usec[CHOICE_ROUNDS], best_usec = 0;
	unsigned best = 0;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < DEEPNVME_POINTS; i++) {
		const struct dsaio_profile profile = deepnvme_point(i);

		r = deepnvme_new(&profile, &deepnvme);
		for (unsigned j = 0; r == 0 && j < CHOICE_ROUNDS; j++)
			r = run(b, &usec[j]);
		deepnvme_free(deepnvme);
		deepnvme = NULL;
		if (r < 0)
			break;
		sort_values(usec, CHOICE_ROUNDS);
		if (i == 0 || quantile(usec, CHOICE_ROUNDS, 0.5) < best_usec) {
			best = i;
			best_usec = quantile(usec, CHOICE_ROUNDS, 0.5);
		}
	}
	if (r == 0) {
		const struct dsaio_profile profile = deepnvme_point(best);

		point_print(row, "its", &profile);
		r = deepnvme_new(&profile, &deepnvme);
	}
	return r;
}

int measure_files(struct bench *b)
{
	static int (*const sides[])(struct bench *, double *) = { ours_files, fio_files,
								  deepnvme_files };
	double usec[ARRAY_SIZE(sides)];
	int r = ours_open(b, "", NULL, FILES * SMALL_FILE_BYTES);

	if (r == 0)
		r = small_files_make(b);
	if (r == 0)
		r = deepnvme_choose(b, &rows[ROW_FILES_DEEPNVME], deepnvme_files);
	for (unsigned i = 0; r == 0 && i <= ROUNDS_MIN; i++) {
		r = round_run(b, &rows[ROW_FILES], i, sides, ARRAY_SIZE(sides), usec);
		if (r < 0 || i == 0)
			continue;
		row_add(&rows[ROW_FILES], usec[0], usec[1]);
		row_add(&rows[ROW_FILES_DEEPNVME], 1e6 / usec[0], 1e6 / usec[2]);
	}
	deepnvme_free(deepnvme);
	deepnvme = NULL;
	return r;
}

/* ---- one small read after the other, by path ---- */

static uint64_t small_off(uint64_t *seed)
{
	return random_next(seed) % (READ_BYTES / SMALL_BYTES) * SMALL_BYTES;
}

static int ours_path(struct bench *b, double *ret_usec)
{
	const int64_t start = now_nsec(), end = start + SLICE_USEC * 1000;
	uint64_t n = 0, seed = random_seed();
	struct dsaio_file *file;
	int64_t now, r;

	do {
		if (dsaio_open(b->client, b->path, O_RDONLY, NULL, &file) < 0)
			return failed(b->path);
		r = dsaio_pread(b->handle, file, b->memory, SMALL_BYTES, small_off(&seed));
		dsaio_file_close(file);
		if (r != (int64_t)SMALL_BYTES)
			return failed("read");
		n++;
		now = now_nsec();
	} while (now < end);
	*ret_usec = (double)(now - start) / 1e3 / (double)n;
	return 0;
}

static int deepnvme_path(struct bench *b, double *ret_usec)
{
	const int64_t start = now_nsec(), end = start + SLICE_USEC * 1000;
	uint64_t n = 0, seed = random_seed();
	int64_t now, r;

	do {
		r = deepnvme_submit(deepnvme, false, b->path, b->memory, SMALL_BYTES,
				    small_off(&seed));
		if (r == 0)
			r = deepnvme_wait(deepnvme);
		if (r != 1)
			return deepnvme_failed(b->path, r);
		n++;
		now = now_nsec();
	} while (now < end);
	*ret_usec = (double)(now - start) / 1e3 / (double)n;
	return 0;
}

int measure_path(struct bench *b)
{
	int r = ours_open(b, "", NULL, SMALL_BYTES);

	if (r == 0)
		r = deepnvme_choose(b, &rows[ROW_PATH], deepnvme_path);
	if (r == 0)
		r = compare(b, &rows[ROW_PATH], 1, ours_path, deepnvme_path);
	deepnvme_free(deepnvme);
	deepnvme = NULL;
	return r;
}

/* ---- any memory, any range ---- */

static char *private_memory;

static int read_range(struct bench *b, char *memory, uint64_t len, uint64_t off,
		      double *ret_bandwidth)
{
	const int64_t start = now_nsec();

	if (dsaio_pread(b->handle, b->file, memory, len, off) != (int64_t)len)
		return failed("read");
	*ret_bandwidth = (double)len * 1e9 / (double)(now_nsec() - start);
	return 0;
}

static int ours_private(struct bench *b, double *ret_bandwidth)
{
	return read_range(b, private_memory, READ_BYTES, 0, ret_bandwidth);
}

static int ours_private_write(struct bench *b, double *ret_bandwidth)
{
	const int64_t start = now_nsec();

	if (dsaio_pwrite(b->handle, b->file, private_memory, READ_BYTES, 0) != (int64_t)READ_BYTES)
		return failed("write");
	*ret_bandwidth = (double)READ_BYTES * 1e9 / (double)(now_nsec() - start);
	return 0;
}

static void copy(char *to, const char *from, double *ret_bandwidth)
{
	const int64_t start = now_nsec();

	memcpy(to, from, READ_BYTES);
	*ret_bandwidth = (double)READ_BYTES * 1e9 / (double)(now_nsec() - start);
}

static int copy_of_read(struct bench *b, double *ret_bandwidth)
{
	copy(private_memory, b->memory, ret_bandwidth);
	return 0;
}

static int copy_of_write(struct bench *b, double *ret_bandwidth)
{
	copy(b->memory, private_memory, ret_bandwidth);
	return 0;
}

/*
 * Private memory is copied once.  A plain memcpy of the same bytes between the same two places, by
 * one thread and with nothing else to do, is the limit of one copying thread: where it is hardly
 * faster than the device, private memory cannot reach pinned memory.
 */
static int private_compare(struct bench *b, int (*const sides[3])(struct bench *, double *),
			   struct row *beside_pinned, struct row *beside_copy)
{
	const int64_t end = now_nsec() + COMPARISON_NSEC;
	double values[3];
	int r;

	for (unsigned i = 0; beside_pinned->n_rounds < ROUNDS_MIN ||
			     (beside_pinned->n_rounds < ROUNDS_MAX && now_nsec() < end);
	     i++) {
		r = round_run(b, beside_pinned, i, sides, 3, values);
		if (r < 0)
			return r;
		if (i == 0)
			continue;
		row_add(beside_pinned, values[0] / 1e6, values[1] / 1e6);
		row_add(beside_copy, values[0] / 1e6, values[2] / 1e6);
	}
	return 0;
}

int measure_private(struct bench *b)
{
	static int (*const reads[])(struct bench *, double *) = { ours_private, ours_read_bandwidth,
								  copy_of_read };
	static int (*const writes[])(struct bench *, double *) = { ours_private_write,
								   ours_write_bandwidth,
								   copy_of_write };
	int r = ours_open_large(b);

	if (r == 0)
		r = -posix_memalign((void **)&private_memory, 4096, READ_BYTES);
	if (r == 0) {
		memset(private_memory, 1, READ_BYTES); /* its pages are there, as a tensor's are */
		r = private_compare(b, reads, &rows[ROW_PRIVATE], &rows[ROW_PRIVATE_COPY]);
	}
	if (r == 0)
		r = private_compare(b, writes, &rows[ROW_PRIVATE_WRITE],
				    &rows[ROW_PRIVATE_WRITE_COPY]);
	free(private_memory);
	private_memory = NULL;
	return r;
}

#define ODD_OFF 13u
#define ODD_BYTES (READ_BYTES + 77)

static int ours_odd(struct bench *b, double *ret_bandwidth)
{
	return read_range(b, b->memory, ODD_BYTES, ODD_OFF, ret_bandwidth);
}

static int ours_odd_alike(struct bench *b, double *ret_bandwidth)
{
	return read_range(b, b->memory + ODD_OFF, ODD_BYTES, ODD_OFF, ret_bandwidth);
}

int measure_odd(struct bench *b)
{
	static int (*const sides[])(struct bench *, double *) = { ours_odd, ours_odd_alike,
								  ours_read_bandwidth };
	double values[ARRAY_SIZE(sides)];
	int r = ours_open_large(b);

	for (unsigned i = 0; r == 0 && i <= ROUNDS_MIN; i++) {
		r = round_run(b, &rows[ROW_ODD], i, sides, ARRAY_SIZE(sides), values);
		if (r < 0 || i == 0)
			continue;
		row_add(&rows[ROW_ODD], values[0] / 1e6, values[2] / 1e6);
		row_add(&rows[ROW_ODD_ALIKE], values[1] / 1e6, values[2] / 1e6);
	}
	return r;
}

/* ---- autostart ---- */

#define SYSTEM_SOCKET "/run/dsaiod/dsaiod.sock"
#define END_MSEC 20000

/* Ends the daemon that was started at that socket, whose lock names it, and waits for it. */
static int autostarted_end(const char *socket_path)
{
	_cleanup_(fclosep) FILE *lock = NULL;
	_cleanup_(closep) int pid_fd = -1;
	char path[4200];
	struct pollfd p;
	int pid;

	(void)snprintf(path, sizeof(path), "%s.lock", socket_path);
	lock = fopen(path, "re");
	if (!lock || fscanf(lock, "%d", &pid) != 1) {
		fprintf(stderr, "bench: %s does not name the daemon that was started\n", path);
		return -ENOENT;
	}
	pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pid_fd < 0 || syscall(SYS_pidfd_send_signal, pid_fd, SIGTERM, NULL, 0) < 0)
		return -errno;
	p = (struct pollfd){ .fd = pid_fd, .events = POLLIN };
	if (poll(&p, 1, END_MSEC) != 1) {
		fprintf(stderr, "bench: the daemon with pid %d does not end\n", pid);
		return -ETIMEDOUT;
	}
	return 0;
}

/* A program that knows of no daemon, where none runs: connects, and has read its first bytes. */
static int ours_autostart(struct bench *b, double *ret_msec)
{
	_cleanup_(freep) char *socket_path = NULL;
	const int64_t start = now_nsec();
	void *memory;
	int r = 0;

	if (dsaio_connect(NULL, &b->client) < 0)
		return failed("connect");
	if (dsaio_handle_open(b->client, NULL, &b->handle) < 0 ||
	    dsaio_alloc(b->client, SMALL_BYTES, NULL, &memory) < 0 ||
	    dsaio_open(b->client, b->path, O_RDONLY, NULL, &b->file) < 0 ||
	    dsaio_pread(b->handle, b->file, memory, SMALL_BYTES, 0) != (int64_t)SMALL_BYTES)
		r = failed("the first op");
	*ret_msec = (double)(now_nsec() - start) / 1e6;
	ours_close(b);
	if (asprintf(&socket_path, "%s/dsaiod/dsaiod.sock", getenv("XDG_RUNTIME_DIR")) < 0)
		return -ENOMEM;
	return autostarted_end(socket_path) < 0 ? -EIO : r;
}

int measure_autostart(struct bench *b)
{
	_cleanup_(freep) char *runtime = NULL;

	if (access(SYSTEM_SOCKET, F_OK) == 0) {
		fprintf(stderr,
			"bench: autostart is not measured: there is a system's daemon, at " SYSTEM_SOCKET
			"\n");
		return 0;
	}
	if (asprintf(&runtime, "%s/run", b->dir) < 0)
		return -ENOMEM;
	if (mkdir(runtime, 0700) < 0 || setenv("XDG_RUNTIME_DIR", runtime, 1) < 0 ||
	    setenv("XDG_CONFIG_HOME", runtime, 1) < 0 || /* no configuration of the user's */
	    setenv("XDG_STATE_HOME", runtime, 1) < 0 || setenv("DSAIOD", b->program, 1) < 0 ||
	    unsetenv("DSAIO_SOCKET") < 0 || unsetenv("DSAIO_AUTOSTART") < 0) {
		const int r = -errno;

		fprintf(stderr, "bench: %s: %s\n", runtime, strerror(-r));
		return r;
	}
	return repeat(b, &rows[ROW_AUTOSTART], ours_autostart);
}

/* ---- RWF_NOWAIT ---- */

static int nowait(struct bench *b, int (*local)(struct bench *, double *), double *ret_value)
{
	int r;

	b->local.rw_flags = RWF_NOWAIT;
	r = local(b, ret_value);
	b->local.rw_flags = 0;
	return r;
}

static int nowait_latency(struct bench *b, double *ret_usec)
{
	return nowait(b, local_latency, ret_usec);
}

static int nowait_iops(struct bench *b, double *ret_iops)
{
	return nowait(b, local_iops, ret_iops);
}

static int nowait_stream(struct bench *b, double *ret_bandwidth)
{
	return nowait(b, local_read_bandwidth, ret_bandwidth);
}

/* Another process that keeps the device busy with large reads until it is killed. */
static pid_t others_start(struct bench *b)
{
	const pid_t parent = getpid(), pid = fork();
	struct local local;
	double seconds;
	uint64_t n;

	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a known option */
	if (getppid() != parent || local_open(&local, b->path, LARGE_BYTES) < 0)
		_exit(1);
	while (local_random(&local, READ_BYTES, LARGE_DEPTH, SLICE_USEC, &n, &seconds) == 0)
		;
	_exit(1);
}

static int measure_nowait_in(struct bench *b, struct row *small, struct row *large)
{
	uint64_t n_refused;
	int r = local_open(&b->local, b->path, SMALL_BYTES);

	if (r == 0)
		r = compare(b, small, 1, nowait_iops, local_iops);
	n_refused = b->local.n_refused;
	local_close(&b->local);
	if (r == 0)
		r = local_open(&b->local, b->path, LARGE_BYTES);
	if (r == 0)
		r = compare(b, large, 1e6, nowait_stream, local_read_bandwidth);
	n_refused += b->local.n_refused;
	local_close(&b->local);
	if (r == 0)
		printf("%s and %s: %" PRIu64 " reads refused with EAGAIN\n", small->name,
		       large->name, n_refused);
	return r;
}

int measure_nowait(struct bench *b)
{
	void *memory = NULL;
	pid_t others;
	int r = -posix_memalign(&memory, 4096, READ_BYTES);

	if (r < 0)
		return r;
	memset(memory, 1, READ_BYTES); /* its pages are there */
	b->memory = memory;
	r = local_open(&b->local, b->path, SMALL_BYTES);
	if (r == 0)
		r = compare(b, &rows[ROW_NOWAIT_LATENCY], 1, nowait_latency, local_latency);
	local_close(&b->local);
	if (r == 0)
		r = measure_nowait_in(b, &rows[ROW_NOWAIT_IOPS], &rows[ROW_NOWAIT_STREAM]);
	if (r == 0) {
		others = others_start(b);
		r = others < 0 ? -errno
			       : measure_nowait_in(b, &rows[ROW_NOWAIT_IOPS_AMONG],
						   &rows[ROW_NOWAIT_STREAM_AMONG]);
		if (others > 0) {
			(void)kill(others, SIGKILL); /* it is ours, and not reaped */
			(void)waitpid(others, NULL, 0);
		}
	}
	b->memory = NULL;
	free(memory);
	return r;
}
