/*
 * The mode lock of an inode: which kind may write, and when it changes.
 */
#include "daemon/object/mode_lock.h"

#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

static struct mode_lock mode_lock;
static struct mode_lock_waiter waiters[6]; /* even: direct, odd: buffered */
static int admitted[6], n_admitted;

static void setup(void)
{
	mode_lock = (struct mode_lock){ 0 };
	n_admitted = 0;
	for (int i = 0; i < 6; i++)
		waiters[i] = (struct mode_lock_waiter){ 0 };
}

static enum write_mode mode_of(int i)
{
	return i % 2 ? MODE_BUFFERED : MODE_DIRECT;
}

static void on_admitted(struct mode_lock_waiter *waiter, void *arg)
{
	(void)arg;
	admitted[n_admitted++] = (int)(waiter - waiters);
}

static void switch_lock(uint64_t now)
{
	mode_lock_switch(&mode_lock, now, on_admitted, NULL);
}

static void start(int i)
{
	mode_lock_start(&mode_lock, &waiters[i], mode_of(i));
}

static void wait_to_write(int i)
{
	mode_lock_wait(&mode_lock, &waiters[i], mode_of(i));
}

TEST(one_kind_goes_in_together)
{
	setup();
	ck_assert(mode_lock_is_open(&mode_lock, MODE_DIRECT, 0));
	ck_assert(mode_lock_is_open(&mode_lock, MODE_BUFFERED, 0));
	start(0);
	ck_assert(mode_lock_is_open(&mode_lock, MODE_DIRECT, 0));
	ck_assert(!mode_lock_is_open(&mode_lock, MODE_BUFFERED, 0));
	start(2);
	mode_lock_end(&mode_lock);
	mode_lock_end(&mode_lock);
	switch_lock(0);
	ck_assert_int_eq(n_admitted, 0);
	ck_assert(mode_lock_is_open(&mode_lock, MODE_BUFFERED, 0));
}

TEST(who_waits_is_not_passed_for_ever)
{
	setup();
	start(0);
	wait_to_write(1);
	ck_assert(mode_lock_is_open(&mode_lock, MODE_DIRECT, MODE_LOCK_SLICE_NSEC - 1));
	ck_assert(!mode_lock_is_open(&mode_lock, MODE_DIRECT, MODE_LOCK_SLICE_NSEC));
	switch_lock(MODE_LOCK_SLICE_NSEC);
	ck_assert_int_eq(n_admitted, 0); /* the first is not done */
	mode_lock_end(&mode_lock);
	switch_lock(MODE_LOCK_SLICE_NSEC);
	ck_assert_int_eq(n_admitted, 1);
	ck_assert_int_eq(admitted[0], 1);
	ck_assert(waiters[1].is_reserved);
	ck_assert(!mode_lock_is_open(&mode_lock, MODE_DIRECT, 2 * MODE_LOCK_SLICE_NSEC));
}

TEST(a_slice_begins_at_the_switch)
{
	const uint64_t now = 100 * (uint64_t)MODE_LOCK_SLICE_NSEC; /* of the switch */

	setup();
	start(0);
	wait_to_write(1);
	wait_to_write(2);
	mode_lock_end(&mode_lock);
	switch_lock(now);
	ck_assert_int_eq(n_admitted, 1);
	start(1);
	ck_assert(mode_lock_is_open(&mode_lock, MODE_BUFFERED, now + MODE_LOCK_SLICE_NSEC - 1));
	ck_assert(!mode_lock_is_open(&mode_lock, MODE_BUFFERED, now + MODE_LOCK_SLICE_NSEC));
}

TEST(all_of_a_kind_are_admitted_in_order)
{
	setup();
	start(0);
	for (int i = 1; i < 6; i++)
		wait_to_write(i);
	mode_lock_end(&mode_lock);
	switch_lock(100);
	ck_assert_int_eq(n_admitted, 3);
	ck_assert(admitted[0] == 1 && admitted[1] == 3 && admitted[2] == 5);
	start(1);
	mode_lock_end(&mode_lock);
	switch_lock(MODE_LOCK_SLICE_NSEC * 10);
	ck_assert_int_eq(n_admitted, 3); /* two still have a reservation */
	start(3);
	mode_lock_unreserve(&mode_lock, &waiters[5]); /* the last was cancelled */
	switch_lock(MODE_LOCK_SLICE_NSEC * 10);
	ck_assert_int_eq(n_admitted, 3);
	mode_lock_end(&mode_lock);
	switch_lock(MODE_LOCK_SLICE_NSEC * 10);
	ck_assert_int_eq(n_admitted, 5);
	ck_assert(admitted[3] == 2 && admitted[4] == 4);
}

TEST(an_op_can_leave_the_list)
{
	setup();
	for (int i = 0; i < 4; i++)
		wait_to_write(i);
	list_remove(&mode_lock.waiting, &waiters[0].node);
	list_remove(&mode_lock.waiting, &waiters[3].node);
	ck_assert_ptr_eq(mode_lock.waiting.first, &waiters[1].node);
	ck_assert_ptr_eq(mode_lock.waiting.last, &waiters[2].node);
	wait_to_write(4);
	ck_assert_ptr_eq(waiters[2].node.next, &waiters[4].node);
	list_remove(&mode_lock.waiting, &waiters[2].node);
	list_remove(&mode_lock.waiting, &waiters[1].node);
	list_remove(&mode_lock.waiting, &waiters[4].node);
	ck_assert(!mode_lock.waiting.first && !mode_lock.waiting.last);
}

TEST_MAIN
