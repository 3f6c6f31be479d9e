/*
 * Completions: written, published, and what follows.
 */
#include "tests/unit/parts.h"

#include <errno.h>
#include <sys/socket.h>

/* Ops that are refused end when they are taken. */
static void put_refused(uint64_t id)
{
	ring_client_put(&p.ring, &(struct ring_entry){ .id = id, .opcode = 99 });
	(void)ring_client_submit(&p.ring);
}

TEST(a_completion_is_shown_by_publishing)
{
	parts_setup();
	put_refused(5);
	ck_assert_int_eq(intake_take(&p.intake), 1);
	ck_assert_uint_eq(p.channel.ops[0].state, OP_ENDED);
	ck_assert_uint_eq(ring_client_ready(&p.ring), 0);
	ck_assert_int_gt(parts_publish(), 0);
	ck_assert_uint_eq(p.channel.ops[0].state, OP_FREE);
	ck_assert_uint_eq(ring_client_peek(&p.ring, 0).id, 5);
	ck_assert_int_eq(parts_get().result, ring_result_failed(EOPNOTSUPP, 0));
	ck_assert_int_eq(parts_publish(), 0);
	ck_assert_uint_eq(metrics_get(&p.channel.metrics.errors), 1);
	ck_assert_uint_eq(metrics_get(&p.store.metrics[SCHED_NORMAL].errors), 0);
	parts_teardown();
}

/* A kill made its store unhealthy. */
TEST(an_op_that_was_cancelled_is_no_error_of_its_store)
{
	parts_setup();
	for (uint64_t id = 1; id <= 3;
	     id++) /* one at the device, one that waits for it, and one that fails */
		parts_put(id, RING_OP_WRITE, id < 3 ? 0 : 8192, 4096);
	parts_turn();
	ck_assert_uint_eq(p.channel.ops[1].state, OP_WAITS_ORDER);
	transfer_cancel(&p.transfer, &p.channel.ops[0], ECANCELED);
	transfer_cancel(&p.transfer, &p.channel.ops[1], ECANCELED);
	parts_end_block(-ECANCELED);
	parts_end_block(-EIO);
	parts_turn();
	ck_assert_uint_eq(metrics_get(&p.channel.metrics.errors), 3);
	ck_assert_uint_eq(metrics_get(&p.store.metrics[SCHED_NORMAL].errors), 1);
	parts_teardown();
}

TEST(an_op_that_waited_starts_when_the_earlier_one_is_published)
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
	(void)parts_publish();
	ck_assert_uint_eq(p.channel.ops[1].state, OP_READY);
	parts_turn();
	parts_end_block(4096);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 4096);
	ck_assert_int_eq(parts_get().result, 4096);
	parts_teardown();
}

static int n_wakes;
static bool looks_at_counters;

/* Instead of the C library's: the lane wakes the client, which may look at the counters at once. */
ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	const struct metrics *all[] = { &p.channel.metrics, &p.store.metrics[SCHED_NORMAL] };

	(void)buf;
	(void)flags;
	n_wakes++;
	if (!looks_at_counters)
		return (ssize_t)len;
	ck_assert_int_eq(fd, p.channel.client_doorbell_fd);
	ck_assert_uint_eq(ring_client_ready(&p.ring), 2);
	for (size_t i = 0; i < 2; i++) {
		ck_assert_uint_eq(metrics_get(&all[i]->open_ops), 1);
		ck_assert_uint_eq(metrics_get(&all[i]->writes), 2);
		ck_assert_uint_eq(metrics_get(&all[i]->write_bytes), 8192);
		ck_assert_uint_eq(metrics_get(&all[i]->blocks_in_flight), 0);
		/* Two ops that took a turn, and one that waits. */
		ck_assert_uint_eq(metrics_get(&all[i]->ended_nsec), 20000);
		ck_assert_uint_eq(metrics_get(&all[i]->open_nsec), 30000);
	}
	return (ssize_t)len;
}

/* A bench that looked at the counters after its last op took that op for another client's. */
TEST(ops_are_counted_before_their_completions_are_published)
{
	parts_setup();
	n_wakes = 0;
	looks_at_counters = true;
	parts_put(1, RING_OP_WRITE, 0, 4096);
	parts_put(2, RING_OP_READ, 0, 4096);
	parts_put(3, RING_OP_WRITE, 8192, 4096);
	parts_turn();
	ck_assert_uint_eq(p.fake.engine.n_in_flight, 2);
	ck_assert(ring_client_arm(&p.ring, true));
	parts_end_block(4096);
	parts_end_block(4096);
	parts_turn();
	ck_assert_int_eq(n_wakes, 1);
	parts_end_block(4096);
	parts_turn();
	ck_assert_uint_eq(metrics_get(&p.store.metrics[SCHED_NORMAL].open_ops), 0);
	ck_assert_uint_eq(metrics_get(&p.store.metrics[SCHED_NORMAL].open_nsec),
			  metrics_get(&p.store.metrics[SCHED_NORMAL].ended_nsec));
	parts_teardown();
}

static int n_batches;

static void on_done(struct batch *batch)
{
	(void)batch;
	n_batches++;
	ck_assert_uint_eq(metrics_get(&p.store.metrics[SCHED_NORMAL].open_ops), 0);
	ck_assert_uint_eq(metrics_get(&p.store.metrics[SCHED_NORMAL].reads), 1);
}

/* Ops of the first clients reached the device only when the last client was awake. */
TEST(all_completions_are_shown_before_the_last_client_is_woken)
{
	struct channel channels[5];
	struct ring_client rings[5];

	parts_setup();
	n_wakes = 0;
	looks_at_counters = false;
	put_refused(0);
	ck_assert(ring_client_arm(&p.ring, true));
	for (unsigned i = 0; i < 5; i++) {
		parts_open(&channels[i], &rings[i]);
		ring_client_put(&rings[i], &(struct ring_entry){ .id = i, .opcode = 99 });
		(void)ring_client_submit(&rings[i]);
		ck_assert(ring_client_arm(&rings[i], true));
	}
	ck_assert_int_eq(intake_take(&p.intake), 6);
	ck_assert_int_gt(parts_publish(), 0);
	ck_assert_int_eq(n_wakes, 4);
	ck_assert_uint_eq(ring_client_ready(&p.ring), 1);
	for (unsigned i = 0; i < 5; i++)
		ck_assert_uint_eq(ring_client_ready(&rings[i]), 1);

	/* The lane goes on until all are awake, and keeps a closing channel until then. */
	ck_assert(channels[4].must_wake);
	intake_remove_channel(&p.intake, &channels[4]);
	intake_remove_idle(&p.intake);
	ck_assert(channels[4].is_awake);
	(void)parts_publish();
	ck_assert_int_eq(n_wakes, 6);
	ck_assert_int_eq(parts_publish(), 0);
	ck_assert_int_eq(n_wakes, 6);
	for (unsigned i = 0; i < 5; i++)
		parts_close(&channels[i]);
	parts_teardown();
}

/* The p50 of a client rose to five times beside one with 250 threads that sleep. */
TEST(a_client_with_many_sleepers_does_not_delay_another)
{
	enum { N = 80 };
	struct sched_client other = { .n_channels = 1 };
	struct channel *channels = calloc(N, sizeof(channels[0]));
	struct ring_client *rings = calloc(N, sizeof(rings[0]));

	parts_setup();
	n_wakes = 0;
	looks_at_counters = false;
	for (unsigned i = 0; i < N; i++) {
		parts_open(&channels[i], &rings[i]);
		ring_client_put(&rings[i], &(struct ring_entry){ .id = i, .opcode = 99 });
		(void)ring_client_submit(&rings[i]);
		ck_assert(ring_client_arm(&rings[i], true));
	}
	channels[0].client = &other; /* of those that ended in this turn, the last in its list */
	other.takes.n_awake = 1;
	p.client.takes.n_awake--;
	while (intake_take(&p.intake))
		continue;
	ck_assert_int_gt(parts_publish(), 0);
	ck_assert_int_eq(n_wakes, N / 8);
	ck_assert(!channels[0].must_wake);
	while (parts_publish())
		continue;
	ck_assert_int_eq(n_wakes, N);
	p.client.takes.n_awake++;
	channels[0].client = &p.client;
	for (unsigned i = 0; i < N; i++)
		parts_close(&channels[i]);
	free(rings);
	free(channels);
	parts_teardown();
}

TEST(a_batch_is_reported_once_all_its_ops_have_ended)
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
	free(batch);
	parts_teardown();
}

static const struct {
	const char *what;
	bool knows;
} knowledge[] = { { "knows the flag", true }, { "sees the errno alone", false } };

TEST_TABLE(a_client_learns_that_the_outcome_is_unknown_if_it_knows_the_flag, knowledge)
{
	int64_t result;

	parts_setup();
	p.channel.knows_unknown = knowledge[_i].knows;
	parts_put(1, RING_OP_WRITE, 0, 4096);
	parts_turn();
	p.fake.blocks[p.fake.n_done]->is_unknown = true;
	parts_end_block(-ETIMEDOUT);
	parts_turn();
	result = parts_get().result;
	ck_assert_int_eq(ring_result_errno(result), ETIMEDOUT);
	ck_assert_msg(ring_result_is_unknown(result) == knowledge[_i].knows, "%s",
		      knowledge[_i].what);
	parts_put(2, RING_OP_WRITE, 0, 4096); /* the same slot */
	parts_turn();
	parts_end_block(-EIO);
	parts_turn();
	ck_assert(!ring_result_is_unknown(parts_get().result));
	parts_teardown();
}

TEST_MAIN
