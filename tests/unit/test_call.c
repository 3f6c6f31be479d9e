#include "tests/unit/control_parts.h"

TEST(a_call_is_charged_until_it_is_freed)
{
	struct call *calls[3];
	struct session *session;
	int fd;

	c.config.client_limit[QUOTA_CALLS] = 2;
	session = control_connect(&fd);
	ck_assert_int_eq(call_new(session, 1, &calls[0], &c.error), 0);
	ck_assert_int_eq(call_new(session, 2, &calls[1], &c.error), 0);
	ck_assert_int_eq(call_new(session, 3, &calls[2], &c.error), -EMFILE);
	ck_assert_uint_eq(session->n_calls, 2);
	call_free(calls[0]);
	ck_assert_int_eq(call_new(session, 3, &calls[2], &c.error), 0);
	call_free(calls[1]);
	call_free(calls[2]);
	call_free(NULL);
	ck_assert_uint_eq(session->n_calls, 0);
	ck_assert_uint_eq(session->quota.used[QUOTA_CALLS], 0);
	(void)close(fd);
}

/* Which limit is reached, and by a call of which session. */
static const struct {
	const char *what;
	uint64_t client_limit, user_limit;
	int of; /* the session that has the call; the other session's request waits for it, or this one's */
} limits[] = {
	{ "the client's", 1, 100, 1 },
	{ "the user's, by another client", 100, 1, 0 },
};

TEST_TABLE(at_a_limit_requests_stay_in_the_socket_until_a_call_is_freed, limits)
{
	struct session *sessions[2];
	struct call *call;
	int fds[2];

	c.config.client_limit[QUOTA_CALLS] = limits[_i].client_limit;
	c.config.user_limit[QUOTA_CALLS] = limits[_i].user_limit;
	for (int i = 0; i < 2; i++)
		sessions[i] = control_connect(&fds[i]);
	ck_assert_int_eq(call_new(sessions[limits[_i].of], 1, &call, &c.error), 0);
	control_send(fds[1], NULL, 0);
	control_settle();
	ck_assert_msg(c.n_frames == 0, "%s", limits[_i].what);
	call_free(call);
	CONTROL_UNTIL(c.n_frames);
	for (int i = 0; i < 2; i++)
		(void)close(fds[i]);
}

TEST(a_reply_has_copies_of_descriptors_which_go_with_the_call)
{
	struct session *session;
	struct call *call;
	int fd, copy;

	session = control_connect(&fd);
	ck_assert_int_eq(call_new(session, 1, &call, &c.error), 0);
	ck_assert_int_eq(call_add_fd(call, -1), -EBADF);
	ck_assert_uint_eq(call->n_reply_fds, 0);
	ck_assert_int_eq(call_add_fd(call, fd), 0);
	ck_assert_uint_eq(call->n_reply_fds, 1);
	copy = call->reply_fds[0];
	ck_assert_int_ne(copy, fd);
	call_free(call);
	ck_assert(!control_is_open(copy));
	ck_assert(control_is_open(fd));
	(void)close(fd);
}

TEST(a_session_that_ends_waits_for_its_calls)
{
	struct session *session;
	struct call *call;
	int fd;

	session = control_connect(&fd);
	ck_assert_int_eq(call_new(session, 1, &call, &c.error), 0);
	session_end(session, false);
	control_settle();
	ck_assert_uint_eq(c.n_gone, 0);
	call_free(call);
	CONTROL_UNTIL(c.n_gone);
	ck_assert_uint_eq(c.service.n_sessions, 0);
	(void)close(fd);
}

FIXTURE(control_setup, control_teardown)
TEST_MAIN
