/*
 * Imports that wait for the probe of GPUs, on a stand-in for libcuda, and registrations of files.
 */
#include "daemon/engine/gpu_requests.h"

#include "tests/unit/control_probe.h"

#include <sys/mman.h>

static int import(unsigned seq, int memory_fd)
{
	const struct gds_handle handle = { .fd = memory_fd, .size_bytes = 1 };

	return probe_import(seq, &handle, false);
}

TEST(without_a_gpu_an_import_is_refused_and_its_descriptor_is_closed)
{
	int memory = memfd_create("test", MFD_CLOEXEC);

	ck_assert_int_eq(import(1, memory), -EOPNOTSUPP);
	ck_assert_msg(strstr(c.error.text, "no GPU"), "%s", c.error.text);
	CONTROL_UNTIL(!session->n_closings);
	ck_assert(!control_is_open(memory));
	ck_assert_uint_eq(session->n_objects, 0);
}

static int ask(uint32_t file)
{
	static const char uuid[sizeof(CUuuid)];
	struct call *call = control_call(session, 1, 0);
	int r = session_file_gpu(session, file, uuid, call, &c.error);

	if (r < 0)
		call_free(call);
	return r;
}

TEST(without_a_gpu_no_file_is_registered)
{
	uint32_t id = control_file(session, 2, "f");

	ck_assert_int_eq(ask(id + 1), -EBADF);
	ck_assert_int_eq(ask(id), -EOPNOTSUPP);
	ck_assert_msg(strstr(c.error.text, "file f: ") && strstr(c.error.text, "no GPU"), "%s",
		      c.error.text);
	probe_start("cuInit=hang");
	ck_assert_int_eq(ask(id), -EAGAIN);
	ck_assert_uint_eq(session->gpu.n_imports, 0);
	ck_assert_uint_eq(session->user->gpu.n_imports, 0);
}

TEST(an_import_waits_for_the_end_of_the_probe)
{
	probe_start("cuInit=802"); /* its end is seen by the event loop alone */
	ck_assert_int_eq(import(1, -1), 0);
	ck_assert_int_eq(import(2, -1), 0);
	CONTROL_UNTIL(answers[1].is_done && answers[2].is_done);
	ck_assert_int_eq(answers[1].result, -EOPNOTSUPP);
	ck_assert_msg(strstr(answers[1].text, "cuInit() of "), "%s", answers[1].text);
	ck_assert_int_eq(answers[2].result, -EOPNOTSUPP);
	ck_assert_int_eq(import(3, -1), -EOPNOTSUPP); /* at once */
}

TEST(no_import_waits_where_copies_are_wanted)
{
	probe_start("cuInit=hang");
	c.service.gpu.mode = GPU_MODE_COPY;
	ck_assert_int_eq(import(1, -1), -EOPNOTSUPP);
	ck_assert_msg(strstr(c.error.text, "gpu = copy"), "%s", c.error.text);
}

TEST(the_end_of_a_session_ends_its_imports_that_wait)
{
	int memory = memfd_create("test", MFD_CLOEXEC), other_fd;
	struct session *other = control_client(&other_fd);

	probe_start("cuInit=hang");
	ck_assert_int_eq(import(1, memory), 0);
	session = other;
	ck_assert_int_eq(import(2, -1), 0);
	session_end(list_entry(c.service.sessions.first, struct session, node), false);
	CONTROL_UNTIL(c.n_gone);
	ck_assert(answers[1].is_done && !answers[2].is_done);
	ck_assert_int_eq(answers[1].result, -ECANCELED);
	ck_assert(!control_is_open(memory));
	ck_assert(c.service.gpu.waits.first); /* the other's */
	session_end(other, false);
	CONTROL_UNTIL(answers[2].is_done);
	ck_assert_ptr_null(c.service.gpu.waits.first);
	(void)close(other_fd);
}

static void check_refused(unsigned seq, const char *text)
{
	int memory = memfd_create("test", MFD_CLOEXEC);

	ck_assert_int_eq(import(seq, memory), -EAGAIN);
	ck_assert_msg(strstr(c.error.text, text), "%s", c.error.text);
	CONTROL_UNTIL(!session->n_closings);
	ck_assert(!control_is_open(memory));
}

TEST(imports_that_wait_are_at_most_half_of_the_requests_of_a_client_and_of_a_user)
{
	struct session *first = session;
	int other_fd;

	probe_start("cuInit=hang");
	session->quota.limit[QUOTA_CALLS] = 3;
	session->user->quota.limit[QUOTA_CALLS] = 6;
	ck_assert_int_eq(import(1, -1), 0);
	ck_assert_int_eq(import(2, -1), 0);
	check_refused(3, "2 requests of this client and 2 of its user wait");

	session = control_client(&other_fd);
	session->quota.limit[QUOTA_CALLS] = 100;
	ck_assert_int_eq(import(4, -1), 0);
	check_refused(5, "1 requests of this client and 3 of its user wait");
	session_end(first, false);
	CONTROL_UNTIL(c.n_gone);
	ck_assert_int_eq(import(6, -1), 0); /* the first's are over */
	ck_assert_int_eq(import(7, -1), 0);
	check_refused(8, "3 requests of this client and 3 of its user wait");
	session_end(session, false);
	(void)close(other_fd);
}

FIXTURE(session_setup, probe_teardown)
TEST_MAIN
