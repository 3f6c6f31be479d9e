/*
 * Entries become ops; cancels, deadlines and parking.
 */
#include "daemon/lane/lane.h"
#include "tests/unit/parts.h"

#include <errno.h>

TEST(a_client_has_so_many_entries_taken_in_a_turn)
{
	parts_setup();
	p.client.takes.n_awake = 4; /* its channels share the turn */
	for (uint64_t i = 0; i < 40; i++)
		ring_client_put(&p.ring, &(struct ring_entry){ .id = i, .opcode = 99 });
	(void)ring_client_submit(&p.ring);
	ck_assert_int_eq(intake_take(&p.intake), 16);
	ck_assert_int_eq(intake_take(&p.intake), 16);
	ck_assert_int_eq(intake_take(&p.intake), 8);
	p.client.takes.n_awake = 1;
	parts_turn();
	parts_teardown();
}

TEST(all_channels_of_a_client_share_its_turn)
{
	parts_setup();
	p.client.takes.n_awake = 20;
	p.client.takes.turn = p.intake.n_turns + 1;
	p.client.takes.n[TAKE_ENTRY] = 61; /* by channels before it */
	for (uint64_t i = 0; i < 40; i++)
		ring_client_put(&p.ring, &(struct ring_entry){ .id = i, .opcode = 99 });
	(void)ring_client_submit(&p.ring);
	ck_assert_int_eq(intake_take(&p.intake), 3);
	ck_assert_int_eq(intake_take(&p.intake), 16); /* the next turn */
	p.client.takes.n_awake = 1;
	ck_assert_int_eq(intake_take(&p.intake), 21);
	parts_turn();
	parts_teardown();
}

static const struct {
	const char *what;
	uint32_t n_users, n_clients, n_channels; /* awake; of this user; of this client */
	uint32_t of_user, of_client;		 /* taken before in this turn */
	int n;					 /* then of 64 entries */
} shares[] = {
	{ "alone", 1, 1, 1, 0, 0, 64 },
	{ "4 channels", 1, 1, 4, 0, 0, 16 },
	{ "4 clients", 1, 4, 1, 0, 0, 16 },
	{ "4 users", 4, 1, 1, 0, 0, 16 },
	{ "2 of each: the least", 2, 2, 2, 0, 0, 16 },
	{ "100 clients: the least", 1, 100, 1, 0, 0, 16 },
	{ "16 users", 16, 1, 1, 0, 0, 4 },
	{ "100 users: the least", 100, 1, 1, 0, 0, 2 },
	{ "16 clients of 16 channels, the last ones", 1, 16, 16, 61, 0, 3 },
	{ "100 clients, others had all of it", 1, 100, 1, 64, 0, 0 },
	{ "15 users of 17 channels", 15, 1, 17, 4, 4, 0 },
};

/* 256 channels of 16 clients, or of 15 users, had 1024 entries taken in a turn. */
TEST_TABLE(users_share_a_turn_and_the_clients_of_a_user, shares)
{
	struct takes *user = &p.worker_user.takes, *client = &p.client.takes;

	parts_setup();
	p.intake.n_awake_users = shares[_i].n_users;
	*user = (struct takes){ shares[_i].n_clients, 1, { shares[_i].of_user, 64 } };
	*client = (struct takes){ shares[_i].n_channels, 1, { shares[_i].of_client, 64 } };
	for (uint64_t i = 0; i < PARTS_ENTRIES; i++)
		ring_client_put(&p.ring, &(struct ring_entry){ .id = i, .opcode = 99 });
	(void)ring_client_submit(&p.ring);
	ck_assert_uint_eq(p.intake.n_turns, 0);
	ck_assert_msg(intake_take(&p.intake) == shares[_i].n, "%s", shares[_i].what);
	p.intake.n_awake_users = user->n_awake = client->n_awake = 1;
	while (intake_take(&p.intake))
		continue;
	(void)parts_publish();
	parts_teardown();
}

/* Without that, the first channels used up each turn, and the last ones never had one. */
TEST(each_channel_of_a_client_is_the_first_in_a_turn)
{
	static const uint32_t taken[][2] = { { 0, 16 }, { 16, 16 }, { 16, 32 }, { 32, 32 } };
	static struct channel second;
	struct ring_client ring;

	parts_setup();
	parts_open(&second, &ring); /* comes first, because it was awakened last */
	p.client.takes.n_awake = 20;
	for (uint64_t i = 0; i < 32; i++) {
		ring_client_put(&p.ring, &(struct ring_entry){ .id = i, .opcode = 99 });
		ring_client_put(&ring, &(struct ring_entry){ .id = i, .opcode = 99 });
	}
	(void)ring_client_submit(&p.ring);
	(void)ring_client_submit(&ring);
	for (unsigned i = 0; i < N_ROWS(taken); i++) {
		p.client.takes.turn = p.intake.n_turns + 1;
		p.client.takes.n[TAKE_ENTRY] = 48; /* by the other 18 */
		(void)intake_take(&p.intake);
		ck_assert_uint_eq(p.channel.ring.taken, taken[i][0]);
		ck_assert_uint_eq(second.ring.taken, taken[i][1]);
	}
	(void)parts_publish();
	parts_close(&second);
	parts_teardown();
}

TEST(an_op_of_no_bytes_ends_at_once)
{
	parts_setup();
	ring_client_put(&p.ring, &(struct ring_entry){ .id = 3,
						       .opcode = RING_OP_READ,
						       .file = p.file_id,
						       .slab = p.slab_id });
	(void)ring_client_submit(&p.ring);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 0);
	parts_teardown();
}

static bool was_broken;

static void on_broken(struct channel *channel, const char *why, void *arg)
{
	(void)channel;
	(void)why;
	(void)arg;
	was_broken = true;
}

TEST(indices_without_sense_end_the_session)
{
	parts_setup();
	was_broken = false;
	p.channel.owner.on_broken = on_broken;
	atomic_store(&p.channel.ring.shared->sq_tail, PARTS_ENTRIES + 1);
	parts_turn();
	(void)mailbox_run(&p.main_mailbox);
	ck_assert(was_broken && p.channel.is_broken);
	ck_assert_int_eq(intake_take(&p.intake), 0);
	parts_teardown();
}

static int n_cancels;

static void on_cancelled(struct lane_cancel *cancel)
{
	(void)cancel;
	n_cancels++;
}

TEST(a_cancel_finds_an_op_that_is_still_in_the_ring)
{
	struct lane_cancel cancel = { .channel = &p.channel, .id = 9, .on_done = on_cancelled };

	parts_setup();
	n_cancels = 0;
	parts_put(9, RING_OP_READ, 0, 4096);
	intake_cancel(&p.intake, &cancel);
	(void)parts_publish();
	ck_assert_int_eq(parts_get().result, ring_result_failed(ECANCELED, 0));
	(void)mailbox_run(&p.main_mailbox);
	ck_assert_int_eq(n_cancels, 1);
	parts_teardown();
}

TEST(a_deadline_ends_an_op_that_waits)
{
	parts_setup();
	parts_put(1, RING_OP_WRITE, 0, 4096);
	ring_client_put(&p.ring, &(struct ring_entry){ .id = 2,
						       .opcode = RING_OP_READ,
						       .file = p.file_id,
						       .slab = p.slab_id,
						       .len = 4096,
						       .timeout_msec = 5 });
	(void)ring_client_submit(&p.ring);
	parts_turn();
	ck_assert_uint_eq(p.intake.next_deadline_nsec, p.turn.now_nsec + 5000000);
	p.turn.now_nsec += 4000000;
	parts_turn();
	ck_assert_uint_eq(ring_client_ready(&p.ring), 0);
	p.turn.now_nsec += 1000000;
	parts_turn();
	ck_assert_uint_eq(ring_client_peek(&p.ring, 0).id, 2);
	ck_assert_int_eq(parts_get().result, ring_result_failed(ETIMEDOUT, 0));
	parts_end_block(4096);
	parts_turn();
	parts_teardown();
}

TEST(a_quiet_channel_is_parked_until_its_doorbell_rings)
{
	parts_setup();
	intake_park(&p.intake);
	ck_assert(p.channel.is_awake); /* not quiet for long enough */
	p.turn.now_nsec += 20000000;
	intake_park(&p.intake);
	ck_assert(!p.channel.is_awake);
	ck_assert_uint_eq(p.intake.n_parked, 1);
	ck_assert_uint_eq(p.intake.n_awake_users, 0);
	parts_put(1, RING_OP_READ, 0, 4096);
	ck_assert(!intake_is_ready(&p.intake));
	ck_assert_int_eq(intake_take(&p.intake), 0);
	intake_wake(&p.intake, &p.channel);
	ck_assert_uint_eq(p.intake.n_parked, 0);
	ck_assert_uint_eq(p.intake.n_awake_users, 1);
	ck_assert(intake_is_ready(&p.intake));
	parts_turn();
	p.turn.now_nsec += 20000000;
	intake_park(&p.intake);
	ck_assert(p.channel.is_awake); /* an op is open */
	parts_end_block(4096);
	parts_turn();
	parts_teardown();
}

TEST_MAIN
