#include "client/lib/base/debug.h"
#include "client/lib/base/error.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/dsaio-debug-XXXXXX";
static char file[64];

/* Each test runs in a process of its own, so that the variable is read anew. */
static void setup(void)
{
	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	(void)snprintf(file, sizeof(file), "%s/f", directory);
	ck_assert_int_eq(setenv("DSAIO_DEBUG", file, 1), 0);
}

static void teardown(void)
{
	(void)unlink(file);
	(void)rmdir(directory);
}

static size_t file_read(char *text, size_t size)
{
	FILE *f = fopen(file, "re");
	size_t n;

	ck_assert_ptr_nonnull(f);
	n = fread(text, 1, size - 1, f);
	text[n] = '\0';
	(void)fclose(f);
	return n;
}

TEST(a_line_has_time_process_and_thread)
{
	char text[4096], tail[64], want[64];
	struct stat st;
	int pid, tid;

	errno = ENXIO;
	debug_log("slab %d", 1);
	debug_log("slab %d", 2);
	ck_assert_int_eq(errno, ENXIO);
	(void)file_read(text, sizeof(text));
	ck_assert_int_eq(
		sscanf(text, "%*d-%*d-%*dT%*d:%*d:%*d.%*dZ %d.%d %63[^\n]", &pid, &tid, tail), 3);
	ck_assert_int_eq(pid, getpid());
	ck_assert_int_eq(tid, gettid());
	ck_assert_str_eq(tail, "slab 1");
	(void)snprintf(want, sizeof(want), " %d.%d slab 2\n", pid, tid);
	ck_assert_ptr_nonnull(strstr(text, want));
	ck_assert_int_eq(stat(file, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
}

TEST(an_error_is_an_event)
{
	char text[4096];

	(void)error_fail(-EIO, "no luck");
	(void)file_read(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "error: no luck\n"));
}

TEST(a_long_event_is_one_line_that_was_cut)
{
	char text[8192], event[4096];
	size_t n;

	memset(event, 'x', sizeof(event));
	event[sizeof(event) - 1] = '\0';
	debug_log("%s", event);
	n = file_read(text, sizeof(text));
	ck_assert_uint_le(n, 2048);
	ck_assert_ptr_eq(strchr(text, '\n'), text + n - 1);
}

TEST(no_symbolic_link_is_followed)
{
	char other[80];
	struct stat st;

	(void)snprintf(other, sizeof(other), "%s.other", file);
	ck_assert_int_eq(symlink(other, file), 0);
	debug_log("lost");
	ck_assert_int_eq(stat(other, &st), -1);
}

TEST(a_pipe_that_nobody_reads_holds_up_nobody)
{
	ck_assert_int_eq(mkfifo(file, 0600), 0);
	debug_log("lost");
}

TEST(the_standard_error_is_one_too)
{
	char text[4096];

	ck_assert_ptr_nonnull(freopen(file, "we", stderr));
	ck_assert_int_eq(setenv("DSAIO_DEBUG", "/dev/stderr", 1), 0);
	debug_log("seen");
	(void)file_read(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, " seen\n"));
}

TEST(a_file_that_may_not_grow_ends_nobody)
{
	struct rlimit before, limit;
	char text[4096];
	int r;

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = (struct rlimit){ 100, before.rlim_max };
	r = setrlimit(RLIMIT_FSIZE, &limit); /* Check writes to a file, too */
	for (int i = 0; i < 5; i++)
		debug_log("line %d", i);
	(void)setrlimit(RLIMIT_FSIZE, &before);
	ck_assert_int_eq(r, 0);
	(void)file_read(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "line 0\n"));
	ck_assert_ptr_null(strstr(text, "line 4"));
}

TEST(without_the_variable_it_is_off)
{
	ck_assert_int_eq(unsetenv("DSAIO_DEBUG"), 0);
	ck_assert(debug_is_on()); /* not known yet */
	debug_log("nothing");
	ck_assert(!debug_is_on());
}

FIXTURE(setup, teardown)
TEST_MAIN
