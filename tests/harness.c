/*
 * Tests in processes of their own, their checks and their ends.
 */
#include "tests/harness_parts.h"
#include "tests/huge_pages.h"

#include <errno.h>
#include <ftw.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define TEXTS_MAX 65536
#define TIME_LIMIT_SEC 300 /* of a test; a hang costs so much */

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

unsigned test_seed(void)
{
	const char *text = getenv("TEST_SEED");

	return text ? (unsigned)strtoul(text, NULL, 0) : 1;
}

uint64_t test_random(uint64_t *state)
{
	return mix((*state)++);
}

char *text_keep(char *text)
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

static bool has_words(const char *message, const char *words)
{
	_cleanup_(freep) char *copy = strdup(words);
	char *rest = copy, *word;

	while ((word = strsep(&rest, ";")))
		if (!strstr(message, word))
			return false;
	return true;
}

void check_fails(const char *what, int64_t result, int64_t error, const char *message,
		 const char *words, const char *file, int line)
{
	if (result != error)
		test_fail("%s:%d: %s is %" PRId64 ", not %" PRId64 " (%s)", file, line, what,
			  result, error, message);
	if (!has_words(message, words))
		test_fail("%s:%d: %s: the message has not all of \"%s\": \"%s\"", file, line, what,
			  words, message);
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

void child_become(uid_t uid)
{
	CHECK_SYS(setgroups(0, NULL));
	CHECK_SYS(setresgid(uid, uid, uid));
	CHECK_SYS(setresuid(uid, uid, uid));
	CHECK_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL)); /* a change of user clears it */
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
