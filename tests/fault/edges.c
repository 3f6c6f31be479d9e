/*
 * A client changes its own file while the daemon works on it, so that I/O which never waits
 * suddenly does (E5): the flags of the shared description change, or a write(2) of gigabytes holds
 * the file.  It may wait itself; a client beside must not notice.
 */
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the client beside: when would an op that is wanted each 2 ms have been done? ---- */

#define BEAT_USEC 2000
#define BEATS_MAX 20000u
#define QUIET_USEC 500000
/* Each quiet time and each loud one takes turns so often: an odd number has a median. */
#define TURNS 5
/*
 * Ours may wait so many times as long as plain reads beside them, at the median of the loud times
 * (and where ours are slower anyway, so many times that).  It is two; a sanitizer on a loaded machine
 * makes it six, or more, so the best of some series counts.  A lane that blocks makes all ten at least by
 * the flags, hundreds by the write.
 */
#define RATIO_MAX_FLAGS 8.0
#define RATIO_MAX_WRITE 30.0
#define SERIES_MAX 10u

struct beats {
	int64_t usec[BEATS_MAX]; /* since its op was due, not since it was sent: a stall counts in
				    full */
	unsigned n;
};

/* Through the daemon or (client NULL) by pread(2): what the device and the machine alone cause. */
struct neighbour {
	int fd;
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	void *memory;
	uint64_t random;
	struct beats *beats;
	bool (*goes_on)(void);
};

static void neighbour_open(struct neighbour *n, const struct daemon *daemon)
{
	const char *path = daemon_path(daemon, "neighbour");

	file_make_pattern(path, 16 * MIB, 1);
	n->client = client_open(daemon);
	CHECK_CALL(dsaio_handle_open(n->client, NULL, &n->handle));
	CHECK_CALL(dsaio_open(n->client, path, O_RDONLY, NULL, &n->file));
	CHECK_CALL(dsaio_alloc(n->client, 4096, NULL, &n->memory));
	n->random = test_seed();
}

static void plain_open(struct neighbour *n, const struct daemon *daemon)
{
	n->fd = open_direct(daemon_path(daemon, "neighbour"), O_RDONLY);
	CHECK_EQ(posix_memalign(&n->memory, 4096, 4096), 0);
	n->random = test_seed() + 1;
}

static void *neighbour_run(void *arg)
{
	struct neighbour *n = arg;
	struct beats *beats = n->beats;
	int64_t due = now_usec();

	while (n->goes_on() && beats->n < BEATS_MAX) {
		uint64_t off = test_random(&n->random) % 4096 * 4096;
		int64_t now = now_usec();

		if (now < due)
			(void)usleep((unsigned)(due - now));
		if (n->client)
			CHECK_EQ(dsaio_pread(n->handle, n->file, n->memory, 4096, off), 4096);
		else
			CHECK_EQ(pread(n->fd, n->memory, 4096, (off_t)off), 4096);
		beats->usec[beats->n++] = now_usec() - due;
		due += BEAT_USEC;
	}
	return NULL;
}

static int64_t beats_p99(struct beats *beats)
{
	return percentile(beats->usec, beats->n, 99);
}

/* ---- the offender: its ops and what it does beside them ---- */

static struct {
	struct raw raw;
	struct raw_slab slab;
	struct raw_channel channel;
	uint32_t file;
	int fd; /* the description that it handed over */
	const char *path;
	uint64_t file_bytes;
	uint8_t opcode;
	void *(*misbehave)(void *);
	_Atomic bool must_stop, is_over;
	_Atomic uint64_t n_ops;
	int64_t until_usec;
} bad;

#define SLAB_BYTES (4 * MIB)
#define OP_BYTES (256 * KIB)

static void offender_open(const struct daemon *daemon, uint64_t file_bytes)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);

	bad.raw = (struct raw)RAW_NONE;
	bad.path = daemon_path(daemon, "bad");
	bad.file_bytes = file_bytes;
	file_make_pattern(bad.path, file_bytes, 2);
	bad.fd = open_direct(bad.path, O_RDWR);
	raw_open(&bad.raw, daemon);
	raw_slab(&bad.raw, SLAB_BYTES, &bad.slab);
	file_add.name = (char *)(uintptr_t)bad.path;
	raw_call_ok(&bad.raw, &request, &bad.fd, 1, &answer);
	bad.file = answer.reply->file_add->file;
	raw_channel(&bad.raw, raw_handle(&bad.raw), answer.reply->file_add->store, 32, true,
		    &bad.channel);
}

static void offender_close(void)
{
	raw_slab_unmap(&bad.slab);
	raw_channel_unmap(&bad.channel);
	raw_close(&bad.raw);
	closep(&bad.fd);
}

/* Sixteen ops at a time. */
static void *offender_ops(void *arg)
{
	uint64_t random = test_seed();

	(void)arg;
	while (!atomic_load(&bad.must_stop)) {
		struct ring_entry entries[16];
		int64_t results[16];

		for (unsigned i = 0; i < 16; i++)
			entries[i] = (struct ring_entry){
				.opcode = i % 4 ? RING_OP_READ : bad.opcode,
				.file = bad.file,
				.slab = bad.slab.id,
				.slab_off = i * OP_BYTES,
				.off = test_random(&random) % (bad.file_bytes / OP_BYTES) *
				       OP_BYTES,
				.len = OP_BYTES,
			};
		raw_run(&bad.channel, entries, 16, results);
		for (unsigned i = 0; i < 16; i++)
			CHECK_MSG(results[i] == OP_BYTES, "%" PRId64 " (errno %d)", results[i],
				  ring_result_errno(results[i]));
		(void)atomic_fetch_add(&bad.n_ops, 16);
	}
	return NULL;
}

static bool is_quiet_time(void)
{
	return now_usec() < bad.until_usec;
}

static bool is_loud_time(void)
{
	return !atomic_load(&bad.is_over);
}

static void *misbehave_main(void *arg)
{
	(void)bad.misbehave(arg);
	atomic_store(&bad.is_over, true);
	return NULL;
}

/* Both for as long as that says; returns how many times as long as plain reads ours took. */
static int64_t run_both(struct neighbour *neighbour, struct neighbour *plain, bool (*goes_on)(void),
			const char *when)
{
	static struct beats ours, others;
	int64_t ours_p99, plain_p99;
	pthread_t thread;

	ours.n = others.n = 0;
	neighbour->beats = &ours;
	plain->beats = &others;
	neighbour->goes_on = plain->goes_on = goes_on;
	CHECK_EQ(pthread_create(&thread, NULL, neighbour_run, plain), 0);
	(void)neighbour_run(neighbour);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	ours_p99 = beats_p99(&ours);
	plain_p99 = beats_p99(&others);
	test_note("%s: 99th percentile of 4 KiB reads %" PRId64 " us, of plain ones %" PRId64 " us",
		  when, ours_p99, plain_p99);
	return ours_p99 * 100 / plain_p99;
}

/*
 * Quiet and loud times in turns.  A delay that plain reads have, too, comes from the device or the machine:
 * so ours are compared with those that ran at the same time, and the median of the loud times
 * counts.
 */
static bool compare_series(struct neighbour *neighbour, struct neighbour *plain, double ratio_max)
{
	int64_t ratios[TURNS], quiet_ratios[TURNS];
	double ratio, quiet_ratio;

	for (unsigned i = 0; i < TURNS; i++) {
		pthread_t ops, wrong;

		bad.until_usec = now_usec() + QUIET_USEC;
		quiet_ratios[i] = run_both(neighbour, plain, is_quiet_time, "quiet");

		atomic_store(&bad.must_stop, false);
		atomic_store(&bad.is_over, false);
		CHECK_EQ(pthread_create(&ops, NULL, offender_ops, NULL), 0);
		CHECK_EQ(pthread_create(&wrong, NULL, misbehave_main, NULL), 0);
		ratios[i] = run_both(neighbour, plain, is_loud_time, "loud");
		CHECK_EQ(pthread_join(wrong, NULL), 0);
		atomic_store(&bad.must_stop, true);
		CHECK_EQ(pthread_join(ops, NULL), 0);
	}
	ratio = (double)percentile(ratios, TURNS, 50) / 100;
	quiet_ratio = (double)percentile(quiet_ratios, TURNS, 50) / 100;
	test_note("ours took %.1f times as long as plain reads, %.1f times without the offender, "
		  "who did %" PRIu64 " ops",
		  ratio, quiet_ratio, (uint64_t)atomic_load(&bad.n_ops));
	return ratio <= ratio_max * (quiet_ratio > 1 ? quiet_ratio : 1);
}

static void compare(const struct daemon *daemon, void *(*misbehave)(void *), double ratio_max)
{
	struct neighbour neighbour = { .fd = -1 }, plain = { .fd = -1 };
	unsigned n = 1;

	test_time_limit(600);
	ratio_max *= test_time_factor(); /* a sanitizer slows the daemon, and not plain reads */
	bad.misbehave = misbehave;
	neighbour_open(&neighbour, daemon);
	plain_open(&plain, daemon);
	while (!compare_series(&neighbour, &plain, ratio_max))
		CHECK_MSG(n++ < SERIES_MAX, "ours took longer than %.0f times plain reads",
			  ratio_max);
	(void)dsaio_disconnect(neighbour.client);
	closep(&plain.fd);
	free(plain.memory);
}

/* ---- E5 ---- */

static void *toggle(void *arg)
{
	static const int flags[] = { 0, O_DIRECT, O_APPEND, O_DIRECT | O_APPEND };
	int64_t until = now_usec() + 1500000;

	(void)arg;
	for (unsigned i = 0; now_usec() < until; i++) {
		CHECK_SYS(fcntl(bad.fd, F_SETFL, flags[i % 4]));
		if (i % 8) {
			(void)usleep(100);
			continue;
		}
		/* Appended data goes; data read through the cache is not in it. */
		CHECK_SYS(ftruncate(bad.fd, (off_t)bad.file_bytes));
		CHECK_EQ(posix_fadvise(bad.fd, 0, 0, POSIX_FADV_DONTNEED), 0);
		(void)usleep(10000);
	}
	CHECK_SYS(fcntl(bad.fd, F_SETFL, O_DIRECT));
	return NULL;
}

FAULT(e5_flags, "E5 O_DIRECT and O_APPEND toggled while ops run: nobody else waits")
{
	offender_open(daemon, 64 * MIB);
	bad.opcode = RING_OP_WRITE;
	compare(daemon, toggle, RATIO_MAX_FLAGS);
	offender_close();
}

/* One call: nothing else may use the file until it returns. */
static void *write_much(void *arg)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(bad.path, O_WRONLY | O_CLOEXEC));
	struct statvfs vfs;
	struct sysinfo info;
	uint64_t bytes = 2 * GIB - MIB, done = 0;
	void *memory;

	(void)arg;
	CHECK_SYS(fstatvfs(fd, &vfs));
	CHECK_SYS(sysinfo(&info));
	while (bytes > vfs.f_bavail * vfs.f_frsize / 4 || bytes > info.totalram * info.mem_unit / 4)
		bytes /= 2;
	memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(memory != MAP_FAILED); /* one page of zeroes, many times */
	while (done < bytes)
		done += (uint64_t)CHECK_SYS(pwrite(fd, (char *)memory + done, bytes - done,
						   (off_t)(bad.file_bytes + done)));
	CHECK_SYS(munmap(memory, bytes));
	CHECK_SYS(ftruncate(fd, (off_t)bad.file_bytes));
	return NULL;
}

FAULT(e5_write, "E5 its own write(2) of 2 GB beside its direct reads: nobody else waits")
{
	offender_open(daemon, 64 * MIB);
	bad.opcode = RING_OP_READ;
	compare(daemon, write_much, RATIO_MAX_WRITE);
	offender_close();
}

/* ---- rings full of unaligned reads ---- */

#define FLOOD_CHANNELS 64
#define FLOOD_ENTRIES 4096

/* In a process of its own: keeps all its rings full until it is killed. */
static noreturn void keep_full(const struct daemon *daemon, const char *path, uint32_t timeout_msec)
{
	static struct raw_channel channels[FLOOD_CHANNELS];
	struct raw raw = RAW_NONE;
	struct raw_slab slab;
	struct raw_file file;

	raw_open(&raw, daemon);
	raw_slab(&raw, MIB, &slab);
	raw_file(&raw, path, O_RDONLY, &file);
	for (unsigned i = 0; i < FLOOD_CHANNELS; i++)
		raw_channel(&raw, raw_handle(&raw), file.store, FLOOD_ENTRIES, true, &channels[i]);
	for (unsigned i = 0;; i = (i + 1) % FLOOD_CHANNELS) {
		struct ring_client *ring = &channels[i].ring;

		ring_client_consume(ring, ring_client_ready(ring));
		for (uint32_t n = ring_client_room(ring); n; n--) {
			struct ring_entry entry = { .opcode = RING_OP_READ,
						    .file = file.id,
						    .slab = slab.id,
						    .off = 100,
						    .len = 512,
						    .timeout_msec = timeout_msec };

			raw_put(&channels[i], &entry);
		}
		raw_ring(&channels[i]);
		if (i == FLOOD_CHANNELS - 1)
			(void)usleep(1000);
	}
}

/* One that has to wait for all of the flood's ops waits for minutes.  A busy disk alone may take 20 s. */
#define DEADLINE_USEC 40000000

static void read_until_deadline(struct neighbour *n, uint64_t off, unsigned len)
{
	int64_t start = now_usec(), usec;

	CHECK_EQ(dsaio_pread(n->handle, n->file, n->memory, len, off), len);
	usec = now_usec() - start;
	CHECK_MSG((double)usec < DEADLINE_USEC * test_time_factor(),
		  "%u bytes at %" PRIu64 ": %" PRId64 " us", len, off, usec);
}

static const struct {
	const char *name;
	uint32_t timeout_msec;
} floods[] = { { "without a timeout", 0 }, { "with one of a millisecond", 1 } };

static void flood_and_kill(const struct daemon *daemon, const char *path, uint32_t timeout_msec)
{
	struct neighbour neighbour = { .fd = -1 };
	int64_t until;
	pid_t pid = (pid_t)CHECK_SYS(fork());

	if (pid == 0)
		keep_full(daemon, path, timeout_msec);
	neighbour_open(&neighbour, daemon);
	until = now_usec() + 2000000;
	while (now_usec() < until) {
		read_until_deadline(&neighbour, 8192, 4096);
		read_until_deadline(&neighbour, 777, 1000);
	}
	CHECK_SYS(kill(pid, SIGKILL));
	CHECK_SYS(waitpid(pid, NULL, 0));
	until = now_usec() + 1000000;
	while (now_usec() < until) {
		read_until_deadline(&neighbour, 8192, 4096);
		read_until_deadline(&neighbour, 777, 1000);
	}
	(void)dsaio_disconnect(neighbour.client);
}

FAULT(flood, "rings full of unaligned reads, then killed: nobody else waits for them")
{
	const char *path = daemon_path(daemon, "flood");

	file_make_pattern(path, MIB, 3);
	for (unsigned i = 0; i < ARRAY_SIZE(floods); i++) {
		test_note("%s", floods[i].name);
		flood_and_kill(daemon, path, floods[i].timeout_msec);
	}
}

TEST_MAIN
