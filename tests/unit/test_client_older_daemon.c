/* A daemon of an older version grants no feature: what needs one is refused, and nothing is sent. */
#include "client/lib/io/file.h"
#include "client/lib/io/handle.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const _Atomic uint32_t guard = CLIENT_GUARD;
static struct dsaio_client client;
static struct dsaio_conn conn;
static int peer_fd;

static void setup(void)
{
	int fds[2];

	memset(&client, 0, sizeof(client));
	memset(&conn, 0, sizeof(conn));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	conn.fd = fds[0];
	peer_fd = fds[1];
	(void)strcpy(conn.facts.daemon_version, "0.0.9");
	client.guard = &guard;
	client.conn = &conn;
}

static void teardown(void)
{
	char byte;

	ck_assert_int_eq(recv(peer_fd, &byte, 1, 0), -1);
	ck_assert_int_eq(errno, EAGAIN);
	(void)close(conn.fd);
	(void)close(peer_fd);
}

TEST(a_profile_of_some_fields_is_refused)
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_handle *handle;

	profile.queue_depth = 7;
	ck_assert_int_eq(dsaio_handle_open(&client, &profile, &handle), -EOPNOTSUPP);
	ck_assert_msg(strstr(dsaio_error(), "0.0.9") && strstr(dsaio_error(), "all five or none"),
		      "%s", dsaio_error());
}

static const uint32_t flags[] = { DSAIO_ALLOC_HUGE, DSAIO_ALLOC_SMALL, DSAIO_ALLOC_NODE };

TEST_TABLE(memory_of_a_kind_is_refused, flags)
{
	struct dsaio_alloc_options options = DSAIO_ALLOC_OPTIONS_INIT;
	void *memory;

	options.flags = flags[_i];
	ck_assert_int_eq(dsaio_alloc_with(&client, 1, &options, &memory), -EOPNOTSUPP);
	ck_assert_msg(strstr(dsaio_error(), "0.0.9"), "%s", dsaio_error());
}

TEST(what_a_store_uses_is_not_known)
{
	struct dsaio_handle handle = { .client = &client };
	struct dsaio_file file = { .client = &client };

	ck_assert_int_eq(dsaio_handle_profile_on(&handle, &file, NULL, NULL), -EOPNOTSUPP);
	ck_assert_msg(strstr(dsaio_error(), "0.0.9"), "%s", dsaio_error());
}

FIXTURE(setup, teardown)
TEST_MAIN
