#include "daemon/control/run_queue.h"
#include "proto/util/cleanup.h"

#include "tests/unit/suite.h"

#include <event2/event.h>
#include <string.h>
#include <unistd.h>

/* One session: how many requests it has, and its letter. */
struct asking {
	struct run_entry entry;
	char letter;
	unsigned n_left; /* UINT32_MAX: without end */
};

static struct event_base *base;
static struct run_queue queue;
static char served[64];
static size_t n_served;

static bool serve(struct run_entry *entry)
{
	struct asking *asking = container_of(entry, struct asking, entry);

	ck_assert(!entry->is_queued);
	if (n_served < sizeof(served) - 1)
		served[n_served++] = asking->letter;
	if (asking->n_left == UINT32_MAX)
		return true;
	return --asking->n_left > 0;
}

static void setup(void)
{
	base = event_base_new();
	ck_assert_ptr_nonnull(base);
	ck_assert_int_eq(run_queue_init(&queue, base, serve), 0);
	memset(served, 0, sizeof(served));
	n_served = 0;
}

static void teardown(void)
{
	run_queue_deinit(&queue);
	event_base_free(base);
}

TEST(a_user_with_many_sessions_is_served_as_often_as_a_user_with_one)
{
	struct run_owner many = { 0 }, one = { 0 };
	struct asking all[] = {
		{ .entry.owner = &many, .letter = 'a', .n_left = 2 },
		{ .entry.owner = &many, .letter = 'b', .n_left = 2 },
		{ .entry.owner = &many, .letter = 'c', .n_left = 2 },
		{ .entry.owner = &one, .letter = 'X', .n_left = 3 },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		run_queue_add(&queue, &all[i].entry);
	ck_assert_int_eq(event_base_dispatch(base), 1); /* until there is no entry any more */
	ck_assert_str_eq(served, "aXbXcXabc");
}

TEST(an_entry_that_is_queued_is_not_queued_again)
{
	struct run_owner owner = { 0 };
	struct asking one = { .entry.owner = &owner, .letter = 'a', .n_left = 1 };

	run_queue_add(&queue, &one.entry);
	run_queue_add(&queue, &one.entry);
	ck_assert_int_eq(event_base_dispatch(base), 1);
	ck_assert_str_eq(served, "a");
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct asking *endless = arg;

	(void)fd;
	(void)what;
	endless->n_left = 1; /* it ends when it is served next */
}

TEST(entries_without_end_hid_all_other_events)
{
	struct run_owner owner = { 0 };
	struct asking endless = { .entry.owner = &owner, .letter = 'a', .n_left = UINT32_MAX };
	struct event *event;
	int fds[2];

	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(write(fds[1], "", 1), 1);
	event = event_new(base, fds[0], EV_READ, on_readable, &endless);
	ck_assert_ptr_nonnull(event);
	ck_assert_int_eq(event_add(event, NULL), 0);
	run_queue_add(&queue, &endless.entry);
	ck_assert_int_eq(event_base_dispatch(base), 1); /* else the test's time runs out */
	event_free(event);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

FIXTURE(setup, teardown)
TEST_MAIN
