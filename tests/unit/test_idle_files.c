/*
 * Idle files of a client's cache go near the user's limit, when they have no link any more, and when nobody has
 * used them for 10 s.
 */
#include "daemon/control/idle_files.h"

#include "tests/unit/control_parts.h"

#define N_FILES 4u

static struct session *cache, *other;
static int fds[2];
static uint32_t ids[N_FILES];

static bool is_gone(_Atomic uint32_t *words, uint32_t id)
{
	return file_board_is(words[file_board_index(id)], id, FILE_BOARD_GONE);
}

/* A client with N_FILES files, of which the first n are idle.  limit: of the user. */
static void fill(unsigned n_idle, unsigned limit)
{
	c.config.user_limit[QUOTA_FILES] = limit;
	cache = control_client(&fds[0]);
	other = control_client(&fds[1]);
	for (unsigned i = 0; i < N_FILES; i++) {
		ids[i] = control_file(cache, i, (char[]){ (char)('a' + i), 0 });
		if (i < n_idle)
			file_board_set_idle(cache->board, ids[i]);
	}
}

static void teardown(void)
{
	control_teardown();
	(void)close(fds[0]);
	(void)close(fds[1]);
}

static int add(unsigned seq, struct call **ret_call)
{
	*ret_call = control_call(other, seq, 'f');
	return session_file_add(other, control_open("new"), "new", *ret_call, &c.error);
}

TEST(near_the_users_limit_other_clients_idle_files_are_closed)
{
	struct call *call;

	fill(2, 2 * N_FILES); /* one short of an eighth less */
	ck_assert_int_eq(add(10, &call), 0);
	CONTROL_UNTIL(answers[10].is_done);
	ck_assert_msg(answers[10].result == 0, "%s", answers[10].text);
	CONTROL_UNTIL(other->user->quota.used[QUOTA_FILES] == N_FILES + 1);
	for (unsigned i = 0; i < N_FILES; i++)
		ck_assert_ptr_nonnull(id_table_get(&cache->objects.files, ids[i]));
	for (unsigned seq = 11; seq < 14; seq++) {
		ck_assert_int_eq(add(seq, &call), 0);
		CONTROL_UNTIL(answers[seq].is_done);
		ck_assert_msg(answers[seq].result == 0, "%s", answers[seq].text);
	}
	CONTROL_UNTIL(other->user->quota.used[QUOTA_FILES] == N_FILES + 4 - 2);
	for (unsigned i = 0; i < N_FILES; i++) {
		ck_assert((id_table_get(&cache->objects.files, ids[i]) == NULL) == (i < 2));
		ck_assert(is_gone(cache->board, ids[i]) == (i < 2));
	}
}

TEST(files_in_use_stay_and_the_client_is_refused)
{
	struct call *call;

	fill(0, N_FILES);
	ck_assert_int_eq(add(10, &call), -EMFILE);
	call_free(call);
	for (unsigned i = 0; i < N_FILES; i++)
		ck_assert_ptr_nonnull(id_table_get(&cache->objects.files, ids[i]));
}

TEST(an_idle_file_with_an_op_stays)
{
	struct call *call;
	struct file *file;

	fill(1, N_FILES);
	file = id_table_get(&cache->objects.files, ids[0]);
	file_ref(file); /* the client says idle, but an op is open */
	ck_assert_int_eq(add(10, &call), -EMFILE);
	call_free(call);
	file_unref(file);
}

TEST(idle_files_without_a_link_are_closed_and_others_are_not)
{
	fill(2, N_FILES);
	ck_assert_int_eq(unlinkat(dir_fd, "b", 0), 0); /* idle */
	ck_assert_int_eq(unlinkat(dir_fd, "c", 0), 0); /* in use */
	ck_assert_int_eq(evtimer_pending(c.service.look_event, NULL), EV_TIMEOUT);
	event_active(c.service.look_event, EV_TIMEOUT, 0); /* instead of three seconds */
	CONTROL_UNTIL(!id_table_get(&cache->objects.files, ids[1]));
	CONTROL_UNTIL(!cache->look);
	ck_assert(is_gone(cache->board, ids[1]));
	ck_assert_ptr_nonnull(id_table_get(&cache->objects.files, ids[0]));
	ck_assert_ptr_nonnull(id_table_get(&cache->objects.files, ids[2]));
	ck_assert(file_board_idle(cache->board, ids[0]));
}

/* Instead of five seconds. */
static void look(void)
{
	event_active(c.service.look_event, EV_TIMEOUT, 0);
	(void)event_base_loop(c.base, EVLOOP_ONCE);
	CONTROL_UNTIL(!cache->look);
	control_settle();
}

/* As if the looks so far were so much earlier. */
static void earlier(unsigned sec)
{
	for (unsigned i = 0; i < N_FILES; i++) {
		struct file *file = id_table_get(&cache->objects.files, ids[i]);

		if (file)
			file->idle_since_nsec -= sec * UINT64_C(1000000000);
	}
}

TEST(a_file_that_was_idle_for_ten_seconds_is_closed)
{
	fill(1, N_FILES);
	look();
	earlier(9);
	look();
	ck_assert(file_board_idle(cache->board, ids[0]));
	earlier(1);
	look();
	ck_assert(is_gone(cache->board, ids[0]));
	CONTROL_UNTIL(cache->user->quota.used[QUOTA_FILES] == N_FILES - 1);
	for (unsigned i = 1; i < N_FILES; i++) /* in use */
		ck_assert_ptr_nonnull(id_table_get(&cache->objects.files, ids[i]));
}

TEST(a_file_that_was_used_between_looks_stays)
{
	fill(1, N_FILES);
	look();
	for (unsigned i = 0; i < 3; i++) {
		earlier(60);
		ck_assert(file_board_take(cache->board, ids[0], FILE_BOARD_USED));
		file_board_set_idle(cache->board, ids[0]);
		look();
		ck_assert(file_board_idle(cache->board, ids[0]));
	}
	earlier(10); /* from the last look on */
	look();
	ck_assert(is_gone(cache->board, ids[0]));
}

static bool is_timed(void)
{
	return evtimer_pending(c.service.look_event, NULL);
}

static void the_last_idle_file_goes_and_the_timer_with_it(uint32_t id)
{
	earlier(10);
	look();
	ck_assert(is_gone(cache->board, id));
	look();
	ck_assert(!is_timed());
}

TEST(while_all_files_are_in_use_there_is_no_timer)
{
	struct call *call;

	fill(0, 4 * N_FILES);
	look();
	ck_assert(is_timed()); /* the client would not tell */
	cache->knows_quiet = true;
	look();
	ck_assert(!is_timed());
	ck_assert(file_board_set_idle(cache->board, ids[1])); /* it was QUIET */
	idle_files_watch(cache);
	look();
	ck_assert(is_timed());
	the_last_idle_file_goes_and_the_timer_with_it(ids[1]);

	other->knows_quiet = true;
	ck_assert_int_eq(add(10, &call), 0);
	CONTROL_UNTIL(answers[10].is_done);
	ck_assert(is_timed());
	look();
	ck_assert(!is_timed());
}

TEST(a_client_with_an_idle_file_is_looked_at)
{
	fill(1, 4 * N_FILES);
	cache->knows_quiet = true;
	look();
	ck_assert(is_timed());
	ck_assert(!file_board_set_idle(cache->board, ids[1])); /* it was USED */
	earlier(10);
	look();
	ck_assert(is_gone(cache->board, ids[0]));
	ck_assert(is_timed());
	the_last_idle_file_goes_and_the_timer_with_it(ids[1]);
}

TEST(without_sessions_there_is_no_timer)
{
	fill(1, N_FILES);
	ck_assert_ptr_nonnull(c.service.look_event);
	session_end(cache, false);
	session_end(other, false);
	CONTROL_UNTIL(c.n_gone == 2);
	ck_assert_ptr_null(c.service.look_event);
}

FIXTURE(control_setup, teardown)
TEST_MAIN
