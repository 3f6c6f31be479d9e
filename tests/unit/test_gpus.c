/*
 * The way of GPU memory, imports that wait for the probe of GPUs, on a stand-in for libcuda, and whose
 * rates a client may see and keep.
 */
#include "daemon/control/gpus.h"

#include "daemon/control/status.h"
#include "daemon/engine/gpu_probe.h"
#include "tests/unit/control_session.h"

#include <limits.h>
#include <sys/mman.h>

/* ---- the way ---- */

enum { NO_REPORT = 1, PROBLEM = 2, NO_CUFILE = 4, NVFS = 8, P2PDMA = 16, PROBING = 32 };

static const struct {
	const char *what;
	enum gpu_engine engine;
	unsigned how;
	Wire__GpuWay way;
	bool can_import;
	const char *why;
} ways[] = {
	{ "a host without a GPU", GPU_ENGINE_AUTO, NO_REPORT, WIRE__GPU_WAY__GPU_COPY, false,
	  "no GPU" },
	{ "the same, and copies are forbidden", GPU_ENGINE_GDS, NO_REPORT,
	  WIRE__GPU_WAY__GPU_DIRECT, false,
	  "no GPU on this host: see whether nvidia-smi finds one and restart the daemon" },
	{ "the driver fails", GPU_ENGINE_AUTO, PROBLEM, WIRE__GPU_WAY__GPU_COPY, false,
	  "cannot be used: cuInit" },
	{ "the same, and copies are forbidden", GPU_ENGINE_GDS, PROBLEM, WIRE__GPU_WAY__GPU_DIRECT,
	  false, "cannot be used: cuInit" },
	{ "no cuFile", GPU_ENGINE_AUTO, NO_CUFILE, WIRE__GPU_WAY__GPU_COPY, false,
	  "without cuFile: not there" },
	{ "no cuFile, and copies are forbidden", GPU_ENGINE_GDS, NO_CUFILE,
	  WIRE__GPU_WAY__GPU_DIRECT, false, "without cuFile: not there" },
	{ "nvidia-fs", GPU_ENGINE_AUTO, NVFS, WIRE__GPU_WAY__GPU_AUTO, true,
	  "cuFile 1.17 with nvidia-fs 2.24" },
	{ "P2PDMA", GPU_ENGINE_AUTO, P2PDMA, WIRE__GPU_WAY__GPU_AUTO, true,
	  "cuFile 1.17 with P2PDMA" },
	{ "compatibility mode", GPU_ENGINE_AUTO, 0, WIRE__GPU_WAY__GPU_AUTO, true,
	  "cuFile 1.17 in compatibility mode" },
	{ "compatibility mode, and copies are forbidden", GPU_ENGINE_GDS, 0,
	  WIRE__GPU_WAY__GPU_DIRECT, true,
	  "cuFile 1.17 in compatibility mode, which copies in the daemon" },
	{ "the probe runs", GPU_ENGINE_AUTO, PROBING, WIRE__GPU_WAY__GPU_AUTO, true,
	  "not answered yet" },
	{ "the probe runs, and copies are forbidden", GPU_ENGINE_GDS, PROBING,
	  WIRE__GPU_WAY__GPU_DIRECT, true, "not answered yet" },
	{ "copies are wanted", GPU_ENGINE_LIBAIO, NVFS, WIRE__GPU_WAY__GPU_COPY, false,
	  "engine = libaio" },
	{ "the same while the probe runs", GPU_ENGINE_LIBAIO, PROBING, WIRE__GPU_WAY__GPU_COPY,
	  false, "engine = libaio" },
};

START_TEST(the_way_follows_from_the_configuration_and_the_probe)
{
	const unsigned how = ways[_i].how;
	struct gpu_report report = { .n_gpus = 1,
				     .has_cufile = !(how & NO_CUFILE),
				     .cufile_version = 1170,
				     .nvfs_major = how & NVFS ? 2 : 0,
				     .nvfs_minor = how & NVFS ? 24 : 0,
				     .has_p2pdma = how & P2PDMA,
				     .cufile_problem = "not there" };
	struct gpu_way way;

	if (how & PROBLEM)
		(void)strcpy(report.problem, "cuInit() of libcuda.so.1: unknown error");
	way = gpu_way(ways[_i].engine, how & NO_REPORT ? NULL : &report, how & PROBING);
	ck_assert_msg(way.way == ways[_i].way && way.can_import == ways[_i].can_import &&
			      strstr(way.why, ways[_i].why),
		      "%s: %d, %d: %s", ways[_i].what, way.way, way.can_import, way.why);
}
END_TEST

/* ---- imports ---- */

static void teardown(void)
{
	session_teardown();
	gpu_probe_free(c.service.gpus);
}

/* A probe of a driver that hangs, and is given up after so long. */
static void probe_start(uint32_t limit_msec)
{
	const char *build = getenv("BUILD");
	char cuda[PATH_MAX];
	const struct gpu_probe_options options = { cuda, NULL, true, limit_msec, false };

	(void)snprintf(cuda, sizeof(cuda), "%s/tests/gpu/libcuda.so", build ? build : "build");
	ck_assert_int_eq(setenv("STANDIN", "cuInit=hang", 1), 0);
	c.service.gpus = gpu_probe_new(&options, c.base);
	ck_assert_ptr_nonnull(c.service.gpus);
	gpu_probe_on_end(c.service.gpus, gpus_on_probe_end, &c.service);
}

static int import(unsigned seq, int memory_fd)
{
	const struct gds_handle handle = { .fd = memory_fd, .size_bytes = 4096 };
	struct call *call = control_call(session, seq, 's');
	int r = session_gpu_import(session, &handle, call, &c.error);

	if (r < 0)
		call_free(call);
	return r;
}

START_TEST(without_a_gpu_an_import_is_refused_and_its_descriptor_is_closed)
{
	int memory = memfd_create("test", MFD_CLOEXEC);

	ck_assert_int_eq(import(1, memory), -EOPNOTSUPP);
	ck_assert_msg(strstr(c.error.text, "no GPU"), "%s", c.error.text);
	CONTROL_UNTIL(!session->n_closings);
	ck_assert(!control_is_open(memory));
	ck_assert_uint_eq(session->n_objects, 0);
}
END_TEST

static int ask(uint32_t file)
{
	static const char uuid[sizeof(CUuuid)];
	struct call *call = control_call(session, 1, 0);
	int r = session_file_gpu(session, file, uuid, call, &c.error);

	if (r < 0)
		call_free(call);
	return r;
}

START_TEST(without_a_gpu_no_file_is_registered)
{
	uint32_t id = control_file(session, 2, "f");

	ck_assert_int_eq(ask(id + 1), -EBADF);
	ck_assert_int_eq(ask(id), -EOPNOTSUPP);
	ck_assert_msg(strstr(c.error.text, "file f: ") && strstr(c.error.text, "no GPU"), "%s",
		      c.error.text);
	probe_start(60000);
	ck_assert_int_eq(ask(id), -EAGAIN);
	ck_assert_uint_eq(session->n_imports, 0);
	ck_assert_uint_eq(session->user->n_imports, 0);
}
END_TEST

START_TEST(an_import_waits_for_the_end_of_the_probe)
{
	probe_start(200);
	ck_assert_int_eq(import(1, -1), 0);
	ck_assert_int_eq(import(2, -1), 0);
	CONTROL_UNTIL(answers[1].is_done && answers[2].is_done);
	ck_assert_int_eq(answers[1].result, -EOPNOTSUPP);
	ck_assert_msg(strstr(answers[1].text, "cuInit() of "), "%s", answers[1].text);
	ck_assert_int_eq(answers[2].result, -EOPNOTSUPP);
	ck_assert_int_eq(import(3, -1), -EOPNOTSUPP); /* at once */
}
END_TEST

START_TEST(no_import_waits_where_copies_are_wanted)
{
	probe_start(GPU_PROBE_MSEC);
	c.config.engine = GPU_ENGINE_LIBAIO;
	ck_assert_int_eq(import(1, -1), -EOPNOTSUPP);
	ck_assert_msg(strstr(c.error.text, "engine = libaio"), "%s", c.error.text);
}
END_TEST

START_TEST(the_end_of_a_session_ends_its_imports_that_wait)
{
	int memory = memfd_create("test", MFD_CLOEXEC), other_fd;
	struct session *other = control_client(&other_fd);

	probe_start(GPU_PROBE_MSEC);
	ck_assert_int_eq(import(1, memory), 0);
	session = other;
	ck_assert_int_eq(import(2, -1), 0);
	session_end(list_entry(c.service.sessions.first, struct session, node), false);
	ck_assert(answers[1].is_done && !answers[2].is_done);
	ck_assert_int_eq(answers[1].result, -ECANCELED);
	CONTROL_UNTIL(c.n_gone);
	ck_assert(!control_is_open(memory));
	ck_assert(c.service.gpu_waits.first); /* the other's */
	session_end(other, false);
	ck_assert(answers[2].is_done && !c.service.gpu_waits.first);
	(void)close(other_fd);
}
END_TEST

static void check_refused(unsigned seq, const char *text)
{
	int memory = memfd_create("test", MFD_CLOEXEC);

	ck_assert_int_eq(import(seq, memory), -EAGAIN);
	ck_assert_msg(strstr(c.error.text, text), "%s", c.error.text);
	CONTROL_UNTIL(!session->n_closings);
	ck_assert(!control_is_open(memory));
}

START_TEST(imports_that_wait_are_at_most_half_of_the_requests_of_a_client_and_of_a_user)
{
	struct session *first = session;
	int other_fd;

	probe_start(GPU_PROBE_MSEC);
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
END_TEST

/* ---- what was measured ---- */

#define STRANGER 4321 /* neither root nor the daemon's own user */

static Wire__StatusReply *status(void)
{
	static const Wire__Status asked = WIRE__STATUS__INIT;
	Wire__StatusReply *reply = calloc(1, sizeof(*reply));

	ck_assert_ptr_nonnull(reply);
	wire__status_reply__init(reply);
	ck_assert_int_eq(status_to_wire(session, &asked, reply), 0);
	ck_assert_ptr_nonnull(reply->gpus);
	return reply;
}

START_TEST(a_user_sees_what_this_user_measured_and_an_administrator_all)
{
	Wire__StatusReply *reply;

	c.config.engine = GPU_ENGINE_GDS; /* then status tells about GPUs, although there is none */
	for (uid_t uid = STRANGER - 1; uid <= STRANGER + 1; uid++)
		ck_assert_ptr_nonnull(gpu_rates_get(&c.service.gpu_rates, uid, "store", "GPU-0"));
	reply = status();
	ck_assert_uint_eq(reply->gpus->n_measured, 3);
	wire__status_reply__free_unpacked(reply, NULL);

	session->peer.uid = STRANGER;
	reply = status();
	ck_assert_uint_eq(reply->gpus->n_measured, 1);
	ck_assert_uint_eq(reply->gpus->measured[0]->uid, STRANGER);
	wire__status_reply__free_unpacked(reply, NULL);
}
END_TEST

START_TEST(rates_of_a_store_are_for_those_whom_it_serves)
{
	static uid_t users[] = { STRANGER + 1 };
	uint8_t uuid[16] = { 0 };
	Wire__GpuRates wire = WIRE__GPU_RATES__INIT;
	const struct gpu_rates_row *row = NULL;
	struct store *store;

	probe_start(GPU_PROBE_MSEC);
	wire.store = control_store(session, control_file(session, 1, "f"));
	wire.uuid.data = uuid;
	wire.uuid.len = sizeof(uuid);
	store = list_entry(c.service.registry.stores.first, struct store, node);
	ck_assert_uint_eq(store->id, wire.store);
	session->peer.uid = STRANGER;
	ck_assert_int_eq(session_gpu_rates(session, &wire, &row, &c.error), -ENODEV); /* served */
	store->access = (struct access){ .users = users,
					 .n_users = 1,
					 .text = (char *)"users alice" };
	ck_assert_int_eq(session_gpu_rates(session, &wire, &row, &c.error), -EACCES);
	ck_assert_msg(strstr(c.error.text, "does not serve user 4321"), "%s", c.error.text);
	ck_assert_ptr_null(row);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, session_setup, teardown);
	tcase_add_loop_test(tcase, the_way_follows_from_the_configuration_and_the_probe, 0,
			    N_ROWS(ways));
	tcase_add_test(tcase, without_a_gpu_an_import_is_refused_and_its_descriptor_is_closed);
	tcase_add_test(tcase, without_a_gpu_no_file_is_registered);
	tcase_add_test(tcase, an_import_waits_for_the_end_of_the_probe);
	tcase_add_test(tcase, no_import_waits_where_copies_are_wanted);
	tcase_add_test(tcase, the_end_of_a_session_ends_its_imports_that_wait);
	tcase_add_test(
		tcase,
		imports_that_wait_are_at_most_half_of_the_requests_of_a_client_and_of_a_user);
	tcase_add_test(tcase, a_user_sees_what_this_user_measured_and_an_administrator_all);
	tcase_add_test(tcase, rates_of_a_store_are_for_those_whom_it_serves);
}

SUITE("gpus", add_tests)
