/* "key=value" of a profile. */
#include "client/ctl/cmd/setting.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *setting;
	struct profile want; /* of all zeros */
} rows[] = {
	{ "block_size=65536", { .block_size = 65536 } },
	{ "block_size=1M", { .block_size = 1u << 20 } },
	{ "block-size=64k", { .block_size = 64u << 10 } },
	{ "block_size=4294967295", { .block_size = UINT32_MAX } },
	{ "queue_depth=8", { .queue_depth = 8 } },
	{ "queue_depth=0", { .queue_depth = 0 } }, /* profile_check() refuses it */
	{ "single_submit=yes", { .single_submit = true } },
	{ "single-submit=YES", { .single_submit = true } },
	{ "overlap_events=1", { .overlap_events = true } },
	{ "overlap_events=true", { .overlap_events = true } },
	{ "overlap_events=no", { .overlap_events = false } },
	{ "intra_op_parallelism=4", { .intra_op_parallelism = 4 } },
};

static const struct {
	const char *setting, *says;
} mistakes[] = {
	{ "", "KEY=VALUE" },
	{ "block_size", "KEY=VALUE" },
	{ "=1", "a profile has block_size" },
	{ "block=1", "a profile has block_size" },
	{ "block_sizes=1", "a profile has block_size" },
	{ "BLOCK_SIZE=1", "a profile has block_size" },
	{ "block_size=", "block_size=: is no number" },
	{ "block_size=1X", "write for example 65536" },
	{ "queue_depth=-1", "write for example 8" },
	{ "queue_depth= 1", "is no number" },
	{ "queue_depth=4294967296", "is too large" },
	{ "block_size=99999999999999999999", "is too large" },
	{ "single_submit=", "must be yes or no" },
	{ "overlap_events=maybe", "must be yes or no" },
	{ "overlap_events=yes ", "must be yes or no" },
	{ "overlap_events=on", "must be yes or no" }, /* nor does dsaiod.conf have it */
};

START_TEST(a_setting_changes_its_value_alone)
{
	struct profile profile = { 0 };
	char text[128];

	ck_assert_int_eq(setting_parse(rows[_i].setting, &profile, text, sizeof(text)), 0);
	ck_assert_msg(profile.block_size == rows[_i].want.block_size &&
			      profile.queue_depth == rows[_i].want.queue_depth &&
			      profile.single_submit == rows[_i].want.single_submit &&
			      profile.overlap_events == rows[_i].want.overlap_events &&
			      profile.intra_op_parallelism == rows[_i].want.intra_op_parallelism,
		      "%s", rows[_i].setting);
}
END_TEST

START_TEST(no_turns_off_what_is_on)
{
	struct profile profile = { .overlap_events = true, .single_submit = true };
	char text[128];

	ck_assert_int_eq(setting_parse("overlap_events=no", &profile, text, sizeof(text)), 0);
	ck_assert(!profile.overlap_events && profile.single_submit);
}
END_TEST

START_TEST(a_mistake_is_told_and_changes_nothing)
{
	struct profile profile = PROFILE_DEFAULT, before = PROFILE_DEFAULT;
	char text[256];

	ck_assert_int_eq(setting_parse(mistakes[_i].setting, &profile, text, sizeof(text)),
			 -EINVAL);
	ck_assert_msg(strstr(text, mistakes[_i].says), "%s: %s", mistakes[_i].setting, text);
	ck_assert(profile.block_size == before.block_size &&
		  profile.queue_depth == before.queue_depth &&
		  profile.single_submit == before.single_submit &&
		  profile.overlap_events == before.overlap_events &&
		  profile.intra_op_parallelism == before.intra_op_parallelism);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, a_setting_changes_its_value_alone, 0, N_ROWS(rows));
	tcase_add_test(tcase, no_turns_off_what_is_on);
	tcase_add_loop_test(tcase, a_mistake_is_told_and_changes_nothing, 0, N_ROWS(mistakes));
}

SUITE("ctl setting", add_tests)
