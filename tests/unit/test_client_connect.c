/* Options that are refused before anything is looked for. */
#include "client/lib/dsaio.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *what;
	struct dsaio_connect_options options;
	int error;
	const char *words;
} wrong[] = {
	{ "no size", { 0, "/nowhere", NULL, 0, 0 }, -EINVAL, "struct dsaio_connect_options" },
	{ "an empty name", { 40, "/nowhere", "", 0, 0 }, -EINVAL, "name" },
	{ "a negative time", { 40, "/nowhere", NULL, -1, 0 }, -EINVAL, "-1" },
	{ "a time to reconnect", { 40, "/nowhere", NULL, 1, 0 }, -ENOENT, "/nowhere" },
	{ "a time to reconnect, and none", { 40, "/nowhere", NULL, 1, 2 }, -EINVAL, "exclude" },
	{ "an empty path", { 40, "", NULL, 0, 0 }, -EINVAL, "connect" },
	{ "all defaults", { 40, "/nowhere", "name", 0, 0 }, -ENOENT, "/nowhere" },
	{ "an unknown flag", { 40, "/nowhere", NULL, 0, 4 }, -E2BIG, "0x4" },
	{ "a known flag", { 40, "/nowhere", NULL, 0, 1 }, -ENOENT, "/nowhere" },
	{ "no reconnection", { 40, "/nowhere", NULL, 0, 2 }, -ENOENT, "/nowhere" },
	{ "less than the first version", { 32, "/nowhere", NULL, 0, 0 }, -EINVAL, "is 32" },
};

TEST_TABLE(options_are_checked_first, wrong)
{
	struct dsaio_client *client = NULL;
	int r = dsaio_connect(&wrong[_i].options, &client);

	ck_assert_msg(r == wrong[_i].error, "%s: %d: %s", wrong[_i].what, r, dsaio_error());
	ck_assert_msg(strstr(dsaio_error(), wrong[_i].words), "%s: %s", wrong[_i].what,
		      dsaio_error());
	ck_assert_ptr_null(client);
}

TEST(what_a_newer_program_sets_is_refused)
{
	struct {
		struct dsaio_connect_options options;
		uint64_t later;
	} newer = { DSAIO_CONNECT_OPTIONS_INIT, 0 };
	struct dsaio_client *client;

	newer.options.size = sizeof(newer);
	newer.options.socket_path = "/nowhere";
	ck_assert_int_eq(dsaio_connect(&newer.options, &client), -ENOENT);
	newer.later = 1;
	ck_assert_int_eq(dsaio_connect(&newer.options, &client), -E2BIG);
	ck_assert_ptr_nonnull(strstr(dsaio_error(), DSAIO_VERSION));
}

TEST(a_null_client_has_no_state)
{
	ck_assert_int_eq(dsaio_client_state(NULL), -EINVAL);
	ck_assert_int_eq(dsaio_client_fd(NULL), -EINVAL);
}

TEST_MAIN
