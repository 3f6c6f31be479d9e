/* Options of a handle: what is refused before the daemon is asked, and what the settings become. */
#include "client/lib/dsaio.h"
#include "client/lib/io/handle.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

static _Atomic uint32_t guard = CLIENT_GUARD;
static struct dsaio_conn conn;
static struct dsaio_client client;

static void handle_setup(void)
{
	memset(&conn, 0, sizeof(conn));
	memset(&client, 0, sizeof(client));
	(void)strcpy(conn.path, "test");
	client.guard = &guard;
	client.conn = &conn;
	atomic_store(&conn.is_broken, true); /* a request would be refused: -ENOTCONN */
	conn.fd = -1;
}

static const struct {
	const char *what;
	enum dsaio_class io_class;
	uint32_t weight, entries;
	int64_t op_timeout_usec, spin_usec;
	int error;
	const char *words;
} options[] = {
	{ "the defaults", DSAIO_CLASS_NORMAL, 0, 0, 0, 0, -ENOTCONN, "test" },
	{ "no such class", (enum dsaio_class)9, 1, 0, -1, -1, -EINVAL, "io_class 9" },
	{ "too few entries", DSAIO_CLASS_NORMAL, 1, 1, -1, -1, -EINVAL, "entries 1" },
	{ "too many entries", DSAIO_CLASS_NORMAL, 1, UINT32_MAX, -1, -1, -EINVAL, "entries" },
	{ "time below never", DSAIO_CLASS_NORMAL, 1, 0, -2, -1, -EINVAL, "op_timeout_usec -2" },
	{ "a spin of hours", DSAIO_CLASS_NORMAL, 1, 0, -1, 3600000000, -EINVAL, "spin_usec" },
	{ "a spin below never", DSAIO_CLASS_NORMAL, 1, 0, -1, -2, -EINVAL, "spin_usec -2" },
	{ "all in range", DSAIO_CLASS_BACKGROUND, 16, 64, 1, 1, -ENOTCONN, "test" },
	{ "never", DSAIO_CLASS_BACKGROUND, 16, 64, -1, -1, -ENOTCONN, "test" },
};

TEST_TABLE(options_that_the_daemon_does_not_check_are_checked_before_it_is_asked, options)
{
	struct dsaio_handle_options o = DSAIO_HANDLE_OPTIONS_INIT;
	struct dsaio_handle *handle = NULL;
	int r;

	o.io_class = options[_i].io_class;
	o.weight = options[_i].weight;
	o.entries = options[_i].entries;
	o.op_timeout_usec = options[_i].op_timeout_usec;
	o.spin_usec = options[_i].spin_usec;
	r = dsaio_handle_open(&client, &o, &handle);
	ck_assert_msg(r == options[_i].error, "%s: %d: %s", options[_i].what, r, dsaio_error());
	ck_assert_msg(strstr(dsaio_error(), options[_i].words), "%s: %s", options[_i].what,
		      dsaio_error());
	ck_assert_ptr_null(handle);
}

TEST(null_arguments_and_forked_children_are_refused)
{
	_Atomic uint32_t forked_guard = 0;
	struct dsaio_handle handle = { .client = &client };
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_granted granted = DSAIO_GRANTED_INIT;

	ck_assert_int_eq(dsaio_handle_open(NULL, NULL, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_handle_open(&client, NULL, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_handle_fd(NULL), -EINVAL);
	ck_assert_int_eq(dsaio_handle_profile(NULL, NULL, &profile, NULL), -EINVAL);
	ck_assert_int_eq(dsaio_handle_profile(&handle, NULL, NULL, &granted), -EINVAL);
	ck_assert_int_eq(dsaio_handle_profile(&handle, NULL, NULL, NULL), 0);
	(void)dsaio_handle_close(NULL, -1);
	client.guard = &forked_guard;
	ck_assert_int_eq(dsaio_handle_profile(&handle, NULL, &profile, NULL), -EPERM);
	ck_assert_int_eq(dsaio_handle_fd(&handle), -EPERM);
	(void)dsaio_handle_close(&handle, -1); /* does nothing */
}

TEST(a_daemon_that_is_gone_is_not_asked)
{
	struct dsaio_handle *handle;

	atomic_store(&conn.n_gone, 1);
	conn.is_ended = true; /* it is no socket */
	ck_assert_int_eq(dsaio_handle_open(&client, NULL, &handle), -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(dsaio_error(), "gone away"));
}

FIXTURE(handle_setup, NULL)
TEST_MAIN
