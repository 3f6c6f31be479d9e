#include "client/lib/link/conn.h"

#include "client/lib/io/client.h"
#include "client/lib/memory/slab.h"
#include "proto/file_board.h"
#include "proto/util/cleanup.h"
#include "tests/unit/daemon_end.h"
#include "tests/unit/suite.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define N_CALLS 16u

/* A connection whose other end is the test's. */
static struct dsaio_conn conn;
static struct frame_reader reader;
static int daemon_fd;

static void conn_setup(void)
{
	memset(&reader, 0, sizeof(reader)); /* as daemon_end_connect() does with conn */
	daemon_fd = daemon_end_connect(&conn);
}

static void conn_teardown(void)
{
	ck_assert_uint_eq(conn.n_places, 0);
	ck_assert_ptr_null(conn.pending.first);
	conn_calls_deinit(&conn);
	frame_reader_deinit(&reader);
	(void)close(conn.fd);
	closep(&daemon_fd);
}

/* ---- the daemon ---- */

/* The next request's seq; its slab's size goes to ret_bytes. */
static uint64_t daemon_receive(uint64_t *ret_bytes)
{
	struct frame frame;
	Wire__Request *request = daemon_end_read(&reader, daemon_fd, &frame);
	uint64_t seq;

	ck_assert_ptr_nonnull(request);
	seq = request->seq;
	if (ret_bytes && request->body_case == WIRE__REQUEST__BODY_SLAB_NEW)
		*ret_bytes = request->slab_new->size_bytes;
	wire__request__free_unpacked(request, NULL);
	return seq;
}

/* bytes: 0: to a request whose reply is empty; else with a memfd of that size. */
static void daemon_reply(uint64_t seq, uint64_t bytes)
{
	Wire__Reply reply = WIRE__REPLY__INIT;
	Wire__SlabNewReply slab = WIRE__SLAB_NEW_REPLY__INIT;
	int fd = -1;

	reply.seq = seq;
	if (bytes) {
		slab.slab = (uint32_t)bytes;
		reply.body_case = WIRE__REPLY__BODY_SLAB_NEW;
		reply.slab_new = &slab;
		fd = memfd_create("slab", MFD_CLOEXEC);
		ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	}
	ck_assert_int_eq(daemon_end_reply(daemon_fd, &reply, fd), 0);
}

/* ---- calls ---- */

struct caller {
	uint64_t bytes; /* 0: a close of a handle, while the daemon lives */
	pthread_t thread;
	int result;
};

static void *caller_main(void *arg)
{
	struct caller *caller = arg;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__HandleClose handle_close = WIRE__HANDLE_CLOSE__INIT;
	struct slab_name slab;
	int fd;

	if (!caller->bytes) {
		request.body_case = WIRE__REQUEST__BODY_HANDLE_CLOSE;
		request.handle_close = &handle_close;
		caller->result = conn_call_while_alive(&conn, "handle_close", &request, NULL, 0,
						       NULL, NULL);
		return NULL;
	}
	caller->result = slab_ask(&conn, "alloc", caller->bytes, &SLAB_ANYWHERE, &slab, &fd);
	if (caller->result == 0) {
		ck_assert_uint_eq(slab.id, caller->bytes);
		ck_assert_int_eq(lseek(fd, 0, SEEK_END), (off_t)caller->bytes);
		(void)close(fd);
	}
	return NULL;
}

static void callers_start(struct caller *callers, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		callers[i].bytes = i + 1;
		ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]),
				 0);
	}
}

static void callers_join(struct caller *callers, unsigned n, int result)
{
	for (unsigned i = 0; i < n; i++) {
		ck_assert_int_eq(pthread_join(callers[i].thread, NULL), 0);
		ck_assert_int_eq(callers[i].result, result);
	}
}

TEST(replies_in_another_order_reach_their_calls_with_their_descriptors)
{
	struct caller callers[N_CALLS] = { 0 };
	uint64_t seqs[N_CALLS], bytes[N_CALLS];

	callers_start(callers, N_CALLS);
	for (unsigned i = 0; i < N_CALLS; i++)
		seqs[i] = daemon_receive(&bytes[i]);
	for (unsigned i = N_CALLS; i-- > 0;)
		daemon_reply(seqs[i], bytes[i]);
	callers_join(callers, N_CALLS, 0);
}

static const struct {
	const char *what;
	int n;
} wrong_fds[] = { { "none", 0 }, { "two", 2 } };

TEST_TABLE(a_reply_with_another_number_of_descriptors_is_refused, wrong_fds)
{
	struct caller caller = { .bytes = 5 };
	Wire__Reply reply = WIRE__REPLY__INIT;
	Wire__SlabNewReply slab = WIRE__SLAB_NEW_REPLY__INIT;
	struct frame_writer writer = { 0 };
	const int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int fds[2] = { open("/dev/null", O_RDONLY | O_CLOEXEC),
		       open("/dev/null", O_RDONLY | O_CLOEXEC) };
	uint8_t body[512];
	int after;

	ck_assert_int_eq(pthread_create(&caller.thread, NULL, caller_main, &caller), 0);
	reply.seq = daemon_receive(NULL);
	slab.slab = 5;
	reply.body_case = WIRE__REPLY__BODY_SLAB_NEW;
	reply.slab_new = &slab;
	ck_assert_int_eq(frame_queue(&writer, body, wire__reply__pack(&reply, body), fds,
				     (unsigned)wrong_fds[_i].n),
			 0);
	ck_assert_int_eq(frame_flush(&writer, daemon_fd), 0);
	frame_writer_deinit(&writer);
	callers_join(&caller, 1, -ENOTCONN);
	/* None that came is left open. */
	(void)close(fds[0]);
	(void)close(fds[1]);
	(void)close(before);
	after = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ck_assert_int_le(after, before);
	(void)close(after);
	closep(&daemon_fd); /* it was broken */
	while (!conn_is_gone(&conn))
		;
}

TEST(a_call_returns_while_an_earlier_one_hangs)
{
	struct caller hung = { .bytes = 1 }, other = { .bytes = 2 };
	uint64_t hung_seq, bytes;

	ck_assert_int_eq(pthread_create(&hung.thread, NULL, caller_main, &hung), 0);
	hung_seq = daemon_receive(&bytes);
	for (unsigned i = 0; i < 100; i++) {
		ck_assert_int_eq(pthread_create(&other.thread, NULL, caller_main, &other), 0);
		daemon_reply(daemon_receive(&bytes), 2);
		callers_join(&other, 1, 0);
	}
	daemon_reply(hung_seq, 1);
	callers_join(&hung, 1, 0);
}

TEST(a_thread_that_stops_polling_leaves_that_to_another)
{
	struct caller polling = { .bytes = 1 }, following = { .bytes = 2 };
	uint64_t polling_seq, following_seq, bytes;
	bool is_polling = false;

	ck_assert_int_eq(pthread_create(&polling.thread, NULL, caller_main, &polling), 0);
	polling_seq = daemon_receive(&bytes);
	while (!is_polling) {
		(void)pthread_mutex_lock(&conn.lock);
		is_polling = conn.n_polling > 0;
		(void)pthread_mutex_unlock(&conn.lock);
	}
	ck_assert_int_eq(pthread_create(&following.thread, NULL, caller_main, &following), 0);
	following_seq = daemon_receive(&bytes); /* it has the lock until it sleeps */
	daemon_reply(polling_seq, 1);
	callers_join(&polling, 1, 0);
	daemon_reply(following_seq, 2);
	callers_join(&following, 1, 0);
}

TEST(the_daemons_end_ends_all_calls)
{
	struct caller callers[N_CALLS] = { 0 };

	callers_start(callers, N_CALLS);
	for (unsigned i = 0; i < N_CALLS; i++)
		(void)daemon_receive(NULL);
	closep(&daemon_fd);
	daemon_fd = -1;
	callers_join(callers, N_CALLS, -ENOTCONN);
	ck_assert(conn_is_gone(&conn));
}

TEST(a_reply_that_nobody_asked_for_breaks_the_connection)
{
	struct caller caller = { .bytes = 1 };
	char byte;

	ck_assert_int_eq(pthread_create(&caller.thread, NULL, caller_main, &caller), 0);
	daemon_reply(daemon_receive(NULL) + 1, 1);
	callers_join(&caller, 1, -ENOTCONN);
	ck_assert(atomic_load(&conn.is_broken));
	ck_assert_int_eq(recv(daemon_fd, &byte, 1, 0), 0); /* it was asked to end */
}

/* ---- replies that nobody waits for ---- */

static void post(void)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__FileRemove remove = WIRE__FILE_REMOVE__INIT;

	request.body_case = WIRE__REQUEST__BODY_FILE_REMOVE;
	request.file_remove = &remove;
	conn_post(&conn, &request);
}

TEST(posts_never_wait_and_their_replies_disturb_no_call)
{
	struct caller caller = { .bytes = 1 };
	uint64_t seqs[8], seq, bytes;

	ck_assert(!conn_await_post(&conn, 0));
	for (unsigned i = 0; i < 8; i++)
		post();
	for (unsigned i = 0; i < 8; i++)
		seqs[i] = daemon_receive(NULL);
	ck_assert_int_eq(pthread_create(&caller.thread, NULL, caller_main, &caller), 0);
	seq = daemon_receive(&bytes);
	for (unsigned i = 0; i < 7; i++)
		daemon_reply(seqs[i], 0);
	daemon_reply(seq, bytes);
	callers_join(&caller, 1, 0);
	daemon_reply(seqs[7], 0);
	ck_assert(conn_await_post(&conn, 7));
	ck_assert_uint_eq(conn_posts_answered(&conn), 8);
	ck_assert(!conn_await_post(&conn, 8));
}

/* Read by the next post: who waits for it must not wait for the one that hangs. */
TEST(an_answer_that_came_already_is_not_waited_for)
{
	post(); /* hangs */
	post();
	(void)daemon_receive(NULL);
	daemon_reply(daemon_receive(NULL), 0);
	post();
	ck_assert(conn_await_post(&conn, 0));
}

/* More than the socket takes: the rest goes out when the daemon reads again. */
TEST(posts_that_the_socket_does_not_take_go_out_later)
{
	enum { N = 4000 };
	struct caller caller = { .bytes = 1 };
	uint64_t bytes;

	for (unsigned i = 0; i < N; i++)
		post();
	ck_assert_ptr_nonnull(conn.writer.queue.first);
	ck_assert_int_eq(pthread_create(&caller.thread, NULL, caller_main, &caller), 0);
	for (unsigned i = 0; i < N; i++)
		daemon_reply(daemon_receive(NULL), 0);
	daemon_reply(daemon_receive(&bytes), 1);
	callers_join(&caller, 1, 0);
}

/* ---- a daemon that says nothing ---- */

TEST(a_silent_daemon_is_given_up_after_it_was_asked)
{
	struct caller caller = { .bytes = 0 };

	conn.silence.limit_msec = 20;
	ck_assert_int_eq(pthread_create(&caller.thread, NULL, caller_main, &caller), 0);
	callers_join(&caller, 1, -ETIMEDOUT);
	(void)daemon_receive(NULL); /* the call */
	(void)daemon_receive(NULL); /* the question whether it lives */
	ck_assert(atomic_load(&conn.is_broken));
	conn.silence.limit_msec = UINT32_MAX; /* it is not waited for once more */
	ck_assert(!conn_await_end(&conn, true));
}

TEST(a_daemon_that_lives_is_waited_for)
{
	struct caller caller = { .bytes = 0 };
	uint64_t seq;

	conn.silence.limit_msec = 10000; /* half of it is for an answer */
	ck_assert_int_eq(pthread_create(&caller.thread, NULL, caller_main, &caller), 0);
	seq = daemon_receive(NULL);
	for (unsigned i = 0; i < 2; i++) /* together longer than the limit */
		daemon_reply(daemon_receive(NULL), 0);
	daemon_reply(seq, 0);
	callers_join(&caller, 1, 0);
}

/* ---- another session ---- */

/* The session of another daemon; the test's end becomes daemon_fd, what it was is returned. */
static int session_replace(void)
{
	struct dsaio_conn *next = calloc(1, sizeof(*next));
	int fds[2], old_fd = daemon_fd;

	ck_assert_ptr_nonnull(next);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	ck_assert_int_eq(fcntl(fds[0], F_SETFL, O_RDWR | O_NONBLOCK), 0);
	conn_calls_init(next);
	(void)pthread_mutex_init(&next->lock, NULL);
	next->fd = fds[0];
	next->facts.max_entries = 7;
	conn_replace(&conn, next);
	frame_reader_deinit(&reader);
	memset(&reader, 0, sizeof(reader));
	daemon_fd = fds[1];
	return old_fd;
}

static void check_one_call(void)
{
	struct caller caller = { .bytes = 1 };
	uint64_t seq, bytes;

	ck_assert_int_eq(pthread_create(&caller.thread, NULL, caller_main, &caller), 0);
	seq = daemon_receive(&bytes);
	daemon_reply(seq, bytes);
	callers_join(&caller, 1, 0);
}

TEST(a_replacement_of_a_silent_session_is_not_silent)
{
	conn.silence.limit_msec = 1;
	atomic_store(&conn.is_broken, true);
	ck_assert(!conn_await_end(&conn, true));
	ck_assert(conn.silence.is_silent);
	(void)close(session_replace());
	ck_assert(!conn.silence.is_silent);
	ck_assert_uint_eq(conn.silence.limit_msec, 1);
	check_one_call();
}

TEST(a_call_after_a_replacement_goes_to_the_new_daemon)
{
	struct dsaio_client client = { .conn = &conn };
	const int number = conn.fd;
	char byte;
	int old_fd;

	check_one_call();
	closep(&daemon_fd);
	daemon_fd = -1;
	ck_assert(conn_is_gone(&conn));
	ck_assert_int_eq(client_check_alive(&client, "f"), -ENOTCONN);
	old_fd = session_replace();
	ck_assert_int_eq(old_fd, -1);
	ck_assert_int_eq(conn.fd, number);
	ck_assert_int_eq(client_check_alive(&client, "f"), 0);
	ck_assert_uint_eq(conn_facts(client.conn).max_entries, 7);
	check_one_call();

	old_fd = session_replace(); /* the daemon lives: its session ends */
	ck_assert_int_eq(recv(old_fd, &byte, 1, 0), 0);
	(void)close(old_fd);
	ck_assert(!conn_is_gone(&conn));
	check_one_call();
}

TEST(a_replacement_ends_calls_in_progress)
{
	struct caller callers[N_CALLS] = { 0 };

	callers_start(callers, N_CALLS);
	for (unsigned i = 0; i < N_CALLS; i++)
		(void)daemon_receive(&(uint64_t){ 0 });
	(void)close(session_replace());
	callers_join(callers, N_CALLS, -ENOTCONN);
	ck_assert(!atomic_load(&conn.is_broken));
	ck_assert(!conn_is_gone(&conn));
	check_one_call();
}

/* A request that ends an object of that session. */
static void post_end(uint32_t session, uint32_t id)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__SlabFree body = WIRE__SLAB_FREE__INIT;

	body.slab = id;
	request.body_case = WIRE__REQUEST__BODY_SLAB_FREE;
	request.slab_free = &body;
	conn_post_in(&conn, &request, session);
}

static void on_gone(void *arg)
{
	(void)arg;
}

/* Handing over fails once, so the next session is number 2. */
TEST(an_object_is_ended_in_the_session_that_has_it)
{
	static const uint32_t wanted[] = { 3, 6, 8 };

	conn.on_gone = on_gone;
	closep(&daemon_fd);
	daemon_fd = -1;
	ck_assert(conn_is_gone(&conn));
	post_end(0, 1);
	conn_attempt_begin(&conn);
	post_end(1, 2); /* attempt 1 has it, which fails */
	conn_attempt_begin(&conn);
	post_end(2, 3);
	post_end(0, 4); /* it was not handed over */
	post_end(1, 5);
	(void)session_replace();
	post_end(2, 6);
	post_end(0, 7);
	post_end(2, 8);
	for (size_t i = 0; i < N_ROWS(wanted); i++) {
		struct frame frame;
		Wire__Request *request = daemon_end_read(&reader, daemon_fd, &frame);

		ck_assert_ptr_nonnull(request);
		ck_assert_uint_eq(request->slab_free->slab, wanted[i]);
		wire__request__free_unpacked(request, NULL);
	}
	ck_assert_int_lt(recv(daemon_fd, &(char){ 0 }, 1, MSG_DONTWAIT), 0); /* no more */
}

TEST(sleeps_see_the_end_of_the_session_that_is)
{
	struct pollfd fds[1];

	(void)close(session_replace());
	ck_assert_int_eq(conn_sleep(&conn, fds, 1, &(struct timespec){ 0, 1 }), 0);
	closep(&daemon_fd);
	daemon_fd = -1;
	ck_assert(!conn_was_gone(&conn));
	ck_assert_int_eq(conn_sleep(&conn, fds, 1, NULL), 1);
	ck_assert(conn_was_gone(&conn));

	(void)session_replace();
	ck_assert(!conn_was_gone(&conn));
}

TEST(the_file_board_has_a_word_for_as_many_files_as_the_daemon_says)
{
	_Alignas(4096) _Atomic uint32_t board[1024] = { 0 };
	const uint32_t file = 5u << 16 | 1023u;

	conn.file_board = board;
	conn.facts.max_files = 1000; /* a whole page */
	ck_assert(conn_file_idle(&conn, file));
	ck_assert(!conn_file_idle(&conn, file + 1)); /* it cannot be kept */
	ck_assert(conn_file_use(&conn, file));
	ck_assert(conn_file_idle(&conn, file));
	ck_assert(file_board_take(board, file, FILE_BOARD_GONE));
	ck_assert(!conn_file_use(&conn, file));
	file_board_set_used(board,
			    file + (1u << 16)); /* the daemon has the next file at its index */
	ck_assert(!conn_file_use(&conn, file));
	conn.file_board = NULL;
}

TEST(that_a_quiet_file_is_idle_is_said_by_a_request)
{
	_Alignas(4096) _Atomic uint32_t board[1024] = { 0 };
	struct pollfd p = { .fd = daemon_fd, .events = POLLIN };
	const uint32_t file = 5u << 16 | 7u;

	conn.file_board = board;
	conn.facts.max_files = 1000;
	file_board_set_used(board, file);
	ck_assert(conn_file_idle(&conn, file));
	ck_assert(conn_file_use(&conn, file));
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	ck_assert(file_board_set_quiet(board, file));
	ck_assert(conn_file_idle(&conn, file)); /* it stays in the cache all the same */
	(void)daemon_receive(NULL);
	ck_assert(conn_file_use(&conn, file));
	ck_assert(conn_file_idle(&conn, file));
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	conn.file_board = NULL;
}

FIXTURE(conn_setup, conn_teardown)
TEST_MAIN
