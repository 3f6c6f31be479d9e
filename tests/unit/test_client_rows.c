#include "client/lib/io/file.h"

#include "tests/unit/client_channel.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static struct dsaio_file file;
static struct dsaio_op ops[64];

static void op_open(struct dsaio_op *op)
{
	memset(op, 0, sizeof(*op));
	op_change_state(op, OP_PREPARED);
	op->file = &file;
	op->channel = &channel;
	op_set_io(op, RING_OP_READ, 0, 1000, &(struct buffer_place){ .slab = NULL });
}

static void rows_setup(void)
{
	channel_setup();
	file.name = (char *)(uintptr_t) "f"; /* only read */
	for (unsigned i = 0; i < 64; i++)
		op_open(&ops[i]);
}

static int put(struct dsaio_op *op)
{
	return channel_put(op, false);
}

static unsigned consume(struct dsaio_op **ret_ops)
{
	struct op_list list = { NULL, NULL };
	unsigned n = 0;

	channel_consume(&channel, &list);
	for (struct dsaio_op *op = list.first; op; op = op_next(op))
		ret_ops[n++] = op;
	return n;
}

TEST(a_completion_ends_the_op_that_it_names_in_any_order)
{
	struct dsaio_op *ended[3];
	uint64_t ids[3];

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(put(&ops[i]), 0);
	for (int i = 0; i < 3; i++)
		ids[i] = take();
	complete(ids[2], 1000);
	complete(ids[0], ring_result_failed(EIO, 512));
	ck_assert_uint_eq(consume(ended), 2);
	ck_assert_ptr_eq(ended[0], &ops[2]);
	ck_assert_int_eq(ended[0]->result, 1000);
	ck_assert_uint_eq(ended[0]->done, 1000);
	ck_assert_ptr_eq(ended[1], &ops[0]);
	ck_assert_int_eq(ended[1]->result, -EIO);
	ck_assert_uint_eq(ended[1]->done, 512);
	complete(ids[1], 0);
	ck_assert_uint_eq(consume(ended), 1);
	ck_assert_ptr_eq(ended[0], &ops[1]);
	ck_assert_uint_gt(ring_lane_client_nsec(&lane), 0); /* their time is reported for status */
}

TEST(the_flag_of_an_unknown_outcome_is_the_op_s)
{
	struct dsaio_op *ended[2];

	ck_assert_int_eq(put(&ops[0]), 0);
	ck_assert_int_eq(put(&ops[1]), 0);
	complete(take(), ring_result_unknown(ring_result_failed(ETIMEDOUT, 512)));
	complete(take(), ring_result_failed(ETIMEDOUT, 0));
	ck_assert_uint_eq(consume(ended), 2);
	ck_assert_int_eq(ended[0]->result, -ETIMEDOUT);
	ck_assert_uint_eq(ended[0]->done, 512);
	ck_assert(ended[0]->is_unknown && !ended[1]->is_unknown);
}

TEST(there_are_never_more_open_rows_than_entries)
{
	struct dsaio_op *ended[ENTRIES];

	for (unsigned i = 0; i < ENTRIES; i++)
		ck_assert_int_eq(put(&ops[i]), 0);
	ck_assert_int_eq(put(&ops[ENTRIES]), -EAGAIN);
	complete(take(), 0);
	ck_assert_int_eq(put(&ops[ENTRIES]), -EAGAIN); /* completed is not consumed */
	ck_assert_uint_eq(consume(ended), 1);
	ck_assert_int_eq(put(&ops[ENTRIES]), 0);
}

TEST(rows_go_round_whatever_the_order_of_the_ends)
{
	struct dsaio_op *ended[ENTRIES], *open[ENTRIES];
	uint64_t ids[ENTRIES];
	unsigned n_open = 0, next = 0, seed = 1;

	for (uint32_t turn = 0; turn < rounds(100000); turn++) {
		seed = seed * 1103515245 + 12345;
		if ((seed >> 16 & 1 && n_open < ENTRIES) || !n_open) {
			open[n_open] = &ops[next++ % 64];
			op_open(open[n_open]);
			ck_assert_int_eq(put(open[n_open]), 0);
			ids[n_open++] = take();
		} else {
			unsigned which = (seed >> 17) % n_open;

			complete(ids[which], 0);
			ck_assert_uint_eq(consume(ended), 1);
			ck_assert_ptr_eq(ended[0], open[which]);
			open[which] = open[--n_open];
			ids[which] = ids[n_open];
		}
	}
	ck_assert(!channel.is_broken);
}

static const struct {
	const char *what;
	uint64_t add; /* to the id of the one open op */
} wrong_ids[] = {
	{ "a free row", 1 },
	{ "no row at all", 1000 },
	{ "the row's last generation", UINT64_MAX - UINT32_MAX },
	{ "the row's next generation", UINT64_C(1) << 32 },
};

TEST_TABLE(an_id_of_no_open_op_ends_nothing_and_breaks_the_channel, wrong_ids)
{
	struct dsaio_op *ended[ENTRIES];
	char byte;

	ck_assert_int_eq(put(&ops[0]), 0);
	complete(take() + wrong_ids[_i].add, 0);
	ck_assert_msg(consume(ended) == 0, "%s", wrong_ids[_i].what);
	ck_assert(channel.is_broken);
	ck_assert(atomic_load(&conn.is_broken));
	ck_assert(!conn_is_gone(&conn)); /* not before its end of file */
	ck_assert_int_eq(recv(sockets[1], &byte, 1, MSG_DONTWAIT), 0); /* it was asked to end */
}

TEST(a_completion_reported_twice_ends_its_op_once)
{
	struct dsaio_op *ended[ENTRIES];
	uint64_t id;

	ck_assert_int_eq(put(&ops[0]), 0);
	ck_assert_int_eq(put(&ops[1]), 0);
	id = take();
	complete(id, 0);
	complete(id, 0);
	ck_assert_uint_eq(consume(ended), 1);
	ck_assert(channel.is_broken);
}

TEST(an_op_can_be_submitted_again_with_the_numbers_of_a_new_session)
{
	struct slab_name slab = { .id = 5 };
	struct ring_entry first, again;

	file.session.id = 3;
	op_set_io(&ops[0], RING_OP_WRITE, 4096, 1000,
		  &(struct buffer_place){ .slab = &slab, .slab_off = 8192 });
	ops[0].grow_end = 5096;
	ops[0].timeout_msec = 70;
	ck_assert_int_eq(put(&ops[0]), 0);
	ring_lane_take(&lane, &first);
	ck_assert_uint_eq(first.file, 3);
	ck_assert_uint_eq(first.slab, 5);
	ck_assert_uint_eq(first.slab_off, 8192);
	ck_assert_uint_eq(first.grow_end, 5096);
	ck_assert_uint_eq(first.timeout_msec, 70);
	file.session.id = 4;
	slab.id = 6;
	again = channel_entry(atomic_load(&rows[(uint32_t)first.id].op));
	first.file = 4;
	first.slab = 6;
	first.id = 0;
	ck_assert_mem_eq(&again, &first, sizeof(again));
}

TEST(an_index_that_jumps_breaks_the_channel)
{
	struct dsaio_op *ended[ENTRIES];

	ck_assert_int_eq(put(&ops[0]), 0);
	atomic_store(&channel.ring.shared->cq_tail, ENTRIES + 1);
	ck_assert_uint_eq(consume(ended), 0);
	ck_assert(channel.is_broken);
}

TEST(what_the_end_of_a_channel_ends_ends_once_and_nothing_is_taken_after)
{
	struct op_list list = { NULL, NULL };
	struct dsaio_op *ended[ENTRIES];

	ck_assert_int_eq(put(&ops[0]), 0);
	ck_assert_int_eq(put(&ops[1]), 0);
	complete(take(), 1000);
	ck_assert_uint_eq(consume(ended), 1);
	channel_end_ops(&channel, -ECONNRESET, &list);
	ck_assert_ptr_eq(list.first, &ops[1]);
	ck_assert_ptr_null(op_next(list.first));
	ck_assert_int_eq(ops[1].result, -ECONNRESET);
	ck_assert_int_eq(put(&ops[2]), -ENOTCONN);
	complete(take(), 1000); /* the rings of a dead daemon say nothing */
	ck_assert_uint_eq(consume(ended), 0);
}

/* ---- another session ---- */

/* As channel_reopen() does it. */
static void rings_renew(void)
{
	memset(map, 0, sizeof(map));
	ring_lane_init(&lane, map, ENTRIES);
	ck_assert_int_eq(ring_client_init(&channel.ring, map, board, ENTRIES), 0);
}

static void check_ended(const struct op_list *list, const struct dsaio_op *op, int64_t result)
{
	const struct dsaio_op *o = list->first;

	while (o && o != op)
		o = op_next(o);
	ck_assert_ptr_nonnull(o);
	ck_assert_int_eq(op->result, result);
}

TEST(open_ops_go_into_the_next_session_in_the_order_of_their_submission)
{
	static const unsigned ends[] = { 2, 1, 0, 7, 6, 5, 4, 3 };
	struct op_list last = { NULL, NULL }, left = { NULL, NULL };
	struct dsaio_op *ended[ENTRIES];
	uint64_t ids[ENTRIES];

	for (unsigned i = 0; i < ENTRIES; i++) { /* rows are free in that order then */
		ck_assert_int_eq(put(&ops[i]), 0);
		ids[i] = take();
	}
	for (unsigned i = 0; i < ENTRIES; i++)
		complete(ids[ends[i]], 0);
	ck_assert_uint_eq(consume(ended), ENTRIES);
	ops[ENTRIES + 3].timeout_msec = 1;
	for (unsigned i = 0; i < 6; i++) {
		ck_assert_int_eq(put(&ops[ENTRIES + i]), 0);
		ids[i] = i < 4 ? take() : 0; /* not all were taken */
	}
	complete(ids[1], 1000);
	channel_go_away(&channel, true, &last);
	check_ended(&last, &ops[ENTRIES + 1], 1000);
	ck_assert_ptr_null(op_next(last.first));
	op_set_cancelled(&ops[ENTRIES + 2]);
	channel.rows[(uint32_t)ids[3]].put_nsec -= 1000000;
	ck_assert_int_eq(put(&ops[0]), -EAGAIN); /* it is away */

	rings_renew();
	ck_assert_uint_eq(channel_come_back(&channel, 0, &left), 3);
	check_ended(&left, &ops[ENTRIES + 2], -ECANCELED);
	check_ended(&left, &ops[ENTRIES + 3], -ETIMEDOUT);
	ck_assert_ptr_null(op_next(op_next(left.first)));
	ck_assert_uint_eq(take(), ids[0]);
	ck_assert_uint_eq(take(), atomic_load(&ops[ENTRIES + 4].ring_id));
	ck_assert_uint_eq(take(), atomic_load(&ops[ENTRIES + 5].ring_id));
	ck_assert_int_eq(ring_lane_ready(&lane), 0);
	complete(ids[0], 7);
	ck_assert_uint_eq(consume(ended), 1);
	ck_assert_ptr_eq(ended[0], &ops[ENTRIES]);
}

/* librados of the daemon before may have sent it. */
TEST(a_write_to_a_rados_store_that_ends_between_two_daemons_is_of_unknown_outcome)
{
	struct op_list last = { NULL, NULL }, left = { NULL, NULL };
	struct dsaio_file named = { .name = (char *)(uintptr_t) "f", .named.id = 1 };

	for (unsigned i = 0; i < 3; i++) {
		ops[i].opcode = i == 2 ? RING_OP_READ : RING_OP_WRITE;
		ops[i].file = i == 1 ? &file : &named;
		ck_assert_int_eq(put(&ops[i]), 0);
		op_set_cancelled(&ops[i]);
	}
	channel_go_away(&channel, true, &last);
	channel_look_away(&channel, &left);
	for (unsigned i = 0; i < 3; i++) {
		check_ended(&left, &ops[i], -ECANCELED);
		ck_assert_int_eq(ops[i].is_unknown, i == 0);
	}
}

TEST(a_sync_of_a_rados_store_goes_on_after_a_crash)
{
	struct op_list last = { NULL, NULL }, left = { NULL, NULL };
	struct dsaio_file named = { .name = (char *)(uintptr_t) "f", .named.id = 1 };

	ops[0].opcode = RING_OP_FSYNC;
	ops[0].len = 0;
	ops[0].file = &named;
	ck_assert_int_eq(put(&ops[0]), 0);
	channel_go_away(&channel, true, &last);
	rings_renew();
	ck_assert_uint_eq(channel_come_back(&channel, 0, &left), 1);
	ck_assert_ptr_null(left.first);
}

TEST(a_channel_that_was_made_in_the_new_session_is_left_alone)
{
	struct op_list left = { NULL, NULL };
	struct dsaio_op *ended[ENTRIES];

	ck_assert_int_eq(put(&ops[0]), 0);
	ck_assert_uint_eq(channel_come_back(&channel, 0, &left), 0);
	ck_assert_ptr_null(left.first);
	ck_assert(!atomic_load(&channel.is_dead));
	complete(take(), 5);
	ck_assert_uint_eq(consume(ended), 1);
}

static const struct {
	const char *what;
	bool is_crash[3];
	unsigned n_ends;
	bool goes_on;
} histories[] = {
	{ "one crash", { true }, 1, true },
	{ "two crashes", { true, true }, 2, false },
	{ "three stops", { false, false, false }, 3, true },
	{ "a crash and a stop", { true, false }, 2, true },
	{ "two crashes, and a stop between", { true, false, true }, 3, false },
};

TEST_TABLE(an_op_that_was_in_flight_at_two_crashes_is_not_submitted_again, histories)
{
	struct op_list last = { NULL, NULL }, left = { NULL, NULL };
	uint32_t n = 1;

	ck_assert_int_eq(put(&ops[0]), 0);
	for (unsigned i = 0; i < histories[_i].n_ends; i++) {
		ck_assert_uint_eq(n, 1);
		channel_go_away(&channel, histories[_i].is_crash[i], &last);
		rings_renew();
		n = channel_come_back(&channel, 0, &left);
	}
	ck_assert_ptr_null(last.first);
	ck_assert_msg(n == histories[_i].goes_on, "%s", histories[_i].what);
	if (n)
		return;
	check_ended(&left, &ops[0], -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(ops[0].because, "two crashes"));
}

TEST(an_op_that_needs_what_the_next_daemon_lacks_ends_and_the_others_go_on)
{
	struct op_list last = { NULL, NULL }, left = { NULL, NULL };

	ops[0].opcode = RING_OP_WRITE;
	ops[0].is_dsync = true;
	ck_assert_int_eq(put(&ops[0]), 0);
	ck_assert_int_eq(put(&ops[1]), 0);
	channel_go_away(&channel, false, &last);
	rings_renew();
	ck_assert_uint_eq(channel_come_back(&channel, 0, &left), 1);
	check_ended(&left, &ops[0], -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(ops[0].because, "the next daemon has no DSAIO_DSYNC"));
	ck_assert_uint_eq(take(), atomic_load(&ops[1].ring_id));
}

TEST(a_batch_is_seen_at_once_and_rings_once)
{
	struct lane_board *b = (struct lane_board *)board;
	eventfd_t n_rings = 0;

	atomic_store(&b->lane_state, 1); /* it sleeps */
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(channel_put(&ops[i], true), 0);
	ck_assert_int_eq(ring_lane_ready(&lane), 0);
	ck_assert_int_lt(eventfd_read(channel.doorbell_fd, &n_rings), 0);
	channel_publish(&channel);
	ck_assert_int_eq(ring_lane_ready(&lane), 3);
	ck_assert_int_eq(eventfd_read(channel.doorbell_fd, &n_rings), 0);
	ck_assert_uint_eq(n_rings, 1);
	channel_publish(&channel); /* of nothing */
	ck_assert_int_lt(eventfd_read(channel.doorbell_fd, &n_rings), 0);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(take(), atomic_load(&ops[i].ring_id));
	atomic_store(&b->lane_state, 0);
}

TEST(a_full_ring_takes_no_more_of_a_batch)
{
	ck_assert_uint_eq(channel_room(&channel), ENTRIES);
	for (unsigned i = 0; i < ENTRIES; i++)
		ck_assert_int_eq(channel_put(&ops[i], true), 0);
	ck_assert_uint_eq(channel_room(&channel), 0);
	ck_assert_int_eq(channel_put(&ops[ENTRIES], true), -EAGAIN);
	ck_assert_uint_eq(atomic_load(&ops[ENTRIES].ring_id), 0);
}

FIXTURE(rows_setup, channel_teardown)
TEST_MAIN
