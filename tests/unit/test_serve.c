/*
 * Requests as frames of a client, and the packed replies that come back.
 */
#include "daemon/control/serve.h"
#include "proto/wire.h"
#include "tests/unit/control_parts.h"

#include <sys/stat.h>

static struct session *session;
static int client_fd;
static struct frame_reader reader;
static struct frame frame; /* the last reply's */
static Wire__Reply *reply;

static void forget_reply(void)
{
	if (reply)
		wire__reply__free_unpacked(reply, NULL);
	reply = NULL;
	frame_deinit(&frame);
}

static void setup(void)
{
	control_setup();
	c.service.on_frame = serve_frame;
	c.service.on_garbage = serve_garbage;
	session = control_connect(&client_fd);
	reader = (struct frame_reader){ 0 };
	frame = (struct frame){ 0 };
	reply = NULL;
}

static void teardown(void)
{
	forget_reply();
	frame_reader_deinit(&reader);
	(void)close(client_fd);
	control_teardown();
}

/* 1: reply and frame are filled in; 0: end of file. */
static int await_reply(void)
{
	char text[200];
	int r;

	forget_reply();
	while ((r = frame_read(&reader, client_fd, &frame, text, sizeof(text))) == -EAGAIN)
		ck_assert_int_ge(event_base_loop(c.base, EVLOOP_ONCE), 0);
	ck_assert_int_ge(r, 0);
	if (r == 1) {
		reply = wire__reply__unpack(NULL, frame.len, frame.body);
		ck_assert_ptr_nonnull(reply);
	}
	return r;
}

static void send_bytes(const void *bytes, size_t len)
{
	struct frame_writer writer = { 0 };

	ck_assert_int_eq(frame_queue(&writer, bytes, len, NULL, 0), 0);
	ck_assert_int_eq(frame_flush(&writer, client_fd), 0);
	frame_writer_deinit(&writer);
}

/* Sends a request and waits for its reply. */
static void request(uint64_t seq, Wire__Request__BodyCase what, void *body)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	uint8_t bytes[400];

	request.seq = seq;
	request.body_case = what;
	request.status = body; /* all are pointers of one union */
	ck_assert_uint_le(wire__request__get_packed_size(&request), sizeof(bytes));
	send_bytes(bytes, wire__request__pack(&request, bytes));
	ck_assert_int_eq(await_reply(), 1);
}

static void greet(uint32_t version)
{
	Wire__Hello hello = WIRE__HELLO__INIT;

	hello.version_min = hello.version_max = version;
	hello.name = (char *)(uintptr_t) "a program";
	request(1, WIRE__REQUEST__BODY_HELLO, &hello);
}

TEST(hello_is_answered_with_version_and_file_board)
{
	greet(1);
	ck_assert_uint_eq(reply->seq, 1);
	ck_assert_int_eq(reply->error, 0);
	ck_assert_int_eq(reply->body_case, WIRE__REPLY__BODY_HELLO);
	ck_assert_uint_eq(reply->hello->version, 1);
	ck_assert_uint_eq(frame.n_fds, 1);
	ck_assert_str_eq(session->name, "a program");
}

TEST(without_a_common_version_the_session_ends_after_the_reply)
{
	greet(99);
	ck_assert_int_eq(reply->error, -EPROTONOSUPPORT);
	ck_assert_ptr_nonnull(strstr(reply->text, "99"));
	ck_assert_int_eq(await_reply(), 0);
}

TEST(a_slab_is_answered_by_its_call_with_its_memory)
{
	Wire__SlabNew slab_new = WIRE__SLAB_NEW__INIT;
	struct stat st;

	greet(1);
	slab_new.size_bytes = 4096;
	request(7, WIRE__REQUEST__BODY_SLAB_NEW, &slab_new);
	ck_assert_uint_eq(reply->seq, 7);
	ck_assert_msg(reply->error == 0, "%s", reply->text);
	ck_assert_int_eq(reply->body_case, WIRE__REPLY__BODY_SLAB_NEW);
	ck_assert_uint_eq(reply->slab_new->size_bytes, 4096);
	ck_assert_uint_eq(frame.n_fds, 1);
	ck_assert_int_eq(fstat(frame.fds[0], &st), 0);
	ck_assert_int_eq(st.st_size, 4096);
}

TEST(a_handle_and_a_status_are_answered_at_once)
{
	Wire__HandleOpen open = WIRE__HANDLE_OPEN__INIT;
	Wire__Status status = WIRE__STATUS__INIT;

	greet(1);
	request(2, WIRE__REQUEST__BODY_HANDLE_OPEN, &open);
	ck_assert_int_eq(reply->body_case, WIRE__REPLY__BODY_HANDLE_OPEN);
	ck_assert_uint_eq(frame.n_fds, 1);
	request(3, WIRE__REQUEST__BODY_STATUS, &status);
	ck_assert_uint_eq(reply->seq, 3);
	ck_assert_int_eq(reply->body_case, WIRE__REPLY__BODY_STATUS);
	ck_assert_uint_eq(reply->status->n_clients, 1);
	ck_assert_str_eq(reply->status->clients[0]->name, "a program");
}

TEST(a_refused_request_has_errno_and_text_and_the_session_lives)
{
	Wire__SlabFree slab_free = WIRE__SLAB_FREE__INIT;
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;

	greet(1);
	slab_free.slab = 5;
	request(2, WIRE__REQUEST__BODY_SLAB_FREE, &slab_free);
	ck_assert_uint_eq(reply->seq, 2);
	ck_assert_int_lt(reply->error, 0);
	ck_assert_ptr_nonnull(strstr(reply->text, "5"));
	request(3, WIRE__REQUEST__BODY_FILE_ADD, &file_add); /* without a descriptor */
	ck_assert_uint_eq(reply->seq, 3);
	ck_assert_int_eq(reply->error, -EINVAL);
	ck_assert_int_eq(session->state, SESSION_OPEN);
}

TEST(bytes_that_are_no_request_end_the_session)
{
	greet(1);
	send_bytes("\xff\xff\xff\xff", 4);
	ck_assert_int_eq(await_reply(), 1);
	ck_assert_uint_eq(reply->seq, 0);
	ck_assert_int_eq(reply->error, -EPROTO);
	ck_assert_ptr_nonnull(strstr(reply->text, "a frame of 4 bytes is no request"));
	ck_assert_int_eq(await_reply(), 0);
	ck_assert_uint_eq(c.service.n_sessions, 0);
}

TEST(a_request_before_hello_ends_the_session)
{
	Wire__Status status = WIRE__STATUS__INIT;

	request(2, WIRE__REQUEST__BODY_STATUS, &status);
	ck_assert_int_eq(reply->error, -EPROTO);
	ck_assert_ptr_nonnull(strstr(reply->text, "before hello"));
	ck_assert_int_eq(await_reply(), 0);
}

TEST(a_header_that_is_no_frame_ends_the_session)
{
	greet(1);
	ck_assert_int_eq(send(client_fd, "\xff\xff\xff\xff\0\0\0\0", FRAME_HEADER_BYTES, 0),
			 FRAME_HEADER_BYTES);
	ck_assert_int_eq(await_reply(), 1);
	ck_assert_int_eq(reply->error, -EPROTO);
	ck_assert_int_eq(await_reply(), 0);
}

FIXTURE(setup, teardown)
TEST_MAIN
