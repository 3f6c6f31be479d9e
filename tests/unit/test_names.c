/*
 * Files by name: requests of a session, with a plug-in that this file pretends to have.
 */
#include "daemon/control/names.h"

#include "daemon/engine/rados.h"
#include "daemon/store/registry_parts.h"
#include "tests/unit/control_session.h"

#define NAME "rados://pool/space/a/b"

static struct store *store;
static int n_opens, n_held, n_commits, commit_result, token_result;
static uint64_t token_size;
static char last_name[RADOS_NAME_MAX + 1];

static int fill(const char *name, uint64_t id, bool is_writable, struct rados_file *ret)
{
	(void)snprintf(last_name, sizeof(last_name), "%s", name);
	n_opens++;
	*ret = (struct rados_file){
		.id = id, .size = 10, .object_bytes = 1 << 20, .is_writable = is_writable
	};
	return 0;
}

static int fake_open(struct rados_store *rados, const char *name, struct rados_file *ret_file,
		     struct error *error)
{
	(void)rados;
	if (strcmp(name, "none") == 0)
		return error_set_plain(error, -ENOENT, "file none: there is none");
	return fill(name, 7, false, ret_file);
}

static int fake_create(struct rados_store *rados, const char *name, uint64_t size, bool is_sparse,
		       struct rados_file *ret_file, struct error *error)
{
	(void)rados;
	(void)error;
	(void)is_sparse;
	ck_assert_uint_eq(size, 10);
	return fill(name, 8, true, ret_file);
}

static int fake_open_token(struct rados_store *rados, const char *name, uint64_t id,
			   struct rados_file *ret_file, struct error *error)
{
	(void)rados;
	ck_assert_str_eq(name, "a/b");
	ck_assert_uint_eq(id, 8);
	if (token_result < 0)
		return error_set_plain(error, token_result, "by token");
	(void)fill(name, 8, true, ret_file);
	ret_file->size = token_size;
	return 0;
}

static int fake_commit(struct rados_store *rados, const char *name, struct rados_file *file,
		       uint64_t size, struct error *error)
{
	(void)rados;
	ck_assert_str_eq(name, "a/b");
	ck_assert_uint_eq(file->id, 8);
	ck_assert_uint_eq(size, 10);
	n_commits++;
	file->size = 11;
	return commit_result < 0 ? error_set_plain(error, commit_result, "lost") : 0;
}

static int fake_remove(struct rados_store *rados, const char *name, struct error *error)
{
	(void)rados;
	(void)error;
	(void)snprintf(last_name, sizeof(last_name), "%s", name);
	return 0;
}

/* More than a page may have if the prefix says so. */
static int fake_list(struct rados_store *rados, const char *prefix, char next[RADOS_NAME_MAX + 8],
		     int (*each)(const char *name, const struct rados_entry *entry, void *arg),
		     void *arg, struct error *error)
{
	const unsigned n = RADOS_LIST_MAX + (strcmp(prefix, "many") == 0);

	(void)rados;
	(void)error;
	ck_assert_str_eq(next, "from");
	(void)strcpy(next, "on");
	for (unsigned i = 0; i < n; i++) {
		const struct rados_entry entry = { .id = i, .size = 2 * i };
		int r = each("f", &entry, arg);

		if (r < 0) /* without a message: the caller knows why */
			return r;
	}
	return 0;
}

static int fake_hold(struct rados_store *rados, struct rados_file *file)
{
	(void)rados;
	ck_assert(file->is_writable);
	n_held++;
	return 0;
}

static void fake_release(struct rados_store *rados, const struct rados_file *file)
{
	(void)rados;
	ck_assert_uint_eq(file->id, 8);
	n_held--;
}

static const struct rados_plugin plugin = { .open = fake_open,
					    .create = fake_create,
					    .open_token = fake_open_token,
					    .commit = fake_commit,
					    .remove = fake_remove,
					    .list = fake_list,
					    .hold = fake_hold,
					    .release = fake_release };

static void setup(void)
{
	const struct store_config config = { .name = "ceph", .path = "rados://pool/space" };

	session_setup();
	n_opens = n_held = n_commits = commit_result = token_result = 0;
	token_size = 10;
	ck_assert_int_eq(store_new_on(0, &config, (dev_t)1 << 63, &fs_type_rados, &c.mailbox,
				      &store, &c.error),
			 0);
	store->plugin = &plugin;
	store->access.is_closed = true;
	registry_add_prepared(&c.service.registry, store);
}

static int open_begin(unsigned seq, const char *name, Wire__OpenMode mode)
{
	Wire__FileOpen open = WIRE__FILE_OPEN__INIT;
	struct call *call = control_call(session, seq, WIRE__REQUEST__BODY_FILE_OPEN);
	int r;

	open.name = (char *)(uintptr_t)name;
	open.mode = mode;
	open.size = 10;
	open.id = 8;
	open.object_bytes = 1 << 20;
	open.is_writable = true;
	r = session_file_open(session, &open, call, &c.error);
	if (r < 0)
		call_free(call);
	return r;
}

static struct file *open_file(unsigned seq, Wire__OpenMode mode)
{
	ck_assert_msg(open_begin(seq, NAME, mode) == 0, "%s", c.error.text);
	CONTROL_UNTIL(answers[seq].is_done);
	ck_assert_msg(answers[seq].result == 0, "%s", answers[seq].text);
	return id_table_get(&session->objects.files, answers[seq].id);
}

TEST(a_file_is_found_by_the_store_of_its_name_and_has_no_descriptor)
{
	const struct file *file = open_file(1, WIRE__OPEN_MODE__OPEN_READ);
	int copy;

	ck_assert_str_eq(last_name, "a/b");
	ck_assert_ptr_eq(file->store, store);
	ck_assert_int_eq(file->target.kind, TARGET_RADOS);
	ck_assert_uint_eq(file->target.offset_align, 1);
	ck_assert_uint_eq(file->inode->id.ino, 7);
	ck_assert(file->facts.can_read && !file->facts.can_write);
	ck_assert_int_eq(n_held, 0);
	ck_assert_int_eq(session_file_get(session, file->id, &copy, &c.error), -EOPNOTSUPP);
	ck_assert_int_eq(
		session_file_buffered(session, file->id, control_open("f"), NULL, &c.error),
		-EOPNOTSUPP);
}

static const struct {
	const char *name;
	int want;
	const char *why;
} refused[] = {
	{ "rados://pool/other/f", -ENXIO, "/run/dsaiod-rados/dsaiod.sock" },
	{ "rados://pool/space2/f", -ENXIO, "$DSAIO_RADOS_SOCKET" },
	{ "rados://pool/space", -ENXIO, "$DSAIO_RADOS_SOCKET" },
	{ "/etc/passwd", -ENXIO, "/etc/passwd" },
	{ "", -ENXIO, "" },
	{ "rados://pool/space/", -EINVAL, "" },
};

TEST_TABLE(a_name_of_no_store_is_refused_with_the_place_of_another_daemon, refused)
{
	ck_assert_int_eq(open_begin(1, refused[_i].name, WIRE__OPEN_MODE__OPEN_READ),
			 refused[_i].want);
	ck_assert_msg(strstr(c.error.text, refused[_i].why), "%s", c.error.text);
}

TEST(only_administrators_are_served_unless_the_store_names_users)
{
	static id_t users[] = { 12345 };
	const uid_t own = session->peer.uid;

	session->peer.uid = 12345;
	ck_assert_int_eq(open_begin(1, NAME, WIRE__OPEN_MODE__OPEN_READ), -EACCES);
	ck_assert_msg(strstr(c.error.text, "it serves administrators"), "%s", c.error.text);
	store->access.lists[ACCESS_USERS] = (struct access_list){ .ids = users, .n = 1 };
	(void)open_file(2, WIRE__OPEN_MODE__OPEN_READ);
	session->peer.uid = own;
}

TEST(an_error_of_the_cluster_is_the_calls)
{
	ck_assert_int_eq(open_begin(1, "rados://pool/space/none", WIRE__OPEN_MODE__OPEN_READ), 0);
	CONTROL_UNTIL(answers[1].is_done);
	ck_assert_int_eq(answers[1].result, -ENOENT);
	CONTROL_UNTIL(!session->n_objects);
}

/* _i: it is closed without a commit */
TEST_LOOP(a_created_file_is_held_until_it_is_committed_or_closed, 2)
{
	struct file *file = open_file(1, WIRE__OPEN_MODE__OPEN_CREATE);
	struct call *call;

	ck_assert(file->facts.can_write);
	ck_assert_int_eq(n_held, 1);
	if (_i) {
		ck_assert_int_eq(session_file_remove(session, file->id, control_call(session, 2, 0),
						     &c.error),
				 0);
		CONTROL_UNTIL(answers[2].is_done);
		ck_assert_int_eq(n_held, 0);
		ck_assert_int_eq(n_commits, 0);
		return;
	}
	commit_result = -ECANCELED; /* another one came between */
	call = control_call(session, 2, WIRE__REQUEST__BODY_FILE_COMMIT);
	ck_assert_int_eq(session_file_finish(session, file->id, 10, call, &c.error), 0);
	call = control_call(session, 3, WIRE__REQUEST__BODY_FILE_COMMIT);
	ck_assert_int_eq(session_file_finish(session, file->id, 10, call, &c.error), -EBUSY);
	call_free(call);
	CONTROL_UNTIL(answers[2].is_done);
	ck_assert_int_eq(answers[2].result, -ECANCELED);
	ck_assert(n_held == 1 && file->facts.can_write);

	commit_result = 0;
	for (unsigned seq = 4; seq < 6; seq++) { /* again: the reply was lost */
		call = control_call(session, seq, WIRE__REQUEST__BODY_FILE_COMMIT);
		ck_assert_int_eq(session_file_finish(session, file->id, 10, call, &c.error), 0);
		CONTROL_UNTIL(answers[seq].is_done);
		ck_assert_int_eq(answers[seq].result, 0);
		ck_assert_int_eq(n_held, 0);
		ck_assert(!file->facts.can_write && !file->target.rados.is_writable);
		ck_assert_uint_eq(file->target.rados.size, 11);
	}
	ck_assert_int_eq(n_commits, 3);
}

TEST(what_was_not_created_is_not_committed)
{
	const struct file *file = open_file(1, WIRE__OPEN_MODE__OPEN_READ);
	struct call *call = control_call(session, 2, WIRE__REQUEST__BODY_FILE_COMMIT);

	ck_assert_int_eq(session_file_finish(session, file->id, 10, call, &c.error), -EBADF);
	ck_assert_int_eq(session_file_finish(session, file->id + 1, 10, call, &c.error), -EBADF);
	call_free(call);
}

/* Recovery must not wait for the cluster. */
static const int again_results[] = { 0, -ESTALE, -EHOSTDOWN, -ETIMEDOUT };

/* Its client is believed only while the cluster is silent.  _i: what the plug-in says to the token */
TEST_LOOP(a_file_is_opened_again_by_its_id, 4)
{
	const struct file *file;

	token_result = again_results[_i];
	file = open_file(1, WIRE__OPEN_MODE__OPEN_AGAIN);
	ck_assert_uint_eq(file->inode->id.ino, 8);
	ck_assert_uint_eq(file->target.rados.object_bytes, 1 << 20);
	ck_assert_int_eq(n_held, token_result != -ESTALE);
	ck_assert_int_eq(file->facts.can_write, token_result != -ESTALE);
	ck_assert_int_eq(file->target.rados.is_writable, token_result != -ESTALE);
	ck_assert_str_eq(file->rados_name, NAME); /* its commit may be repeated */
}

TEST(a_token_of_a_file_without_a_size_is_refused)
{
	token_size = 0;
	ck_assert_int_eq(open_begin(1, NAME, WIRE__OPEN_MODE__OPEN_TOKEN), 0);
	CONTROL_UNTIL(answers[1].is_done);
	ck_assert_int_eq(answers[1].result, -EINVAL);
	ck_assert_int_eq(n_held, 0);
}

TEST(a_store_that_is_drained_takes_no_new_files_and_those_of_an_earlier_daemon)
{
	struct call *call = control_call(session, 1, WIRE__REQUEST__BODY_NAME_REMOVE);

	lane_store_set_drained(&store->lane_store, true);
	ck_assert_int_eq(open_begin(2, NAME, WIRE__OPEN_MODE__OPEN_READ), -ENOMEDIUM);
	ck_assert_int_eq(open_begin(2, NAME, WIRE__OPEN_MODE__OPEN_CREATE), -ENOMEDIUM);
	ck_assert_int_eq(session_name_ask(session, NAME, "", call, &c.error), -ENOMEDIUM);
	call_free(call);
	ck_assert_int_eq(open_begin(3, NAME, WIRE__OPEN_MODE__OPEN_AGAIN), 0);
	CONTROL_UNTIL(answers[3].is_done);
}

static int n_listed;
static char listed_next[16];

static void on_listed(struct call *call, int result, const struct error *error)
{
	if (result == 0) {
		const Wire__NameListReply *reply = call->message;

		n_listed = (int)reply->n_files;
		ck_assert_uint_eq(reply->files[2]->size, 4);
		(void)snprintf(listed_next, sizeof(listed_next), "%s", reply->next);
	}
	control_on_done(call, result, error);
}

TEST(a_page_of_names_has_no_more_than_a_frame_takes)
{
	static const char *const names[] = { "rados://pool/space/", "rados://pool/space/many" };

	for (unsigned i = 0; i < 2; i++) {
		struct call *call = control_call(session, i, WIRE__REQUEST__BODY_NAME_LIST);

		n_listed = -1;
		call->on_done = on_listed;
		ck_assert_int_eq(session_name_ask(session, names[i], "from", call, &c.error), 0);
		CONTROL_UNTIL(answers[i].is_done);
		ck_assert_int_eq(answers[i].result, i ? -EOVERFLOW : 0);
		ck_assert_int_eq(n_listed, i ? -1 : (int)RADOS_LIST_MAX);
		ck_assert_int_eq(answers[i].text[0] != 0, i);
	}
	ck_assert_str_eq(listed_next, "on");
}

TEST(a_name_is_removed)
{
	struct call *call = control_call(session, 1, WIRE__REQUEST__BODY_NAME_REMOVE);

	ck_assert_int_eq(session_name_ask(session, NAME, "", call, &c.error), 0);
	CONTROL_UNTIL(answers[1].is_done);
	ck_assert_int_eq(answers[1].result, 0);
	ck_assert_str_eq(last_name, "a/b");
}

/* _i: the daemon stops */
TEST_LOOP(a_file_that_is_created_after_the_end_of_its_session_is_held_no_more, 2)
{
	ck_assert_int_eq(open_begin(1, NAME, WIRE__OPEN_MODE__OPEN_CREATE), 0);
	session_end(session, _i);
	CONTROL_UNTIL(c.n_gone);
	ck_assert_int_eq(answers[1].result, _i ? -ESHUTDOWN : -ECANCELED);
	ck_assert_int_eq(n_held, 0);
}

FIXTURE(setup, session_teardown)
TEST_MAIN
