/*
 * Handles of a session, their channels, and the session's shares of stores.
 */
#include "tests/unit/control_session.h"

#include "proto/ring.h"

#define ENTRIES 8u

static uint32_t file, store;

static void setup(void)
{
	session_setup();
	file = control_file(session, 0, "f");
	store = control_store(session, file);
}

static struct channel *open_channel(uint32_t handle, bool has_rings)
{
	struct channel *channel;

	ck_assert_msg(control_channel(session, handle, store, ENTRIES, has_rings, &channel) == 0,
		      "%s", c.error.text);
	return channel;
}

TEST(a_handle_is_charged_until_it_is_closed)
{
	struct handle *handle = control_handle(session);
	uint32_t id = handle->id;
	struct call *call;

	ck_assert_uint_eq(session->quota.used[QUOTA_HANDLES], 1);
	ck_assert_int_eq(session_handle_close(session, id, control_call(session, 1, 0), &c.error),
			 0);
	ck_assert(answers[1].is_done); /* there is no channel to wait for */
	ck_assert_uint_eq(session->quota.used[QUOTA_HANDLES], 0);
	call = control_call(session, 2, 0);
	ck_assert_int_eq(session_handle_close(session, id, call, &c.error), -EBADF);
	call_free(call);
}

TEST(the_daemon_reads_nothing_from_a_doorbell_socket)
{
	const struct handle_config config = { .weight = 1 };
	struct handle *handle;
	int doorbell_fd;

	ck_assert_int_eq(session_handle_open(session, &config, &handle, &doorbell_fd, &c.error), 0);
	ck_assert_int_eq(send(doorbell_fd, "x", 1, MSG_NOSIGNAL), -1);
	ck_assert_int_eq(errno, EPIPE);
	(void)close(doorbell_fd);
}

TEST(a_handle_is_closed_when_the_lanes_have_returned_its_channels)
{
	uint32_t handle = control_handle(session)->id;
	uint32_t channel = open_channel(handle, true)->id;

	ck_assert_int_eq(
		session_handle_close(session, handle, control_call(session, 1, 0), &c.error), 0);
	/* The lane's answer is a message to this thread, which has not run. */
	ck_assert(!answers[1].is_done);
	ck_assert_ptr_null(id_table_get(&session->handles.channels, channel));
	CONTROL_UNTIL(answers[1].is_done);
	ck_assert_uint_eq(session->handles.n_channels, 0);
	ck_assert_ptr_null(session->handles.channel_list.first);
	ck_assert_uint_eq(session->quota.used[QUOTA_CHANNELS], 0);
	ck_assert_uint_eq(session->quota.used[QUOTA_ENTRIES], 0);
}

TEST(a_session_has_one_share_of_a_store_while_it_has_files_or_channels_there)
{
	const struct store *s = registry_by_key(&c.service.registry, store);
	uint32_t handles[2] = { control_handle(session)->id, control_handle(session)->id };

	for (int i = 0; i < 2; i++)
		(void)open_channel(handles[i], true);
	ck_assert_uint_eq(s->n_shares, 1);
	ck_assert_ptr_eq(session->handles.shares.first, session->handles.shares.last);
	ck_assert_int_eq(session_file_remove(session, file, control_call(session, 1, 0), &c.error),
			 0);
	CONTROL_UNTIL(answers[1].is_done);
	ck_assert_uint_eq(s->n_shares, 1);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(session_handle_close(session, handles[i],
						      control_call(session, 2 + i, 0), &c.error),
				 0);
		CONTROL_UNTIL(answers[2 + i].is_done);
		ck_assert_uint_eq(s->n_shares, i == 0);
	}
}

TEST(a_channel_needs_a_handle_and_a_store_and_is_the_only_one_of_both)
{
	uint32_t handle = control_handle(session)->id;
	struct channel *channel;

	ck_assert_int_eq(control_channel(session, handle + 1, store, ENTRIES, true, &channel),
			 -EBADF);
	ck_assert_int_eq(control_channel(session, handle, store + 1, ENTRIES, true, &channel),
			 -ENXIO);
	ck_assert_int_eq(control_channel(session, handle, store, UINT32_MAX, true, &channel),
			 -EMFILE);
	ck_assert_uint_eq(session->handles.n_channels, 0);
	(void)open_channel(handle, true);
	ck_assert_int_eq(control_channel(session, handle, store, ENTRIES, true, &channel), -EEXIST);
	ck_assert_msg(strstr(c.error.text, "already has a channel"), "%s", c.error.text);
	ck_assert_uint_eq(session->handles.n_channels, 1);
}

TEST(a_store_refuses_the_channel_of_a_user_that_it_does_not_serve)
{
	struct store *s = registry_by_key(&c.service.registry, store);
	uint32_t handle = control_handle(session)->id;
	struct channel *channel;
	id_t users[] = { 1234 };
	char name[] = "bob";

	session->peer.uid = 4321; /* neither root nor the daemon's own user */
	s->access.lists[ACCESS_USERS] = (struct access_list){ .ids = users, .n = 1, .text = name };
	ck_assert_int_eq(control_channel(session, handle, store, ENTRIES, true, &channel), -EACCES);
	s->access = (struct access){ 0 };
}

/* ---- ops by Submit ---- */

static int submit(uint32_t channel, uint32_t n, unsigned seq)
{
	Wire__Entry entries[2 * ENTRIES], *pointers[2 * ENTRIES];
	Wire__Submit request = WIRE__SUBMIT__INIT;
	struct call *call = control_call(session, seq, 0);
	int r;

	for (uint32_t i = 0; i < n; i++) {
		wire__entry__init(&entries[i]);
		entries[i].id = i + 1;
		entries[i].opcode = RING_OP_FSYNC;
		entries[i].file = file;
		pointers[i] = &entries[i];
	}
	request.channel = channel;
	request.n_entries = n;
	request.entries = pointers;
	r = session_submit(session, &request, call, &c.error);
	if (r < 0)
		call_free(call);
	return r;
}

TEST(submitted_ops_are_at_most_as_many_as_the_channel_has_entries)
{
	uint32_t channel = open_channel(control_handle(session)->id, false)->id;

	ck_assert_int_eq(submit(channel, ENTRIES + 1, 1), -EINVAL);
	ck_assert_int_eq(submit(channel, ENTRIES - 1, 2), 0);
	ck_assert_int_eq(submit(channel, 2, 3), -EAGAIN); /* no answer has run yet */
	ck_assert_int_eq(submit(channel, 1, 4), 0);
	CONTROL_UNTIL(answers[2].is_done && answers[4].is_done);
	ck_assert_int_eq(answers[2].result, 0);
	ck_assert_int_eq(submit(channel, ENTRIES, 5), 0);
	CONTROL_UNTIL(answers[5].is_done);
}

TEST(ops_are_not_submitted_to_a_channel_with_rings_nor_to_none)
{
	uint32_t channel = open_channel(control_handle(session)->id, true)->id;

	ck_assert_int_eq(submit(channel, 1, 1), -EINVAL);
	ck_assert_msg(strstr(c.error.text, "has rings"), "%s", c.error.text);
	ck_assert_int_eq(submit(channel + 1, 1, 2), -EBADF);
}

TEST(a_cancel_is_answered_by_the_lane_whether_the_op_exists_or_not)
{
	uint32_t channel = open_channel(control_handle(session)->id, true)->id;
	struct call *call = control_call(session, 1, 0);

	ck_assert_int_eq(session_cancel(session, channel + 1, 7, call, &c.error), -EBADF);
	call_free(call);
	ck_assert_int_eq(session_cancel(session, channel, 7, control_call(session, 2, 0), &c.error),
			 0);
	CONTROL_UNTIL(answers[2].is_done);
	ck_assert_int_eq(answers[2].result, 0);
}

TEST(the_end_of_a_session_closes_its_handles_before_it_frees_its_files)
{
	(void)open_channel(control_handle(session)->id, true);
	session_end(session, true);
	ck_assert_int_eq(session->state, SESSION_ENDING);
	control_settle();
	/* A lane may still use the file while it has a channel.  It may have ended by now: then the
	   session is freed. */
	ck_assert(c.n_gone || !session->handles.n_channels || session->n_objects);
	CONTROL_UNTIL(c.n_gone);
}

FIXTURE(setup, session_teardown)
TEST_MAIN
