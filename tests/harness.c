/*
 * The harness of harness.h: tests in processes of their own, daemons, clients by hand.
 *
 * It is over 600 lines because it is one interface: processes, daemons, files and raw clients use
 * each other.
 */
#include "tests/harness.h"
#include "tests/huge_pages.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#define DAEMONS_MAX 64
#define TEXTS_MAX 65536
#define TIME_LIMIT_SEC 60
#define ANSWER_USEC 20000000 /* for what takes no time unless something is wrong */

struct test {
	const char *name;
	void (*run)(int row);
	int row;
};

/* Shared by a program's process and all of the test that runs. */
struct report {
	_Atomic int state; /* 0, 1: somebody writes text, 2: failed, 3: skipped */
	_Atomic int64_t deadline_usec;
	_Atomic int n_dirs;		  /* further directories to be removed */
	_Atomic unsigned long huge_pages; /* added to the host's reserve: huge_pages_add() */
	char dirs[8][128];
	char text[2048];
};

static struct test tests[4096];
static int n_tests;
static char *texts[TEXTS_MAX];
static _Atomic int n_texts;
static struct report *report;
static int huge_pages_fd = -1; /* one open file for all processes: it holds the lock */
static char test_directory[PATH_MAX];
static struct daemon daemons[DAEMONS_MAX];
static bool daemon_just_killed[DAEMONS_MAX];
static int n_daemons;

/* ---- small things ---- */

double test_time_factor(void)
{
	const char *text = getenv("TEST_TIME_FACTOR");
	double factor = text ? atof(text) : 1;

	return factor > 0 ? factor : 1;
}

int64_t now_usec(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int int64_compare(const void *pa, const void *pb)
{
	const int64_t *a = pa, *b = pb;

	return (*a > *b) - (*a < *b);
}

int64_t percentile(int64_t *values, size_t n, unsigned percent)
{
	CHECK(n);
	qsort(values, n, sizeof(*values), int64_compare);
	return values[n * percent / 100];
}

static int64_t deadline_after(int64_t timeout_usec)
{
	return now_usec() + (int64_t)((double)timeout_usec * test_time_factor());
}

static int msec_until(int64_t deadline)
{
	int64_t left = deadline - now_usec();

	if (left <= 0)
		return 0;
	return left > 3600000000 ? 3600000 : (int)(left / 1000) + 1;
}

unsigned test_seed(void)
{
	const char *text = getenv("TEST_SEED");

	return text ? (unsigned)strtoul(text, NULL, 0) : 1;
}

static uint64_t mix(uint64_t x) /* splitmix64 */
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

uint64_t test_random(uint64_t *state)
{
	return mix((*state)++);
}

static char *text_keep(char *text)
{
	int i = atomic_fetch_add(&n_texts, 1);

	if (i >= TEXTS_MAX || !text)
		abort();
	return texts[i] = text;
}

char *test_text(const char *format, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	return text_keep(text);
}

const char *test_dir(void)
{
	return test_directory;
}

const char *test_dir_in(const char *base)
{
	int i = atomic_fetch_add(&report->n_dirs, 1);

	CHECK(i < (int)ARRAY_SIZE(report->dirs));
	(void)snprintf(report->dirs[i], sizeof(report->dirs[i]), "%s/dsaio-test-XXXXXX", base);
	CHECK(mkdtemp(report->dirs[i]));
	return report->dirs[i];
}

/* ---- the end of a test ---- */

_Noreturn static void end_with(int state, const char *format, va_list args)
{
	int none = 0;

	if (atomic_compare_exchange_strong(&report->state, &none, 1)) { /* the first tells why */
		(void)vsnprintf(report->text, sizeof(report->text), format, args);
		atomic_store(&report->state, state);
	}
	_exit(state == 3 ? 0 : 1);
}

_Noreturn void test_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	end_with(2, format, args);
}

_Noreturn void test_skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	end_with(3, format, args);
}

void test_needs_root(void)
{
	if (geteuid() != 0)
		test_skip("needs root");
}

bool test_is_slow(void)
{
	return test_time_factor() > 1;
}

void test_note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("# ");
	vprintf(format, args);
	printf("\n");
	(void)fflush(stdout); /* a note that does not arrive is no failure */
	va_end(args);
}

void test_time_limit(unsigned seconds)
{
	atomic_store(&report->deadline_usec, deadline_after((int64_t)seconds * 1000000));
}

int64_t check_call(const char *what, int64_t result, const char *file, int line)
{
	if (result < 0)
		test_fail("%s:%d: %s: %s (%s)", file, line, what, strerror((int)-result),
			  dsaio_error());
	return result;
}

int64_t check_sys(const char *what, int64_t result, const char *file, int line)
{
	if (result < 0)
		test_fail("%s:%d: %s: %s", file, line, what, strerror(errno));
	return result;
}

static bool has_words(const char *sentence, const char *words)
{
	_cleanup_(freep) char *copy = strdup(words);
	char *rest = copy, *word;

	while ((word = strsep(&rest, ";")))
		if (!strstr(sentence, word))
			return false;
	return true;
}

void check_fails(const char *what, int64_t result, int64_t error, const char *sentence,
		 const char *words, const char *file, int line)
{
	if (result != error)
		test_fail("%s:%d: %s is %" PRId64 ", not %" PRId64 " (%s)", file, line, what,
			  result, error, sentence);
	if (!has_words(sentence, words))
		test_fail("%s:%d: %s: the sentence has not all of \"%s\": \"%s\"", file, line, what,
			  words, sentence);
}

bool wait_readable(int fd, int64_t timeout_usec)
{
	int64_t deadline = deadline_after(timeout_usec);
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	for (;;) {
		int r = poll(&pollfd, 1, msec_until(deadline));

		if (r > 0)
			return true;
		if (r < 0 && errno != EINTR)
			test_fail("poll: %s", strerror(errno));
		if (now_usec() >= deadline)
			return false;
	}
}

void process_stop(pid_t pid)
{
	char state = 0;

	CHECK_SYS(kill(pid, SIGSTOP));
	while (state != 'T') {
		_cleanup_(fclosep) FILE *file = fopen(test_text("/proc/%d/stat", pid), "re");
		char line[512], *end;

		CHECK_MSG(file && fgets(line, sizeof(line), file), "process %d has ended", pid);
		end = strrchr(line, ')'); /* the name before it can hold anything */
		CHECK(end && sscanf(end + 1, " %c", &state) == 1);
		(void)poll(NULL, 0, 2);
	}
}

void child_wait_ok(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			test_fail("waitpid: %s", strerror(errno));
	if (WIFSIGNALED(status))
		test_fail("a child process died of signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status))
		test_fail("a child process ended with status %d", WEXITSTATUS(status));
}

/* ---- reserved huge pages ---- */

static unsigned long huge_pages_read(void)
{
	_cleanup_(fclosep) FILE *file = fopen(HUGE_PAGES_PATH, "re");
	unsigned long n = 0;

	return file && fscanf(file, "%lu", &n) == 1 ? n : 0;
}

/* Returns how many there are then: maybe fewer. */
static unsigned long huge_pages_write(unsigned long n)
{
	_cleanup_(fclosep) FILE *file = fopen(HUGE_PAGES_PATH, "we");

	if (file) {
		(void)fprintf(file, "%lu\n", n);
		(void)fflush(file); /* the caller compares what came of it */
	}
	return huge_pages_read();
}

void huge_pages_add(size_t bytes)
{
	unsigned long before, now, n = (bytes + 2 * MIB - 1) / (2 * MIB);

	test_needs_root();
	if (huge_pages_fd < 0)
		test_skip("needs huge pages: there is no %s", HUGE_PAGES_PATH);
	CHECK_SYS(flock(huge_pages_fd, LOCK_EX));
	before = huge_pages_read();
	now = huge_pages_write(before + n);
	if (now > before)
		atomic_store(&report->huge_pages, now - before);
	if (now < before + n)
		test_skip("needs %lu reserved huge pages: the host has memory for %lu", n,
			  now > before ? now - before : 0);
}

/* After a test, whose processes are gone. */
static void huge_pages_put_back(void)
{
	unsigned long n = atomic_exchange(&report->huge_pages, 0);

	if (n)
		(void)huge_pages_write(huge_pages_read() - n);
	if (huge_pages_fd >= 0)
		(void)flock(huge_pages_fd, LOCK_UN); /* our own: cannot fail */
}

/* ---- running tests ---- */

void test_add(const char *name, void (*run)(int row), int row)
{
	if (n_tests == (int)ARRAY_SIZE(tests))
		abort();
	tests[n_tests++] = (struct test){ .name = name, .run = run, .row = row };
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	(void)remove(path); /* errors are ignored: the directory is temporary */
	return 0;
}

static void directory_make(void)
{
	const char *base = getenv("TMPDIR");

	(void)snprintf(test_directory, sizeof(test_directory), "%s/dsaio-test-XXXXXX",
		       base && *base ? base : "/var/tmp");
	if (!mkdtemp(test_directory)) {
		fprintf(stderr, "%s: %s\n", test_directory, strerror(errno));
		exit(1);
	}
	(void)chmod(test_directory, 0755); /* tests that give up root still get in */
}

static void logs_show(void)
{
	char path[PATH_MAX + 32];

	for (int i = 0; i < DAEMONS_MAX; i++) {
		_cleanup_(fclosep) FILE *log = NULL;
		char line[1024];

		(void)snprintf(path, sizeof(path), "%s/daemon-%d.log", test_directory, i);
		log = fopen(path, "re");
		for (int n = 0; log && n < 40 && fgets(line, sizeof(line), log); n++)
			fprintf(stderr, "    daemon %d: %s", i, line);
	}
}

static void daemons_end(void)
{
	for (int i = 0; i < n_daemons; i++)
		if (daemons[i].pid) {
			if (daemon_just_killed[i])
				daemon_kill(&daemons[i]);
			else
				daemon_stop(&daemons[i]);
		}
}

/* Waits until it has ended or its time is over; returns its wait status, or -1. */
static int child_watch(pid_t pid)
{
	_cleanup_(closep) int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };
	int status;

	for (;;) {
		int msec = msec_until(atomic_load(&report->deadline_usec));

		/* The test may ask for more time at any moment. */
		if (fd >= 0 && poll(&pollfd, 1, msec > 1000 ? 1000 : msec) > 0)
			break;
		if (now_usec() >= atomic_load(&report->deadline_usec))
			return -1;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return status;
}

static bool test_run(const struct test *test)
{
	char why[256] = "";
	int status, state;
	bool ok;
	pid_t pid;

	atomic_store(&report->state, 0);
	atomic_store(&report->n_dirs, 0);
	atomic_store(&report->deadline_usec, deadline_after(TIME_LIMIT_SEC * 1000000));
	directory_make();
	(void)fflush(NULL); /* or the child prints it again */

	pid = fork();
	if (pid < 0) {
		fprintf(stderr, "fork: %s\n", strerror(errno));
		exit(1);
	}
	if (pid == 0) {
		(void)setpgid(0, 0); /* just forked: both cannot fail */
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		test->run(test->row);
		beside_stop();
		daemons_end();
		exit(0); /* a leak checker looks now */
	}
	(void)setpgid(pid, pid); /* parent or child is first; the child may have ended */

	status = child_watch(pid);
	(void)kill(-pid, SIGKILL); /* what it left behind, if anything */
	while (waitpid(-pid, NULL, 0) > 0 || errno == EINTR)
		;
	huge_pages_put_back();

	state = atomic_load(&report->state);
	if (status == -1)
		(void)snprintf(why, sizeof(why), "no end in its time");
	else if (WIFSIGNALED(status))
		(void)snprintf(why, sizeof(why), "died of signal %d (%s)", WTERMSIG(status),
			       strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) && state != 2)
		(void)snprintf(why, sizeof(why), "ended with status %d", WEXITSTATUS(status));

	ok = !*why && state != 2;
	if (!ok) {
		printf("not ok %s: %s%s%s\n", test->name, state == 2 ? report->text : "",
		       state == 2 && *why ? "; " : "", why);
		(void)fflush(stdout);
		logs_show();
	} else if (state == 3)
		printf("skip %s: %s\n", test->name, report->text);
	else
		printf("ok %s\n", test->name);
	(void)fflush(stdout);

	if (!getenv("KEEP")) {
		(void)nftw(test_directory, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
		for (int i = 0; i < atomic_load(&report->n_dirs); i++)
			(void)nftw(report->dirs[i], remove_one, 16, FTW_DEPTH | FTW_PHYS);
	}
	return ok;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strstr(name, argv[i]))
			return true;
	return argc < 2;
}

int tests_main(int argc, char **argv)
{
	int n_failed = 0, n_wanted = 0;

	if (argc == 2 && !strcmp(argv[1], "-l")) {
		for (int i = 0; i < n_tests; i++)
			puts(tests[i].name);
		return 0;
	}

	(void)setenv("DSAIO_AUTOSTART", "0", 1); /* no daemon that no test has asked for */
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (report == MAP_FAILED || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
		perror("tests");
		return 1;
	}
	huge_pages_fd = huge_pages_open();
	(void)signal(SIGPIPE, SIG_IGN); /* cannot fail; the peer of a raw client may close */

	for (int i = 0; i < n_tests; i++) {
		if (!is_wanted(tests[i].name, argc, argv))
			continue;
		n_wanted++;
		n_failed += !test_run(&tests[i]);
	}
	if (!n_wanted) {
		fprintf(stderr, "no test's name has \"%s\": -l lists them\n", argv[1]);
		n_failed = 1;
	}
	(void)munmap(report, sizeof(*report));
	for (int i = 0; i < n_texts; i++)
		free(texts[i]);
	return n_failed ? 1 : 0;
}

/* ---- bytes ---- */

static inline uint64_t pattern_word(uint64_t seed, uint64_t n)
{
	return mix(seed * UINT64_C(0xd1342543de82ef95) + n);
}

static inline uint8_t pattern_byte(uint64_t seed, uint64_t pos)
{
	return (uint8_t)(pattern_word(seed, pos / 8) >> pos % 8 * 8);
}

void pattern_fill(void *buf, size_t len, uint64_t seed, uint64_t pos)
{
	uint8_t *bytes = buf;

	for (; len && pos % 8; len--)
		*bytes++ = pattern_byte(seed, pos++);
	for (; len >= 8; len -= 8, pos += 8, bytes += 8) {
		uint64_t word = htole64(pattern_word(seed, pos / 8));

		memcpy(bytes, &word, 8);
	}
	for (; len; len--)
		*bytes++ = pattern_byte(seed, pos++);
}

int64_t pattern_compare(const void *buf, size_t len, uint64_t seed, uint64_t pos)
{
	const uint8_t *bytes = buf;

	for (size_t i = 0; i < len;) {
		if ((pos + i) % 8 == 0 && len - i >= 8) {
			uint64_t word = htole64(pattern_word(seed, (pos + i) / 8));

			if (!memcmp(bytes + i, &word, 8)) {
				i += 8;
				continue;
			}
		}
		if (bytes[i] != pattern_byte(seed, pos + i))
			return (int64_t)i;
		i++;
	}
	return -1;
}

void pattern_check(const void *buf, size_t len, uint64_t seed, uint64_t pos, const char *what)
{
	int64_t i = pattern_compare(buf, len, seed, pos);

	if (i >= 0)
		test_fail("%s: byte %" PRId64 " of %zu is 0x%02x, not 0x%02x", what, i, len,
			  ((const uint8_t *)buf)[i], pattern_byte(seed, pos + (uint64_t)i));
}

#define GUARD_SEED 0x6755a4d

void guarded_new(struct guarded *g, struct dsaio_client *client, size_t len, size_t misalign)
{
	void *memory = NULL;

	*g = (struct guarded){ .len = len, .client = client };
	g->size = (GUARD_BYTES + misalign + len + GUARD_BYTES + 4095) & ~(size_t)4095;
	if (client)
		CHECK_CALL(dsaio_alloc(client, g->size, &memory));
	else if (posix_memalign(&memory, 4096, g->size))
		test_fail("no memory for a buffer of %zu bytes", g->size);
	g->start = memory;
	g->memory = g->start + GUARD_BYTES + misalign;
	pattern_fill(g->start, (size_t)(g->memory - g->start), GUARD_SEED, 0);
	pattern_fill(g->memory + len, g->size - (size_t)(g->memory + len - g->start), GUARD_SEED,
		     (uint64_t)(g->memory + len - g->start));
}

void guarded_free(struct guarded *g)
{
	if (!g->start)
		return;
	if (g->client)
		CHECK_CALL(dsaio_free(g->client, g->start));
	else
		free(g->start);
	*g = (struct guarded){ 0 };
}

void guarded_check(const struct guarded *g, const char *what)
{
	size_t after = (size_t)(g->memory + g->len - g->start);
	int64_t i = pattern_compare(g->start, (size_t)(g->memory - g->start), GUARD_SEED, 0);

	if (i >= 0)
		test_fail("%s: %" PRId64 " bytes before the buffer a byte has changed", what,
			  g->memory - g->start - i);
	i = pattern_compare(g->start + after, g->size - after, GUARD_SEED, after);
	if (i >= 0)
		test_fail("%s: %" PRId64 " bytes behind the buffer a byte has changed", what, i);
}

void file_make_pattern(const char *path, uint64_t size, uint64_t seed)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(
		open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
	_cleanup_(freep) uint8_t *buf = malloc(MIB);

	CHECK(buf);
	for (uint64_t off = 0; off < size;) {
		size_t n = size - off < MIB ? (size_t)(size - off) : MIB;

		pattern_fill(buf, n, seed, off);
		CHECK_EQ(pwrite(fd, buf, n, (off_t)off), n);
		off += n;
	}
}

void file_make_sparse(const char *path, uint64_t size)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(
		open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));

	CHECK_SYS(ftruncate(fd, (off_t)size));
}

void file_check_pattern(const char *path, uint64_t off, uint64_t len, uint64_t seed, uint64_t pos)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_RDONLY | O_CLOEXEC));
	_cleanup_(freep) uint8_t *buf = malloc(MIB);

	CHECK(buf);
	for (uint64_t done = 0; done < len;) {
		size_t n = len - done < MIB ? (size_t)(len - done) : MIB;

		CHECK_EQ(pread(fd, buf, n, (off_t)(off + done)), n);
		pattern_check(buf, n, seed, pos + done,
			      test_text("%s from byte %" PRIu64, path, off + done));
		done += n;
	}
}

uint64_t file_size(const char *path)
{
	struct stat st;

	CHECK_SYS(stat(path, &st));
	return (uint64_t)st.st_size;
}

int open_direct(const char *path, int flags)
{
	int fd = open(path, flags | O_DIRECT | O_CLOEXEC, 0644);

	if (fd < 0 && errno == EINVAL)
		fd = open(path, flags | O_CLOEXEC, 0644);
	return (int)check_sys(path, fd, __FILE__, __LINE__);
}

/* ---- daemons ---- */

static const char *daemon_program(void)
{
	const char *build = getenv("BUILD");

	return test_text("%s/dsaiod", build && *build ? build : "build");
}

static void daemon_exec(const struct daemon *daemon, const struct daemon_options *options)
{
	const char *prefix = getenv("TEST_DAEMON_PREFIX");
	_cleanup_(freep) char *words = strdup(prefix ? prefix : "");
	const char *argv[128];
	char *rest = words, *word;
	bool has_config = false;
	int n = 0;

	while (words && (word = strsep(&rest, " ")) && n < 32)
		if (*word)
			argv[n++] = word;
	argv[n++] = daemon_program();
	argv[n++] = "--socket";
	argv[n++] = options->socket_path ? options->socket_path : daemon->socket_path;
	if (*daemon->store_dir) {
		argv[n++] = "--store";
		argv[n++] = test_text("t=%s", daemon->store_dir);
	}
	for (int i = 0; options->args && options->args[i] && n < 120; i++) {
		has_config |= !strcmp(options->args[i], "--config");
		argv[n++] = options->args[i];
	}
	(void)setenv("STATE_DIRECTORY", test_text("%s/state", test_dir()), 1); /* nor the host's */
	if (!has_config) {						       /* not the host's */
		argv[n++] = "--config";
		argv[n++] = "/dev/null";
	}
	argv[n] = NULL;
	if (options->before_exec)
		options->before_exec();
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* after a change of user, which clears it */
	(void)execvp(argv[0], (char **)(uintptr_t)argv);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static void daemon_fork(struct daemon *daemon, const struct daemon_options *options)
{
	int log = (int)CHECK_SYS(
		open(daemon->log_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));

	(void)fflush(NULL); /* or the child prints it again */
	daemon->pid = (pid_t)CHECK_SYS(fork());
	if (daemon->pid == 0) {
		(void)dup2(log, STDERR_FILENO); /* what it would say shows as a missing ready: */
		(void)dup2(log, STDOUT_FILENO);
		(void)signal(SIGPIPE, SIG_DFL);
		daemon_exec(daemon, options);
	}
	close(log);
	daemon->pid_fd = (int)CHECK_SYS(syscall(SYS_pidfd_open, daemon->pid, 0));
}

static struct daemon *daemon_slot(const struct daemon_options *options)
{
	struct daemon *daemon = &daemons[n_daemons];
	int n;

	CHECK(n_daemons < DAEMONS_MAX);
	*daemon = (struct daemon){ .pid_fd = -1 };
	daemon_just_killed[n_daemons] = options->not_stopped;
	n = snprintf(daemon->log_path, sizeof(daemon->log_path), "%s/daemon-%d.log", test_directory,
		     n_daemons);
	CHECK(n < (int)sizeof(daemon->log_path));
	n = snprintf(daemon->socket_path, sizeof(daemon->socket_path), "%s",
		     options->socket_path ? options->socket_path
					  : test_text("%s/s.sock", test_directory));
	CHECK(options->socket_path || n < (int)sizeof(daemon->socket_path));
	n = snprintf(daemon->store_dir, sizeof(daemon->store_dir), "%s",
		     options->store_dir ? options->store_dir
					: test_text("%s/store", test_directory));
	CHECK(n < (int)sizeof(daemon->store_dir));
	if (!options->store_dir && mkdir(daemon->store_dir, 0777) < 0 && errno != EEXIST)
		test_fail("%s: %s", daemon->store_dir, strerror(errno));
	n_daemons++;
	return daemon;
}

static char *file_text(const char *path)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	char *text = calloc(1, 65536);

	if (file && text)
		text[fread(text, 1, 65535, file)] = 0;
	return text_keep(text);
}

bool daemon_log_has(const struct daemon *daemon, const char *text)
{
	return strstr(file_text(daemon->log_path), text) != NULL;
}

/* Waits until the log has text, or the daemon or the time ends. */
static bool log_wait(const struct daemon *daemon, const char *text, int64_t timeout_usec)
{
	_cleanup_(closep) int watch = (int)CHECK_SYS(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
	int64_t deadline = deadline_after(timeout_usec);
	struct pollfd pollfds[2] = { { .fd = watch, .events = POLLIN },
				     { .fd = daemon->pid_fd, .events = POLLIN } };

	CHECK_SYS(inotify_add_watch(watch, daemon->log_path, IN_MODIFY));
	for (;;) {
		char events[4096];

		if (daemon_log_has(daemon, text))
			return true;
		if (pollfds[1].revents || now_usec() >= deadline)
			return false;
		(void)poll(pollfds, 2, msec_until(deadline)); /* whatever it says: look again */
		while (read(watch, events, sizeof(events)) > 0)
			;
	}
}

void daemon_log_wait(const struct daemon *daemon, const char *text)
{
	if (!log_wait(daemon, text, ANSWER_USEC))
		test_fail("the daemon's log has no \"%s\": %s", text, file_text(daemon->log_path));
}

struct daemon *daemon_start_with(const struct daemon_options *options)
{
	struct daemon *daemon = daemon_slot(options);

	daemon_fork(daemon, options);
	if (!log_wait(daemon, "ready:", ANSWER_USEC))
		test_fail("the daemon does not get ready: %s", file_text(daemon->log_path));
	return daemon;
}

struct daemon *daemon_start(const char *const *args)
{
	return daemon_start_with(&(struct daemon_options){ .args = args });
}

/* Waits for its end; returns its wait status. */
static int daemon_reap(struct daemon *daemon)
{
	int status;

	if (!wait_readable(daemon->pid_fd, ANSWER_USEC))
		test_fail("the daemon does not end: %s", file_text(daemon->log_path));
	while (waitpid(daemon->pid, &status, 0) < 0)
		if (errno != EINTR)
			test_fail("waitpid: %s", strerror(errno));
	close(daemon->pid_fd);
	daemon->pid_fd = -1;
	daemon->pid = 0;
	return status;
}

int daemon_start_fails(const struct daemon_options *options, char **ret_said)
{
	struct daemon *daemon = daemon_slot(options);
	int status;

	daemon_fork(daemon, options);
	if (log_wait(daemon, "ready:", ANSWER_USEC))
		test_fail("the daemon runs, but should not: %s", file_text(daemon->log_path));
	status = daemon_reap(daemon);
	*ret_said = file_text(daemon->log_path);
	if (!WIFEXITED(status))
		test_fail("the daemon died of signal %d: %s", WTERMSIG(status), *ret_said);
	return WEXITSTATUS(status);
}

void daemon_wait_end(struct daemon *daemon, int wanted_status)
{
	int status = daemon_reap(daemon);

	if (WIFSIGNALED(status))
		test_fail("the daemon died of signal %d: %s", WTERMSIG(status),
			  file_text(daemon->log_path));
	if (WEXITSTATUS(status) != wanted_status)
		test_fail("the daemon ended with status %d, not %d: %s", WEXITSTATUS(status),
			  wanted_status, file_text(daemon->log_path));
}

void daemon_stop(struct daemon *daemon)
{
	(void)kill(daemon->pid, SIGTERM); /* if it is gone, its status tells */
	daemon_wait_end(daemon, 0);
}

void daemon_kill(struct daemon *daemon)
{
	(void)kill(daemon->pid, SIGKILL); /* if it is gone, all is well */
	(void)daemon_reap(daemon);
}

bool daemon_is_alive(const struct daemon *daemon)
{
	struct pollfd pollfd = { .fd = daemon->pid_fd, .events = POLLIN };

	return daemon->pid && poll(&pollfd, 1, 0) == 0;
}

char *daemon_path(const struct daemon *daemon, const char *name)
{
	return *name == '/' ? test_text("%s", name) : test_text("%s/%s", daemon->store_dir, name);
}

static uint64_t status_number(const char *status, const char *key)
{
	const char *line = strstr(status, key);

	return line ? strtoull(line + strlen(key), NULL, 10) : 0;
}

struct usage daemon_usage(const struct daemon *daemon)
{
	struct usage usage = { 0 };
	char path[64], target[256], status[8192] = "";
	_cleanup_(closep) int status_fd = -1;
	struct dirent *entry;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", daemon->pid);
	dir = opendir(path);
	CHECK_MSG(dir, "%s", path);
	while ((entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		if (n < 0)
			continue;
		target[n] = 0;
		/* A nameless file is a probe's, which measures the store for a moment after the start. */
		if (strstr(target, "/#") && strstr(target, " (deleted)"))
			continue;
		usage.n_fds++;
		if (!strncmp(target, "/memfd:", 7))
			usage.n_memfds++;
	}
	closedir(dir);

	(void)snprintf(path, sizeof(path), "/proc/%d/status", daemon->pid);
	status_fd = (int)CHECK_SYS(open(path, O_RDONLY | O_CLOEXEC));
	CHECK_SYS(read(status_fd, status, sizeof(status) - 1));
	usage.n_threads = (unsigned)status_number(status, "\nThreads:");
	usage.locked_kib = status_number(status, "\nVmLck:");
	usage.rss_kib = status_number(status, "\nVmRSS:");
	return usage;
}

struct usage daemon_usage_settled(const struct daemon *daemon)
{
	struct usage last = daemon_usage(daemon), now;

	/* The kernel tells nobody when a process's fds change: the same ten times in a row. */
	for (unsigned n_same = 0; n_same < 10; last = now) {
		(void)poll(NULL, 0, 10);
		now = daemon_usage(daemon);
		if (now.n_fds == last.n_fds && now.n_memfds == last.n_memfds &&
		    now.n_threads == last.n_threads && now.locked_kib == last.locked_kib)
			n_same++;
		else
			n_same = 0;
	}
	return last;
}

void daemon_usage_back(const struct daemon *daemon, const struct usage *before)
{
	int64_t deadline = deadline_after(ANSWER_USEC);
	struct usage now;

	/* As above. */
	do {
		now = daemon_usage(daemon);
		if (now.n_fds <= before->n_fds && now.n_memfds <= before->n_memfds &&
		    now.locked_kib <= before->locked_kib)
			return;
		(void)poll(NULL, 0, 20);
	} while (now_usec() < deadline);
	test_fail("the daemon keeps: fds %u -> %u, memfds %u -> %u, locked kB %" PRIu64
		  " -> %" PRIu64,
		  before->n_fds, now.n_fds, before->n_memfds, now.n_memfds, before->locked_kib,
		  now.locked_kib);
}

int64_t daemon_cpu_msec(const struct daemon *daemon)
{
	_cleanup_(fclosep) FILE *file = fopen(test_text("/proc/%d/stat", daemon->pid), "re");
	unsigned long user, system; /* clock ticks */

	CHECK(file);
	CHECK_EQ(fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
			&user, &system),
		 2);
	return (int64_t)(user + system) * 1000 / sysconf(_SC_CLK_TCK);
}

/* ---- clients by the library ---- */

struct dsaio_client *client_open(const struct daemon *daemon)
{
	int64_t deadline = deadline_after(ANSWER_USEC);
	struct dsaio_client *client = NULL;
	int r;

	/* The library's own limit, 30 s, is not stretched. */
	do
		r = dsaio_connect(daemon->socket_path, &client);
	while (r == -ETIMEDOUT && now_usec() < deadline);
	CHECK_CALL(r);
	return client;
}

void rig_open(struct rig *rig, const struct dsaio_profile *profile)
{
	if (!rig->daemon)
		rig->daemon = daemon_start(NULL);
	rig->client = client_open(rig->daemon);
	CHECK_CALL(dsaio_handle_open(rig->client, profile, &rig->handle));
}

void rig_close(struct rig *rig)
{
	dsaio_handle_close(rig->handle);
	for (unsigned i = 0; i < rig->n_files; i++)
		dsaio_file_close(rig->files[i]);
	dsaio_disconnect(rig->client);
	*rig = (struct rig){ .daemon = rig->daemon };
}

int64_t op_wait(struct dsaio_op *op, int64_t timeout_usec)
{
	int64_t result;
	int r = dsaio_op_wait(op, timeout_usec, &result);

	return r < 0 ? r : result;
}

int64_t handle_wait(struct dsaio_handle *handle, int64_t timeout_usec)
{
	int64_t result;
	int r = dsaio_wait(handle, timeout_usec, &result);

	return r < 0 ? r : result;
}

struct dsaio_file *rig_file(struct rig *rig, const char *name, int flags)
{
	CHECK(rig->n_files < ARRAY_SIZE(rig->files));
	CHECK_CALL(dsaio_file_open(rig->client, daemon_path(rig->daemon, name), flags,
				   &rig->files[rig->n_files]));
	return rig->files[rig->n_files++];
}

/* ---- beside ---- */

struct beside {
	_Atomic uint32_t n_rounds; /* futex */
	_Atomic bool must_stop;
};
static struct beside *beside;
static pid_t beside_pid;

#define BESIDE_BYTES (256 * KIB)

/* A round: writes what depends on the round, with reads of the last round's in between. */
static void beside_round(struct rig *rig, struct dsaio_file *file, uint8_t *memory, uint32_t round)
{
	uint64_t off = round % 4 * BESIDE_BYTES;
	struct dsaio_op *ops[8] = { NULL };
	const size_t piece = BESIDE_BYTES / ARRAY_SIZE(ops);

	pattern_fill(memory, BESIDE_BYTES, round, off);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		CHECK_CALL(dsaio_pwrite_async(rig->handle, file, memory + i * piece, piece,
					      off + i * piece, &ops[i]));
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		CHECK_EQ(op_wait(ops[i], -1), piece);
		dsaio_op_free(ops[i]);
	}
	CHECK_EQ(handle_wait(rig->handle, -1), ARRAY_SIZE(ops));
	memset(memory, 0, BESIDE_BYTES);
	CHECK_EQ(dsaio_pread(rig->handle, file, memory, BESIDE_BYTES, off), BESIDE_BYTES);
	pattern_check(memory, BESIDE_BYTES, round, off, "the client beside");
}

static void beside_main(const struct daemon *daemon)
{
	struct rig rig = RIG_NONE;
	struct daemon theirs = *daemon;
	struct dsaio_file *file;
	void *memory;

	rig.daemon = &theirs;
	rig_open(&rig, NULL);
	file = rig_file(&rig, "beside", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(rig.client, BESIDE_BYTES, &memory));
	for (uint32_t round = 0; !atomic_load(&beside->must_stop); round++) {
		beside_round(&rig, file, memory, round);
		(void)atomic_fetch_add(&beside->n_rounds, 1);
		(void)syscall(SYS_futex, &beside->n_rounds, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	}
	rig_close(&rig);
}

static void beside_wait_rounds(uint32_t n)
{
	uint32_t start = atomic_load(&beside->n_rounds), now;
	int64_t deadline = deadline_after(ANSWER_USEC);

	while ((now = atomic_load(&beside->n_rounds)) - start < n) {
		struct timespec timeout = { .tv_nsec = 100000000 };
		int status;

		if (waitpid(beside_pid, &status, WNOHANG) == beside_pid)
			test_fail("the client beside died (status 0x%x)", status);
		if (now_usec() > deadline)
			test_fail("the client beside does not get on: %u of %u rounds", now - start,
				  n);
		(void)syscall(SYS_futex, &beside->n_rounds, FUTEX_WAIT, now, &timeout, NULL, 0);
	}
}

void beside_start(const struct daemon *daemon)
{
	CHECK(!beside);
	beside = mmap(NULL, sizeof(*beside), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(beside != MAP_FAILED);
	(void)fflush(NULL); /* or the child prints it again */
	beside_pid = (pid_t)CHECK_SYS(fork());
	if (beside_pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		beside_main(daemon);
		_exit(0);
	}
	beside_wait_rounds(2);
}

void beside_ok(void)
{
	beside_wait_rounds(4);
}

void beside_stop(void)
{
	if (!beside_pid)
		return;
	atomic_store(&beside->must_stop, true);
	child_wait_ok(beside_pid);
	beside_pid = 0;
	(void)munmap(beside, sizeof(*beside));
	beside = NULL;
}

void fault_run(void (*body)(struct daemon *daemon))
{
	struct daemon *daemon = daemon_start(NULL);

	beside_start(daemon);
	body(daemon);
	beside_ok();
	CHECK(daemon_is_alive(daemon));
}

/* ---- clients by hand ---- */

void answer_free(struct answer *answer)
{
	if (answer->reply)
		wire__reply__free_unpacked(answer->reply, NULL);
	for (unsigned i = 0; i < answer->n_fds; i++)
		closep(&answer->fds[i]);
	*answer = (struct answer)ANSWER_NONE;
}

void raw_connect(struct raw *raw, const struct daemon *daemon)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	*raw = (struct raw)RAW_NONE;
	memcpy(address.sun_path, daemon->socket_path, sizeof(daemon->socket_path));
	raw->fd = (int)CHECK_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	CHECK_SYS(connect(raw->fd, (struct sockaddr *)&address, sizeof(address)));
}

void raw_close(struct raw *raw)
{
	frame_reader_deinit(&raw->reader);
	closep(&raw->fd);
	*raw = (struct raw)RAW_NONE;
}

void raw_send_bytes(struct raw *raw, const void *bytes, size_t len, const int *fds, unsigned n_fds)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = len };
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(256 * sizeof(int))];
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds) {
		struct cmsghdr *cmsg;

		CHECK(n_fds <= 253); /* SCM_MAX_FD */
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&message);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, n_fds * sizeof(int));
	}
	while (iov.iov_len) {
		ssize_t n = sendmsg(raw->fd, &message, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
			return; /* a test that cares reads the end of file next */
		if (n < 0 && errno == ETOOMANYREFS)
			return; /* an ordinary user may not have more descriptors on their way */
		CHECK_SYS(n);
		iov.iov_base = (char *)iov.iov_base + n;
		iov.iov_len -= (size_t)n;
		message.msg_control = NULL;
		message.msg_controllen = 0;
	}
}

void raw_send(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds)
{
	size_t len;
	_cleanup_(freep) uint8_t *bytes = NULL;

	request->seq = ++raw->seq;
	len = wire__request__get_packed_size(request);
	bytes = malloc(FRAME_HEADER_BYTES + len);
	CHECK(bytes);
	bytes[0] = (uint8_t)len;
	bytes[1] = (uint8_t)(len >> 8);
	bytes[2] = (uint8_t)(len >> 16);
	bytes[3] = (uint8_t)(len >> 24);
	bytes[4] = (uint8_t)n_fds;
	bytes[5] = bytes[6] = bytes[7] = 0;
	(void)wire__request__pack(request, bytes + FRAME_HEADER_BYTES);
	raw_send_bytes(raw, bytes, FRAME_HEADER_BYTES + len, fds, n_fds);
}

void raw_receive(struct raw *raw, struct answer *ret_answer)
{
	int64_t deadline = deadline_after(ANSWER_USEC);
	struct frame frame = { 0 };
	char text[256] = "";
	int r;

	*ret_answer = (struct answer)ANSWER_NONE;
	for (;;) {
		int flags = fcntl(raw->fd, F_GETFL);

		CHECK_SYS(flags);
		CHECK_SYS(fcntl(raw->fd, F_SETFL, flags | O_NONBLOCK));
		r = frame_read(&raw->reader, raw->fd, &frame, text, sizeof(text));
		CHECK_SYS(fcntl(raw->fd, F_SETFL, flags));
		if (r != -EAGAIN)
			break;
		if (now_usec() >= deadline || !wait_readable(raw->fd, ANSWER_USEC))
			test_fail("the daemon neither answers nor closes the connection");
	}
	if (r == 0 || r == -ECONNRESET)
		return; /* ECONNRESET: it closed without reading all that we sent */
	CHECK_MSG(r == 1, "frame_read: %d: %s", r, text);
	ret_answer->reply = wire__reply__unpack(NULL, frame.len, frame.body);
	CHECK_MSG(ret_answer->reply, "a reply of %zu bytes is none", frame.len);
	ret_answer->n_fds = frame.n_fds;
	for (unsigned i = 0; i < frame.n_fds; i++)
		ret_answer->fds[i] = TAKE_FD(frame.fds[i]);
	frame_deinit(&frame);
}

void raw_call(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
	      struct answer *ret_answer)
{
	raw_send(raw, request, fds, n_fds);
	raw_receive(raw, ret_answer);
	CHECK_MSG(ret_answer->reply, "the daemon closed the connection instead of an answer to %d",
		  (int)request->body_case);
	CHECK_EQ(ret_answer->reply->seq, request->seq);
}

void answer_check_fails(const struct answer *answer, int error, const char *words)
{
	CHECK_MSG(answer->reply, "the daemon closed the connection without a word");
	check_fails("the reply's error", answer->reply->error, error, answer->reply->text, words,
		    __FILE__, __LINE__);
	CHECK_MSG(*answer->reply->text, "error %d has no sentence", error);
	CHECK_EQ(answer->n_fds, 0);
}

void raw_call_fails(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
		    int error, const char *words)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	raw_call(raw, request, fds, n_fds, &answer);
	answer_check_fails(&answer, error, words);
}

void raw_call_refused(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
		      const char *words)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	int error;

	raw_call(raw, request, fds, n_fds, &answer);
	error = answer.reply->error;
	if (error != -EBADF && error != -EINVAL && error != -ENOENT && error != -ENXIO)
		error = -EBADF; /* what the check below then asks for */
	answer_check_fails(&answer, error, words);
}

void raw_wait_closed(struct raw *raw)
{
	for (;;) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		raw_receive(raw, &answer);
		if (!answer.reply)
			return;
	}
}

void raw_call_ok(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
		 struct answer *ret_answer)
{
	raw_call(raw, request, fds, n_fds, ret_answer);
	CHECK_MSG(ret_answer->reply->error == 0, "request %d: %s (%s)", (int)request->body_case,
		  strerror(-ret_answer->reply->error), ret_answer->reply->text);
}

void raw_open(struct raw *raw, const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);

	raw_connect(raw, daemon);
	hello.version_min = hello.version_max = 1;
	hello.name = (char *)(uintptr_t) "raw test client";
	hello.pid = (uint32_t)getpid();
	raw_call_ok(raw, &request, NULL, 0, &answer);
}

void raw_slab(struct raw *raw, size_t bytes, struct raw_slab *ret_slab)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__SlabNew slab_new = WIRE__SLAB_NEW__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_NEW, slab_new, &slab_new);
	void *memory;

	slab_new.size_bytes = bytes;
	raw_call_ok(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_SLAB_NEW);
	CHECK_EQ(answer.n_fds, 1);
	ret_slab->id = answer.reply->slab_new->slab;
	ret_slab->size = answer.reply->slab_new->size_bytes;
	ret_slab->fd = TAKE_FD(answer.fds[0]);
	memory = mmap(NULL, ret_slab->size, PROT_READ | PROT_WRITE, MAP_SHARED, ret_slab->fd, 0);
	CHECK(memory != MAP_FAILED);
	ret_slab->memory = memory;
}

void raw_slab_unmap(struct raw_slab *slab)
{
	CHECK_SYS(munmap(slab->memory, slab->size));
	closep(&slab->fd);
	*slab = (struct raw_slab){ .fd = -1 };
}

void raw_file(struct raw *raw, const char *path, int flags, struct raw_file *ret_file)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(closep) int fd = open_direct(path, flags);
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);

	file_add.name = (char *)(uintptr_t)path;
	raw_call_ok(raw, &request, &fd, 1, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_FILE_ADD);
	*ret_file = (struct raw_file){ .id = answer.reply->file_add->file,
				       .store = answer.reply->file_add->store,
				       .offset_align = answer.reply->file_add->offset_align,
				       .memory_align = answer.reply->file_add->memory_align };
}

uint32_t raw_handle_with_bell(struct raw *raw, int *ret_bell_fd)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__HandleOpen handle_open = WIRE__HANDLE_OPEN__INIT;
	Wire__Request request = RAW_REQUEST(HANDLE_OPEN, handle_open, &handle_open);

	raw_call_ok(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_HANDLE_OPEN);
	CHECK_EQ(answer.n_fds, 1);
	*ret_bell_fd = TAKE_FD(answer.fds[0]);
	return answer.reply->handle_open->handle;
}

uint32_t raw_handle(struct raw *raw)
{
	_cleanup_(closep) int bell_fd = -1;

	return raw_handle_with_bell(raw, &bell_fd);
}

void raw_channel(struct raw *raw, uint32_t handle, uint32_t store, uint32_t entries, bool rings,
		 struct raw_channel *ret_channel)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__ChannelOpen open = WIRE__CHANNEL_OPEN__INIT;
	Wire__Request request = RAW_REQUEST(CHANNEL_OPEN, channel_open, &open);
	struct raw_channel *channel = ret_channel;

	open.handle = handle;
	open.store = store;
	open.entries = entries;
	open.without_rings = !rings;
	raw_call_ok(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_CHANNEL_OPEN);
	CHECK_EQ(answer.n_fds, rings ? 3 : 0);
	*channel = (struct raw_channel){ .raw = raw,
					 .id = answer.reply->channel_open->channel,
					 .entries = answer.reply->channel_open->entries,
					 .has_rings = rings,
					 .ring_fd = -1,
					 .bell_fd = -1,
					 .board_fd = -1,
					 .next_id = 1 };
	if (!rings)
		return;
	channel->ring_fd = TAKE_FD(answer.fds[0]);
	channel->bell_fd = TAKE_FD(answer.fds[1]);
	channel->board_fd = TAKE_FD(answer.fds[2]);
	channel->map = mmap(NULL, ring_bytes(channel->entries), PROT_READ | PROT_WRITE, MAP_SHARED,
			    channel->ring_fd, 0);
	CHECK(channel->map != MAP_FAILED);
	channel->board = mmap(NULL, 4096, PROT_READ, MAP_SHARED, channel->board_fd, 0);
	CHECK(channel->board != MAP_FAILED);
	CHECK_EQ(ring_client_init(&channel->ring, channel->map, channel->board, channel->entries),
		 0);
}

void raw_channel_unmap(struct raw_channel *channel)
{
	if (channel->has_rings) {
		CHECK_SYS(munmap(channel->map, ring_bytes(channel->entries)));
		CHECK_SYS(munmap(channel->board, 4096));
		closep(&channel->ring_fd);
		closep(&channel->bell_fd);
		closep(&channel->board_fd);
	}
	*channel = (struct raw_channel){ .ring_fd = -1, .bell_fd = -1, .board_fd = -1 };
}

void raw_put(struct raw_channel *channel, struct ring_entry *entry)
{
	CHECK(ring_client_room(&channel->ring) > 0);
	entry->id = channel->next_id++;
	ring_client_put(&channel->ring, entry);
}

void raw_ring(struct raw_channel *channel)
{
	uint64_t one = 1;

	if (ring_client_submit(&channel->ring))
		CHECK_EQ(write(channel->bell_fd, &one, sizeof(one)), sizeof(one));
}

bool raw_reap(struct raw_channel *channel, unsigned n, struct ring_completion *ret_completions,
	      int64_t timeout_usec)
{
	int64_t deadline = deadline_after(timeout_usec);
	struct ring_client *ring = &channel->ring;

	for (unsigned done = 0; done < n;) {
		uint32_t ready = ring_client_ready(ring);
		uint32_t bell;

		CHECK_MSG(ready <= ring->entries, "%u completions in a ring of %u", ready,
			  ring->entries);
		if (ready) {
			uint32_t take = ready < n - done ? ready : n - done;

			for (uint32_t i = 0; i < take; i++)
				ret_completions[done + i] = ring_client_peek(ring, i);
			ring_client_consume(ring, take);
			done += take;
			continue;
		}
		if (now_usec() >= deadline)
			return false;
		bell = ring_client_bell(ring);
		if (ring_client_arm(ring, false)) {
			struct timespec timeout = { .tv_nsec = 100000000 };

			(void)syscall(SYS_futex, &ring->shared->cq_bell, FUTEX_WAIT, bell, &timeout,
				      NULL, 0); /* woken or not: look again */
		}
		ring_client_disarm(ring);
	}
	return true;
}

static void run_by_ring(struct raw_channel *channel, struct ring_entry *entries, unsigned n,
			int64_t *ret_results)
{
	_cleanup_(freep) struct ring_completion *completions = calloc(n, sizeof(*completions));
	_cleanup_(freep) bool *seen = calloc(n, sizeof(*seen));

	CHECK(completions && seen);
	for (unsigned i = 0; i < n; i++)
		raw_put(channel, &entries[i]);
	raw_ring(channel);
	CHECK_MSG(raw_reap(channel, n, completions, ANSWER_USEC), "of %u", n);
	for (unsigned i = 0; i < n; i++) {
		uint64_t k = completions[i].id - entries[0].id;

		CHECK_MSG(k < n && !seen[k], "a completion for id %" PRIu64, completions[i].id);
		seen[k] = true;
		ret_results[k] = completions[i].result;
	}
}

static void run_by_submit(struct raw_channel *channel, struct ring_entry *entries, unsigned n,
			  int64_t *ret_results)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(freep) Wire__Entry *wire = calloc(n, sizeof(*wire));
	_cleanup_(freep) Wire__Entry **list = calloc(n, sizeof(*list));
	Wire__Submit submit = WIRE__SUBMIT__INIT;
	Wire__Request request = RAW_REQUEST(SUBMIT, submit, &submit);

	CHECK(wire && list);
	for (unsigned i = 0; i < n; i++) {
		entries[i].id = channel->next_id++;
		wire__entry__init(&wire[i]);
		wire[i].id = entries[i].id;
		wire[i].opcode = entries[i].opcode;
		wire[i].file = entries[i].file;
		wire[i].slab = entries[i].slab;
		wire[i].slab_off = entries[i].slab_off;
		wire[i].off = entries[i].off;
		wire[i].len = entries[i].len;
		wire[i].timeout_msec = entries[i].timeout_msec;
		list[i] = &wire[i];
	}
	submit.channel = channel->id;
	submit.n_entries = n;
	submit.entries = list;
	raw_call_ok(channel->raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_SUBMIT);
	CHECK_EQ(answer.reply->submit->n_results, n);
	memcpy(ret_results, answer.reply->submit->results, n * sizeof(*ret_results));
}

void raw_run(struct raw_channel *channel, struct ring_entry *entries, unsigned n,
	     int64_t *ret_results)
{
	if (channel->has_rings)
		run_by_ring(channel, entries, n, ret_results);
	else
		run_by_submit(channel, entries, n, ret_results);
}

int64_t raw_run_one(struct raw_channel *channel, struct ring_entry entry)
{
	int64_t result = 0;

	raw_run(channel, &entry, 1, &result);
	return result;
}

void daemon_status(const struct daemon *daemon, struct answer *ret_answer)
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__Request request = RAW_REQUEST(STATUS, status, &status);

	raw_open(&raw, daemon);
	raw_call_ok(&raw, &request, NULL, 0, ret_answer);
	CHECK_EQ(ret_answer->reply->body_case, WIRE__REPLY__BODY_STATUS);
	CHECK(ret_answer->reply->status->pool);
}

bool daemon_wait_clients(const struct daemon *daemon, unsigned n_clients, uint64_t pool_bytes)
{
	int64_t deadline = deadline_after(ANSWER_USEC);

	/* Status is a snapshot: ask again each 10 ms. */
	while (now_usec() < deadline) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		const Wire__StatusReply *status;

		daemon_status(daemon, &answer);
		status = answer.reply->status;
		if (status->n_all_clients <= n_clients + 1 &&
		    status->pool->used_bytes <= pool_bytes)
			return true;
		(void)poll(NULL, 0, 10);
	}
	return false;
}
