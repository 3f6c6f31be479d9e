/*
 * Files of a session: from the descriptor that came with a request to the close.
 */
#include "tests/unit/control_session.h"

TEST(a_file_gets_an_id_a_store_and_its_word_on_the_board)
{
	uint32_t id = control_file(session, 1, "f");
	struct file *file = id_table_get(&session->objects.files, id);

	ck_assert_ptr_nonnull(file);
	ck_assert_str_eq(file->name, "f");
	ck_assert_ptr_eq(file->share->store, file->store);
	ck_assert_uint_eq(file->share->n_files, 1);
	ck_assert_uint_eq(session->board[file_board_index(id)],
			  file_board_word(id, FILE_BOARD_USED));
	ck_assert_uint_eq(session->user->quota.used[QUOTA_FILES], 1);
	ck_assert_uint_lt(file_board_index(id), id_table_end(&session->objects.files));
}

TEST(a_file_that_is_removed_is_closed_and_its_share_of_the_store_goes)
{
	uint32_t id = control_file(session, 1, "f");
	struct call *call;
	int copy;

	ck_assert_int_eq(session_file_remove(session, id, control_call(session, 2, 0), &c.error),
			 0);
	CONTROL_UNTIL(answers[2].is_done);
	ck_assert_uint_eq(session->n_objects, 0);
	ck_assert_ptr_null(session->handles.shares.first);
	ck_assert_uint_eq(session->user->quota.used[QUOTA_FILES], 0);
	ck_assert_int_eq(session_file_get(session, id, &copy, &c.error), -EBADF);
	call = control_call(session, 3, 0);
	ck_assert_int_eq(session_file_remove(session, id, call, &c.error), -EBADF);
	call_free(call);
}

TEST(what_is_no_file_is_refused_by_name_and_closed)
{
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(session_file_add(session, ends[0], "a-pipe", control_call(session, 1, 'f'),
					  &c.error),
			 0);
	CONTROL_UNTIL(answers[1].is_done);
	ck_assert_int_eq(answers[1].result, -EOPNOTSUPP);
	ck_assert_msg(strstr(answers[1].text, "a-pipe"), "%s", answers[1].text);
	ck_assert(!control_is_open(ends[0]));
	ck_assert_uint_eq(session->n_objects, 0);
	(void)close(ends[1]);
}

/* _i: the daemon stops */
TEST_LOOP(a_file_that_is_checked_after_the_end_of_its_session_is_closed, 2)
{
	int file = control_open("f");

	ck_assert_int_eq(
		session_file_add(session, file, "f", control_call(session, 1, 'f'), &c.error), 0);
	session_end(session, _i);
	CONTROL_UNTIL(c.n_gone);
	ck_assert_int_eq(answers[1].result, _i ? -ESHUTDOWN : -ECANCELED);
	ck_assert_msg(strstr(answers[1].text,
			     _i ? "file f: the daemon is stopping" : "file f: the connection ends"),
		      "%s", answers[1].text);
	ck_assert(!control_is_open(file));
}

TEST(a_file_too_many_is_refused_at_once_if_none_leaves)
{
	struct call *call;
	int file = control_open("g");

	session->quota.limit[QUOTA_FILES] = 1;
	(void)control_file(session, 1, "f");
	call = control_call(session, 2, 'f');
	ck_assert_int_eq(session_file_add(session, file, "g", call, &c.error), -EMFILE);
	call_free(call);
	CONTROL_UNTIL(!session->n_closings);
	ck_assert(!control_is_open(file));
}

TEST(a_copy_of_a_files_descriptor_is_for_the_reply)
{
	uint32_t id = control_file(session, 1, "f");
	struct stat had, got;
	int copy;

	ck_assert(!session->has_got_files);
	ck_assert_int_eq(session_file_get(session, id, &copy, &c.error), 0);
	ck_assert(session->has_got_files);
	ck_assert_int_eq(fstatat(dir_fd, "f", &had, 0), 0);
	ck_assert_int_eq(fstat(copy, &got), 0);
	ck_assert_uint_eq(got.st_ino, had.st_ino);
	(void)close(copy);
}

TEST(a_buffered_description_belongs_to_a_file_of_the_session)
{
	uint32_t id = control_file(session, 1, "f");
	int buffered = openat(dir_fd, "f", O_RDWR), other = openat(dir_fd, "f", O_RDWR);
	struct call *call = control_call(session, 2, 0);

	ck_assert_int_eq(session_file_buffered(session, id + 1, other, call, &c.error), -EBADF);
	call_free(call);
	CONTROL_UNTIL(!session->n_closings);
	ck_assert(!control_is_open(other));
	ck_assert_int_eq(
		session_file_buffered(session, id, buffered, control_call(session, 3, 0), &c.error),
		0);
	CONTROL_UNTIL(answers[3].is_done);
	ck_assert_msg(answers[3].result == 0, "%s", answers[3].text);
	ck_assert_uint_eq(session->user->quota.used[QUOTA_FILES], 2);
}

FIXTURE(session_setup, session_teardown)
TEST_MAIN
