#include "client/lib/io/cache.h"

#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define MANY 5000

static struct cache cache;

static void cache_setup(void)
{
	memset(&cache, 0, sizeof(cache));
}

static void forget(void *entry)
{
	(void)entry; /* the test's */
}

static void cache_teardown(void)
{
	tdestroy(cache.entries, forget);
}

static const struct {
	const char *what;
	struct cache_key a, b;
	bool is_same;
} keys[] = {
	{ "the same path", { "x", -1, O_RDONLY }, { "x", -1, O_RDONLY }, true },
	{ "another path", { "x", -1, O_RDONLY }, { "y", -1, O_RDONLY }, false },
	{ "one is the other's start", { "x", -1, O_RDONLY }, { "x/y", -1, O_RDONLY }, false },
	{ "spelled otherwise", { "x", -1, O_RDONLY }, { "./x", -1, O_RDONLY }, false },
	{ "another access mode", { "x", -1, O_RDONLY }, { "x", -1, O_RDWR }, false },
	{ "the same number", { NULL, 5, O_RDWR }, { NULL, 5, O_RDWR }, true },
	{ "another number", { NULL, 5, O_RDWR }, { NULL, 6, O_RDWR }, false },
	{ "a number's other mode", { NULL, 5, O_RDWR }, { NULL, 5, O_WRONLY }, false },
	{ "a path and a number", { "5", 5, O_RDONLY }, { NULL, 5, O_RDONLY }, false },
	{ "no path", { "", -1, O_RDONLY }, { NULL, -1, O_RDONLY }, false },
};

TEST_TABLE(an_entry_is_found_by_its_key_alone, keys) /* _i: the row */
{
	char path[16] = "";
	struct cache_key key = keys[_i].b;
	struct cache_entry a = { .key = keys[_i].a }, b = { .key = keys[_i].b };

	if (key.path) /* compared, not only pointed to */
		key.path = strcpy(path, key.path);
	ck_assert(cache_add(&cache, &a));
	ck_assert_msg(cache_find(&cache, &key, false) == (keys[_i].is_same ? &a : NULL), "%s",
		      keys[_i].what);
	ck_assert_msg(cache_add(&cache, &b) != keys[_i].is_same, "%s", keys[_i].what);
	cache_remove(&cache, &a);
	ck_assert_ptr_null(cache_find(&cache, &keys[_i].a, false));
	cache_remove(&cache, &b);
	ck_assert_ptr_null(cache.entries);
}

TEST(one_that_is_open_for_both_serves_reads_and_writes)
{
	struct cache_entry both = { .key = { "x", -1, O_RDWR } };
	struct cache_entry other = { .key = { "y", -1, O_WRONLY } };
	struct cache_entry exact = { .key = { "x", -1, O_WRONLY } };
	struct cache_key read = { "x", -1, O_RDONLY }, write = { "x", -1, O_WRONLY };
	struct cache_key read_y = { "y", -1, O_RDONLY };

	ck_assert(cache_add(&cache, &both));
	ck_assert(cache_add(&cache, &other));
	ck_assert_ptr_eq(cache_find(&cache, &read, true), &both);
	ck_assert_ptr_eq(cache_find(&cache, &write, true), &both);
	ck_assert_ptr_null(cache_find(&cache, &read, false));
	ck_assert_ptr_null(cache_find(&cache, &read_y, true));
	ck_assert(cache_add(&cache, &exact)); /* a key of its own */
	ck_assert_ptr_eq(cache_find(&cache, &write, false), &exact);
}

TEST(an_empty_cache_finds_nothing_and_what_is_not_listed_can_be_removed)
{
	struct cache_entry entry = { .key = { "x", -1, O_RDONLY } };

	ck_assert_ptr_null(cache_find(&cache, &entry.key, false));
	cache_remove(&cache, &entry);
	ck_assert_ptr_null(cache.entries);
}

TEST(thousands_are_found_and_each_can_go)
{
	static struct cache_entry entries[2 * MANY];
	static char paths[MANY][16];

	for (int i = 0; i < MANY; i++) {
		(void)snprintf(paths[i], sizeof(paths[i]), "/dir/%d", i);
		entries[2 * i].key = (struct cache_key){ paths[i], -1, i % 3 };
		entries[2 * i + 1].key = (struct cache_key){ NULL, i, O_RDONLY };
	}
	for (int i = 0; i < 2 * MANY; i++)
		ck_assert(cache_add(&cache, &entries[i]));
	for (int i = 0; i < 2 * MANY; i += 3)
		cache_remove(&cache, &entries[i]);
	for (int i = 0; i < 2 * MANY; i++)
		ck_assert_ptr_eq(cache_find(&cache, &entries[i].key, false),
				 i % 3 ? &entries[i] : NULL);
	for (int i = 0; i < 2 * MANY; i++)
		cache_remove(&cache, &entries[i]);
	ck_assert_ptr_null(cache.entries);
}

/* The idle ones, oldest first, by their numbers. */
static void check_idle(const char *wanted)
{
	char got[16] = "", back[16] = "";
	size_t n = 0;

	for (struct list_node *e = cache.idle.first; e; e = e->next)
		got[n++] = (char)('0' + container_of(e, struct cache_entry, node)->key.fd);
	for (struct list_node *e = cache.idle.last; e; e = e->prev)
		back[--n] = (char)('0' + container_of(e, struct cache_entry, node)->key.fd);
	ck_assert_str_eq(got, wanted);
	ck_assert_str_eq(back, wanted);
}

TEST(the_one_idle_longest_is_the_oldest)
{
	struct cache_entry e[5];

	memset(e, 0, sizeof(e));
	for (int i = 0; i < 5; i++) {
		e[i].key.fd = i;
		ck_assert(cache_add(&cache, &e[i]));
	}
	check_idle("");
	for (int i = 4; i >= 0; i--)
		cache_set_idle(&cache, &e[i]);
	check_idle("43210");
	cache_set_used(&cache, &e[2]); /* in the middle */
	cache_set_used(&cache, &e[4]); /* the oldest */
	check_idle("310");
	cache_set_idle(&cache, &e[4]); /* the newest now */
	check_idle("3104");
	cache_set_used(&cache, &e[4]);
	check_idle("310");
	cache_remove(&cache, &e[1]); /* idle or not */
	cache_remove(&cache, &e[2]);
	check_idle("30");
	ck_assert_ptr_null(cache_find(&cache, &e[1].key, false));
	ck_assert_ptr_eq(cache_find(&cache, &e[4].key, false), &e[4]);
	cache_remove(&cache, &e[3]);
	cache_remove(&cache, &e[0]);
	check_idle("");
	ck_assert(cache_add(&cache, &e[0])); /* it can come back */
	cache_set_idle(&cache, &e[0]);
	check_idle("0");
}

#define BORN                                       \
	{                                          \
		.tv_sec = 1700000000, .tv_nsec = 7 \
	}
static const struct statx file_stx = {
	.stx_mask = STATX_TYPE | STATX_INO | STATX_BTIME,
	.stx_mode = S_IFREG | 0644,
	.stx_ino = 42,
	.stx_size = 4096,
	.stx_dev_major = 8,
	.stx_dev_minor = 1,
	.stx_btime = BORN,
};

enum change { NUMBER, MINOR, MAJOR, BIRTH, NO_BIRTH, KIND, SIZE, MODE, LINKS, RDEV, N_CHANGES };
static const bool is_another[N_CHANGES] = {
	[NUMBER] = true,   [MINOR] = true, [MAJOR] = true, [BIRTH] = true,
	[NO_BIRTH] = true, [KIND] = true,  [SIZE] = false, [MODE] = false,
	[LINKS] = false,   [RDEV] = false, /* of a regular file it says nothing */
};

TEST_LOOP(an_inode_is_the_same_until_what_never_changes_has_changed, N_CHANGES) /* _i: the change */
{
	struct statx stx = file_stx;
	struct cache_identity before = cache_identity_of(&file_stx), now;

	switch ((enum change)_i) {
	case NUMBER:
		stx.stx_ino++;
		break;
	case MINOR:
		stx.stx_dev_minor++;
		break;
	case MAJOR:
		stx.stx_dev_major++;
		break;
	case BIRTH:
		stx.stx_btime.tv_nsec++;
		break;
	case NO_BIRTH:
		stx.stx_mask &= ~STATX_BTIME;
		break;
	case KIND:
		stx.stx_mode = S_IFDIR | 0644;
		break;
	case SIZE:
		stx.stx_size = 0;
		break;
	case MODE:
		stx.stx_mode = S_IFREG;
		break;
	case LINKS:
		stx.stx_nlink = 7;
		break;
	case RDEV:
		stx.stx_rdev_major = 7;
		break;
	case N_CHANGES:
		break;
	}
	now = cache_identity_of(&stx);
	ck_assert_int_eq(cache_is_same(&before, &now), !is_another[_i]);
}

TEST(a_block_device_is_reported_by_its_number_too)
{
	struct statx stx = file_stx;
	struct cache_identity before, now;

	stx.stx_mode = S_IFBLK | 0600;
	stx.stx_rdev_major = 7;
	before = cache_identity_of(&stx);
	ck_assert_uint_eq(before.rdev, makedev(7, 0));
	stx.stx_rdev_minor = 1;
	now = cache_identity_of(&stx);
	ck_assert(!cache_is_same(&before, &now));
}

FIXTURE(cache_setup, cache_teardown)
TEST_MAIN
