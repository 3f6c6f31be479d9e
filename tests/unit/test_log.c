#include "daemon/base/log.h"

#include "tests/unit/suite.h"

#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int reader;

/* From here on stderr is a pipe whose other end is reader.  Each test has a process of its own. */
static void setup(void)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_NONBLOCK), 0);
	ck_assert_int_eq(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
	ck_assert_int_eq(fcntl(fds[1], F_SETFL, 0), 0); /* writes would wait */
	(void)close(fds[1]);
	reader = fds[0];
	log_init();
}

/* All that is in the pipe; returns how many lines. */
static unsigned drain(char *text, size_t size)
{
	unsigned n_lines = 0;
	size_t n = 0;
	ssize_t r;

	while (n < size - 1 && (r = read(reader, text + n, size - 1 - n)) > 0)
		n += (size_t)r;
	text[n] = 0;
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		n_lines++;
	return n_lines;
}

static char text[1 << 20];

TEST(a_line_is_whole_and_has_no_control_characters)
{
	setup();
	log_notice("store %s: lane %d", "a\nb\033[m", 2);
	ck_assert_uint_eq(drain(text, sizeof(text)), 1);
	ck_assert_ptr_nonnull(strstr(text, "store a\\x0ab\\x1b[m: lane 2\n"));
}

TEST(nobody_is_waited_for_who_does_not_read)
{
	unsigned n_lines;

	setup();
	for (int i = 0; i < 5000; i++)
		log_notice("line %d of many", i);
	for (int i = 0; i < 5000; i++) /* a daemon that crashed did not end */
		log_crash("the end\n", 8);
	n_lines = drain(text, sizeof(text));
	ck_assert_uint_gt(n_lines, 100);
	ck_assert_uint_lt(n_lines, 5000);
	log_notice("the last");
	ck_assert_uint_eq(drain(text, sizeof(text)), 2);
	ck_assert_ptr_nonnull(strstr(text, "lines were lost"));
	ck_assert_ptr_nonnull(strstr(text, "the last\n"));
}

TEST(clients_cause_few_lines_then_a_count)
{
	struct log_limit limit = { 0 };
	unsigned n_lines;

	setup();
	for (int i = 0; i < 200; i++)
		log_client(&limit, "client %d did wrong", i);
	n_lines = drain(text, sizeof(text));
	ck_assert_uint_ge(n_lines, LOG_LIMIT_LINES);
	ck_assert_uint_le(n_lines, 3 * LOG_LIMIT_LINES); /* a second may end meanwhile */
	(void)poll(NULL, 0, 1100);			 /* the next second is what is tested */
	log_client(&limit, "client 7 did wrong");
	(void)drain(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "more lines like the last are left out"));
	ck_assert_ptr_nonnull(strstr(text, "client 7 did wrong"));
}

TEST(the_place_is_where_a_reader_finds_the_lines)
{
	char name[] = "/tmp/dsaio-test-log-XXXXXX", stream[64], wanted[64];
	struct stat st;
	int fd;

	setup();
	(void)snprintf(wanted, sizeof(wanted), "standard error of process %d", (int)getpid());
	ck_assert_str_eq(log_place(getuid()), wanted);

	fd = mkstemp(name);
	ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	(void)close(fd);
	log_init();
	ck_assert_str_eq(log_place(getuid()), name);

	ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
	(void)snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev,
		       (uintmax_t)st.st_ino);
	ck_assert_int_eq(setenv("JOURNAL_STREAM", stream, 1), 0);
	log_init();
	(void)snprintf(wanted, sizeof(wanted), "journalctl _PID=%d", (int)getpid());
	ck_assert_str_eq(log_place(getuid()), wanted);
	ck_assert_str_eq(log_place(0), wanted);
	(void)snprintf(wanted, sizeof(wanted), "sudo journalctl _PID=%d", (int)getpid());
	ck_assert_str_eq(log_place(getuid() + 1), wanted);
	ck_assert_int_eq(unlink(name), 0);
}

TEST(no_path_is_named_in_which_nobody_finds_the_lines)
{
	char name[] = "/tmp/dsaio-test-log-XXXXXX", wanted[64];
	int fd;

	setup();
	(void)snprintf(wanted, sizeof(wanted), "standard error of process %d", (int)getpid());
	fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	(void)close(fd);
	log_init();
	ck_assert_str_eq(log_place(getuid()), wanted);

	fd = mkstemp(name);
	ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	(void)close(fd);
	log_init();
	ck_assert_str_eq(log_place(getuid()), name);
	ck_assert_int_eq(unlink(name), 0);
	ck_assert_str_eq(log_place(getuid()), wanted);
	log_init();
	ck_assert_str_eq(log_place(getuid()), wanted);
}

TEST_MAIN
