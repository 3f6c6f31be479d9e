/*
 * Deadlines: the next one is always the earliest, whatever came and went.
 */
#include "daemon/lane/deadline.h"

#include "tests/unit/suite.h"

#define N_OPS 200u

static struct op ops[N_OPS];
static struct op_rare rare[N_OPS];
static struct deadlines deadlines;

static void setup(void)
{
	for (unsigned i = 0; i < N_OPS; i++)
		ops[i] = (struct op){ 0 };
	ck_assert_int_eq(deadlines_init(&deadlines, ops, rare, N_OPS), 0);
}

static uint64_t earliest(void)
{
	uint64_t nsec = 0;

	for (unsigned i = 0; i < N_OPS; i++)
		if (ops[i].has_deadline && (!nsec || rare[i].deadline_nsec < nsec))
			nsec = rare[i].deadline_nsec;
	return nsec;
}

TEST(none_is_none)
{
	setup();
	ck_assert_ptr_null(deadlines_first(&deadlines));
	deadlines_remove(&deadlines, &ops[0]);
	deadlines_add(&deadlines, &ops[3], 5);
	ck_assert_ptr_eq(deadlines_first(&deadlines), &ops[3]);
	deadlines_remove(&deadlines, &ops[3]);
	deadlines_remove(&deadlines, &ops[3]); /* twice: fine */
	ck_assert_ptr_null(deadlines_first(&deadlines));
	deadlines_deinit(&deadlines);
}

TEST(the_first_is_the_earliest)
{
	uint64_t random = 1;

	setup();
	for (unsigned round = 0; round < 20000; round++) {
		const struct op *first;
		struct op *op;

		random = random * 6364136223846793005u + 1442695040888963407u;
		op = &ops[(random >> 33) % N_OPS];
		if (op->has_deadline)
			deadlines_remove(&deadlines, op);
		else
			deadlines_add(&deadlines, op, 1 + (random >> 45) % 100); /* many alike */
		first = deadlines_first(&deadlines);
		if (first)
			ck_assert(first->has_deadline);
		ck_assert_uint_eq(first ? deadlines_next_nsec(&deadlines) : 0, earliest());
	}
	while (deadlines_first(&deadlines)) {
		ck_assert_uint_eq(deadlines_next_nsec(&deadlines), earliest());
		deadlines_remove(&deadlines, deadlines_first(&deadlines));
	}
	ck_assert_uint_eq(earliest(), 0);
	deadlines_deinit(&deadlines);
}

TEST_MAIN
