/* Profiles: each number at and beyond its limits, and what a refusal says. */
#include "proto/profile.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *what;
	struct profile profile;
	const char *says; /* value and limit; NULL: it is fine */
	const char *says_too;
} profiles[] = {
	{ "the default", { 1u << 20, 128, false, true, 1 }, NULL, NULL },
	{ "the smallest", { 512, 1, true, false, 1 }, NULL, NULL },
	{ "DeepSpeed's tests'", { 1024, 1, true, false, 1 }, NULL, NULL },
	{ "the largest", { 64u << 20, 4096, false, true, 64 }, NULL, NULL },
	{ "an odd multiple of 4 KiB", { 3 * 4096, 7, true, true, 3 }, NULL, NULL },
	{ "no block size", { 0, 1, false, true, 1 }, "block_size", "0" },
	{ "a block size below 512", { 511, 1, false, true, 1 }, "block_size", "511" },
	{ "a block size between steps", { 4097, 1, false, true, 1 }, "4097", "512" },
	{ "a block size over 64 MiB",
	  { (64u << 20) + 512, 1, false, true, 1 },
	  "67109376",
	  "64 MiB" },
	{ "a block size far beyond", { UINT32_MAX, 1, false, true, 1 }, "4294967295", "64 MiB" },
	{ "no depth", { 4096, 0, false, true, 1 }, "queue_depth", "0" },
	{ "a depth over 4096", { 4096, 4097, false, true, 1 }, "4097", "4096" },
	{ "no parallelism", { 4096, 1, false, true, 0 }, "intra_op_parallelism", "0" },
	{ "a parallelism over 64", { 4096, 1, false, true, 65 }, "65", "64" },
};

TEST_TABLE(a_profile_is_in_its_limits_or_the_refusal_names_value_and_limit, profiles)
{
	char text[200] = "";
	int r = profile_check(&profiles[_i].profile, text, sizeof(text));

	if (!profiles[_i].says) {
		ck_assert_msg(r == 0, "%s: %s", profiles[_i].what, text);
		return;
	}
	ck_assert_msg(r == -EINVAL, "%s: %d", profiles[_i].what, r);
	ck_assert_msg(strstr(text, profiles[_i].says) && strstr(text, profiles[_i].says_too),
		      "%s: %s", profiles[_i].what, text);
}

TEST(the_default_is_DeepNVMe_s_with_events_overlapped)
{
	struct profile profile = PROFILE_DEFAULT;
	char text[200];

	ck_assert_int_eq(profile_check(&profile, text, sizeof(text)), 0);
	ck_assert_uint_eq(profile.block_size, 1048576);
	ck_assert_uint_eq(profile.queue_depth, 128);
	ck_assert(!profile.single_submit);
	ck_assert(profile.overlap_events);
	ck_assert_uint_eq(profile.intra_op_parallelism, 1);
}

TEST_LOOP(a_field_that_is_not_given_is_the_whole_profile_s, 6)
{
	const struct profile whole = { 4096, 7, true, false, 3 };
	const struct partial_profile partial = { { 512, 1, false, true, 1 }, 1u << _i };
	struct profile want = whole, got = profile_fill(&partial, &whole);

	switch (partial.given) {
	case PROFILE_BLOCK_SIZE:
		want.block_size = 512;
		break;
	case PROFILE_QUEUE_DEPTH:
		want.queue_depth = 1;
		break;
	case PROFILE_SINGLE_SUBMIT:
		want.single_submit = false;
		break;
	case PROFILE_OVERLAP_EVENTS:
		want.overlap_events = true;
		break;
	case PROFILE_PARALLELISM:
		want.intra_op_parallelism = 1;
		break;
	default:
		break; /* none */
	}
	ck_assert_uint_eq(got.block_size, want.block_size);
	ck_assert_uint_eq(got.queue_depth, want.queue_depth);
	ck_assert_uint_eq(got.single_submit, want.single_submit);
	ck_assert_uint_eq(got.overlap_events, want.overlap_events);
	ck_assert_uint_eq(got.intra_op_parallelism, want.intra_op_parallelism);
}

TEST(a_refusal_fits_any_text)
{
	struct profile profile = { 4097, 1, false, true, 1 };
	char text[8];

	memset(text, 'x', sizeof(text));
	ck_assert_int_eq(profile_check(&profile, text, sizeof(text)), -EINVAL);
	ck_assert_ptr_nonnull(memchr(text, 0, sizeof(text)));
}

TEST_MAIN
