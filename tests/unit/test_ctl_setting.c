/* "key=value" of a profile. */
#include "client/ctl/cmd/setting.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *setting;
	struct profile want; /* of all zeros */
	unsigned given;
} rows[] = {
	{ "block_size=65536", { .block_size = 65536 }, PROFILE_BLOCK_SIZE },
	{ "block_size=1M", { .block_size = 1u << 20 }, PROFILE_BLOCK_SIZE },
	{ "block-size=64k", { .block_size = 64u << 10 }, PROFILE_BLOCK_SIZE },
	{ "block_size=4294967295", { .block_size = UINT32_MAX }, PROFILE_BLOCK_SIZE },
	{ "queue_depth=8", { .queue_depth = 8 }, PROFILE_QUEUE_DEPTH },
	{ "queue_depth=0",
	  { .queue_depth = 0 },
	  PROFILE_QUEUE_DEPTH }, /* profile_check() refuses it */
	{ "single_submit=yes", { .single_submit = true }, PROFILE_SINGLE_SUBMIT },
	{ "single-submit=YES", { .single_submit = true }, PROFILE_SINGLE_SUBMIT },
	{ "overlap_events=1", { .overlap_events = true }, PROFILE_OVERLAP_EVENTS },
	{ "overlap_events=true", { .overlap_events = true }, PROFILE_OVERLAP_EVENTS },
	{ "overlap_events=no", { .overlap_events = false }, PROFILE_OVERLAP_EVENTS },
	{ "intra_op_parallelism=4", { .intra_op_parallelism = 4 }, PROFILE_PARALLELISM },
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
	{ "overlap_events=maybe", "must be yes or no" },
};

TEST_TABLE(a_setting_changes_its_value_alone, rows)
{
	struct partial_profile partial = { .given = 0 };
	const struct profile *profile = &partial.profile;
	char text[128];

	ck_assert_int_eq(setting_parse(rows[_i].setting, &partial, text, sizeof(text)), 0);
	ck_assert_msg(profile->block_size == rows[_i].want.block_size &&
			      profile->queue_depth == rows[_i].want.queue_depth &&
			      profile->single_submit == rows[_i].want.single_submit &&
			      profile->overlap_events == rows[_i].want.overlap_events &&
			      profile->intra_op_parallelism == rows[_i].want.intra_op_parallelism,
		      "%s", rows[_i].setting);
	ck_assert_uint_eq(partial.given, rows[_i].given);
}

TEST(a_key_is_given_once)
{
	struct partial_profile partial = PARTIAL_PROFILE_NONE;
	char text[128];

	ck_assert_int_eq(setting_parse("block_size=64K", &partial, text, sizeof(text)), 0);
	ck_assert_int_eq(setting_parse("block-size=1M", &partial, text, sizeof(text)), -EINVAL);
	ck_assert_msg(strstr(text, "block-size=1M: is given already"), "%s", text);
	ck_assert_uint_eq(partial.profile.block_size, 64u << 10);
}

TEST(no_turns_off_what_is_on)
{
	struct partial_profile partial = {
		.profile = { .overlap_events = true, .single_submit = true },
		.given = PROFILE_SINGLE_SUBMIT,
	};
	char text[128];

	ck_assert_int_eq(setting_parse("overlap_events=no", &partial, text, sizeof(text)), 0);
	ck_assert(!partial.profile.overlap_events && partial.profile.single_submit);
	ck_assert_uint_eq(partial.given, PROFILE_SINGLE_SUBMIT | PROFILE_OVERLAP_EVENTS);
}

TEST_TABLE(a_mistake_is_reported_and_changes_nothing, mistakes)
{
	struct partial_profile partial = PARTIAL_PROFILE_NONE;
	const struct profile profile = PROFILE_DEFAULT;
	char text[256];

	ck_assert_int_eq(setting_parse(mistakes[_i].setting, &partial, text, sizeof(text)),
			 -EINVAL);
	ck_assert_msg(strstr(text, mistakes[_i].says), "%s: %s", mistakes[_i].setting, text);
	ck_assert(partial.profile.block_size == profile.block_size &&
		  partial.profile.queue_depth == profile.queue_depth &&
		  partial.profile.single_submit == profile.single_submit &&
		  partial.profile.overlap_events == profile.overlap_events &&
		  partial.profile.intra_op_parallelism == profile.intra_op_parallelism);
	ck_assert_uint_eq(partial.given, 0);
}

TEST_MAIN
