/*
 * Ops by their ids: all with an id are found, whatever came and went.
 */
#include "daemon/lane/op_ids.h"

#include "tests/unit/suite.h"

#define N_OPS 200u

static struct op ops[N_OPS];
static bool is_open[N_OPS];
static struct op_ids ids;

static void setup(void)
{
	ck_assert_int_eq(op_ids_init(&ids, ops, N_OPS), 0);
	for (unsigned i = 0; i < N_OPS; i++)
		is_open[i] = false;
}

static void add(unsigned i, uint64_t id)
{
	ops[i].id = id;
	op_ids_add(&ids, &ops[i]);
	is_open[i] = true;
}

static void drop(unsigned i)
{
	op_ids_remove(&ids, &ops[i]);
	is_open[i] = false;
}

/* Those found are the open ones with that id, each once. */
static void check(uint64_t id)
{
	unsigned n_found[N_OPS] = { 0 }, n_wrong = 0;

	for (const struct op *op = op_ids_first(&ids, id); op; op = op_ids_next(&ids, op))
		n_found[op - ops]++;
	for (unsigned i = 0; i < N_OPS; i++)
		n_wrong += n_found[i] != (is_open[i] && ops[i].id == id);
	ck_assert_uint_eq(n_wrong, 0);
}

TEST(none_is_found_where_none_is)
{
	setup();
	check(0);
	add(N_OPS - 1, 7);
	check(0);
	drop(N_OPS - 1);
	check(7);
	op_ids_deinit(&ids);
}

TEST(all_ops_of_one_id_are_found)
{
	setup();
	for (unsigned i = 0; i < N_OPS; i++)
		add(i, UINT64_MAX);
	check(UINT64_MAX);
	drop(0); /* the last of its list */
	drop(N_OPS - 1);
	drop(N_OPS / 2);
	check(UINT64_MAX);
	op_ids_deinit(&ids);
}

TEST(ops_are_found_by_their_ids)
{
	uint64_t random = 1;

	setup();
	for (unsigned round = 0; round < 20000; round++) {
		unsigned i;

		random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		i = (unsigned)(random >> 33) % N_OPS;
		if (is_open[i])
			drop(i);
		else
			add(i, (random >> 50) % 128 << round % 3 * 20); /* many share one */
		check(ops[i].id);
	}
	op_ids_deinit(&ids);
}

TEST_MAIN
