#include "daemon/control/closing.h"
#include "daemon/control/user.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

static struct mailbox mailbox;
static struct quota daemon_quota;
static uint64_t limits[N_QUOTA_KINDS];
static struct users users;
static unsigned n_room, n_closed;

static void on_room(struct user *user, void *arg)
{
	(void)user;
	(void)arg;
	n_room++;
}

static void on_closed(void *arg)
{
	(void)arg;
	n_closed++;
}

static void setup(void)
{
	n_room = n_closed = 0;
	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++)
		limits[i] = daemon_quota.limit[i] = 2;
	daemon_quota.n_descriptors = 1024;
	users = (struct users){
		.quota = &daemon_quota, .limit = limits, .mailbox = &mailbox, .on_room = on_room
	};
}

static void teardown(void)
{
	ck_assert_ptr_null(users.all.first);
	mailbox_deinit(&mailbox);
}

static struct user *get(uid_t uid)
{
	struct user *user;

	ck_assert_int_eq(user_ref(&users, uid, &user), 0);
	return user;
}

TEST(sessions_of_one_uid_share_a_user_until_the_last_goes)
{
	struct user *first = get(1000), *second = get(1000), *other = get(1001);

	ck_assert_ptr_eq(first, second);
	ck_assert_ptr_ne(first, other);
	ck_assert_str_eq(first->quota.name, "user 1000");
	user_unref(first);
	ck_assert_ptr_eq(get(1000), second);
	user_unref(second);
	user_unref(second);
	user_unref(other);
}

TEST(room_is_reported_once_when_a_bound_is_left)
{
	struct user *user = get(1000);
	struct charge charges[2] = { 0 };
	struct error error;

	ck_assert(!user_must_wait(user));
	users_room(&users);
	ck_assert_uint_eq(n_room, 0); /* nobody waits */
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(quota_charge(&charges[i], &user->quota, QUOTA_CALLS, 1, &error),
				 0);
	ck_assert(user_must_wait(user));
	users_room(&users);
	ck_assert_uint_eq(n_room, 0);
	quota_discharge(&charges[0]);
	users_room(&users);
	ck_assert_uint_eq(n_room, 1);
	quota_discharge(&charges[1]);
	users_room(&users);
	ck_assert_uint_eq(n_room, 1);
	user_unref(user);
}

TEST(unread_descriptors_of_a_user_are_at_most_a_quarter_of_what_others_leave)
{
	struct user *first = get(1000), *second = get(1001), *newcomer = get(1002);

	daemon_quota.n_descriptors = 400; /* 100 for unread replies */
	user_count_unread(first, 20);
	ck_assert(!user_must_wait(first));
	user_count_unread(first, 1);
	ck_assert(user_must_wait(first));
	user_count_unread(second, 15);
	ck_assert(!user_must_wait(second));
	user_count_unread(second, 1);
	ck_assert(user_must_wait(second));
	ck_assert(!user_must_wait(newcomer));
	user_count_unread(newcomer, 9);
	ck_assert(!user_must_wait(newcomer));

	/* Replies that are read make room for another user. */
	user_count_unread(newcomer, -9);
	ck_assert_uint_eq(n_room, 0);
	user_count_unread(first, -21);
	ck_assert_uint_eq(n_room, 2);
	user_count_unread(second, -16);
	ck_assert_uint_eq(n_room, 2);
	user_unref(first);
	user_unref(second);
	user_unref(newcomer);
}

TEST(foreign_descriptors_are_closed_by_a_worker_and_counted_until_then)
{
	struct user *user = get(1000);
	struct hung_who who = { 0 };
	struct pollfd event = { .fd = mailbox.event_fd, .events = POLLIN };
	int fds[3] = { open("/dev/null", O_RDONLY), -1, open("/dev/null", O_RDONLY) };

	ck_assert(closing_start(user, &who, "a test", fds, 3, on_closed, NULL));
	ck_assert_uint_eq(user->n_closing_fds, 2);
	ck_assert_uint_eq(n_closed, 0);
	while (!n_closed) {
		ck_assert_int_eq(poll(&event, 1, 60000), 1);
		(void)mailbox_run(&mailbox);
	}
	ck_assert_uint_eq(user->n_closing_fds, 0);
	ck_assert_int_eq(fcntl(fds[0], F_GETFD), -1);
	ck_assert_int_eq(fcntl(fds[2], F_GETFD), -1);
	user_unref(user);
}

TEST(while_64_descriptors_wait_for_their_close_the_user_waits)
{
	struct user *user = get(1000);
	struct hung_who who = { 0 };
	struct pollfd event = { .fd = mailbox.event_fd, .events = POLLIN };
	int fds[64];

	for (unsigned i = 0; i < 64; i++)
		fds[i] = open("/dev/null", O_RDONLY);
	ck_assert(closing_start(user, &who, "a test", fds, 63, on_closed, NULL));
	ck_assert(!user_must_wait(user));
	ck_assert(closing_start(user, &who, "a test", &fds[63], 1, on_closed, NULL));
	ck_assert(user_must_wait(user)); /* this thread has not seen the end of a close */
	ck_assert_uint_eq(n_room, 0);
	while (n_closed < 2) {
		ck_assert_int_eq(poll(&event, 1, 60000), 1);
		(void)mailbox_run(&mailbox);
	}
	ck_assert(!user_must_wait(user));
	ck_assert_uint_eq(n_room, 1);
	user_unref(user);
}

TEST(without_descriptors_nothing_is_to_be_closed)
{
	struct user *user = get(1000);
	struct hung_who who = { 0 };
	int fds[2] = { -1, -1 };

	ck_assert(!closing_start(user, &who, "a test", fds, 2, on_closed, NULL));
	ck_assert(!closing_start(user, &who, "a test", NULL, 0, on_closed, NULL));
	ck_assert_uint_eq(n_closed, 0);
	user_unref(user);
}

FIXTURE(setup, teardown)
TEST_MAIN
