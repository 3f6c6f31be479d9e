#include "client/lib/base/error.h"
#include "client/lib/dsaio.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static const struct {
	struct error_op op;
	const char *text;
} messages[] = {
	{ { "pwrite", "/x/y", 0, 16777216, 13631488, ENOSPC, NULL, -1, NULL },
	  "pwrite of 16777216 bytes at 0 to /x/y failed after 13631488 bytes: No space left on "
	  "device: free some space on that file system or cluster, then write again" },
	{ { "pread", "/x/y", 4096, 512, 0, EBADMSG, NULL, -1, NULL },
	  "pread of 512 bytes at 4096 from /x/y failed after 0 bytes: Bad message" },
	{ { "pwrite", "/x/y", 1, 2, 0, EACCES, "because it is so", -1, NULL },
	  "pwrite of 2 bytes at 1 to /x/y failed after 0 bytes: Permission denied: because it is "
	  "so" },
	{ { "pwrite", "/x/y", 0, 8192, 4096, ENOSPC, NULL, 6144, NULL },
	  "pwrite of 8192 bytes at 0 to /x/y failed after 4096 bytes: No space left on device; the "
	  "file's size is now 6144 bytes: free some space on that file system or cluster, then write again" },
	{ { "pwrite", "/x/y", 0, 8192, 0, EBADMSG, NULL, 0, NULL },
	  "pwrite of 8192 bytes at 0 to /x/y failed after 0 bytes: Bad message; the file's size is "
	  "now 0 bytes" },
	{ { "fsync", "/x/y", 0, 0, 0, EIO, NULL, -1, NULL },
	  "fsync of /x/y failed: Input/output error: the device or file system reports an error: "
	  "see the kernel's log (dmesg)" },
	{ { "pread", "/x/y", 0, 4096, 0, EIO, NULL, -1, "/run/d.log" },
	  "pread of 4096 bytes at 0 from /x/y failed after 0 bytes: Input/output error: see the "
	  "daemon's log (/run/d.log)" },
	{ { "pwrite", "/x/y", 0, 4096, 0, EROFS, NULL, -1, "/run/d.log" },
	  "pwrite of 4096 bytes at 0 to /x/y failed after 0 bytes: Read-only file system: the file "
	  "system is mounted read-only" },
};

TEST_TABLE(an_op_says_what_failed_on_what_why_and_what_to_do, messages)
{
	char text[ERROR_TEXT_BYTES];

	error_op_text(&messages[_i].op, text, sizeof(text));
	ck_assert_str_eq(text, messages[_i].text);
}

TEST(there_is_a_message_before_anything_failed)
{
	ck_assert_str_eq(dsaio_error(), "");
}

TEST(a_message_may_quote_the_one_before)
{
	ck_assert_int_eq(error_fail(-EIO, "first %d", 1), -EIO);
	ck_assert_int_eq(error_fail_errno(-EPERM, "then: %s", dsaio_error()), -EPERM);
	ck_assert_str_eq(dsaio_error(), "then: first 1: Operation not permitted");
}

TEST(a_message_that_is_too_long_is_cut)
{
	char name[2 * ERROR_TEXT_BYTES];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	ck_assert_int_eq(error_fail_errno(-EIO, "open %s", name), -EIO);
	ck_assert_uint_eq(strlen(dsaio_error()), ERROR_TEXT_BYTES - 1);
}

static void *fail_elsewhere(void *arg)
{
	(void)arg;
	(void)error_fail(-EIO, "another thread's");
	return NULL;
}

TEST(each_thread_has_its_own_message)
{
	pthread_t thread;

	(void)error_fail(-EIO, "mine");
	ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_str_eq(dsaio_error(), "mine");
}

static const struct {
	const char *what;
	int r;
} nulls[] = {
	{ "client", -EINVAL },
	{ "handle", -EINVAL },
	{ "op", -EINVAL },
	{ "handle", -EINVAL },
};

TEST_TABLE(a_null_object_is_refused_by_name, nulls)
{
	void *memory;
	struct dsaio_completion ended;
	int r = _i == 0	  ? dsaio_alloc(NULL, 1, NULL, &memory)
		: _i == 1 ? dsaio_handle_wait(NULL, 0, NULL)
		: _i == 2 ? dsaio_op_wait(NULL, 0, NULL)
			  : dsaio_handle_reap(NULL, &ended, sizeof(ended), 1, 1, 0);

	ck_assert_int_eq(r, nulls[_i].r);
	ck_assert_msg(strstr(dsaio_error(), nulls[_i].what), "%s", dsaio_error());
}

TEST(null_may_be_freed_and_closed)
{
	dsaio_op_free(NULL);
	dsaio_file_close(NULL);
	(void)dsaio_handle_close(NULL, -1);
	(void)dsaio_disconnect(NULL);
}

TEST_MAIN
