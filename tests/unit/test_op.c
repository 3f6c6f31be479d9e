/*
 * Order of ops on one inode, and what an op's result is, without a lane.
 */
#include "daemon/lane/op.h"

#include "daemon/lane/channel.h"
#include "daemon/object/file.h"
#include "proto/ring.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

static struct inode inode;
static struct file file;
static struct order orders[2]; /* of two channels */
static struct op ops[8];
static int n_ready;
static struct op *last_ready;

static void setup(void)
{
	inode = (struct inode){ 0 };
	file = (struct file){ .inode = &inode };
	orders[0] = orders[1] = (struct order){ 0 };
	n_ready = 0;
}

static void make(int i, int channel, uint8_t opcode, uint64_t off, uint64_t len)
{
	ops[i] = (struct op){
		.order = &orders[channel],
		.file = &file,
		.opcode = opcode,
		.off = off,
		.len = len,
		.end = len,
		.state = OP_WAITS_ORDER,
	};
}

static bool link_op(int i)
{
	return op_link(&ops[i], ops[i].order);
}

static void count_ready(struct op *op, void *arg)
{
	(void)arg;
	n_ready++;
	last_ready = op;
	op->state = OP_READY;
}

#define R RING_OP_READ
#define W RING_OP_WRITE
#define S RING_OP_FSYNC

static const struct {
	const char *what;
	uint8_t first;
	uint64_t first_off, first_len;
	uint8_t then;
	uint64_t then_off, then_len;
	bool waits;
} pairs[] = {
	{ "two reads", R, 0, 4096, R, 0, 4096, false },
	{ "a write after a write", W, 0, 4096, W, 0, 4096, true },
	{ "a read after a write", W, 0, 8192, R, 4096, 4096, true },
	{ "a write after a read", R, 4096, 4096, W, 0, 8192, true },
	{ "side by side", W, 0, 4096, W, 4096, 4096, false },
	{ "the same page, other bytes", W, 0, 100, W, 200, 100, true },
	{ "neighbours that share a page", W, 0, 4097, R, 8191, 1, true },
	{ "a sync after a write", W, 1 << 20, 4096, S, 0, 0, true },
	{ "a sync after a read", R, 0, 4096, S, 0, 0, false },
	{ "a write after a sync", S, 0, 0, W, 0, 4096, false },
	{ "a sync after a sync", S, 0, 0, S, 0, 0, false },
	{ "nothing written", W, 0, 0, R, 0, 4096, false },
	{ "at the end of the range", W, INT64_MAX - 4096, 4096, R, INT64_MAX - 1, 1, true },
};

START_TEST(conflicting_ops_of_a_channel_wait)
{
	setup();
	make(0, 0, pairs[_i].first, pairs[_i].first_off, pairs[_i].first_len);
	make(1, 0, pairs[_i].then, pairs[_i].then_off, pairs[_i].then_len);
	ck_assert(link_op(0));
	ck_assert_msg(link_op(1) == !pairs[_i].waits, "%s", pairs[_i].what);
	op_unlink(&ops[0], count_ready, NULL);
	ck_assert_msg(n_ready == pairs[_i].waits, "%s: let go", pairs[_i].what);
	op_unlink(&ops[1], count_ready, NULL);
	ck_assert_uint_eq(orders[0].n_ops + orders[0].n_writes + orders[0].n_waiting, 0);
	ck_assert_ptr_null(orders[0].first);
}
END_TEST

START_TEST(channels_do_not_wait_for_each_other)
{
	setup();
	make(0, 0, W, 0, 4096);
	make(1, 1, W, 0, 4096);
	ck_assert(link_op(0));
	ck_assert(link_op(1));
	op_unlink(&ops[0], count_ready, NULL);
	ck_assert_int_eq(n_ready, 0);
	op_unlink(&ops[1], count_ready, NULL);
}
END_TEST

START_TEST(two_inodes_in_one_order_do_not_conflict)
{
	struct inode other = { 0 };
	struct file other_file = { .inode = &other };

	setup();
	make(0, 0, W, 0, 4096);
	make(1, 0, W, 0, 4096);
	ops[1].file = &other_file;
	ck_assert(link_op(0));
	ck_assert(link_op(1));
	op_unlink(&ops[1], count_ready, NULL);
	op_unlink(&ops[0], count_ready, NULL);
	ck_assert_int_eq(n_ready, 0);
}
END_TEST

START_TEST(an_op_waits_for_all_that_stand_before_it)
{
	setup();
	make(0, 0, W, 0, 4096);
	make(1, 0, W, 4096, 4096);
	make(2, 0, R, 0, 8192);
	make(3, 0, W, 0, 8192);
	ck_assert(link_op(0) && link_op(1));
	ck_assert(!link_op(2) && !link_op(3));
	op_unlink(&ops[1], count_ready, NULL);
	ck_assert_int_eq(n_ready, 0);
	op_unlink(&ops[0], count_ready, NULL);
	ck_assert_int_eq(n_ready, 1);
	ck_assert_ptr_eq(last_ready, &ops[2]);
	op_unlink(&ops[2], count_ready, NULL);
	ck_assert_int_eq(n_ready, 2);
	ck_assert_ptr_eq(last_ready, &ops[3]);
	op_unlink(&ops[3], count_ready, NULL);
}
END_TEST

START_TEST(an_op_cancelled_while_it_waits_lets_the_next_go)
{
	setup();
	make(0, 0, W, 0, 4096);
	make(1, 0, W, 0, 4096);
	make(2, 0, W, 0, 4096);
	ck_assert(link_op(0) && !link_op(1) && !link_op(2));
	ops[1].state = OP_ENDED;
	op_unlink(&ops[1], count_ready, NULL);
	ck_assert_int_eq(n_ready, 0); /* it still waits for the first */
	op_unlink(&ops[0], count_ready, NULL);
	ck_assert_int_eq(n_ready, 1);
	ck_assert_ptr_eq(last_ready, &ops[2]);
	op_unlink(&ops[2], count_ready, NULL);
	ck_assert_uint_eq(orders[0].n_waiting, 0);
}
END_TEST

/* A lane pays for looks, and stops where a client has had its share. */
START_TEST(looks_are_counted_before_they_are_taken)
{
	setup();
	for (int i = 0; i < 3; i++) {
		make(i, 0, W, 0, 4096);
		ck_assert_uint_eq(op_link_looks(&ops[i], &orders[0]), (unsigned)i);
		link_op(i);
	}
	make(3, 0, W, 8192, 4096); /* behind all of them */
	ck_assert_uint_eq(op_link_looks(&ops[3], &orders[0]), 0);
	ck_assert_uint_eq(op_unlink_looks(&ops[0]), 3);
	for (int i = 0; i < 3; i++)
		op_unlink(&ops[i], count_ready, NULL);
	setup();
	make(0, 0, R, 0, 4096);
	make(1, 0, R, 0, 4096);
	link_op(0);
	ck_assert_uint_eq(op_link_looks(&ops[1], &orders[0]), 0);
	ck_assert_uint_eq(op_unlink_looks(&ops[0]), 0); /* nobody waits */
	op_unlink(&ops[0], count_ready, NULL);
}
END_TEST

START_TEST(the_lowest_failure_decides)
{
	struct op op = { .len = 1 << 20, .end = 1 << 20 };

	ck_assert_int_eq(op_result(&op), 1 << 20);
	op_stop_at(&op, 65536, EIO);
	op_stop_at(&op, 131072, ENOSPC);
	ck_assert_int_eq(ring_result_errno(op_result(&op)), EIO);
	ck_assert_uint_eq(ring_result_done(op_result(&op)), 65536);
	op_stop_at(&op, 4096, ENOSPC);
	ck_assert_int_eq(ring_result_errno(op_result(&op)), ENOSPC);
	ck_assert_uint_eq(ring_result_done(op_result(&op)), 4096);
	op_stop_at(&op, 100, 0);
	ck_assert_int_eq(op_result(&op), 100);
}
END_TEST

START_TEST(an_op_of_no_bytes_can_fail)
{
	struct op op = { .opcode = S };

	op_stop_at(&op, 0, 0);
	ck_assert_int_eq(op_result(&op), 0);
	op_stop_at(&op, 0, EIO);
	ck_assert_int_eq(ring_result_errno(op_result(&op)), EIO);
	ck_assert_uint_eq(ring_result_done(op_result(&op)), 0);
}
END_TEST

static const struct {
	enum op_state from, to;
} moves[] = {
	{ OP_FREE, OP_WAITS_ORDER },	  { OP_WAITS_ORDER, OP_READY },
	{ OP_WAITS_ORDER, OP_ENDED },	  { OP_READY, OP_WAITS_MODE_LOCK },
	{ OP_READY, OP_WAITS_EXTENSION }, { OP_READY, OP_RUNNING },
	{ OP_WAITS_MODE_LOCK, OP_READY }, { OP_WAITS_MODE_LOCK, OP_RUNNING },
	{ OP_WAITS_EXTENSION, OP_READY }, { OP_WAITS_EXTENSION, OP_RUNNING },
	{ OP_RUNNING, OP_ENDED },	  { OP_ENDED, OP_FREE },
};

START_TEST(an_op_moves_along_its_states)
{
	for (int i = 0; i < N_ROWS(moves); i++) {
		struct op op = { .state = (uint8_t)moves[i].from };

		op_set_state(&op, moves[i].to);
		ck_assert_uint_eq(op.state, moves[i].to);
	}
}
END_TEST

/* _i: a pair of states that is not among them. */
START_TEST(no_op_leaves_them)
{
	const enum op_state from = (enum op_state)(_i / N_OP_STATES);
	const enum op_state to = (enum op_state)(_i % N_OP_STATES);
	struct op op = { .state = (uint8_t)from };

	for (int i = 0; i < N_ROWS(moves); i++)
		if (moves[i].from == from && moves[i].to == to)
			abort(); /* a legal one: as the assertion would */
	op_set_state(&op, to);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, conflicting_ops_of_a_channel_wait, 0, N_ROWS(pairs));
	tcase_add_test(tcase, channels_do_not_wait_for_each_other);
	tcase_add_test(tcase, two_inodes_in_one_order_do_not_conflict);
	tcase_add_test(tcase, an_op_waits_for_all_that_stand_before_it);
	tcase_add_test(tcase, an_op_cancelled_while_it_waits_lets_the_next_go);
	tcase_add_test(tcase, looks_are_counted_before_they_are_taken);
	tcase_add_test(tcase, the_lowest_failure_decides);
	tcase_add_test(tcase, an_op_of_no_bytes_can_fail);
	tcase_add_test(tcase, an_op_moves_along_its_states);
	tcase_add_loop_test_raise_signal(tcase, no_op_leaves_them, SIGABRT, 0,
					 N_OP_STATES * N_OP_STATES);
}

SUITE("op", add_tests)
