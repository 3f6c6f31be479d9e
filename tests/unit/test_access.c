#include "daemon/config/access.h"

#include "tests/unit/suite.h"

static gid_t group_8[] = { 7, 8 };
static uid_t user_5[] = { 5, 6 };
static const struct {
	const char *what;
	struct peer peer;
	struct access access;
	bool is_allowed;
} peers[] = {
	{ "everybody", { .uid = 9 }, { .users = NULL }, true },
	{ "a user of the list", { .uid = 6 }, { .users = user_5, .n_users = 2 }, true },
	{ "a user of no list", { .uid = 9, .gid = 6 }, { .users = user_5, .n_users = 2 }, false },
	{ "a group of the list",
	  { .uid = 9, .gid = 8 },
	  { .groups = group_8, .n_groups = 2 },
	  true },
	{ "a supplementary group",
	  { .uid = 9, .gid = 1, .groups = group_8, .n_groups = 2 },
	  { .groups = group_8, .n_groups = 1 },
	  true },
	{ "either list is enough",
	  { .uid = 6, .gid = 1 },
	  { .users = user_5, .n_users = 2, .groups = group_8, .n_groups = 2 },
	  true },
	{ "a uid is no gid", { .uid = 8, .gid = 1 }, { .groups = group_8, .n_groups = 2 }, false },
	{ "root is on no list", { .uid = 0 }, { .users = user_5, .n_users = 2 }, false },
};

TEST_TABLE(a_store_serves_its_users_and_groups, peers)
{
	ck_assert_msg(access_allows(&peers[_i].access, &peers[_i].peer) == peers[_i].is_allowed,
		      "%s", peers[_i].what);
}

TEST_MAIN
