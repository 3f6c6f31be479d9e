/*
 * Slabs of a session, and how an object leaves the tables where lanes look.
 */
#include "tests/unit/control_session.h"

#include <sys/mman.h>

static const struct slab_place anywhere = { .pages = SLAB_PAGES_ANY };

static uint32_t make_slab(unsigned seq)
{
	ck_assert_int_eq(session_slab_new(session, 4096, &anywhere, control_call(session, seq, 's'),
					  &c.error),
			 0);
	CONTROL_UNTIL(answers[seq].is_done);
	ck_assert_int_eq(answers[seq].result, 0);
	return answers[seq].id;
}

TEST(a_slab_has_an_id_and_a_descriptor_until_it_is_freed)
{
	uint32_t id = make_slab(1);
	struct call *call;

	ck_assert_uint_eq(answers[1].n_fds, 1);
	ck_assert_uint_eq(session->n_objects, 1);
	ck_assert_int_eq(session_slab_free(session, id, control_call(session, 2, 0), &c.error), 0);
	CONTROL_UNTIL(answers[2].is_done);
	ck_assert_uint_eq(session->n_objects, 0);
	ck_assert_ptr_null(id_table_get(&session->objects.slabs, id));

	call = control_call(session, 3, 0);
	ck_assert_int_eq(session_slab_free(session, id, call, &c.error), -EBADF);
	ck_assert_msg(strstr(c.error.text, "slab "), "%s", c.error.text);
	call_free(call);
}

TEST(a_slab_is_freed_with_its_last_reference_and_the_answer_waits_for_that)
{
	uint32_t id = make_slab(1);
	struct slab *slab = id_table_get(&session->objects.slabs, id);

	slab_ref(slab); /* as a block in flight does */
	ck_assert_int_eq(session_slab_free(session, id, control_call(session, 2, 0), &c.error), 0);
	ck_assert_ptr_null(id_table_get(&session->objects.slabs, id)); /* no new op finds it */
	control_settle();
	ck_assert(!answers[2].is_done);
	ck_assert_uint_eq(session->n_objects, 1);
	slab_unref(slab);
	CONTROL_UNTIL(answers[2].is_done);
	ck_assert_uint_eq(session->n_objects, 0);
}

TEST(while_a_lane_may_look_an_object_keeps_its_reference_and_its_slot)
{
	struct channel *channel;
	struct slab *slab;
	uint32_t file, id;

	file = control_file(session, 1, "f");
	ck_assert_int_eq(control_channel(session, control_handle(session)->id,
					 control_store(session, file), 8, true, &channel),
			 0);
	id = make_slab(2);
	slab = id_table_get(&session->objects.slabs, id);
	ck_assert_int_eq(session_slab_free(session, id, control_call(session, 3, 0), &c.error), 0);
	/* The lane's answer is a message to this thread, which does not run meanwhile. */
	ck_assert_uint_eq(slab->n_refs, 1);
	ck_assert_uint_eq(session->objects.slabs.n_objects, 1);
	CONTROL_UNTIL(answers[3].is_done);
	ck_assert_uint_eq(session->objects.slabs.n_objects, 0);
	ck_assert_uint_ne(make_slab(4), id); /* another generation of the slot */
}

/* _i: the daemon stops */
TEST_LOOP(a_slab_that_is_ready_after_the_end_of_its_session_is_freed, 2)
{
	ck_assert_int_eq(
		session_slab_new(session, 4096, &anywhere, control_call(session, 1, 's'), &c.error),
		0);
	session_end(session, _i);
	CONTROL_UNTIL(c.n_gone);
	ck_assert(answers[1].is_done);
	ck_assert_int_eq(answers[1].result, _i ? -ESHUTDOWN : -ECANCELED);
	ck_assert_msg(strstr(answers[1].text,
			     _i ? "slab: the daemon is stopping" : "slab: the connection ends"),
		      "%s", answers[1].text);
}

TEST(memory_that_cannot_be_imported_is_an_answer_and_its_descriptor_is_closed)
{
	int null = open("/dev/null", O_RDWR);

	ck_assert_int_eq(session_slab_import(session, &slab_kind_imported, null, 0, 4096,
					     control_call(session, 1, 's'), &c.error),
			 0);
	CONTROL_UNTIL(answers[1].is_done);
	ck_assert_int_lt(answers[1].result, 0);
	ck_assert(answers[1].text[0]);
	ck_assert_uint_eq(session->n_objects, 0);
	ck_assert(!control_is_open(null));
}

TEST(imported_memory_has_an_id_and_no_descriptor_in_the_reply)
{
	int memory = memfd_create("test", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(memory, 8192), 0);
	ck_assert_int_eq(session_slab_import(session, &slab_kind_imported, memory, 4096, 4096,
					     control_call(session, 1, 's'), &c.error),
			 0);
	CONTROL_UNTIL(answers[1].is_done);
	ck_assert_msg(answers[1].result == 0, "%s", answers[1].text);
	ck_assert_uint_eq(answers[1].n_fds, 0);
	ck_assert_ptr_nonnull(id_table_get(&session->objects.slabs, answers[1].id));
}

TEST(the_end_of_a_session_frees_all_its_slabs_and_files)
{
	for (unsigned i = 0; i < 3; i++)
		(void)make_slab(i);
	(void)control_file(session, 3, "f");
	session_end(session, false);
	CONTROL_UNTIL(c.n_gone);
	ck_assert(quota_is_zero(&c.service.pool.quota));
}

FIXTURE(session_setup, session_teardown)
TEST_MAIN
