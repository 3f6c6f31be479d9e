/* journal: a line with fields is one record, which waits for nobody. */
#include "daemon/base/hung.h"
#include "daemon/base/journal.h"
#include "daemon/base/log.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>

static struct sockaddr_un address = { .sun_family = AF_UNIX };
static int journal, reader; /* the journal's socket, and the other end of stderr */
static char record[JOURNAL_RECORD_BYTES + 1];

/* From here on stderr is a pipe that $JOURNAL_STREAM names.  Each test has a process of its own. */
static void setup(void)
{
	char stream[64];
	struct stat st;
	int fds[2];

	make_dir();
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/journal", dir);
	journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(journal, (const struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
	reader = fds[0];
	ck_assert_int_eq(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
	(void)close(fds[1]);
	ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
	(void)snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev,
		       (uintmax_t)st.st_ino);
	ck_assert_int_eq(setenv("JOURNAL_STREAM", stream, 1), 0);
	log_init();
	journal_init(address.sun_path);
}

FIXTURE(setup, remove_dir)

static const char *next_of(int fd)
{
	ssize_t n = read(fd, record, sizeof(record) - 1);

	record[n > 0 ? n : 0] = '\0';
	return record;
}

TEST(a_line_without_fields_is_a_record)
{
	log_error("store %s: lane %d", "a", 2);
	ck_assert_str_eq(next_of(journal),
			 "MESSAGE=store a: lane 2\nPRIORITY=3\nSYSLOG_IDENTIFIER=dsaiod\n");
	ck_assert_str_eq(next_of(reader), "");
}

TEST(an_event_has_its_fields)
{
	const struct hung_who who = { .uid = 1000, .pid = 4711, .client = 3 };
	struct log_limit limit = { 0 };

	log_event(&limit,
		  &(const struct log_fields){ .event = "io-error",
					      .store = "nvme0",
					      .op = "write",
					      .who = &who,
					      .error = EIO },
		  "store nvme0: write: %s", "Input/output error");
	ck_assert_str_eq(next_of(journal),
			 "MESSAGE=store nvme0: write: Input/output error\nPRIORITY=5\n"
			 "SYSLOG_IDENTIFIER=dsaiod\nDSAIO_EVENT=io-error\nDSAIO_STORE=nvme0\n"
			 "DSAIO_OP=write\nERRNO=5\nDSAIO_CLIENT_UID=1000\n"
			 "DSAIO_CLIENT_PID=4711\nDSAIO_CLIENT=3\n");
}

TEST(what_is_not_known_is_no_field)
{
	const struct hung_who root = { .uid = 0 };

	log_event(NULL, &(const struct log_fields){ .event = "crash", .is_warning = true }, "t");
	ck_assert_str_eq(next_of(journal),
			 "MESSAGE=t\nPRIORITY=4\nSYSLOG_IDENTIFIER=dsaiod\nDSAIO_EVENT=crash\n");
	log_event(NULL, &(const struct log_fields){ .event = "hung", .who = &root }, "t");
	ck_assert_str_eq(next_of(journal), "MESSAGE=t\nPRIORITY=5\nSYSLOG_IDENTIFIER=dsaiod\n"
					   "DSAIO_EVENT=hung\nDSAIO_CLIENT_UID=0\n");
}

TEST(a_name_makes_no_field)
{
	log_event(NULL, &(const struct log_fields){ .event = "hung", .store = "a\n_UID=0" },
		  "b\nPRIORITY=0");
	ck_assert_str_eq(next_of(journal),
			 "MESSAGE=b\\x0aPRIORITY=0\nPRIORITY=5\nSYSLOG_IDENTIFIER=dsaiod\n"
			 "DSAIO_EVENT=hung\nDSAIO_STORE=a\\x0a_UID=0\n");
}

TEST(what_does_not_fit_is_left_out_whole)
{
	char text[2 * JOURNAL_RECORD_BYTES];
	size_t n;

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	n = journal_record(record, LOG_ERR, text,
			   &(const struct log_fields){
				   .event = text, .store = text, .op = text, .error = EIO });
	ck_assert_uint_le(n, JOURNAL_RECORD_BYTES);
	record[n] = '\0';
	ck_assert_int_eq(record[n - 1], '\n');
	ck_assert_ptr_nonnull(strstr(record, "\nDSAIO_STORE=x"));
	ck_assert_ptr_null(strstr(record, "DSAIO_OP="));
	ck_assert_ptr_nonnull(strstr(record, "\nERRNO=5\n"));
}

TEST(a_journal_that_does_not_read_is_not_waited_for)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 1000; i++)
		log_notice("line %u", i);
	while (*next_of(journal))
		n++;
	ck_assert_uint_gt(n, 0);
	ck_assert_uint_lt(n, 1000);
	ck_assert_ptr_nonnull(strstr(next_of(reader), "<5>line "));
}

TEST(without_a_socket_the_stream_has_the_line)
{
	ck_assert_int_eq(unlink(address.sun_path), 0);
	log_warning("w");
	ck_assert_str_eq(next_of(reader), "<4>w\n");
}

/* In a line of the log without the journal there are no fields. */
TEST(on_another_stderr_an_event_is_a_line)
{
	ck_assert_int_eq(unsetenv("JOURNAL_STREAM"), 0);
	log_init();
	log_event(NULL, &(const struct log_fields){ .event = "stopped" }, "dsaiod: stopped");
	ck_assert_ptr_nonnull(strstr(next_of(reader), " dsaiod: stopped\n"));
	ck_assert_str_eq(next_of(journal), "");
}

TEST_MAIN
