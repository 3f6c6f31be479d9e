/*
 * Control sockets without a session any more, and the sessions of a user that has room again.
 */
#include "tests/unit/control_parts.h"
#include "tests/unit/file_text.h"

#include <poll.h>

/* A connected socket for the service; *ret_fd: the client's end. */
static int connect_only(int *ret_fd)
{
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	*ret_fd = fds[1];
	return fds[0];
}

TEST(a_refused_socket_without_descriptors_is_closed_at_once)
{
	int client, socket = connect_only(&client);

	ck_assert_int_eq(send(client, "xyz", 3, 0), 3);
	service_close_refused(&c.service, socket);
	ck_assert(!control_is_open(socket));
	ck_assert_uint_eq(c.service.n_closing_sockets, 0);
	ck_assert_ptr_null(c.service.users.all.first);
	(void)close(client);
}

TEST(a_refused_socket_with_a_descriptor_is_closed_by_a_worker_of_its_user)
{
	int client, socket = connect_only(&client), ends[2];
	char byte;

	ck_assert_int_eq(pipe(ends), 0);
	control_send(client, &ends[1], 1);
	(void)close(ends[1]);
	service_close_refused(&c.service, socket);
	ck_assert_uint_eq(c.service.n_closing_sockets, 1);
	/* The client need not wait for the close, and gets a reset if it is over. */
	ck_assert(recv(client, &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
	ck_assert_uint_eq(list_entry(c.service.users.all.first, struct user, node)->uid, getuid());
	CONTROL_UNTIL(c.n_gone);
	ck_assert_uint_eq(c.service.n_closing_sockets, 0);
	ck_assert_ptr_null(c.service.users.all.first);
	ck_assert_int_eq(read(ends[0], &byte, 1), 0);
	(void)close(ends[0]);
	(void)close(client);
}

TEST(no_client_is_accepted_while_too_many_sockets_wait_for_their_close)
{
	int clients[2];

	ck_assert_uint_eq(c.service.max_closing_sockets, 2);
	for (int i = 0; i < 2; i++) {
		int socket = connect_only(&clients[i]);

		ck_assert(service_may_accept(&c.service));
		control_send(clients[i], &clients[i], 1);
		service_close_refused(&c.service, socket);
	}
	ck_assert(!service_may_accept(&c.service));
	CONTROL_UNTIL(c.n_gone);
	ck_assert(service_may_accept(&c.service));
	for (int i = 0; i < 2; i++)
		(void)close(clients[i]);
}

TEST(only_the_sessions_of_the_user_with_room_go_on)
{
	struct session *mine, *theirs;
	struct user *other;
	int fds[2];

	mine = control_client(&fds[0]);
	theirs = control_client(&fds[1]);
	ck_assert_int_eq(user_ref(&c.service.users, getuid() + 1, &other), 0);
	mine->connection.is_reading = theirs->connection.is_reading = false; /* as at a limit */
	theirs->user = other;						     /* for this moment */
	c.service.users.on_room(mine->user, c.service.users.arg);
	ck_assert(mine->connection.is_reading);
	ck_assert(!theirs->connection.is_reading);
	theirs->user = mine->user;
	user_unref(other);
	for (int i = 0; i < 2; i++)
		(void)close(fds[i]);
}

TEST(sessions_with_requests_are_served_in_turns)
{
	int fds[2];

	for (int i = 0; i < 2; i++) {
		(void)control_client(&fds[i]);
		for (int k = 0; k < 3; k++)
			control_send(fds[i], NULL, 0);
	}
	CONTROL_UNTIL(c.n_frames == 6);
	for (int i = 0; i < 2; i++)
		(void)close(fds[i]);
}

TEST(one_user_filled_the_bound_of_sockets_whose_close_hangs)
{
	/* More than the descriptors of one user: systemd's hard limit for users. */
	ck_assert_uint_gt(unit_descriptors() / SERVICE_CLOSING_DIVISOR, 524288);
}

FIXTURE(control_setup, control_teardown)
TEST_MAIN
