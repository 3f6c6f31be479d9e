#include "daemon/account/usage.h"

#include "tests/unit/suite.h"

#include <stdio.h>

static struct usage usage;

static struct usage_user *usage_user_ref(struct usage *of, uid_t uid)
{
	struct usage_user *user = usage_user(of, uid);

	ck_assert_ptr_nonnull(user);
	user->n_clients++;
	return user;
}

static void teardown(void)
{
	usage_deinit(&usage);
}

static void setup(void)
{
	usage = (struct usage){ 0 };
}

TEST(a_user_keeps_its_entry_after_its_clients)
{
	struct usage_user *user = usage_user_ref(&usage, 7);

	ck_assert_ptr_eq(usage_user_ref(&usage, 7), user);
	ck_assert_uint_eq(user->n_clients, 2);
	metrics_add(&user->ended.writes, 3);
	user->n_clients--;
	user->n_clients--;
	ck_assert_ptr_ne(usage_user(&usage, 8), user);
	ck_assert_ptr_eq(usage_user(&usage, 7), user);
	ck_assert_uint_eq(metrics_get(&user->ended.writes), 3);
}

TEST(the_oldest_user_without_a_client_goes_to_the_rest)
{
	struct usage_user *user;

	for (uid_t uid = 1; uid <= USAGE_USERS_MAX; uid++) {
		user = uid == 1 ? usage_user_ref(&usage, uid) : usage_user(&usage, uid);
		user->earlier_bytes = uid;
		metrics_add(&user->ended.write_bytes, 10);
	}
	ck_assert(!usage.has_rest);
	user = usage_user(&usage, 1000);
	ck_assert_uint_eq(metrics_get(&user->ended.write_bytes), 0);
	ck_assert_uint_eq(user->earlier_bytes, 0);
	ck_assert_uint_eq(usage.n_users, USAGE_USERS_MAX);
	ck_assert(usage.has_rest);
	ck_assert_uint_eq(usage.rest.earlier_bytes, 2); /* user 1 has a client */
	ck_assert_uint_eq(metrics_get(&usage.rest.ended.write_bytes), 10);
	ck_assert_uint_eq(usage_user(&usage, 1)->earlier_bytes, 1);
}

TEST(a_limit_and_its_debt_outlive_the_clients)
{
	const struct rate_limit limit = { .bytes_per_sec = 1 };
	struct limiter_share share = { 0 };
	struct usage_user *user;

	ck_assert_int_eq(usage_set_limit(&usage, 1000, &limit), 0);
	user = usage_user_ref(&usage, 1000);
	ck_assert_uint_le(limiter_ask(&user->limiter, &share, 1000, 1), 1);
	limiter_charge(&user->limiter, &share, 1000, 1, 1);
	user->n_clients--;
	for (uid_t uid = 1; uid <= USAGE_USERS_MAX; uid++)
		ck_assert_ptr_nonnull(usage_user(&usage, uid));
	ck_assert_ptr_eq(usage_user(&usage, 1000), user);
	share = (struct limiter_share){ 0 };
	ck_assert_uint_gt(limiter_ask(&user->limiter, &share, 1000, 1), 1);
	ck_assert_int_eq(usage_set_limit(&usage, 1000, &(struct rate_limit){ 0 }), 0);
	ck_assert(!limiter_is_limited(&user->limiter));
}

TEST(more_users_than_that_are_counted_while_all_have_clients)
{
	for (uid_t uid = 0; uid <= USAGE_USERS_MAX; uid++)
		ck_assert_ptr_nonnull(usage_user_ref(&usage, uid));
	ck_assert_uint_eq(usage.n_users, USAGE_USERS_MAX + 1);
	ck_assert(!usage.has_rest);
}

FIXTURE(setup, teardown)
TEST_MAIN
