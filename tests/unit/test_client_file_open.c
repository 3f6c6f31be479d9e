/*
 * Files as dsaio_open() opens them, and what later ops need of them, with a daemon of the
 * test's own.
 */
#include "client/lib/dsaio.h"
#include "client/lib/io/client.h"
#include "client/lib/io/file_gpu.h"
#include "client/lib/io/file_open.h"
#include "proto/file_board.h"
#include "proto/util/cleanup.h"
#include "tests/unit/daemon_end.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static _Alignas(4096) _Atomic uint32_t board[1024];
static _Atomic uint32_t guard = CLIENT_GUARD;
static struct dsaio_conn conn;
static struct dsaio_client client;
static char path[64];

/* The daemon: a thread that answers each request, until the connection is shut down. */
static struct {
	pthread_t thread;
	int fd;
	uint32_t offset_align; /* what it tells */
	int error;
	int file_fd; /* of the file that was handed over last */
	_Atomic unsigned n_added, n_buffered, n_removed, n_asked;
	_Atomic int gpu_error;	/* to FileGpu, ... */
	pthread_mutex_t answer; /* ... which is answered under this lock */
} d;

static void daemon_answer(const Wire__Request *request, struct frame *frame)
{
	Wire__Reply reply = WIRE__REPLY__INIT;
	Wire__FileAddReply added = WIRE__FILE_ADD_REPLY__INIT;
	int fd = -1;

	reply.seq = request->seq;
	if (request->body_case == WIRE__REQUEST__BODY_FILE_ADD) {
		reply.error = d.error;
		added.file = 1u << 16 | atomic_fetch_add(&d.n_added, 1);
		added.store = 3;
		added.offset_align = d.offset_align;
		added.memory_align = 512;
		if (!d.error)
			reply.body_case = WIRE__REPLY__BODY_FILE_ADD;
		reply.file_add = &added;
		closep(&d.file_fd);
		d.file_fd = TAKE_FD(frame->fds[0]);
	} else if (request->body_case == WIRE__REQUEST__BODY_FILE_BUFFERED) {
		atomic_fetch_add(&d.n_buffered, 1);
	} else if (request->body_case == WIRE__REQUEST__BODY_FILE_GPU) {
		ck_assert_uint_eq(request->file_gpu->uuid.len, sizeof(CUuuid));
		atomic_fetch_add(&d.n_asked, 1);
		(void)pthread_mutex_lock(&d.answer);
		(void)pthread_mutex_unlock(&d.answer);
		reply.error = atomic_load(&d.gpu_error);
		reply.text = (char *)(uintptr_t) "cuFile says why"; /* only read */
	} else if (request->body_case == WIRE__REQUEST__BODY_FILE_GET) {
		fd = dup(d.file_fd);
	} else if (request->body_case == WIRE__REQUEST__BODY_FILE_REMOVE) {
		atomic_fetch_add(&d.n_removed, 1);
	}
	(void)daemon_end_reply(d.fd, &reply, fd); /* fails when the connection was shut down */
}

static void *daemon_main(void *arg)
{
	struct frame_reader reader = { 0 };
	Wire__Request *request;
	struct frame frame;

	while ((request = daemon_end_read(&reader, d.fd, &frame))) {
		daemon_answer(request, &frame);
		wire__request__free_unpacked(request, NULL);
		frame_deinit(&frame);
	}
	frame_reader_deinit(&reader);
	return arg;
}

static void open_setup(void)
{
	make_dir();
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	memset(&client, 0, sizeof(client));
	memset(&d, 0, sizeof(d));
	d.fd = daemon_end_connect(&conn);
	conn.facts.max_files = 1000;
	conn.file_board = board;
	client.guard = &guard;
	client.conn = &conn;
	client.state_fd = -1;
	d.file_fd = -1;
	d.offset_align = 512;
	ck_assert_int_eq(pthread_create(&d.thread, NULL, daemon_main, NULL), 0);
}

static void open_teardown(void)
{
	struct client_object *object;

	while ((object = list_entry(client.objects[CLIENT_FILE].first, struct client_object,
				    node))) {
		container_of(object, struct dsaio_file, object)->n_opens = 0;
		file_on_disconnect(object);
	}
	(void)shutdown(conn.fd, SHUT_RDWR);
	ck_assert_int_eq(pthread_join(d.thread, NULL), 0);
	conn_calls_deinit(&conn);
	(void)close(conn.fd);
	(void)close(d.fd);
	closep(&d.file_fd);
	remove_dir();
}

static const struct {
	const char *what, *name; /* NULL: the test's file */
	int flags;
	uint32_t options, mode;
	int error;
} opens[] = {
	{ "an access mode that is none", NULL, O_ACCMODE, 0, 0, -EINVAL },
	{ "appending", NULL, O_WRONLY | O_APPEND, 0, 0, -EINVAL },
	{ "a mode that is none", NULL, O_RDONLY, 0, 0170000, -EINVAL },
	{ "an option of a later version", NULL, O_RDONLY, 1u << 30, 0, -E2BIG },
	{ "another scheme", "s3://pool/x", O_RDONLY, DSAIO_OPEN_URI, 0, -EPROTONOSUPPORT },
	{ "a URI that is a path", "file:///dev/null", O_RDONLY, 0, 0, -ENOENT },
	{ "what is not there", NULL, O_RDONLY, 0, 0, -ENOENT },
	{ "a device", "/dev/null", O_RDONLY, 0, 0, -EOPNOTSUPP },
	{ "a directory", "/", O_RDONLY, 0, 0, -EOPNOTSUPP },
};

TEST_TABLE(what_cannot_be_opened_never_reaches_the_daemon, opens)
{
	struct dsaio_open_options o = DSAIO_OPEN_OPTIONS_INIT;
	struct dsaio_file *file = NULL;
	int r;

	o.flags = opens[_i].options;
	o.mode = opens[_i].mode;
	r = dsaio_open(&client, opens[_i].name ? opens[_i].name : path, opens[_i].flags, &o, &file);
	ck_assert_msg(r == opens[_i].error, "%s: %d: %s", opens[_i].what, r, dsaio_error());
	ck_assert_ptr_null(file);
	ck_assert_uint_eq(d.n_added, 0);
}

TEST(a_fifo_is_refused_and_not_waited_for)
{
	struct dsaio_file *file;

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(dsaio_open(&client, path, O_RDONLY, NULL, &file), -EOPNOTSUPP);
}

TEST(a_file_is_made_handed_over_once_and_found_in_the_cache)
{
	struct dsaio_file *file, *again;
	struct stat st;

	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(file->session.store, 3);
	ck_assert_uint_eq(dsaio_file_alignment(file), 4096);
	ck_assert_int_eq(dsaio_file_truncate(file, 4096), 0);
	ck_assert_int_eq(dsaio_file_size(file), 4096);
	dsaio_file_close(file); /* it stays, idle */
	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR, NULL, &again), 0);
	ck_assert_ptr_eq(again, file);
	ck_assert_uint_eq(d.n_added, 1);
	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_TRUNC, NULL, &again), 0);
	ck_assert_int_eq(dsaio_file_size(file), 0);
	ck_assert_uint_eq(d.n_removed, 0);
}

TEST(another_file_of_that_name_is_opened_anew)
{
	struct dsaio_file *file, *other;

	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), 0);
	dsaio_file_close(file);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT | O_EXCL, NULL, &other), 0);
	ck_assert_uint_eq(d.n_added, 2);
	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_EXCL | O_CREAT, NULL, &file),
			 -EEXIST);
}

TEST(a_dropped_file_is_closed_by_the_daemon_before_the_call_returns)
{
	struct dsaio_file *file;

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(
			dsaio_open(&client, path, i ? O_RDONLY : O_RDWR | O_CREAT, NULL, &file), 0);
		dsaio_file_close(file);
	}
	ck_assert_int_eq(dsaio_file_drop(&client, "/another"), 0);
	ck_assert_uint_eq(d.n_removed, 0);
	ck_assert_int_eq(dsaio_file_drop(&client, path), 0); /* both access modes */
	ck_assert_uint_eq(d.n_removed, 2);
	ck_assert_uint_eq(client.files.n, 0);
	ck_assert_ptr_null(client.objects[CLIENT_FILE].first);
	ck_assert_int_eq(dsaio_file_drop(&client, path), 0); /* there is none */
	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR, NULL, &file), 0);
	ck_assert_uint_eq(d.n_added, 3);
}

TEST(a_file_that_is_open_or_has_ops_is_not_dropped)
{
	struct dsaio_file *file, *again, *reader;

	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), 0);
	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR, NULL, &again), 0);
	ck_assert_int_eq(dsaio_open(&client, path, O_RDONLY, NULL, &reader), 0);
	dsaio_file_close(reader);
	dsaio_file_close(again);
	ck_assert_int_eq(dsaio_file_drop(&client, path), -EBUSY);
	ck_assert_ptr_nonnull(strstr(dsaio_error(), path));
	ck_assert_uint_eq(d.n_removed, 1); /* the one for reading, which was idle */
	ck_assert_int_eq(dsaio_file_drop(&client, NULL), 0);
	file_add_ref(file); /* an op */
	dsaio_file_close(file);
	ck_assert_int_eq(dsaio_file_drop(&client, path), -EBUSY);
	ck_assert_uint_eq(d.n_removed, 1);
	file_drop_ref(file); /* the op's end leaves it on the garbage list */
	ck_assert_int_eq(dsaio_file_drop(&client, path), 0);
	ck_assert_uint_eq(d.n_removed, 2);
}

TEST(a_file_that_the_daemon_has_closed_is_dropped_without_a_message)
{
	struct dsaio_file *file;

	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), 0);
	dsaio_file_close(file);
	ck_assert(file_board_take(board, file->session.id, FILE_BOARD_GONE));
	ck_assert_int_eq(dsaio_file_drop(&client, NULL), 0);
	ck_assert_uint_eq(d.n_removed, 0);
	ck_assert_ptr_null(client.objects[CLIENT_FILE].first);
}

TEST(the_daemons_refusal_is_the_callers_error)
{
	struct dsaio_file *file;

	d.error = -EACCES;
	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), -EACCES);
	ck_assert_ptr_null(client.objects[CLIENT_FILE].first);
	ck_assert_ptr_null(client.inodes);
}

TEST(an_alignment_that_cannot_be_ends_the_session)
{
	struct dsaio_file *file;

	d.offset_align = 3;
	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), -ENOTCONN);
	ck_assert(atomic_load(&conn.is_broken));
}

TEST(the_buffered_description_is_handed_over_once)
{
	struct dsaio_file *file;

	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), 0);
	ck_assert_int_eq(file_need_buffered(file), 0);
	ck_assert_int_eq(file_need_buffered(file), 0);
	ck_assert_uint_eq(d.n_buffered, 1);
	ck_assert_uint_eq(client.files.n, 2);
}

/* ---- cuFile ---- */

static const CUuuid uuid;

static int ask(struct dsaio_file *file, char **ret_why)
{
	*ret_why = NULL;
	return file_gpu_register(file, &uuid, ret_why);
}

TEST(the_daemon_is_asked_once_whether_cufile_takes_a_file)
{
	struct dsaio_file *file;
	char *why;

	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(ask(file, &why), 0);
		ck_assert(!why && !file_gpu_is_refused(file, &why));
	}
	ck_assert_uint_eq(d.n_asked, 1);
}

TEST(a_file_that_cufile_does_not_take_stays_refused_until_it_is_freed)
{
	struct dsaio_file *file;
	char *why;

	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), 0);
	d.gpu_error = -EOPNOTSUPP;
	ck_assert(!file_gpu_is_refused(file, &why)); /* nobody has asked */
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(ask(file, &why), -EOPNOTSUPP);
		ck_assert_str_eq(why, "cuFile says why");
		free(why);
		ck_assert(file_gpu_is_refused(file, &why));
		ck_assert_str_eq(why, "cuFile says why");
		free(why);
		d.gpu_error = 0;
		dsaio_file_close(file); /* it stays, idle */
		ck_assert_int_eq(dsaio_open(&client, path, O_RDWR, NULL, &file), 0);
	}
	ck_assert_uint_eq(d.n_asked, 1);
}

static const struct {
	int error;
	bool has_pause;
} for_now[] = { { -EAGAIN, false }, { -ENOMEM, true }, { -ETIMEDOUT, true }, { -EIO, true } };

TEST_TABLE(a_refusal_that_may_end_is_kept_for_a_pause_at_most, for_now)
{
	struct dsaio_file *file;
	char *why;

	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), 0);
	d.gpu_error = for_now[_i].error;
	client.gpu.pause_nsec = 3600 * UINT64_C(1000000000);
	for (unsigned i = 1; i <= 3; i++) {
		ck_assert_int_eq(ask(file, &why), for_now[_i].error);
		ck_assert_str_eq(why, "cuFile says why");
		free(why);
		ck_assert(!file_gpu_is_refused(file, &why));
		ck_assert_uint_eq(d.n_asked, for_now[_i].has_pause ? 1 : i);
	}
	file->session.gpu_retry_nsec = 0; /* the pause is over */
	d.gpu_error = 0;
	ck_assert_int_eq(ask(file, &why), 0);
	ck_assert_int_eq(ask(file, &why), 0);
}

static void *ask_main(void *arg)
{
	char *why;
	int r = ask(arg, &why);

	ck_assert(r == 0 || strcmp(why, "cuFile says why") == 0);
	free(why);
	return (void *)(intptr_t)r;
}

static const int answers[] = { 0, -EOPNOTSUPP };

TEST_TABLE(threads_that_ask_at_once_get_the_answer, answers)
{
	struct dsaio_file *file;
	pthread_t threads[8];
	void *result;

	d.gpu_error = answers[_i];
	client.gpu.must_import = true;
	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), 0);
	(void)pthread_mutex_lock(&d.answer);
	for (int i = 0; i < N_ROWS(threads); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, ask_main, file), 0);
	while (!d.n_asked)
		(void)usleep(1000);
	(void)pthread_mutex_unlock(&d.answer);
	for (int i = 0; i < N_ROWS(threads); i++) {
		ck_assert_int_eq(pthread_join(threads[i], &result), 0);
		ck_assert_int_eq((int)(intptr_t)result, answers[_i]);
	}
}

static void *make_room(void *arg)
{
	while (d.n_asked < 3)
		(void)usleep(1000);
	atomic_store(&d.gpu_error, 0);
	return arg;
}

TEST(where_nothing_is_copied_the_daemon_is_asked_until_it_has_room)
{
	struct dsaio_file *file;
	pthread_t thread;
	char *why;

	d.gpu_error = -EAGAIN;
	client.gpu.must_import = true;
	ck_assert_int_eq(dsaio_open(&client, path, O_RDWR | O_CREAT, NULL, &file), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, make_room, NULL), 0);
	ck_assert_int_eq(ask(file, &why), 0);
	ck_assert_ptr_null(why);
	ck_assert_uint_ge(d.n_asked, 3);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

FIXTURE(open_setup, open_teardown)
TEST_MAIN
