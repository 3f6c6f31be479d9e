#include "daemon/store/store.h"

#include "daemon/engine/engine.h"
#include "daemon/lane/lane.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *directory(void)
{
	const char *dir = getenv("TMPDIR");

	return dir ? dir : "/var/tmp";
}

static int make(const char *path, struct mailbox *mailbox, struct store **ret, struct error *error)
{
	struct store_config config = { .name = "nvme0", .path = path, .profile = PROFILE_DEFAULT };

	return store_new(3, &config, mailbox, ret, error);
}

TEST(a_store_is_known_by_its_device)
{
	struct mailbox mailbox;
	struct store *store;
	struct error error;
	struct stat st;

	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(make(directory(), &mailbox, &store, &error), 0);
	ck_assert_int_eq(stat(directory(), &st), 0);
	ck_assert_uint_eq(store->dev, st.st_dev);
	ck_assert_uint_eq(store->id, 3);
	ck_assert_ptr_null(store->lane);
	ck_assert_uint_eq(store_lane_depth(store), 0);
	ck_assert_ptr_nonnull(store->fs_type);
	store_free(store);
	mailbox_deinit(&mailbox);
}

static const struct {
	const char *path;
	int want;
} mistakes[] = {
	{ "/nonexistent/dir", -ENOENT },
	{ "/dev/null", -ENOTDIR },
	{ "/etc/passwd", -ENOTDIR },
};

TEST_TABLE(a_path_that_is_no_store_is_named, mistakes)
{
	struct mailbox mailbox;
	struct store *store;
	struct error error;

	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(make(mistakes[_i].path, &mailbox, &store, &error), mistakes[_i].want);
	ck_assert_msg(strstr(error.text, mistakes[_i].path) && strstr(error.text, "nvme0"), "%s",
		      error.text);
	mailbox_deinit(&mailbox);
}

TEST(the_lane_starts_with_the_first_channel)
{
	struct profile profile = PROFILE_DEFAULT;
	struct mailbox mailbox;
	struct store *store;
	struct error error;
	struct lane *lane;

	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(make(directory(), &mailbox, &store, &error), 0);
	ck_assert_int_eq(store_start_lane(store, &profile, INT64_MAX, &error), 0);
	lane = store->lane;
	ck_assert_ptr_nonnull(lane);
	ck_assert_uint_ge(store_lane_depth(store), 32);
	profile.intra_op_parallelism = 64;
	ck_assert_int_eq(store_start_lane(store, &profile, INT64_MAX, &error), 0);
	ck_assert_ptr_eq(store->lane, lane);
	store_free(store);
	mailbox_deinit(&mailbox);
}

TEST_MAIN
