#include "daemon/config/limits.h"

#include "daemon/config/config.h"
#include "daemon/config/keys.h"
#include "tests/unit/suite.h"

#include <string.h>

static struct config config;
static struct error error;

static void setup(void)
{
	ck_assert_int_eq(config_init(&config), 0);
	config.pool_size = 64 << 20;
}

static void teardown(void)
{
	config_deinit(&config);
}

/* As if a file had it. */
static void give(const char *name, const char *value)
{
	const struct key *key = key_find(KEYS_DAEMON, name, &error);

	ck_assert_ptr_nonnull(key);
	ck_assert_msg(key_set(key, &config, value, &error) == 0, "%s", error.text);
	config.key_lines[key_index(key)] = 7;
}

/* Descriptors that the limits of one user allow. */
static uint64_t descriptors_of_a_user(void)
{
	const uint64_t *user = config.user_limit;

	return user[QUOTA_FILES] + user[QUOTA_SLABS] + user[QUOTA_HANDLES] +
	       2 * user[QUOTA_CHANNELS] + 2 * user[QUOTA_CALLS] + 27 * user[QUOTA_SESSIONS];
}

static const uint64_t descriptors[] = { 1024, 4096, 20000, 524288, 4194304 };

TEST_LOOP(two_users_at_their_limits_leave_descriptors_for_others, 2 * N_ROWS(descriptors))
{
	uint64_t n = descriptors[_i / 2];
	bool is_user = _i % 2;

	if (is_user)
		config_set_user(&config);
	config.n_descriptors = n;
	limits_settle(&config);
	ck_assert_uint_le(descriptors_of_a_user() * (is_user ? 1 : 2), n * 90 / 100);
	for (unsigned kind = 0; kind < N_QUOTA_KINDS; kind++) {
		ck_assert_uint_gt(config.client_limit[kind], 0);
		ck_assert_uint_ge(config.user_limit[kind], config.client_limit[kind]);
	}
	if (n >= 20000 && (is_user || n > 50000))
		ck_assert_uint_ge(config.client_limit[QUOTA_FILES], 10000);
	if (n < 20000)
		return;
	/* 64 clients with 8 handles each. */
	ck_assert_uint_ge(config.user_limit[QUOTA_SESSIONS], 64);
	ck_assert_uint_ge(config.user_limit[QUOTA_HANDLES], 64 * 8 * 2);
	ck_assert_uint_ge(config.user_limit[QUOTA_CHANNELS], 64 * 8);
	ck_assert_uint_ge(config.user_limit[QUOTA_ENTRIES], 64 * 8 * 1024);
	ck_assert_uint_ge(config.user_limit[QUOTA_SLABS], 64 * 8);
}

TEST(a_daemon_with_hardly_a_descriptor_serves_somebody)
{
	config.n_descriptors = 20;
	limits_settle(&config);
	for (unsigned kind = 0; kind < N_QUOTA_KINDS; kind++) {
		ck_assert_uint_gt(config.client_limit[kind], 0);
		ck_assert_uint_ge(config.user_limit[kind], 4);
	}
}

TEST(a_given_limit_does_not_follow_the_descriptors)
{
	config.n_descriptors = 1024;
	give("client_files", "60000");
	give("user_slabs", "3");
	limits_settle(&config);
	ck_assert_uint_eq(config.client_limit[QUOTA_FILES], 60000);
	ck_assert_uint_eq(config.user_limit[QUOTA_FILES], 60000);
	ck_assert(!config.follows_descriptors[QUOTA_FILES]);
	ck_assert_uint_eq(config.client_limit[QUOTA_SLABS], 3);
	ck_assert_uint_eq(config.user_limit[QUOTA_SLABS], 3);
	ck_assert(!config.follows_descriptors[QUOTA_SLABS]);
	ck_assert(config.follows_descriptors[QUOTA_HANDLES]);
	ck_assert_uint_eq(config.n_mistakes, 0);
}

TEST(a_clients_limit_above_its_users_is_a_mistake)
{
	config.path = strdup("x.conf");
	give("client_entries", "9");
	give("user_entries", "8");
	limits_settle(&config);
	ck_assert_uint_eq(config.n_mistakes, 1);
	ck_assert_str_eq(config.mistakes[0],
			 "x.conf:7: [daemon] client_entries = 9: must be at most user_entries, "
			 "which is 8");
}

TEST(two_users_share_the_pool_and_a_users_own_daemon_gives_all)
{
	limits_settle(&config);
	ck_assert_uint_eq(config.client_limit[QUOTA_POOL_BYTES], 32 << 20);
	ck_assert_uint_eq(config.user_limit[QUOTA_POOL_BYTES], 32 << 20);
	config_set_user(&config);
	limits_settle(&config);
	ck_assert_uint_eq(config.user_limit[QUOTA_POOL_BYTES], 64 << 20);
	give("client_pool_max", "48M");
	limits_settle(&config);
	ck_assert_uint_eq(config.client_limit[QUOTA_POOL_BYTES], 48 << 20);
}

FIXTURE(setup, teardown)
TEST_MAIN
