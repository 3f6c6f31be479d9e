/*
 * Completions: written, published, and what follows.
 */
#include "tests/unit/parts.h"

#include <errno.h>

/* Ops that are refused end when they are taken. */
static void put_refused(uint64_t id)
{
	ring_client_put(&p.ring, &(struct ring_entry){ .id = id, .opcode = 99 });
	(void)ring_client_submit(&p.ring);
}

START_TEST(a_completion_is_shown_by_publishing)
{
	parts_setup();
	put_refused(5);
	ck_assert_int_eq(intake_take(&p.intake), 1);
	ck_assert_uint_eq(p.channel.ops[0].state, OP_ENDED);
	ck_assert_uint_eq(ring_client_ready(&p.ring), 0);
	ck_assert_int_gt(publish_run(&p.publish), 0);
	ck_assert_uint_eq(p.channel.ops[0].state, OP_FREE);
	ck_assert_uint_eq(ring_client_peek(&p.ring, 0).id, 5);
	ck_assert_int_eq(parts_get().result, ring_result_failed(EOPNOTSUPP, 0));
	ck_assert_int_eq(publish_run(&p.publish), 0);
	ck_assert_uint_eq(metrics_get(&p.channel.metrics.errors), 1);
	parts_teardown();
}
END_TEST

START_TEST(an_op_that_waited_starts_when_the_earlier_one_is_published)
{
	parts_setup();
	parts_put(1, RING_OP_WRITE, 0, 4096);
	parts_put(2, RING_OP_READ, 0, 4096);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 1);
	ck_assert_uint_eq(p.channel.ops[1].state, OP_WAITS_ORDER);
	parts_end_block(4096);
	(void)transfer_reap(&p.transfer);
	ck_assert_uint_eq(p.channel.ops[1].state, OP_WAITS_ORDER);
	(void)publish_run(&p.publish);
	ck_assert_uint_eq(p.channel.ops[1].state, OP_READY);
	parts_turn();
	parts_end_block(4096);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 4096);
	ck_assert_int_eq(parts_get().result, 4096);
	parts_teardown();
}
END_TEST

static int n_batches;

static void on_done(struct batch *batch)
{
	(void)batch;
	n_batches++;
}

START_TEST(a_batch_is_reported_once_all_its_ops_have_ended)
{
	struct batch *batch;

	parts_setup();
	n_batches = 0;
	ck_assert_int_eq(batch_new(&p.channel, 2, on_done, NULL, &batch), 0);
	batch->entries[0] = (struct ring_entry){ .opcode = 99 };
	batch->entries[1] = (struct ring_entry){
		.opcode = RING_OP_READ, .file = p.file_id, .slab = p.slab_id, .len = 4096
	};
	intake_submit(&p.intake, batch);
	parts_turn();
	(void)mailbox_run(&p.main_mailbox);
	ck_assert_int_eq(n_batches, 0);
	parts_end_block(4096);
	parts_turn();
	(void)mailbox_run(&p.main_mailbox);
	ck_assert_int_eq(n_batches, 1);
	ck_assert_int_eq(batch->results[0], ring_result_failed(EOPNOTSUPP, 0));
	ck_assert_int_eq(batch->results[1], 4096);
	batch_free(batch);
	parts_teardown();
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, a_completion_is_shown_by_publishing);
	tcase_add_test(tcase, an_op_that_waited_starts_when_the_earlier_one_is_published);
	tcase_add_test(tcase, a_batch_is_reported_once_all_its_ops_have_ended);
}

SUITE("publish", add_tests)
