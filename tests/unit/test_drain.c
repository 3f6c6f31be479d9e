/*
 * A drain takes the idle files of a store, waits for their closes, and reports what is left.
 */
#include "daemon/control/drain.h"

#include "tests/unit/control_parts.h"
#include "tests/unit/journal.h"

static struct session *session, *asking;
static int fds[2];
static uint32_t ids[2];
static struct {
	unsigned n;
	int result;
	uint32_t closed, closing, files, n_clients, client;
	char note[1024];
} drained;

/* An idle file and one that is used. */
static void fill(void)
{
	memset(&drained, 0, sizeof(drained));
	session = control_client(&fds[0]);
	asking = control_client(&fds[1]);
	for (unsigned i = 0; i < 2; i++)
		ids[i] = control_file(session, i, (char[]){ (char)('a' + i), 0 });
	file_board_set_idle(session->board, ids[0]);
}

static void teardown(void)
{
	control_teardown();
	(void)close(fds[0]);
	(void)close(fds[1]);
}

static struct file *file_of(uint32_t id)
{
	return id_table_get(&session->objects.files, id);
}

static void on_done(struct call *call, int result, const struct error *error)
{
	const Wire__StoreDrainReply *reply = call->drained;

	ck_assert((result < 0) == (error != NULL));
	drained.n++;
	(void)snprintf(drained.note, sizeof(drained.note), "%s", call->note ? call->note : "");
	drained.result = result;
	if (result == 0) {
		drained.closed = reply->closed;
		drained.closing = reply->closing;
		drained.files = reply->files;
		drained.n_clients = reply->n_all_clients;
		drained.client = reply->n_clients ? reply->clients[0]->client : 0;
	}
	call_free(call);
}

static void drain_mode(const char *name, int fd, Wire__DrainMode mode)
{
	struct call *call = control_call(asking, 10, 'd');
	Wire__StoreDrain request = WIRE__STORE_DRAIN__INIT;

	request.name = (char *)(uintptr_t)name; /* only read */
	request.mode = mode;
	drained.n = 0;
	call->on_done = on_done;
	ck_assert_msg(session_drain(asking, &request, fd, call, &c.error) == 0, "%s", c.error.text);
}

static void drain(const char *name, int fd)
{
	drain_mode(name, fd, WIRE__DRAIN_MODE__DRAIN_CLOSE);
}

TEST(idle_files_are_closed_and_used_ones_reported)
{
	fill();
	drain("", dup(dir_fd));
	CONTROL_UNTIL(drained.n);
	ck_assert_int_eq(drained.result, 0);
	ck_assert_uint_eq(drained.closed, 1);
	ck_assert_uint_eq(drained.closing, 0);
	ck_assert_uint_eq(drained.files, 1);
	ck_assert_uint_eq(drained.n_clients, 1);
	ck_assert_uint_eq(drained.client, session->id);
	ck_assert_ptr_null(file_of(ids[0]));
	ck_assert_ptr_nonnull(file_of(ids[1]));
	file_board_set_idle(session->board, ids[1]);
	drain(file_of(ids[1])->store->name, -1);
	CONTROL_UNTIL(drained.n);
	ck_assert_uint_eq(drained.closed, 1);
	ck_assert_uint_eq(drained.files, 0);
	ck_assert_uint_eq(drained.n_clients, 0);
}

TEST(an_idle_file_with_a_reference_is_waited_for)
{
	struct file *file;

	fill();
	file = file_of(ids[0]);
	file_ref(file); /* a look has it, or the client lies about an op */
	drain(file->store->name, -1);
	control_settle();
	ck_assert_uint_eq(drained.n, 0);
	file_unref(file);
	CONTROL_UNTIL(drained.n);
	ck_assert_uint_eq(drained.closed, 1);
	ck_assert_uint_eq(drained.files, 1);
}

TEST(a_drain_that_begins_lasts_until_its_end)
{
	const struct store *store;

	fill();
	store = file_of(ids[1])->store;
	c.service.registry.saved.dir = NULL; /* as without a state_dir: nothing is written */
	journal_take();
	drain_mode(store->name, -1, WIRE__DRAIN_MODE__DRAIN_BEGIN);
	ck_assert(lane_store_is_drained(&store->lane_store)); /* at once: the rest may take long */
	CONTROL_UNTIL(drained.n);
	ck_assert_uint_eq(drained.closed, 1);
	ck_assert_uint_eq(drained.files, 1);
	ck_assert_msg(
		strstr(drained.note, "the drain is not saved: there is no state_dir") ||
			strstr(drained.note, "the drain is not saved: its file system has no"),
		"%s", drained.note);
	drain(store->name, -1);
	CONTROL_UNTIL(drained.n);
	ck_assert(lane_store_is_drained(&store->lane_store));
	file_board_set_idle(session->board, ids[1]);
	drain_mode(store->name, -1, WIRE__DRAIN_MODE__DRAIN_END);
	ck_assert_uint_eq(drained.n, 1);
	ck_assert(!lane_store_is_drained(&store->lane_store));
	ck_assert_uint_eq(drained.closed, 0);
	ck_assert_str_eq(drained.note, "");
	ck_assert_ptr_nonnull(file_of(ids[1]));
	ck_assert_msg(journal_has("5", "drained\nDSAIO_STORE="), "%s", journal_text);
	ck_assert_msg(journal_has("5", "served\nDSAIO_STORE="), "%s", journal_text);
}

TEST(the_end_of_the_asking_client_ends_its_drain)
{
	struct file *file;

	fill();
	file = file_of(ids[0]);
	file_ref(file);
	drain(file->store->name, -1);
	session_end(asking, false);
	CONTROL_UNTIL(c.n_gone == 1);
	ck_assert_uint_eq(drained.n, 1);
	ck_assert_int_eq(drained.result, -ECANCELED);
	ck_assert(file_board_idle(session->board, ids[0]));
	file_unref(file);
}

FIXTURE(control_setup, teardown)
TEST_MAIN
