#include "daemon/base/mailbox.h"
#include "proto/util/cleanup.h"

#include "tests/unit/suite.h"

#include <poll.h>

struct note {
	struct message message;
	int number;
};

static struct mailbox mailbox;
static int n_run, last_number;

static void count(struct message *message)
{
	last_number = container_of(message, struct note, message)->number;
	n_run++;
}

static bool is_readable(void)
{
	struct pollfd fd = { .fd = mailbox.event_fd, .events = POLLIN };

	return poll(&fd, 1, 0) == 1;
}

TEST(messages_run_in_the_order_in_which_they_were_posted)
{
	struct note notes[3];

	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert(!mailbox_has_any(&mailbox));
	ck_assert(!is_readable());
	ck_assert_int_eq(mailbox_run(&mailbox), 0);
	for (int i = 0; i < 3; i++) {
		notes[i] = (struct note){ .number = i };
		mailbox_post(&mailbox, &notes[i].message, count);
	}
	ck_assert(mailbox_has_any(&mailbox));
	ck_assert(is_readable());
	ck_assert_int_eq(mailbox_run(&mailbox), 3);
	ck_assert_int_eq(last_number, 2);
	ck_assert(!mailbox_has_any(&mailbox));
	ck_assert(!is_readable());
	mailbox_deinit(&mailbox);
}

static void post_again(struct message *message)
{
	if (++n_run < 5)
		mailbox_post(&mailbox, message,
			     post_again); /* it is free again as soon as it runs */
}

TEST(a_message_may_be_posted_again_while_it_runs)
{
	struct message message;

	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	mailbox_post(&mailbox, &message, post_again);
	ck_assert_int_eq(mailbox_run(&mailbox), 5);
	ck_assert_int_eq(mailbox_run(&mailbox), 0); /* at most the wake-up is left */
	ck_assert(!is_readable());
	mailbox_deinit(&mailbox);
}

static void free_it(struct message *message)
{
	n_run++;
	free(container_of(message, struct note, message));
}

TEST(a_message_may_be_freed_while_it_runs)
{
	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	for (int i = 0; i < 3; i++) {
		struct note *note = calloc(1, sizeof(*note));

		mailbox_post(&mailbox, &note->message, free_it);
	}
	ck_assert_int_eq(mailbox_run(&mailbox), 3);
	mailbox_deinit(&mailbox);
}

enum { N_POSTERS = 4, N_EACH = 20000 };

static void *post_many(void *arg)
{
	struct note *notes = arg;

	for (int i = 0; i < N_EACH; i++)
		mailbox_post(&mailbox, &notes[i].message, count);
	return NULL;
}

TEST(no_message_and_no_wake_up_of_many_posters_is_lost)
{
	pthread_t threads[N_POSTERS];
	struct note *notes[N_POSTERS];

	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	for (int i = 0; i < N_POSTERS; i++) {
		notes[i] = calloc(N_EACH, sizeof(struct note));
		ck_assert_int_eq(pthread_create(&threads[i], NULL, post_many, notes[i]), 0);
	}
	while (n_run < N_POSTERS * N_EACH) {
		struct pollfd fd = { .fd = mailbox.event_fd, .events = POLLIN };

		ck_assert_int_eq(poll(&fd, 1, 60000), 1);
		(void)mailbox_run(&mailbox);
	}
	for (int i = 0; i < N_POSTERS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		free(notes[i]);
	}
	ck_assert_int_eq(mailbox_run(&mailbox), 0);
	mailbox_deinit(&mailbox);
}

TEST_MAIN
