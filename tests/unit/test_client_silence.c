#include "client/lib/link/silence.h"

#include "tests/unit/suite.h"

#define MSEC UINT64_C(1000000)

static const struct {
	const char *what;
	uint64_t heard_msec, asked_msec, began_msec, now_msec;
	bool can_ask, must_ask, was_silent;
	int left_msec; /* of a limit of 1000 */
} rows[] = {
	{ "it just began", 0, 0, 100, 100, true, false, false, 501 },
	{ "half of the limit", 0, 0, 100, 600, true, true, false, 501 },
	{ "asked, and waiting", 0, 600, 100, 800, true, false, false, 301 },
	{ "asked long ago", 0, 600, 100, 1100, true, false, false, 0 },
	{ "it said something else meanwhile", 500, 0, 100, 700, true, false, false, 301 },
	{ "a reply long before does not count", 50, 0, 100, 300, true, false, false, 301 },
	{ "nothing to ask on: the whole limit", 0, 0, 100, 600, false, false, false, 501 },
	{ "nothing to ask on, over", 0, 0, 100, 1100, false, false, false, 0 },
	{ "silent before", 0, 0, 100, 100, true, false, true, 0 },
};

TEST_TABLE(a_daemon_is_asked_after_half_of_the_limit, rows)
{
	struct silence silence = { .limit_msec = 1000,
				   .heard_nsec = rows[_i].heard_msec * MSEC,
				   .asked_nsec = rows[_i].asked_msec * MSEC,
				   .is_silent = rows[_i].was_silent };
	bool must_ask = !rows[_i].must_ask && rows[_i].can_ask; /* it is set in any case */
	int left;

	left = silence_left(&silence, rows[_i].began_msec * MSEC, rows[_i].now_msec * MSEC,
			    rows[_i].can_ask ? &must_ask : NULL);
	ck_assert_msg(left == rows[_i].left_msec, "%s: %d", rows[_i].what, left);
	ck_assert_msg(must_ask == rows[_i].must_ask, "%s", rows[_i].what);
	if (must_ask)
		ck_assert_uint_eq(silence.asked_nsec, rows[_i].now_msec * MSEC);
}

TEST(an_answer_starts_it_anew)
{
	struct silence silence = { .limit_msec = 1000, .asked_nsec = 600 * MSEC };
	bool must_ask;

	silence_heard(&silence, 900 * MSEC);
	ck_assert_int_eq(silence_left(&silence, 100 * MSEC, 1000 * MSEC, &must_ask), 401);
	ck_assert(!must_ask);
}

TEST_MAIN
