#include "daemon/config/access.h"

#include "tests/unit/suite.h"

static id_t group_8[] = { 7, 8 };
static id_t user_5[] = { 5, 6 };
#define USERS [ACCESS_USERS] = { .ids = user_5, .n = 2 }
#define GROUPS(n_) [ACCESS_GROUPS] = { .ids = group_8, .n = n_ }
static const struct {
	const char *what;
	struct peer peer;
	struct access access;
	bool is_allowed;
} peers[] = {
	{ "everybody", { .uid = 9 }, { .is_closed = false }, true },
	{ "a user of the list", { .uid = 6 }, { .lists = { USERS } }, true },
	{ "a user of no list", { .uid = 9, .gid = 6 }, { .lists = { USERS } }, false },
	{ "a group of the list", { .uid = 9, .gid = 8 }, { .lists = { GROUPS(2) } }, true },
	{ "a supplementary group",
	  { .uid = 9, .gid = 1, .groups = group_8, .n_groups = 2 },
	  { .lists = { GROUPS(1) } },
	  true },
	{ "either list is enough",
	  { .uid = 6, .gid = 1 },
	  { .lists = { USERS, GROUPS(2) } },
	  true },
	{ "a uid is no gid", { .uid = 8, .gid = 1 }, { .lists = { GROUPS(2) } }, false },
	{ "nobody without a list", { .uid = 9 }, { .is_closed = true }, false },
	{ "a closed one has a list",
	  { .uid = 6 },
	  { .lists = { USERS }, .is_closed = true },
	  true },
	{ "root is on no list", { .uid = 0 }, { .lists = { USERS } }, false },
};

TEST_TABLE(a_store_serves_its_users_and_groups, peers)
{
	ck_assert_msg(access_allows(&peers[_i].access, &peers[_i].peer) == peers[_i].is_allowed,
		      "%s", peers[_i].what);
}

TEST(its_text_names_whom_it_serves)
{
	struct access access = { .is_closed = false };
	char alice[] = "alice, 7", staff[] = "staff";

	ck_assert_str_eq(access_text(&access), "");
	access.is_closed = true;
	ck_assert_str_eq(access_text(&access), "administrators");
	access.lists[ACCESS_GROUPS].text = staff;
	ck_assert_str_eq(access_text(&access), "groups staff");
	access.lists[ACCESS_USERS].text = alice;
	ck_assert_str_eq(access_text(&access), "users alice, 7; groups staff");
}

TEST_MAIN
