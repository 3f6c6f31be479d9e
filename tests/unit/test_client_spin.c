#include "client/lib/io/wait.h"
#include "proto/util/spin.h"

#include "tests/unit/suite.h"

#define ALLOWED_NSEC UINT64_C(200000)
#define NOW_NSEC (UINT64_C(3600) * 1000000000)

static const struct {
	const char *what;
	uint64_t mean_nsec, allowed_nsec, rests_nsec; /* rests_nsec: from now */
	bool pays;
} rules[] = {
	{ "nothing waited for yet", 0, ALLOWED_NSEC, 0, true },
	{ "just within half of it", ALLOWED_NSEC / 2, ALLOWED_NSEC, 0, true },
	{ "just not", ALLOWED_NSEC / 2 + 1, ALLOWED_NSEC, 0, false },
	{ "switched off", 0, 0, 0, false },
	{ "the core was lost", 0, ALLOWED_NSEC, 1, false },
};

TEST_TABLE(spinning_pays_where_waits_are_short_and_the_core_is_ours, rules)
{
	ck_assert_msg(spin_pays(rules[_i].mean_nsec, NOW_NSEC + rules[_i].rests_nsec,
				rules[_i].allowed_nsec, NOW_NSEC) == rules[_i].pays,
		      "%s", rules[_i].what);
}

TEST(who_was_away_from_its_core_rests_for_a_while)
{
	uint64_t until = 0;

	spin_note_look(&until, NOW_NSEC, NOW_NSEC + SPIN_LOST_NSEC); /* an interrupt */
	ck_assert_uint_eq(until, 0);
	spin_note_look(&until, NOW_NSEC + 1, NOW_NSEC); /* ended before it was due */
	ck_assert_uint_eq(until, 0);
	spin_note_look(&until, NOW_NSEC, NOW_NSEC + SPIN_LOST_NSEC + 1);
	ck_assert_uint_eq(until, NOW_NSEC + SPIN_LOST_NSEC + 1 + SPIN_REST_NSEC);
	ck_assert(!spin_pays(0, until, ALLOWED_NSEC, until - 1));
	ck_assert(spin_pays(0, until, ALLOWED_NSEC, until));
}

TEST(one_long_wait_does_not_end_all_spinning_and_many_do)
{
	uint64_t mean = 0;

	spin_note_wait(&mean, UINT64_MAX, 2 * ALLOWED_NSEC);
	ck_assert(spin_pays(mean, 0, ALLOWED_NSEC, NOW_NSEC));
	for (int i = 0; i < SPIN_MEAN_WEIGHT; i++)
		spin_note_wait(&mean, UINT64_MAX, 2 * ALLOWED_NSEC);
	ck_assert(!spin_pays(mean, 0, ALLOWED_NSEC, NOW_NSEC));
	for (int i = 0; i < 4 * SPIN_MEAN_WEIGHT; i++)
		spin_note_wait(&mean, 1000, 2 * ALLOWED_NSEC);
	ck_assert(spin_pays(mean, 0, ALLOWED_NSEC, NOW_NSEC));
}

static const struct {
	const char *what;
	uint64_t n_open;
	unsigned n_cpus;
	bool has_small_ops, is_given, may;
	uint64_t spin_nsec, mean_nsec;
} waits[] = {
	{ "few ops", 4, 2, false, false, true, ALLOWED_NSEC, 0 },
	{ "few ops, long waits", 4, 2, false, false, false, ALLOWED_NSEC, ALLOWED_NSEC },
	{ "many small ops, cores for both", 5, 3, true, false, true, ALLOWED_NSEC, 0 },
	{ "many small ops, two cores", 5, 2, true, false, false, ALLOWED_NSEC, 0 },
	{ "many large ops", 5, 3, false, false, false, ALLOWED_NSEC, 0 },
	{ "many small ops, long waits", 5, 3, true, false, false, ALLOWED_NSEC, ALLOWED_NSEC },
	{ "the caller said so", 5, 1, false, true, true, ALLOWED_NSEC, ALLOWED_NSEC },
	{ "the caller said never", 1, 4, true, true, false, 0, 0 },
	{ "the daemon said never", 1, 4, true, false, false, 0, 0 },
};

TEST_TABLE(a_wait_spins_among_many_ops_only_where_the_lane_has_a_core, waits)
{
	struct dsaio_client client = { .n_cpus = waits[_i].n_cpus };
	struct dsaio_handle handle = { .client = &client,
				       .settings = { .spin_nsec = waits[_i].spin_nsec,
						     .is_spin_given = waits[_i].is_given },
				       .mean_wait_nsec = waits[_i].mean_nsec,
				       .has_small_ops = waits[_i].has_small_ops };

	ck_assert_msg(wait_may_spin(&handle, waits[_i].n_open, NOW_NSEC) == waits[_i].may, "%s",
		      waits[_i].what);
	handle.rests_until_nsec = NOW_NSEC + 1; /* the core was lost: the caller's word stands */
	ck_assert_msg(wait_may_spin(&handle, waits[_i].n_open, NOW_NSEC) ==
			      (waits[_i].may && waits[_i].is_given),
		      "%s, having lost the core", waits[_i].what);
}

TEST_MAIN
