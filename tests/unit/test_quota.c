#include "daemon/base/quota.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static struct quota root, user, client;

static void accounts_init(void)
{
	root = (struct quota){ .name = "the daemon" };
	user = (struct quota){ .name = "user 1000", .parent = &root };
	client = (struct quota){ .name = "client 7", .parent = &user };
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++) {
		root.limit[i] = 100;
		user.limit[i] = 50;
		client.limit[i] = 10;
	}
}

TEST(a_charge_counts_at_every_level_until_it_is_released)
{
	struct charge charge = { 0 };
	struct error error;

	accounts_init();
	ck_assert_int_eq(quota_charge(&charge, &client, QUOTA_FILES, 10, &error), 0);
	ck_assert_uint_eq(client.used[QUOTA_FILES], 10);
	ck_assert_uint_eq(user.used[QUOTA_FILES], 10);
	ck_assert_uint_eq(root.used[QUOTA_FILES], 10);
	ck_assert(!quota_is_zero(&client));
	quota_discharge(&charge);
	quota_discharge(&charge); /* nothing is taken any more */
	ck_assert(quota_is_zero(&client));
	ck_assert(quota_is_zero(&user));
	ck_assert(quota_is_zero(&root));
}

TEST(a_charge_is_adjusted_at_every_level_whatever_the_limits)
{
	struct charge charge = { 0 };
	struct error error;

	accounts_init();
	ck_assert_int_eq(quota_charge(&charge, &client, QUOTA_POOL_BYTES, 10, &error), 0);
	quota_adjust(&charge, 4);
	ck_assert_uint_eq(client.used[QUOTA_POOL_BYTES], 4);
	ck_assert_uint_eq(root.used[QUOTA_POOL_BYTES], 4);
	quota_adjust(&charge, 1000);
	ck_assert_uint_eq(client.used[QUOTA_POOL_BYTES], 1000);
	ck_assert_uint_eq(root.used[QUOTA_POOL_BYTES], 1000);
	quota_discharge(&charge);
	ck_assert(quota_is_zero(&client));
	ck_assert(quota_is_zero(&root));
}

static const struct {
	const char *what;
	enum quota_kind kind;
	uint64_t client_used, user_used, root_used, n;
	int want;
	const char *who; /* whose bound it is */
} bounds[] = {
	{ "all that is left", QUOTA_SLABS, 4, 4, 4, 6, 0, NULL },
	{ "one too many for the client", QUOTA_SLABS, 4, 4, 4, 7, -EMFILE, "client 7 has 4" },
	{ "its key", QUOTA_SLABS, 4, 4, 4, 7, -EMFILE, "or raise client_handles in dsaiod.conf" },
	{ "the key of the user's limit", QUOTA_ENTRIES, 0, 45, 45, 6, -EMFILE, "raise client_ops" },
	{ "one too many for the user", QUOTA_FILES, 0, 45, 45, 6, -EMFILE, "user 1000 has 45" },
	{ "one too many for all", QUOTA_POOL_BYTES, 0, 0, 95, 6, -ENOMEM, "the daemon has 95" },
	{ "GPU memory", QUOTA_GPU_BYTES, 4, 4, 4, 7, -EDQUOT, "raise client_device_max in" },
	{ "a sum that passes 2^64", QUOTA_POOL_BYTES, 4, 4, 4, UINT64_MAX, -ENOMEM, "client 7" },
	{ "a connection too many", QUOTA_SESSIONS, 0, 50, 50, 1, -EUSERS, "user 1000 has 50" },
	{ "nothing", QUOTA_CALLS, 10, 10, 10, 0, 0, NULL },
};

TEST_TABLE(a_bound_names_its_owner_and_takes_nothing, bounds)
{
	enum quota_kind kind = bounds[_i].kind;
	struct charge charge = { 0 };
	struct error error;

	accounts_init();
	client.used[kind] = bounds[_i].client_used;
	user.used[kind] = bounds[_i].user_used;
	root.used[kind] = bounds[_i].root_used;
	ck_assert_msg(quota_charge(&charge, &client, kind, bounds[_i].n, &error) == bounds[_i].want,
		      "%s", bounds[_i].what);
	if (bounds[_i].want == 0)
		return;
	ck_assert_msg(strstr(error.text, bounds[_i].who), "%s: %s", bounds[_i].what, error.text);
	ck_assert_int_eq(error.code, bounds[_i].want);
	ck_assert_uint_eq(client.used[kind], bounds[_i].client_used);
	ck_assert_uint_eq(user.used[kind], bounds[_i].user_used);
	ck_assert_uint_eq(root.used[kind], bounds[_i].root_used);
	quota_discharge(&charge);
	ck_assert_uint_eq(root.used[kind], bounds[_i].root_used);
}

TEST(every_kind_says_what_to_do_at_every_level)
{
	struct quota *levels[] = { &client, &user, &root };
	struct charge charge = { 0 };
	struct error error;

	for (unsigned level = 0; level < 3; level++) {
		for (unsigned kind = 0; kind < N_QUOTA_KINDS; kind++) {
			const char *colon;

			accounts_init();
			levels[level]->limit[kind] = 0;
			ck_assert_int_lt(quota_charge(&charge, &client, kind, 1, &error), 0);
			colon = strrchr(error.text, ':');
			ck_assert_msg(colon && strlen(colon) > 10, "%s", error.text);
			ck_assert_msg(!strstr(error.text, "(null)"), "%s", error.text);
		}
	}
}

TEST_ABORTS(releasing_what_was_not_taken_is_our_own_bug, 1)
{
	struct charge charge = { .quota = &client, .kind = QUOTA_FILES, .n = 1 };

	accounts_init();
	quota_discharge(&charge);
}

TEST_MAIN
