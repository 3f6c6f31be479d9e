/* The profile that a program asks for, and zero as inherited. */
#include "client/lib/api/handle.c"

#include "client/lib/base/error.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

#define ASKED(...)                                        \
	{                                                 \
		sizeof(struct dsaio_profile), __VA_ARGS__ \
	}

#define UNCHANGED                                    \
	{                                            \
		{ 1u << 20, 128, false, true, 1 }, 0 \
	}

static const struct {
	const char *what;
	struct dsaio_profile asked;
	struct partial_profile want;
	const char *says; /* NULL: it is fine */
	int result;
} rows[] = {
	{ "nothing", DSAIO_PROFILE_INIT, UNCHANGED, NULL, 0 },
	{ "all",
	  ASKED(4096, 2, DSAIO_YES, DSAIO_NO, 3, 0),
	  { { 4096, 2, true, false, 3 }, PROFILE_ALL },
	  NULL,
	  0 },
	{ "the block size",
	  ASKED(4096, 0, DSAIO_INHERIT, DSAIO_INHERIT, 0, 0),
	  { { 4096, 128, false, true, 1 }, PROFILE_BLOCK_SIZE },
	  NULL,
	  0 },
	{ "the depth",
	  ASKED(0, 2, DSAIO_INHERIT, DSAIO_INHERIT, 0, 0),
	  { { 1u << 20, 2, false, true, 1 }, PROFILE_QUEUE_DEPTH },
	  NULL,
	  0 },
	{ "single_submit",
	  ASKED(0, 0, DSAIO_NO, DSAIO_INHERIT, 0, 0),
	  { { 1u << 20, 128, false, true, 1 }, PROFILE_SINGLE_SUBMIT },
	  NULL,
	  0 },
	{ "overlap_events",
	  ASKED(0, 0, DSAIO_INHERIT, DSAIO_NO, 0, 0),
	  { { 1u << 20, 128, false, false, 1 }, PROFILE_OVERLAP_EVENTS },
	  NULL,
	  0 },
	{ "parts",
	  ASKED(0, 0, DSAIO_INHERIT, DSAIO_INHERIT, 5, 0),
	  { { 1u << 20, 128, false, true, 5 }, PROFILE_PARALLELISM },
	  NULL,
	  0 },
	{ "a choice that there is not", ASKED(0, 0, (enum dsaio_choice)3, DSAIO_INHERIT, 0, 0),
	  UNCHANGED,
	  "single_submit 3, overlap_events 0: each must be DSAIO_INHERIT (0), DSAIO_YES (1) or DSAIO_NO (2)",
	  -EINVAL },
	{ "another choice that there is not", ASKED(0, 0, DSAIO_YES, (enum dsaio_choice)255, 0, 0),
	  UNCHANGED, "overlap_events 255", -EINVAL },
	{ "a field of a later version", ASKED(0, 0, DSAIO_INHERIT, DSAIO_INHERIT, 0, 1), UNCHANGED,
	  "struct dsaio_profile", -E2BIG },
	{ "no size", { .size = 0 }, UNCHANGED, "struct dsaio_profile", -EINVAL },
};

TEST_TABLE(zero_is_inherited, rows)
{
	struct partial_profile got = PARTIAL_PROFILE_NONE;
	const struct profile *p = &got.profile, *want = &rows[_i].want.profile;
	int r = asked_profile_read("test", &rows[_i].asked, &got);

	ck_assert_msg(r == rows[_i].result, "%s: %d", rows[_i].what, r);
	if (r < 0)
		ck_assert_msg(strstr(dsaio_error(), rows[_i].says), "%s", dsaio_error());
	ck_assert_uint_eq(got.given, rows[_i].want.given);
	ck_assert_msg(p->block_size == want->block_size && p->queue_depth == want->queue_depth &&
			      p->single_submit == want->single_submit &&
			      p->overlap_events == want->overlap_events &&
			      p->intra_op_parallelism == want->intra_op_parallelism,
		      "%s", rows[_i].what);
}

TEST_TABLE(what_was_asked_for_is_reported_as_it_was, rows)
{
	struct dsaio_profile got = DSAIO_PROFILE_INIT;
	const struct dsaio_profile *asked = &rows[_i].asked;

	if (rows[_i].says)
		return;
	ck_assert_int_eq(asked_profile_write("test", &rows[_i].want, &got), 0);
	ck_assert_msg(got.size == sizeof(got) && got.block_size == asked->block_size &&
			      got.queue_depth == asked->queue_depth &&
			      got.single_submit == asked->single_submit &&
			      got.overlap_events == asked->overlap_events &&
			      got.intra_op_parallelism == asked->intra_op_parallelism && !got.zero,
		      "%s", rows[_i].what);
}

TEST(no_profile_inherits_all)
{
	struct partial_profile got = { .given = PROFILE_ALL };

	ck_assert_int_eq(asked_profile_read("test", NULL, &got), 0);
	ck_assert_uint_eq(got.given, 0);
}

TEST_MAIN
