/*
 * The gate of an inode: whose turn it is.
 */
#include "daemon/object/mode_lock.h"

#include "daemon/lane/op.h"
#include "tests/unit/suite.h"

static struct gate gate;
static struct op ops[6]; /* even: direct, odd: buffered */
static int let_in[6], n_let_in;

static void setup(void)
{
	gate = (struct gate){ 0 };
	n_let_in = 0;
	for (int i = 0; i < 6; i++)
		ops[i] = (struct op){ .edges_left = i % 2 ? OP_HEAD : 0 };
}

static void on_let_in(struct op *op, void *arg)
{
	(void)arg;
	let_in[n_let_in++] = (int)(op - ops);
}

static void turn(uint64_t now)
{
	gate_turn(&gate, now, on_let_in, NULL);
}

static void start(int i)
{
	gate_start(&gate, op_gate_kind(&ops[i]), ops[i].is_promised);
	ops[i].is_promised = false;
}

START_TEST(one_kind_goes_in_together)
{
	setup();
	ck_assert(gate_is_open(&gate, GATE_DIRECT, 0));
	ck_assert(gate_is_open(&gate, GATE_BUFFERED, 0));
	start(0);
	ck_assert(gate_is_open(&gate, GATE_DIRECT, 0));
	ck_assert(!gate_is_open(&gate, GATE_BUFFERED, 0));
	start(2);
	gate_end(&gate);
	gate_end(&gate);
	turn(0);
	ck_assert_int_eq(n_let_in, 0);
	ck_assert(gate_is_open(&gate, GATE_BUFFERED, 0));
}
END_TEST

START_TEST(who_waits_is_not_passed_for_ever)
{
	setup();
	start(0);
	op_list_push(&gate.waiting, &ops[1]);
	ck_assert(gate_is_open(&gate, GATE_DIRECT, GATE_SLICE_NSEC - 1));
	ck_assert(!gate_is_open(&gate, GATE_DIRECT, GATE_SLICE_NSEC));
	turn(GATE_SLICE_NSEC);
	ck_assert_int_eq(n_let_in, 0); /* the first is not done */
	gate_end(&gate);
	turn(GATE_SLICE_NSEC);
	ck_assert_int_eq(n_let_in, 1);
	ck_assert_int_eq(let_in[0], 1);
	ck_assert(ops[1].is_promised);
	ck_assert(!gate_is_open(&gate, GATE_DIRECT, 2 * GATE_SLICE_NSEC));
}
END_TEST

START_TEST(a_slice_begins_at_the_turn)
{
	const uint64_t now = 100 * (uint64_t)GATE_SLICE_NSEC; /* of the turn */

	setup();
	start(0);
	op_list_push(&gate.waiting, &ops[1]);
	op_list_push(&gate.waiting, &ops[2]);
	gate_end(&gate);
	turn(now);
	ck_assert_int_eq(n_let_in, 1);
	start(1);
	ck_assert(gate_is_open(&gate, GATE_BUFFERED, now + GATE_SLICE_NSEC - 1));
	ck_assert(!gate_is_open(&gate, GATE_BUFFERED, now + GATE_SLICE_NSEC));
}
END_TEST

START_TEST(all_of_a_kind_have_their_turn_in_order)
{
	setup();
	start(0);
	for (int i = 1; i < 6; i++)
		op_list_push(&gate.waiting, &ops[i]);
	gate_end(&gate);
	turn(100);
	ck_assert_int_eq(n_let_in, 3);
	ck_assert(let_in[0] == 1 && let_in[1] == 3 && let_in[2] == 5);
	start(1);
	gate_end(&gate);
	turn(GATE_SLICE_NSEC * 10);
	ck_assert_int_eq(n_let_in, 3); /* two have a promise still */
	start(3);
	gate_unpromise(&gate); /* the last was cancelled */
	turn(GATE_SLICE_NSEC * 10);
	ck_assert_int_eq(n_let_in, 3);
	gate_end(&gate);
	turn(GATE_SLICE_NSEC * 10);
	ck_assert_int_eq(n_let_in, 5);
	ck_assert(let_in[3] == 2 && let_in[4] == 4);
}
END_TEST

START_TEST(an_op_can_leave_the_list)
{
	setup();
	for (int i = 0; i < 4; i++)
		op_list_push(&gate.waiting, &ops[i]);
	op_list_remove(&gate.waiting, &ops[0]);
	op_list_remove(&gate.waiting, &ops[3]);
	ck_assert_ptr_eq(gate.waiting.first, &ops[1]);
	ck_assert_ptr_eq(gate.waiting.last, &ops[2]);
	op_list_push(&gate.waiting, &ops[4]);
	ck_assert_ptr_eq(ops[2].next, &ops[4]);
	op_list_remove(&gate.waiting, &ops[2]);
	op_list_remove(&gate.waiting, &ops[1]);
	op_list_remove(&gate.waiting, &ops[4]);
	ck_assert(!gate.waiting.first && !gate.waiting.last);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, one_kind_goes_in_together);
	tcase_add_test(tcase, who_waits_is_not_passed_for_ever);
	tcase_add_test(tcase, a_slice_begins_at_the_turn);
	tcase_add_test(tcase, all_of_a_kind_have_their_turn_in_order);
	tcase_add_test(tcase, an_op_can_leave_the_list);
}

SUITE("gate", add_tests)
