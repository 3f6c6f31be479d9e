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
	config.key_places[key_index(key)] = (struct config_place){ .path = "x.conf", .line = 7 };
}

/* Descriptors that the limits of one user allow. */
static uint64_t descriptors_of_a_user(void)
{
	const uint64_t *user = config.user_limit;

	return user[QUOTA_FILES] + user[QUOTA_SLABS] + user[QUOTA_HANDLES] + user[QUOTA_VIEWS] +
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
	give("user_clients", "2");
	limits_settle(&config);
	limits_settle(&config); /* changes nothing more */
	ck_assert_uint_eq(config.client_limit[QUOTA_FILES], 60000);
	ck_assert_uint_eq(config.user_limit[QUOTA_FILES], 60000);
	ck_assert_uint_eq(config.user_limit[QUOTA_SESSIONS], 2);
	ck_assert(!config.follows_descriptors[QUOTA_SESSIONS]);
	ck_assert(config.follows_descriptors[QUOTA_HANDLES]);
	ck_assert_uint_eq(config.n_mistakes, 0);
}

/* As dsaiod.conf(5) has them. */
static const struct {
	const char *key, *value; /* NULL: none is given */
	enum quota_kind kind;
	uint64_t client, user;
} derived[] = {
	{ NULL, NULL, QUOTA_FILES, 16384, 262144 },
	{ NULL, NULL, QUOTA_HANDLES, 256, 1024 },
	{ NULL, NULL, QUOTA_SLABS, 1024, 4096 },
	{ NULL, NULL, QUOTA_VIEWS, 4096, 16384 },
	{ NULL, NULL, QUOTA_CHANNELS, 1024, 4096 },
	{ NULL, NULL, QUOTA_CALLS, 64, 256 },
	{ NULL, NULL, QUOTA_ENTRIES, 262144, 1048576 },
	{ NULL, NULL, QUOTA_SESSIONS, 512, 1024 },
	{ "client_files", "7", QUOTA_FILES, 7, 112 },
	{ "client_files", "7", QUOTA_SLABS, 1024, 4096 },
	{ "client_handles", "8", QUOTA_HANDLES, 8, 32 },
	{ "client_handles", "8", QUOTA_SLABS, 32, 128 },
	{ "client_handles", "8", QUOTA_VIEWS, 128, 512 },
	{ "client_handles", "8", QUOTA_CHANNELS, 32, 128 },
	{ "client_handles", "8", QUOTA_CALLS, 2, 8 },
	{ "client_handles", "1", QUOTA_CALLS, 1, 4 },
	/* The user's limit ends at 45% of the descriptors, its share of these. */
	{ "client_handles", "16383", QUOTA_CHANNELS, 65532, 65532 },
	{ "client_handles", "16383", QUOTA_HANDLES, 16383, 58982 },
	{ "client_ops", "9", QUOTA_ENTRIES, 9, 36 },
	{ "user_clients", "3", QUOTA_SESSIONS, 3, 3 },
};

TEST_TABLE(four_keys_decide_all_limits_on_objects, derived)
{
	config.n_descriptors = 1u << 20;
	if (derived[_i].key)
		give(derived[_i].key, derived[_i].value);
	limits_settle(&config);
	ck_assert_uint_eq(config.client_limit[derived[_i].kind], derived[_i].client);
	ck_assert_uint_eq(config.user_limit[derived[_i].kind], derived[_i].user);
}

TEST(a_clients_memory_above_its_users_is_a_mistake)
{
	give("client_pool_max", "9M");
	give("user_pool_max", "8M");
	limits_settle(&config);
	ck_assert_uint_eq(config.n_mistakes, 1);
	ck_assert_str_eq(config.mistakes[0],
			 "x.conf:7: [daemon] client_pool_max = 9 MiB: must be at most "
			 "user_pool_max, which is 8 MiB");
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
