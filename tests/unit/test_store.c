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
	ck_assert_uint_eq(store->n_lanes, 0);
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

TEST(lanes_start_as_parallelism_asks_and_cores_allow)
{
	struct profile profile = PROFILE_DEFAULT;
	struct mailbox mailbox;
	struct store *store;
	struct error error;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(make(directory(), &mailbox, &store, &error), 0);
	ck_assert_int_eq(store_start_lanes(store, &profile, INT64_MAX, &error), 0);
	ck_assert_uint_eq(store->n_lanes, 1);
	ck_assert_uint_ge(store_lane_depth(store), 32);
	profile.intra_op_parallelism = 64;
	ck_assert_int_eq(store_start_lanes(store, &profile, INT64_MAX, &error), 0);
	ck_assert_uint_ge(store->n_lanes, 1);
	ck_assert_int_le((long)store->n_lanes, cores > 1 ? cores - 1 : 1);
	store_free(store);
	mailbox_deinit(&mailbox);
}

TEST(lanes_start_as_the_configuration_allows)
{
	struct store_config config = {
		.name = "nvme0", .path = directory(), .profile = PROFILE_DEFAULT, .max_lanes = 2
	};
	struct profile profile = PROFILE_DEFAULT;
	struct mailbox mailbox;
	struct store *store;
	struct error error;

	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(store_new(1, &config, &mailbox, &store, &error), 0);
	profile.intra_op_parallelism = 64;
	ck_assert_int_eq(store_start_lanes(store, &profile, INT64_MAX, &error), 0);
	ck_assert_uint_ge(store->n_lanes, 1);
	ck_assert_uint_le(store->n_lanes, 2); /* whatever the cores */
	store_free(store);
	mailbox_deinit(&mailbox);
}

TEST_MAIN
