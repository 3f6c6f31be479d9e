/*
 * The ready list, and ops that wait outside of it.
 */
#include "tests/unit/parts.h"

#define N_OPS (MODE_LOCK_OPS_MAX + 2)
static struct op *ops; /* the channel's: writes; those with odd numbers are buffered */

static void setup(void)
{
	parts_setup();
	ops = p.channel.ops;
	for (int i = 0; i < (int)N_OPS; i++) {
		ops[i] = (struct op){ .channel = &p.channel,
				      .file = &p.file,
				      .opcode = RING_OP_WRITE,
				      .state = OP_WAITS_ORDER,
				      .unaligned_left = i % 2 ? OP_HEAD : 0 };
		ready_add(&p.ready, &ops[i]);
	}
}

static void teardown(void)
{
	for (int i = 0; i < (int)N_OPS; i++)
		if (ops[i].state != OP_RUNNING)
			ready_end(&p.ready, &ops[i]);
	ck_assert_ptr_null(p.channel.ready.first);
	ck_assert_uint_eq(p.channel.n_gated, 0);
	ck_assert_uint_eq(p.inode.mode_lock.n_reserved, 0);
	parts_teardown();
}

static struct op *head(void)
{
	return op_of_node(p.channel.ready.first);
}

TEST(a_write_of_the_other_mode_waits_outside_and_is_resumed_first)
{
	setup();
	ck_assert(ready_has_lock(&p.ready, &ops[0]));
	ready_lock(&p.ready, &ops[0]);
	ready_end(&p.ready, &ops[0]); /* all of it has started */
	ck_assert_ptr_eq(head(), &ops[1]);
	ck_assert(!ready_has_lock(&p.ready, &ops[1]));
	ck_assert(ready_defer(&p.ready, &ops[1], &p.inode.mode_lock.waiting));
	ck_assert_ptr_eq(head(), &ops[2]);
	ready_unlock(&p.ready, &ops[0]);
	ck_assert_ptr_eq(head(), &ops[1]);
	ck_assert_uint_eq(ops[1].state, OP_READY);
	ck_assert(ready_has_lock(&p.ready, &ops[1]));
	ck_assert(!ready_has_lock(&p.ready, &ops[2])); /* it is reserved for the other mode */
	ready_unreserve(&p.ready, &ops[1]);
	ck_assert(ready_has_lock(&p.ready, &ops[2]));
	teardown();
}

TEST(a_channel_has_so_many_ops_outside)
{
	setup();
	ready_lock(&p.ready, &ops[0]);
	for (unsigned i = 0; i < MODE_LOCK_OPS_MAX; i++)
		ck_assert(ready_defer(&p.ready, head(), &p.inode.mode_lock.waiting));
	ck_assert(!ready_defer(&p.ready, head(), &p.inode.mode_lock.waiting));
	ck_assert_ptr_null(sched_next(&p.admit.sched, p.turn.now_nsec)); /* the channel waits */
	ready_unlock(&p.ready, &ops[0]);
	ck_assert_ptr_nonnull(sched_next(&p.admit.sched, p.turn.now_nsec));
	teardown();
}

TEST(ops_that_waited_for_an_extension_stand_in_order_before_the_others)
{
	setup();
	for (int i = 0; i < 3; i++)
		ck_assert(ready_defer(&p.ready, &ops[i], &p.file.extension.waiting));
	ck_assert_ptr_eq(head(), &ops[3]);
	ready_resume(&p.ready, &p.file.extension.waiting);
	ck_assert_ptr_eq(head(), &ops[0]);
	ck_assert_ptr_eq(ops[0].waiter.node.next, &ops[1].waiter.node);
	ck_assert_ptr_eq(ops[2].waiter.node.next, &ops[3].waiter.node);
	ck_assert_ptr_null(p.file.extension.waiting.first);
	teardown();
}

TEST(a_channel_that_may_be_blocked_releases_its_reservations)
{
	struct mode_lock *lock = &p.inode.mode_lock;

	setup();
	ready_lock(&p.ready, &ops[0]);
	ck_assert(ready_defer(&p.ready, &ops[0], &p.file.extension.waiting));
	ck_assert(ready_defer(&p.ready, &ops[1], &p.inode.mode_lock.waiting));
	ready_unlock(&p.ready, &ops[0]);
	ck_assert_uint_eq(lock->n_reserved, 1);
	ready_unreserve_all(&p.ready, &p.channel);
	ck_assert_uint_eq(lock->n_reserved, 0);
	teardown();
}

TEST_MAIN
