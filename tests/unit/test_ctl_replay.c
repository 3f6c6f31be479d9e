/*
 * The ops of a recorded job, as they are done again: streams, and when ops are due.
 */
#include "client/ctl/cmd/replay.h"
#include "proto/ring.h"
#include "tests/unit/suite.h"

#include <stdlib.h>
#include <string.h>

static struct trace_op image[3];
static struct replay replay;
static char text[CTL_MESSAGE_BYTES];
static const struct ctl ctl = { .command = "bench replay", .message = text };

/* Two streams, of one op and of two, on two files. */
static void setup(void)
{
	const struct trace_op ops[3] = { { .file = 5,
					   .channel = 2,
					   .off = 4096,
					   .len = 4096,
					   .opcode = RING_OP_WRITE,
					   .taken_nsec = 1300,
					   .ended_nsec = 2000,
					   .result = 4096 },
					 { .file = 7,
					   .channel = 2,
					   .len = 8192,
					   .opcode = RING_OP_READ,
					   .taken_nsec = 1000,
					   .ended_nsec = 1100,
					   .result = 4000 },
					 { .file = 5,
					   .channel = 1,
					   .opcode = RING_OP_FSYNC,
					   .taken_nsec = 1200,
					   .ended_nsec = 1210 } };

	memcpy(image, ops, sizeof(image));
	text[0] = '\0';
}
FIXTURE(setup, NULL)

static int init(void)
{
	struct trace_ops ops = { .ops = image, .n = 3, .n_lost = 2 };

	return replay_init(&ctl, "FILE", &ops, &replay);
}

TEST(streams_places_and_times_follow_from_the_ops)
{
	ck_assert_msg(init() == CTL_OK, "%s", text);
	ck_assert(replay.n_streams == 2 && replay.stream_ops[0] == 1 && replay.stream_ops[1] == 2);
	ck_assert(replay.n_ops == 3 && replay.n_left_out == 2 && replay.duration_nsec == 1000);
	ck_assert(replay.ops[0].opcode == RING_OP_FSYNC && replay.ops[0].taken_nsec == 200);
	ck_assert(replay.ops[1].opcode == RING_OP_READ && replay.ops[1].taken_nsec == 0);
	ck_assert(replay.ops[2].opcode == RING_OP_WRITE && replay.ops[2].ended_nsec == 1000);
	/* File 5 ends at 8192, file 7 begins there; the read got less than it asked for. */
	ck_assert(!replay.ops[0].off && !replay.ops[0].len && replay.stream_bytes[0] == 0);
	ck_assert(replay.ops[2].off == 4096 && replay.ops[1].off == 8192 &&
		  replay.ops[1].len == 4000 && replay.stream_bytes[1] == 8192 + 4000);
}

static const struct {
	const char *what;
	size_t at; /* of a field of which op */
	size_t op;
	uint64_t value;
} left_out[] = {
#define FIELD(field) offsetof(struct trace_op, field)
	{ "not ended", FIELD(ended_nsec), 0, 0 },
	{ "time that goes back", FIELD(taken_nsec), 0, 2001 },
	{ "an offset without limit", FIELD(off), 1, UINT64_MAX },
	{ "a length without limit", FIELD(len), 1, UINT64_MAX },
	{ "more bytes than asked for", FIELD(result), 1, 8193 },
	{ "an error", FIELD(result), 1, UINT64_MAX },
	{ "half a write", FIELD(result), 0, 4095 },
	{ "a sync of bytes", FIELD(off), 2, 1 },
};

TEST_TABLE(an_op_that_cannot_be_done_again_is_left_out, left_out)
{
	memcpy((char *)&image[left_out[_i].op] + left_out[_i].at, &left_out[_i].value, 8);
	ck_assert_msg(init() == CTL_OK, "%s: %s", left_out[_i].what, text);
	ck_assert_msg(replay.n_ops == 2 && replay.n_left_out == 3, "%s", left_out[_i].what);
}

TEST(kinds_that_are_not_known_are_left_out)
{
	image[0].opcode = 0;
	image[1].opcode = RING_OP_FDATASYNC + 1;
	image[2].opcode = 255;
	ck_assert_int_eq(init(), CTL_FAILED);
	ck_assert_msg(strstr(text, "FILE: has no op that can be done again") != NULL, "%s", text);
}

TEST(too_many_streams_are_refused)
{
	struct trace_ops ops = { .n = REPLAY_STREAMS_MAX };

	for (unsigned k = 0; k < 2; k++) {
		ops.ops = calloc(++ops.n, sizeof(*ops.ops));
		ops.n -= !k;
		for (uint32_t i = 0; i < ops.n; i++) {
			ops.ops[i] = image[0];
			ops.ops[i].channel = i;
		}
		ck_assert_int_eq(replay_init(&ctl, "FILE", &ops, &replay), k ? CTL_FAILED : CTL_OK);
		free(ops.ops);
	}
	ck_assert_msg(strstr(text, "over 256 streams") != NULL, "%s", text);
}

/* From the ops' starts and latencies. */
static const struct {
	const char *what;
	uint64_t at[3], latency[3];
	struct replay_due dues[3];
} dues[] = {
	{ "one after the other",
	  { 0, 150, 400 },
	  { 100, 200, 1 },
	  { { 0, 0 }, { 1, 50 }, { 2, 50 } } },
	{ "all at once", { 0, 0, 10 }, { 100, 100, 1 }, { { 0, 0 }, { 0, 0 }, { 0, 10 } } },
	{ "two in flight", { 0, 10, 120 }, { 100, 200, 1 }, { { 0, 0 }, { 0, 10 }, { 1, 20 } } },
	{ "a pause after the last start, not the last end",
	  { 0, 150, 160 },
	  { 100, 100, 1 },
	  { { 0, 0 }, { 1, 50 }, { 1, 10 } } },
	{ "the later one ended first",
	  { 0, 10, 60 },
	  { 100, 20, 1 },
	  { { 0, 0 }, { 0, 10 }, { 1, 30 } } },
	{ "ops without a latency", { 5, 5, 5 }, { 0, 0, 0 }, { { 0, 5 }, { 1, 0 }, { 2, 0 } } },
};

TEST_TABLE(an_op_is_due_after_the_ends_before_it_and_a_pause, dues)
{
	struct trace_op ops[3] = { 0 };
	struct replay_due found[3];
	uint64_t ends[3];

	for (size_t i = 0; i < 3; i++) {
		ops[i].taken_nsec = dues[_i].at[i];
		ops[i].ended_nsec = dues[_i].at[i] + dues[_i].latency[i];
	}
	replay_dues(ops, 3, ends, found);
	for (size_t i = 0; i < 3; i++) {
		ck_assert_msg(found[i].n_before == dues[_i].dues[i].n_before, "%s: op %zu: %lu",
			      dues[_i].what, i, (unsigned long)found[i].n_before);
		ck_assert_msg(found[i].pause_nsec == dues[_i].dues[i].pause_nsec, "%s: op %zu: %lu",
			      dues[_i].what, i, (unsigned long)found[i].pause_nsec);
	}
}

TEST_MAIN
