#include "client/lib/io/file_fd.h"
#include "client/lib/io/file_open.h"
#include "client/lib/io/inode.h"
#include "tests/unit/suite.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file whose descriptor is kept: no daemon is asked. */
static struct dsaio_client client;
static struct dsaio_conn conn;
static struct dsaio_file file;

static void file_setup(void)
{
	memset(&client, 0, sizeof(client));
	memset(&conn, 0, sizeof(conn));
	memset(&file, 0, sizeof(file));
	client.conn = &conn;
	(void)pthread_mutex_init(&client.lock, NULL);
	(void)pthread_mutex_init(&client.files.lock, NULL);
	client.files.n_fds = 1;
	client.files.n_fds_wanted = 1;
	file.client = &client;
	file.object.kind = CLIENT_FILE;
	file.n_opens = 1;
	atomic_init(&file.n_refs, 1);
	file.fds.second = -1;
	file.fds.direct = memfd_create("file", MFD_CLOEXEC);
	ck_assert_int_ge(file.fds.direct, 0);
	ck_assert_int_eq(ftruncate(file.fds.direct, 5000), 0);
	ck_assert_int_eq(inode_hold(&client, 1, 2, &file.inode), 0);
	list_push(&client.objects[CLIENT_FILE], &file.object.node);
}

static void file_teardown(void)
{
	client_remove(&client, &file.object);
	if (file.fds.direct >= 0)
		(void)close(file.fds.direct);
	inode_drop(&client, file.inode);
}

TEST(a_kept_descriptor_tells_the_size)
{
	ck_assert_int_eq(file_size(&file), 5000);
	ck_assert_int_eq(file_size_seen(&file, AT_STATX_DONT_SYNC), 5000);
	ck_assert_uint_eq(file.n_fd_users, 0);
}

TEST(a_write_beyond_the_end_says_where_it_ends)
{
	uint64_t grow_end = 1;

	ck_assert_int_eq(file_grow(&file, 5000, &grow_end), 0);
	ck_assert_uint_eq(grow_end, 0);
	ck_assert_int_eq(file_grow(&file, 5001, &grow_end), 0);
	ck_assert_uint_eq(grow_end, 5001);
}

TEST(a_descriptor_in_use_is_not_given_up)
{
	int fd = file_fd_take(&file);

	ck_assert_int_eq(fd, file.fds.direct);
	errno = EMFILE;
	ck_assert(!file_fd_may_retry(&client, -1)); /* there is none to spare */
	ck_assert_int_eq(errno, EMFILE);
	file_fd_release(&file);
	ck_assert(!file_fd_may_retry(&client, fd)); /* no failure */
	errno = EACCES;
	ck_assert(!file_fd_may_retry(&client, -1)); /* not for want of descriptors */
	errno = EMFILE;
	ck_assert(file_fd_may_retry(&client, -1));
	ck_assert_int_eq(file.fds.direct, -1);
	ck_assert_uint_eq(client.files.n_fds, 0);
	ck_assert_int_lt(fcntl(fd, F_GETFD), 0); /* closed */
}

TEST(beyond_the_limit_a_descriptor_goes_after_its_use)
{
	client.files.n_fds_wanted = 0;
	ck_assert_int_ge(file_fd_take(&file), 0);
	ck_assert_int_ge(file_fd_take(&file), 0);
	file_fd_release(&file);
	ck_assert_int_ge(file.fds.direct, 0); /* another thread uses it */
	file_fd_release(&file);
	ck_assert_int_eq(file.fds.direct, -1);
}

TEST(the_last_reference_leaves_the_file_on_the_garbage_list)
{
	file_add_ref(&file);
	file_drop_ref(&file);
	ck_assert_ptr_null(atomic_load(&client.files.garbage));
	file_drop_ref(&file);
	ck_assert_ptr_eq(atomic_load(&client.files.garbage), &file);
	ck_assert(file.is_settling);
}

static const struct {
	const char *what;
	int flags, result;
} flags[] = {
	{ "appending", O_WRONLY | O_APPEND, -EINVAL },
	{ "two access modes", O_WRONLY | O_RDWR, -EINVAL },
	{ "a flag of others", O_RDONLY | O_DIRECTORY, -EINVAL },
	{ "cutting what is only read", O_RDONLY | O_TRUNC, -EINVAL },
};

TEST_TABLE(flags_that_cannot_be_served_are_refused_before_the_file_is_opened, flags)
{
	struct dsaio_file *opened = NULL;

	ck_assert_msg(file_open(&client, "/nonexistent/x", flags[_i].flags, FILE_MODE_DEFAULT,
				&opened) == flags[_i].result,
		      "%s", flags[_i].what);
	ck_assert_ptr_null(opened);
}

FIXTURE(file_setup, file_teardown)
TEST_MAIN
