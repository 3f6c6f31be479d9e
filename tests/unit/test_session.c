#include "tests/unit/control_parts.h"

TEST(sessions_have_ids_in_order_and_share_their_user)
{
	struct session *first, *second;
	int fds[2];

	first = control_connect(&fds[0]);
	second = control_connect(&fds[1]);
	ck_assert_uint_eq(first->id, 1);
	ck_assert_uint_eq(second->id, 2);
	ck_assert_int_eq(first->state, SESSION_GREETING);
	ck_assert_ptr_eq(first->user, second->user);
	ck_assert_uint_eq(first->user->uid, getuid());
	ck_assert_uint_eq(first->user->quota.used[QUOTA_SESSIONS], 2);
	ck_assert_ptr_nonnull(strstr(session_title(second), "client 2 (pid "));
	(void)close(fds[0]);
	(void)close(fds[1]);
}

TEST(a_client_too_many_is_refused_and_its_socket_stays_the_callers)
{
	int fds[2], fd;

	c.config.user_limit[QUOTA_SESSIONS] = 1;
	(void)control_connect(&fd);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	ck_assert_int_eq(session_new(&c.service, fds[0], &c.error), -EUSERS);
	ck_assert_msg(strstr(c.error.text, "user_clients"), "%s", c.error.text);
	ck_assert(control_is_open(fds[0]));
	ck_assert_uint_eq(c.service.n_sessions, 1);
	(void)close(fds[0]);
	(void)close(fds[1]);
	(void)close(fd);
}

TEST(hello_takes_a_printable_name_and_closes_a_descriptor_that_is_no_pidfd)
{
	int fd, board_fd, no_pidfd = open("/dev/null", O_RDONLY);
	struct session *session = control_connect(&fd);

	ck_assert_int_eq(session_hello(session, "a\tb\x7f", "1.0", no_pidfd, &board_fd, &c.error),
			 0);
	ck_assert_str_eq(session->name, "a?b?");
	ck_assert_int_eq(session->state, SESSION_OPEN);
	CONTROL_UNTIL(!session->n_closings);
	ck_assert(!control_is_open(no_pidfd));
	(void)close(board_fd);
	(void)close(fd);
}

TEST(the_loss_of_a_client_ends_its_session_only)
{
	struct session *second;
	int fds[2];

	(void)control_client(&fds[0]);
	second = control_client(&fds[1]);
	(void)close(fds[0]);
	CONTROL_UNTIL(c.n_gone);
	ck_assert_uint_eq(c.service.n_sessions, 1);
	ck_assert_int_eq(second->state, SESSION_OPEN);
	ck_assert_uint_eq(second->user->quota.used[QUOTA_SESSIONS], 1);
	(void)close(fds[1]);
}

static const struct {
	const char *what;
	bool is_stop, is_faulty, has_gone;
	int want; /* said at the end */
} session_ends[] = {
	{ "a stop", true, false, false, -ESHUTDOWN },
	{ "a stop, after the client's fault", true, true, false, -EPROTO },
	{ "a stop without a client", true, false, true, 0 },
	{ "the client's fault", false, true, false, -EPROTO },
	{ "neither", false, false, false, 0 },
};

TEST_TABLE(a_session_that_ends_says_why_to_a_client_that_lives, session_ends)
{
	struct session *session;
	int fd;

	session = control_client(&fd);
	if (session_ends[_i].is_faulty)
		session_end_for(session, "channel 1: ", "it is broken");
	if (session_ends[_i].has_gone)
		(void)close(fd);
	session_end(session, session_ends[_i].is_stop);
	ck_assert(!session_client_goes_on(session) || session_ends[_i].want == -ESHUTDOWN);
	if (session_ends[_i].is_faulty)
		ck_assert_int_eq(c.said, -EPROTO); /* at once */
	CONTROL_UNTIL(c.n_gone);
	ck_assert_int_eq(c.said, session_ends[_i].want);
	if (!session_ends[_i].has_gone)
		(void)close(fd);
}

TEST(the_end_of_file_comes_when_none_of_the_clients_memory_is_in_use)
{
	const struct slab_place anywhere = { .pages = SLAB_PAGES_ANY };
	struct session *session;
	struct slab *slab;
	char byte;
	int fd;

	session = control_client(&fd);
	ck_assert_int_eq(
		session_slab_new(session, 4096, &anywhere, control_call(session, 1, 's'), &c.error),
		0);
	CONTROL_UNTIL(answers[1].is_done);
	slab = id_table_get(&session->objects.slabs, answers[1].id);
	slab_ref(slab); /* as a block in flight does */
	session_end(session, false);
	CONTROL_UNTIL(session->state == SESSION_EMPTYING);
	control_settle();
	ck_assert_uint_eq(c.n_gone, 0);
	ck_assert_int_eq(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
	ck_assert_int_eq(errno, EAGAIN);
	slab_unref(slab);
	CONTROL_UNTIL(c.n_gone);
	ck_assert_int_eq(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
	(void)close(fd);
}

TEST(a_client_that_reads_no_replies_waits_and_others_do_not)
{
	static char reply[64 << 10];
	struct session *mute, *other;
	int fds[2];

	mute = control_client(&fds[0]);
	other = control_client(&fds[1]);
	while (mute->connection.writer.queued_bytes <= 256 << 10)
		session_send(mute, reply, sizeof(reply), NULL, 0);
	control_send(fds[0], NULL, 0);
	control_settle();
	ck_assert_uint_eq(c.n_frames, 0);
	control_send(fds[1], NULL, 0);
	CONTROL_UNTIL(c.n_frames);
	ck_assert_int_eq(other->state, SESSION_OPEN);
	while (c.n_frames < 2) {
		(void)recv(fds[0], reply, sizeof(reply), MSG_DONTWAIT);
		(void)event_base_loop(c.base, EVLOOP_NONBLOCK);
	}
	for (int i = 0; i < 2; i++)
		(void)close(fds[i]);
}

TEST(bytes_that_are_no_frame_end_the_session_and_its_descriptors_are_closed)
{
	static const char garbage[16] = "\xff\xff\xff\xff\xff\xff\xff\xff";
	int fd, ends[2];
	char byte;

	ck_assert_int_eq(pipe(ends), 0);
	(void)control_client(&fd);
	control_send(fd, &ends[1], 1); /* nothing takes it */
	ck_assert_int_eq(send(fd, garbage, sizeof(garbage), 0), sizeof(garbage));
	(void)close(ends[1]);
	CONTROL_UNTIL(c.n_gone);
	ck_assert_uint_eq(c.n_garbage, 1);
	ck_assert_int_eq(read(ends[0], &byte, 1), 0); /* no copy is open */
	(void)close(ends[0]);
	(void)close(fd);
}

FIXTURE(control_setup, control_teardown)
TEST_MAIN
