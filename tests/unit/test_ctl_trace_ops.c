/*
 * Ops of a trace, put together from events, and the choice of some of them.
 */
#include "client/ctl/cmd/trace_ops.h"
#include "client/ctl/ui/ctl.h"
#include "proto/ring.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct trace_ops ops;

static void teardown(void)
{
	trace_ops_deinit(&ops);
}
FIXTURE(NULL, teardown)

static void add(uint32_t lane, uint64_t id, uint8_t kind, uint8_t opcode, uint64_t nsec)
{
	const struct recording_event event = { .nsec = nsec,
					       .id = id,
					       .off = 4096,
					       .len = 8192,
					       .result = kind == RECORDING_ENDED ? 8192 : 0,
					       .client = 3,
					       .channel = lane, /* of its own */
					       .file = 9,
					       .pid = 77,
					       .uid = 1000,
					       .kind = kind,
					       .opcode = opcode };

	ck_assert_int_eq(trace_ops_add(&ops, 99, lane, &event), 0);
}

TEST(an_op_has_the_times_of_its_first_block_and_of_its_last)
{
	const struct trace_op *op;

	add(0, 5, RECORDING_TAKEN, RING_OP_READ, 100);
	add(0, 5, RECORDING_AT_ENGINE, RING_OP_READ, 110);
	add(0, 5, RECORDING_AT_WORKER, RING_OP_READ, 120);
	add(0, 5, RECORDING_BLOCK_DONE, RING_OP_READ, 130);
	add(0, 5, RECORDING_BLOCK_DONE, RING_OP_READ, 150);
	ck_assert_uint_eq(ops.n, 0);
	add(0, 5, RECORDING_ENDED, RING_OP_READ, 160);
	ck_assert_uint_eq(ops.n, 1);
	op = &ops.ops[0];
	ck_assert(op->taken_nsec == 100 && op->started_nsec == 110 && op->done_nsec == 150 &&
		  op->ended_nsec == 160);
	ck_assert(op->result == 8192 && op->off == 4096 && op->len == 8192 && op->file == 9 &&
		  op->pid == 77 && op->uid == 1000 && op->client == 3);
}

TEST(ops_of_different_lanes_and_ids_are_different)
{
	add(0, 5, RECORDING_TAKEN, RING_OP_READ, 100);
	add(1, 5, RECORDING_TAKEN, RING_OP_WRITE, 101);
	add(0, 6, RECORDING_TAKEN, RING_OP_READ, 102);
	add(1, 5, RECORDING_AT_WORKER, RECORDING_OP_EXTEND, 103);
	add(1, 5, RECORDING_ENDED, RING_OP_WRITE, 104);
	ck_assert_uint_eq(ops.n, 1);
	ck_assert(ops.ops[0].lane == 1 && ops.ops[0].opcode == RING_OP_WRITE);
	ck_assert_int_eq(trace_ops_end(&ops), 0);
	ck_assert_uint_eq(ops.n, 3);
	ck_assert(ops.ops[0].id == 5 && !ops.ops[0].ended_nsec);
	ck_assert(ops.ops[1].ended_nsec == 104 && ops.ops[2].id == 6);
}

TEST(events_of_an_op_that_began_before_are_left_out)
{
	add(0, 5, RECORDING_BLOCK_DONE, RING_OP_READ, 100);
	add(0, 5, RECORDING_ENDED, RING_OP_READ, 101);
	add(0, 5, RECORDING_HUNG, RING_OP_READ, 102);
	add(0, 5, 200, 99, 103);
	ck_assert_int_eq(trace_ops_end(&ops), 0);
	ck_assert(ops.n == 0 && ops.n_lost == 0);
}

/* The lane wrote over the end of the first one. */
TEST(an_op_whose_end_was_lost_is_counted)
{
	add(0, 5, RECORDING_TAKEN, RING_OP_READ, 100);
	add(0, 5, RECORDING_AT_ENGINE, RING_OP_READ, 101);
	add(0, 5, RECORDING_TAKEN, RING_OP_WRITE, 200);
	add(0, 5, RECORDING_ENDED, RING_OP_WRITE, 210);
	ck_assert(ops.n == 1 && ops.n_lost == 1);
	ck_assert(ops.ops[0].taken_nsec == 200 && ops.ops[0].opcode == RING_OP_WRITE &&
		  !ops.ops[0].started_nsec);
}

TEST(many_ops_are_sorted_by_their_start)
{
	for (uint64_t i = 0; i < 3000; i++)
		add(0, i, RECORDING_TAKEN, RING_OP_READ, 10000 - i);
	for (uint64_t i = 0; i < 3000; i += 2)
		add(0, i, RECORDING_ENDED, RING_OP_READ, 20000 + i);
	ck_assert_int_eq(trace_ops_end(&ops), 0);
	ck_assert_uint_eq(ops.n, 3000);
	for (uint64_t i = 0; i < 3000; i++)
		ck_assert_uint_eq(ops.ops[i].id, 2999 - i);
}

static const struct {
	struct trace_filter filter;
	bool is_chosen;
} choices[] = {
	{ { 0 }, true },
	{ { .kind = "fdatasync" }, true },
	{ { .kind = "fsync" }, false },
	{ { .kind = "read" }, false },
	{ { .errors = true }, true },
	{ { .slower = "1us", .slower_nsec = 1000 }, true },
	{ { .slower = "2us", .slower_nsec = 1001 }, false },
};

TEST_TABLE(a_filter_has_the_ops_that_fulfil_all_of_it, choices)
{
	const struct trace_op op = { .opcode = RING_OP_FDATASYNC,
				     .pid = 77,
				     .uid = 1000,
				     .taken_nsec = 500,
				     .ended_nsec = 1500,
				     .result = ring_result_failed(EIO, 0) };

	ck_assert(trace_filter_has(&choices[_i].filter, &op, 0) == choices[_i].is_chosen);
}

static const struct {
	struct trace_filter filter;
	bool is_chosen;
} events[] = {
	{ { 0 }, true },
	{ { .pid = 77 }, true },
	{ { .pid = 78 }, false },
	{ { .user = "1000", .uid = 1000 }, true },
	{ { .user = "0", .uid = 0 }, false },
	{ { .store = "nvme0", .pid = 77 }, true },
	{ { .store = "nvme", .pid = 77 }, false },
};

TEST_TABLE(a_filter_has_the_events_that_fulfil_all_of_it, events)
{
	const struct recording_event event = { .pid = 77, .uid = 1000 };

	ck_assert(trace_filter_has_event(&events[_i].filter, "nvme0", &event) ==
		  events[_i].is_chosen);
}

TEST(an_open_op_takes_until_now)
{
	const struct trace_filter slow = { .slower = "1us", .slower_nsec = 1000 };
	const struct trace_op op = { .opcode = RING_OP_READ, .taken_nsec = 500 };

	ck_assert(trace_filter_has(&slow, &op, 1500));
	ck_assert(!trace_filter_has(&slow, &op, 1499));
	ck_assert(!trace_filter_has(&slow, &op, 499)); /* one of a lane that wrote afterwards */
}

static const struct {
	const char *slower;
	int result;
	uint64_t nsec;
} times[] = {
	{ "10ms", CTL_OK, 10000000 }, { "500us", CTL_OK, 500000 },   { "1.5s", CTL_OK, 1500000000 },
	{ "0ns", CTL_OK, 0 },	      { "10", CTL_USAGE, 0 },	     { "ms", CTL_USAGE, 0 },
	{ "-1ms", CTL_USAGE, 0 },     { "1e30s", CTL_USAGE, 0 },     { "nan s", CTL_USAGE, 0 },
	{ "nans", CTL_USAGE, 0 },     { "10ms more", CTL_USAGE, 0 },
};

TEST_TABLE(times_have_a_unit, times)
{
	static const struct ctl ctl = { .command = "trace" };
	struct trace_filter filter = { .slower = times[_i].slower };

	ck_assert_int_eq(trace_filter_check(&ctl, &filter), times[_i].result);
	ck_assert_uint_eq(filter.slower_nsec, times[_i].nsec);
}

TEST(users_are_names_or_numbers)
{
	static const struct ctl ctl = { .command = "trace" };
	struct trace_filter root = { .user = "root", .uid = 1 }, number = { .user = "4242" };
	struct trace_filter none = { .user = "nobody-here" }, large = { .user = "4294967296" };

	ck_assert(trace_filter_check(&ctl, &root) == CTL_OK && root.uid == 0);
	ck_assert(trace_filter_check(&ctl, &number) == CTL_OK && number.uid == 4242);
	ck_assert_int_eq(trace_filter_check(&ctl, &none), CTL_FAILED);
	ck_assert_int_eq(trace_filter_check(&ctl, &large), CTL_FAILED);
}

TEST(kinds_of_ops_that_are_not_known_have_no_name)
{
	for (unsigned i = 0; i < 256; i++) {
		const struct trace_op op = { .opcode = (uint8_t)i };

		ck_assert_int_eq(*trace_op_kind(&op) != '?',
				 i >= RING_OP_READ && i <= RING_OP_FDATASYNC);
	}
}

TEST_MAIN
