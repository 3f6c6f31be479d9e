/* Files and names of RADOS stores, with a daemon of the test's own. */
#include "client/lib/io/file_named.h"

#include "client/lib/io/file_fd.h"
#include "client/lib/io/file_gpu.h"
#include "tests/unit/daemon_end.h"
#include "tests/unit/suite.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define NAME "rados://pool/ns/a b/c"
#define URI "RADOS://pool/ns/a%20b/c"
#define ID UINT64_C(0xfedcba9876543210)
#define STORE 3u
#define OBJECT_BYTES (4u << 20)

static _Atomic uint32_t guard = CLIENT_GUARD;
static struct dsaio_conn conn, next;
static struct dsaio_client client;

/* The daemon: a thread for each connection that answers each request, until the connection is shut down. */
static struct {
	pthread_t threads[2];
	int fds[2];
	Wire__FileOpenReply open; /* the answers */
	Wire__FileAddReply add;
	bool has_no_add;
	Wire__NamedFile named;
	const char *next; /* of the first page of a list; the second is the last one */
	int error;
	/* what was asked last, and how often: read while no call is in progress */
	char name[128], next_asked[64];
	Wire__FileOpen asked;
	uint32_t file;
	uint64_t size;
	unsigned n_open, n_commit, n_abandon, n_list, n_other;
	_Atomic unsigned n_removed;
} d;

static void note_name(const char *name)
{
	(void)snprintf(d.name, sizeof(d.name), "%s", name);
}

static void answer_list(const Wire__NameAsk *list, Wire__Reply *reply, Wire__NameListReply *body)
{
	static Wire__NamedFile *files[1];

	files[0] = &d.named;
	note_name(list->name);
	(void)snprintf(d.next_asked, sizeof(d.next_asked), "%s", list->next);
	d.n_list++;
	body->n_files = 1;
	body->files = files;
	if (!*list->next || strcmp(d.next, "again") == 0)
		body->next = (char *)(uintptr_t)d.next; /* only read */
	reply->body_case = WIRE__REPLY__BODY_NAME_LIST;
	reply->name_list = body;
}

static void answer_open(const Wire__FileOpen *asked, Wire__Reply *reply)
{
	note_name(asked->name);
	d.asked = *asked;
	d.n_open++;
	reply->body_case = WIRE__REPLY__BODY_FILE_OPEN;
	reply->file_open = &d.open;
	d.open.add = d.has_no_add ? NULL : &d.add;
	d.add.file = asked->file ? asked->file : 1u << 16 | d.n_open;
}

static void answer(int fd, const Wire__Request *request)
{
	Wire__Reply reply = WIRE__REPLY__INIT;
	Wire__NameListReply list = WIRE__NAME_LIST_REPLY__INIT;
	Wire__NamedFile *named = &d.named;

	switch (request->body_case) {
	case WIRE__REQUEST__BODY_FILE_OPEN:
		answer_open(request->file_open, &reply);
		break;
	case WIRE__REQUEST__BODY_FILE_COMMIT:
		d.file = request->file_commit->file;
		d.size = request->file_commit->size;
		d.n_commit++;
		break;
	case WIRE__REQUEST__BODY_FILE_ABANDON:
		d.file = request->file_abandon->file;
		d.n_abandon++;
		break;
	case WIRE__REQUEST__BODY_FILE_REMOVE:
		d.n_removed++;
		break;
	case WIRE__REQUEST__BODY_NAME_STAT:
		note_name(request->name_stat->name);
		reply.body_case = WIRE__REPLY__BODY_NAME_STAT;
		list.n_files = 1;
		list.files = &named;
		reply.name_stat = &list;
		break;
	case WIRE__REQUEST__BODY_NAME_REMOVE:
		note_name(request->name_remove->name);
		break;
	case WIRE__REQUEST__BODY_NAME_LIST:
		answer_list(request->name_list, &reply, &list);
		break;
	default:
		d.n_other++;
	}
	reply.seq = request->seq;
	reply.error = d.error;
	if (d.error)
		reply.body_case = WIRE__REPLY__BODY__NOT_SET;
	(void)daemon_end_reply(fd, &reply, -1); /* fails when the connection was shut down */
}

static void *daemon_main(void *arg)
{
	struct frame_reader reader = { 0 };
	Wire__Request *request;
	struct frame frame;
	int fd = *(int *)arg;

	while ((request = daemon_end_read(&reader, fd, &frame))) {
		answer(fd, request);
		wire__request__free_unpacked(request, NULL);
		frame_deinit(&frame);
	}
	frame_reader_deinit(&reader);
	return NULL;
}

static void daemon_start(unsigned i, struct dsaio_conn *to)
{
	d.fds[i] = daemon_end_connect(to);
	to->facts.max_files = 1000;
	ck_assert_int_eq(pthread_create(&d.threads[i], NULL, daemon_main, &d.fds[i]), 0);
}

static void daemon_end(unsigned i, struct dsaio_conn *of)
{
	(void)shutdown(of->fd, SHUT_RDWR);
	ck_assert_int_eq(pthread_join(d.threads[i], NULL), 0);
	conn_calls_deinit(of);
	(void)close(of->fd);
	(void)close(d.fds[i]);
}

static void named_setup(void)
{
	memset(&client, 0, sizeof(client));
	memset(&d, 0, sizeof(d));
	atomic_store(&guard, CLIENT_GUARD);
	client.guard = &guard;
	client.conn = &conn;
	client.state_fd = -1;
	d.open = (Wire__FileOpenReply)WIRE__FILE_OPEN_REPLY__INIT;
	d.open.id = ID;
	d.open.size = 5000;
	d.open.object_bytes = OBJECT_BYTES;
	d.add = (Wire__FileAddReply)WIRE__FILE_ADD_REPLY__INIT;
	d.add.store = STORE;
	d.add.offset_align = d.add.memory_align = 1;
	d.named = (Wire__NamedFile)WIRE__NAMED_FILE__INIT;
	d.named.name = (char *)(uintptr_t) "a b/c"; /* only read */
	d.named.size = 5000;
	d.named.mtime_sec = 77;
	d.named.object_bytes = OBJECT_BYTES;
	d.named.id = ID;
	d.next = "";
	daemon_start(0, &conn);
	daemon_start(1, &next);
}

static void named_teardown(void)
{
	struct client_object *object;

	ck_assert_uint_eq(d.n_other, 0); /* neither a descriptor nor cuFile is asked for */
	while ((object = list_entry(client.objects[CLIENT_FILE].first, struct client_object,
				    node))) {
		container_of(object, struct dsaio_file, object)->n_opens = 0;
		file_on_disconnect(object);
	}
	ck_assert_ptr_null(client.inodes);
	daemon_end(0, &conn);
	daemon_end(1, &next);
}

static int open_uri(const char *name, int flags, struct dsaio_file **ret_file)
{
	struct dsaio_open_options o = DSAIO_OPEN_OPTIONS_INIT;

	o.flags = DSAIO_OPEN_URI;
	return dsaio_open(&client, name, flags, &o, ret_file);
}

/* size: 0: not known before the commit. */
static struct dsaio_file *create(uint64_t size)
{
	struct dsaio_create_options o = DSAIO_CREATE_OPTIONS_INIT;
	struct dsaio_file *file = NULL;

	o.file_size = size;
	d.open.size = size;
	d.open.is_writable = true;
	ck_assert_int_eq(dsaio_create(&client, URI, &o, &file), 0);
	return file;
}

static void write_start(struct dsaio_file *file, struct dsaio_op *op, uint64_t off, uint64_t len)
{
	memset(op, 0, sizeof(*op));
	op_set_io(op, RING_OP_WRITE, off, len, &(struct buffer_place){ .slab = NULL });
	op_change_state(op, OP_PREPARED);
	op->file = file;
	inode_add(file->inode, op);
}

static void write_end(struct dsaio_op *op, int64_t result)
{
	op_set_result(op, result, 0);
	inode_remove(op->file->inode, op);
}

static void write_done(struct dsaio_file *file, uint64_t off, uint64_t len, int64_t result)
{
	struct dsaio_op op;

	write_start(file, &op, off, len);
	write_end(&op, result);
}

/* ---- opening ---- */

TEST(a_committed_file_is_opened_by_name_and_closed_at_once)
{
	struct dsaio_file *file, *again;

	ck_assert_int_eq(open_uri(URI, O_RDONLY | O_CLOEXEC, &file), 0);
	ck_assert_str_eq(d.name, NAME);
	ck_assert_uint_eq(d.asked.mode, WIRE__OPEN_MODE__OPEN_READ);
	ck_assert_uint_eq(d.asked.file, 0);
	ck_assert_uint_eq(file->session.store, STORE);
	ck_assert_uint_eq(dsaio_file_alignment(file), 1);
	ck_assert_int_eq(dsaio_file_size(file), 5000);
	ck_assert_uint_eq(dsaio_file_token(file), 0);
	ck_assert_int_eq(open_uri(URI, O_RDONLY, &again), 0); /* it is another one */
	ck_assert_ptr_ne(file, again);
	ck_assert_ptr_eq(file->inode, again->inode);
	ck_assert_uint_eq(client.files.n, 2);
	dsaio_file_close(file);
	dsaio_file_close(again);
	ck_assert_uint_eq(d.n_removed, 2);
	ck_assert_uint_eq(client.files.n, 0);
	ck_assert_ptr_null(client.inodes);
}

TEST(files_of_other_bytes_or_stores_are_other_inodes)
{
	struct dsaio_file *file, *other, *of_store;

	ck_assert_int_eq(open_uri(URI, O_RDONLY, &file), 0);
	d.open.id++;
	ck_assert_int_eq(open_uri(URI, O_RDONLY, &other), 0);
	d.open.id--;
	d.add.store++;
	ck_assert_int_eq(open_uri(URI, O_RDONLY, &of_store), 0);
	ck_assert(file->inode != other->inode && file->inode != of_store->inode);
}

static const int open_flags[] = { O_RDWR, O_WRONLY, O_CREAT, O_RDONLY | O_TRUNC };

TEST_TABLE(a_committed_file_is_not_opened_for_writing, open_flags)
{
	struct dsaio_file *file;

	ck_assert_int_eq(open_uri(URI, open_flags[_i], &file), -EINVAL);
	ck_assert_ptr_nonnull(strstr(dsaio_error(), "dsaio_create()"));
	ck_assert_uint_eq(d.n_open, 0);
}

TEST(without_the_flag_it_is_a_path)
{
	struct dsaio_file *file;

	ck_assert_int_eq(dsaio_open(&client, URI, O_RDONLY, NULL, &file), -ENOENT);
	ck_assert_uint_eq(d.n_open, 0);
}

TEST(it_has_no_descriptor_no_second_one_and_no_gpu)
{
	struct dsaio_file *file = create(0);
	const CUuuid uuid = { { 0 } };
	char *why = NULL;

	client.recovery.timeout_nsec = 1;
	client.files.n_fds_wanted = 10;
	file_fd_need_second(file);
	ck_assert_int_eq(file->fds.second, -1);
	ck_assert(file_gpu_is_refused(file, &why));
	free(why);
	ck_assert_int_eq(file_gpu_register(file, &uuid, &why), -EOPNOTSUPP);
	free(why);
	ck_assert_int_eq(dsaio_file_truncate(file, 0), -EOPNOTSUPP);
	ck_assert_int_eq(dsaio_file_allocate(file, 0, 1, 0), -EOPNOTSUPP);
	file_set_temporary(file, "another"); /* the next daemon needs its name */
	ck_assert_str_eq(file->name, NAME);
}

static const struct {
	const char *what;
	bool is_created;
	uint64_t id, size;
	uint32_t object_bytes, offset_align, memory_align;
	bool is_writable, has_no_add;
} wrong[] = {
	{ "no id", false, 0, 1, OBJECT_BYTES, 1, 1, false, false },
	{ "a size that none has", false, ID, UINT64_C(1) << 63, OBJECT_BYTES, 1, 1, false, false },
	{ "no object size", false, ID, 1, 0, 1, 1, false, false },
	{ "an odd object size", false, ID, 1, 3, 1, 1, false, false },
	{ "offsets that need alignment", false, ID, 1, OBJECT_BYTES, 512, 1, false, false },
	{ "memory that needs alignment", false, ID, 1, OBJECT_BYTES, 1, 512, false, false },
	{ "no alignment at all", false, ID, 1, OBJECT_BYTES, 0, 0, false, false },
	{ "a reader may write", false, ID, 1, OBJECT_BYTES, 1, 1, true, false },
	{ "no file", false, ID, 1, OBJECT_BYTES, 1, 1, false, true },
	{ "a creator may not write", true, ID, 0, OBJECT_BYTES, 1, 1, false, false },
	{ "another size than asked", true, ID, 1, OBJECT_BYTES, 1, 1, true, false },
};

TEST_TABLE(an_answer_that_makes_no_sense_ends_the_session, wrong)
{
	struct dsaio_file *file = NULL;
	int r;

	d.open.id = wrong[_i].id;
	d.open.size = wrong[_i].size;
	d.open.object_bytes = wrong[_i].object_bytes;
	d.open.is_writable = wrong[_i].is_writable;
	d.add.offset_align = wrong[_i].offset_align;
	d.add.memory_align = wrong[_i].memory_align;
	d.has_no_add = wrong[_i].has_no_add;
	r = wrong[_i].is_created ? dsaio_create(&client, URI, NULL, &file)
				 : open_uri(URI, O_RDONLY, &file);
	ck_assert_msg(r == -ENOTCONN, "%s: %d", wrong[_i].what, r);
	ck_assert(atomic_load(&conn.is_broken));
	ck_assert_ptr_null(file);
	ck_assert_uint_eq(client.files.n, 0);
}

TEST(the_daemons_refusal_is_the_callers_error)
{
	struct dsaio_file *file;

	d.error = -EHOSTDOWN;
	ck_assert_int_eq(open_uri(URI, O_RDONLY, &file), -EHOSTDOWN);
	ck_assert_int_eq(dsaio_create(&client, URI, NULL, &file), -EHOSTDOWN);
	ck_assert_uint_eq(client.files.n, 0);
}

static const struct {
	const char *what;
	struct dsaio_create_options o;
	int error;
} options[] = {
	{ "a flag of a later version", { 32, 0, 0, 2, 0 }, -E2BIG },
	{ "a field of a later version", { 32, 0, 0, 0, 1 }, -E2BIG },
	{ "a size that no file can have", { 32, UINT64_C(1) << 63, 0, 0, 0 }, -EINVAL },
	{ "options without a size", { 0, 0, 0, 0, 0 }, -EINVAL },
};

TEST_TABLE(options_of_a_creation_are_checked, options)
{
	struct dsaio_file *file;
	int r = dsaio_create(&client, URI, &options[_i].o, &file);

	ck_assert_msg(r == options[_i].error, "%s: %d", options[_i].what, r);
	ck_assert_uint_eq(d.n_open, 0);
}

/* ---- a file that is being written ---- */

TEST(a_file_without_a_size_is_as_long_as_what_was_written)
{
	struct dsaio_file *file = create(0);
	uint64_t grow_end = 1;

	ck_assert_uint_eq(d.asked.mode, WIRE__OPEN_MODE__OPEN_CREATE);
	ck_assert_uint_eq(dsaio_file_token(file), ID);
	ck_assert_int_eq(dsaio_file_size(file), 0);
	ck_assert_int_eq(file_grow(file, UINT64_C(1) << 60, &grow_end), 0);
	ck_assert_uint_eq(grow_end, 0); /* the daemon extends nothing */
	write_done(file, 1000, 500, 500);
	write_done(file, 0, 10, 10);
	write_done(file, 9000, 10, -EIO);
	ck_assert_int_eq(dsaio_file_size(file), 1500);
	ck_assert_int_eq(dsaio_file_commit(file, 0), 0);
	ck_assert_uint_eq(d.size, 1500);
	ck_assert_uint_eq(d.file, file->session.id);
	ck_assert_int_eq(dsaio_file_size(file), 1500);
	ck_assert(!file->can_write && file->can_read);
}

TEST(a_commit_may_say_the_size)
{
	struct dsaio_file *file = create(0);

	write_done(file, 0, 500, 500);
	ck_assert_int_eq(dsaio_file_commit(file, UINT64_C(1) << 63), -EINVAL);
	ck_assert_int_eq(dsaio_file_commit(file, 200), 0);
	ck_assert_uint_eq(d.size, 200);
	ck_assert_int_eq(dsaio_file_size(file), 200);
	ck_assert(!inode_is_long(file->inode, 500)); /* nor is what was known before */
}

TEST(a_file_that_was_created_with_a_size_has_it)
{
	struct dsaio_file *file = create(700);
	uint64_t grow_end;

	ck_assert_uint_eq(d.asked.size, 700);
	ck_assert_int_eq(dsaio_file_size(file), 700);
	ck_assert_int_eq(file_grow(file, 700, &grow_end), 0);
	ck_assert_int_eq(file_grow(file, 701, &grow_end), -EFBIG);
	write_done(file, 0, 10, 10);
	ck_assert_int_eq(dsaio_file_commit(file, 0), 0);
	ck_assert_uint_eq(d.size, 700);
}

TEST(another_client_s_file_is_opened_by_its_token)
{
	struct dsaio_create_options o = DSAIO_CREATE_OPTIONS_INIT;
	struct dsaio_file *file;

	o.token = ID;
	o.file_size = 1; /* that of the creation counts */
	o.flags = DSAIO_CREATE_SPARSE;
	d.open.is_writable = true;
	ck_assert_int_eq(dsaio_create(&client, URI, &o, &file), 0);
	ck_assert_uint_eq(d.asked.mode, WIRE__OPEN_MODE__OPEN_TOKEN);
	ck_assert_uint_eq(d.asked.id, ID);
	ck_assert(!d.asked.size && !d.asked.is_sparse);
	ck_assert_uint_eq(dsaio_file_token(file), ID);
	ck_assert_int_eq(dsaio_file_size(file), 5000);
	o.token = ID - 1;
	ck_assert_int_eq(dsaio_create(&client, URI, &o, &file), -ENOTCONN); /* it got another one */
}

static int commit(struct dsaio_file *file)
{
	return dsaio_file_commit(file, 0);
}

static const struct {
	int (*end)(struct dsaio_file *file);
	const unsigned *n_asked;
} file_ends[] = { { commit, &d.n_commit }, { dsaio_file_abandon, &d.n_abandon } };

TEST_TABLE(a_file_ends_once_and_not_while_ops_are_open, file_ends)
{
	struct dsaio_file *file = create(0);
	struct dsaio_op op;

	write_start(file, &op, 0, 100);
	ck_assert_int_eq(file_ends[_i].end(file), -EBUSY);
	ck_assert_uint_eq(*file_ends[_i].n_asked, 0);
	write_end(&op, 100);
	d.error = -ECANCELED;
	ck_assert_int_eq(file_ends[_i].end(file), -ECANCELED);
	d.error = 0;
	ck_assert_int_eq(file_ends[_i].end(file), 0); /* it may be tried again */
	ck_assert_uint_eq(d.file, file->session.id);
	ck_assert_int_eq(commit(file), -ESTALE);
	ck_assert_int_eq(dsaio_file_abandon(file), -ESTALE);
	ck_assert_uint_eq(*file_ends[_i].n_asked, 2);
}

TEST_TABLE(a_file_that_was_not_created_or_not_handed_over_does_not_end, file_ends)
{
	struct dsaio_file *file, *created;

	ck_assert_int_eq(open_uri(URI, O_RDONLY, &file), 0);
	ck_assert_int_eq(file_ends[_i].end(file), -EBADF);
	created = create(0);
	atomic_store(&created->session.error, -EHOSTDOWN);
	ck_assert_int_eq(file_ends[_i].end(created), -EHOSTDOWN);
	ck_assert_int_eq(file_ends[_i].end(NULL), -EINVAL);
	ck_assert_uint_eq(*file_ends[_i].n_asked, 0);
}

/* ---- recovery ---- */

TEST(a_file_is_handed_over_by_its_id_with_its_number)
{
	struct dsaio_file *file = create(700);
	const uint32_t number = file->session.id;
	uint32_t n_refused = 0;

	file->named.is_sparse = true;
	ck_assert_int_eq(files_hand_over(&client, &next, &n_refused), 1);
	ck_assert_uint_eq(n_refused, 0);
	ck_assert_uint_eq(d.asked.mode, WIRE__OPEN_MODE__OPEN_AGAIN);
	ck_assert_str_eq(d.name, NAME);
	ck_assert_uint_eq(d.asked.file, number);
	ck_assert_uint_eq(d.asked.id, ID);
	ck_assert_uint_eq(d.asked.size, 700);
	ck_assert_uint_eq(d.asked.object_bytes, OBJECT_BYTES);
	ck_assert(d.asked.is_sparse && d.asked.is_writable);
	ck_assert_int_eq(atomic_load(&file->session.error), 0);
	ck_assert_int_eq(commit(file), 0);
	ck_assert_int_eq(files_hand_over(&client, &next, &n_refused), 1);
	ck_assert(!d.asked.is_writable && d.asked.size == 700);
}

static const struct {
	const char *what;
	uint32_t store;
	bool has_no_add;
	int refusal, error;
} refusals[] = {
	{ "another store", STORE + 1, false, 0, -ENXIO },
	{ "no store", STORE, true, 0, -ENXIO },
	{ "the daemon refuses it", STORE, false, -EACCES, -EACCES },
};

TEST_TABLE(a_file_that_is_not_handed_over_has_the_error, refusals)
{
	struct dsaio_file *file = create(0);
	uint32_t n_refused = 0;

	d.add.store = refusals[_i].store;
	d.has_no_add = refusals[_i].has_no_add;
	d.error = refusals[_i].refusal;
	ck_assert_int_eq(files_hand_over(&client, &next, &n_refused), 0);
	ck_assert_uint_eq(n_refused, 1);
	ck_assert_msg(atomic_load(&file->session.error) == refusals[_i].error, "%s",
		      refusals[_i].what);
}

/* ---- names ---- */

TEST(a_name_s_facts_are_reported)
{
	struct dsaio_stat st = DSAIO_STAT_INIT;

	ck_assert_int_eq(dsaio_stat(&client, URI, &st), 0);
	ck_assert_str_eq(d.name, NAME);
	ck_assert_uint_eq(st.size, sizeof(st));
	ck_assert_ptr_null(st.name);
	ck_assert_uint_eq(st.file_size, 5000);
	ck_assert_int_eq(st.mtime_sec, 77);
	ck_assert_uint_eq(st.id, ID);
	ck_assert_uint_eq(st.object_size, OBJECT_BYTES);
	ck_assert_int_eq(dsaio_remove(&client, "rados://pool//x"), 0);
	ck_assert_str_eq(d.name, "rados://pool//x");
	d.error = -ENOENT;
	ck_assert_int_eq(dsaio_stat(&client, URI, &st), -ENOENT);
	ck_assert_int_eq(dsaio_remove(&client, URI), -ENOENT);
	st.size = 1;
	ck_assert_int_eq(dsaio_stat(&client, URI, &st), -EINVAL);
}

static unsigned n_files;

/* It may make calls.  arg: its result. */
static int each(const struct dsaio_stat *file, void *arg)
{
	struct dsaio_stat st = DSAIO_STAT_INIT;

	ck_assert_str_eq(file->name, "a b/c");
	ck_assert_uint_eq(file->size, sizeof(*file));
	ck_assert_int_eq(dsaio_stat(&client, URI, &st), 0);
	n_files++;
	return *(int *)arg;
}

static int list(int result)
{
	n_files = 0;
	return dsaio_list(&client, "rados://pool/ns/", each, &result);
}

TEST(a_list_asks_for_the_next_page_until_there_is_none)
{
	ck_assert_int_eq(list(0), 0);
	ck_assert_uint_eq(d.n_list, 1);
	ck_assert_uint_eq(n_files, 1);
	d.next = "more";
	ck_assert_int_eq(list(0), 0);
	ck_assert_uint_eq(d.n_list, 3);
	ck_assert_str_eq(d.next_asked, "more");
	ck_assert_uint_eq(n_files, 2);
	ck_assert_int_eq(list(7), 7); /* the callback ends it */
	ck_assert_uint_eq(d.n_list, 4);
	ck_assert_uint_eq(n_files, 1);
}

static char too_long[257];
static const struct {
	const char *what, *name, *next;
	uint64_t id, size, mtime_sec;
	uint32_t object_bytes;
} wrong_names[] = {
	{ "no id", "x", "", 0, 1, 1, OBJECT_BYTES },
	{ "no name", "", "", ID, 1, 1, OBJECT_BYTES },
	{ "a name that is too long", too_long, "", ID, 1, 1, OBJECT_BYTES },
	{ "a size that none has", "x", "", ID, UINT64_MAX, 1, OBJECT_BYTES },
	{ "a time that none has", "x", "", ID, 1, UINT64_MAX, OBJECT_BYTES },
	{ "an odd object size", "x", "", ID, 1, 1, 5 },
	{ "pages without an end", "a b/c", "again", ID, 1, 1, OBJECT_BYTES },
};

TEST_TABLE(a_list_that_makes_no_sense_ends_the_session, wrong_names)
{
	memset(too_long, 'x', sizeof(too_long) - 1);
	d.named.name = (char *)(uintptr_t)wrong_names[_i].name; /* only read */
	d.named.id = wrong_names[_i].id;
	d.named.size = wrong_names[_i].size;
	d.named.mtime_sec = wrong_names[_i].mtime_sec;
	d.named.object_bytes = wrong_names[_i].object_bytes;
	d.next = wrong_names[_i].next;
	ck_assert_msg(list(0) == -ENOTCONN, "%s", wrong_names[_i].what);
	ck_assert(atomic_load(&conn.is_broken));
}

/* ---- all calls ---- */

static struct dsaio_file *opened;
static struct dsaio_stat facts = DSAIO_STAT_INIT;
static int no_result;

static int call_create(struct dsaio_client *c, const char *name)
{
	return dsaio_create(c, name, NULL, &opened);
}

static int call_stat(struct dsaio_client *c, const char *name)
{
	return dsaio_stat(c, name, &facts);
}

static int call_list(struct dsaio_client *c, const char *name)
{
	return dsaio_list(c, name, each, &no_result);
}

static int (*const calls[])(struct dsaio_client *c, const char *name) = { call_create, call_stat,
									  call_list, dsaio_remove };

TEST_TABLE(each_call_checks_client_and_name, calls)
{
	static const char *const names[] = { "/x",	     "rados:/x/y/z",	"file:///x",
					     "rados://pool", "rados://pool/ns", "rados:///ns/x",
					     "rados://p/n/%" };

	for (int i = 0; i < N_ROWS(names); i++)
		ck_assert_msg(calls[_i](&client, names[i]) == -EINVAL, "%s", names[i]);
	ck_assert_int_eq(calls[_i](&client, NULL), -EINVAL);
	ck_assert_int_eq(calls[_i](NULL, URI), -EINVAL);
	atomic_store(&guard, 0); /* as after fork */
	ck_assert_int_eq(calls[_i](&client, URI), -EPERM);
	atomic_store(&guard, CLIENT_GUARD);
	atomic_store(&conn.is_lost, true);
	ck_assert_int_eq(calls[_i](&client, URI), -ENOTCONN);
	ck_assert_str_eq(d.name, "");
}

FIXTURE(named_setup, named_teardown)
TEST_MAIN
