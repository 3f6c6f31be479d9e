#include "proto/frame.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct pair {
	int a, b; /* a sends, b reads */
	struct frame_writer writer;
	struct frame_reader reader;
	struct frame frame;
	char why[200];
};

static void pair_init(struct pair *pair)
{
	int fds[2];

	memset(pair, 0, sizeof(*pair));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	pair->a = fds[0];
	pair->b = fds[1];
}

static void pair_deinit(struct pair *pair)
{
	frame_writer_deinit(&pair->writer);
	frame_reader_deinit(&pair->reader);
	(void)close(pair->a);
	(void)close(pair->b);
}

static int pair_read(struct pair *pair)
{
	return frame_read(&pair->reader, pair->b, &pair->frame, pair->why, sizeof(pair->why));
}

/* Bytes as they stand, with n descriptors that are copies of standard input. */
static void pair_send_raw(struct pair *pair, const void *bytes, size_t len, unsigned n_fds)
{
	char control[CMSG_SPACE(FRAME_FDS_RECEIVED_MAX * sizeof(int))]
		__attribute__((aligned(8))) = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[FRAME_FDS_RECEIVED_MAX] = { 0 };

	if (n_fds) {
		struct cmsghdr *c;

		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(pair->a, &msg, 0), (ssize_t)len);
}

static unsigned n_open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 512; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static const size_t sizes[] = { 1, 2, 4087, 4088, 4089, 4096, 65536, FRAME_BODY_MAX };

TEST_TABLE(frames_of_any_size_arrive_as_they_were_sent, sizes)
{
	struct pair pair;
	size_t len = sizes[_i];
	uint8_t *body = malloc(len);
	int r;

	for (size_t i = 0; i < len; i++)
		body[i] = (uint8_t)(i * 7 + len);
	pair_init(&pair);
	for (int round = 0; round < 3; round++)
		ck_assert_int_eq(frame_queue(&pair.writer, body, len, NULL, 0), 0);
	ck_assert_uint_eq(pair.writer.queued_bytes, 3 * (len + FRAME_HEADER_BYTES));
	for (int round = 0; round < 3; round++) {
		for (;;) {
			r = frame_flush(&pair.writer, pair.a);
			ck_assert(r == 0 || r == -EAGAIN);
			r = pair_read(&pair);
			if (r != -EAGAIN)
				break;
		}
		ck_assert_int_eq(r, 1);
		ck_assert_uint_eq(pair.frame.len, len);
		ck_assert_int_eq(memcmp(pair.frame.body, body, len), 0);
		ck_assert_uint_eq(pair.frame.n_fds, 0);
	}
	ck_assert_uint_eq(pair.writer.queued_bytes, 0);
	ck_assert_int_eq(pair_read(&pair), -EAGAIN);
	ck_assert_uint_le(pair.reader.size, 4096); /* it shrinks when nothing is coming */
	pair_deinit(&pair);
	free(body);
}

TEST(a_frame_that_comes_byte_by_byte_is_whole_at_its_last)
{
	static const uint8_t bytes[] = { 3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c' };
	struct pair pair;

	pair_init(&pair);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		ck_assert_int_eq(pair_read(&pair), -EAGAIN);
		pair_send_raw(&pair, bytes + i, 1, 0);
	}
	ck_assert_int_eq(pair_read(&pair), 1);
	ck_assert_uint_eq(pair.frame.len, 3);
	ck_assert_int_eq(memcmp(pair.frame.body, "abc", 3), 0);
	pair_deinit(&pair);
}

TEST(descriptors_travel_with_their_own_frame)
{
	struct pair pair;
	unsigned before = n_open_fds();

	pair_init(&pair);
	for (unsigned n = 0; n <= FRAME_FDS_MAX; n++) { /* the n-th has n of them */
		int fds[FRAME_FDS_MAX];

		for (unsigned i = 0; i < n; i++) {
			fds[i] = open("/dev/null", O_RDWR);
			ck_assert_int_eq(ftruncate(fds[i], 0), -1);
		}
		ck_assert_int_eq(frame_queue(&pair.writer, &n, 1, fds, n), 0);
	}
	ck_assert_int_eq(frame_flush(&pair.writer, pair.a), 0);
	for (unsigned n = 0; n <= FRAME_FDS_MAX; n++) {
		ck_assert_int_eq(pair_read(&pair), 1);
		ck_assert_uint_eq(pair.frame.body[0], n);
		ck_assert_uint_eq(pair.frame.n_fds, n);
		for (unsigned i = 0; i < n; i++) {
			struct stat st;

			ck_assert_int_eq(fstat(pair.frame.fds[i], &st), 0);
			ck_assert(S_ISCHR(st.st_mode));
			ck_assert_int_eq(fcntl(pair.frame.fds[i], F_GETFD), FD_CLOEXEC);
		}
		frame_deinit(&pair.frame);
	}
	ck_assert_int_eq(pair_read(&pair), -EAGAIN);
	pair_deinit(&pair);
	ck_assert_uint_eq(n_open_fds(), before);
}

static const struct {
	const char *what;
	uint8_t bytes[12];
	size_t len;
	unsigned n_fds;
	const char *why; /* a word of the message */
} garbage[] = {
	{ "empty", { 0 }, 8, 0, "0 bytes" },
	{ "one byte too long", { 1, 0, 2, 0 }, 8, 0, "131073" },
	{ "as long as it can be said", { 255, 255, 255, 255 }, 8, 0, "4294967295" },
	{ "five descriptors", { 1, 0, 0, 0, 5 }, 8, 0, "5 descriptors" },
	{ "65535 descriptors", { 1, 0, 0, 0, 255, 255 }, 8, 0, "65535 descriptors" },
	{ "no zeros", { 1, 0, 0, 0, 0, 0, 0, 7 }, 8, 0, "0007" },
	{ "text", "GET / HTTP/1", 12, 0, "must be from" },
	{ "announced and not sent", { 1, 0, 0, 0, 1 }, 9, 0, "1 descriptors announced, 0 came" },
	{ "sent and too few", { 1, 0, 0, 0, 2 }, 9, 1, "2 descriptors announced, 1 came" },
	{ "more than a frame may have", { 1 }, 1, 5, "5 descriptors came at once" },
	{ "as many as the kernel takes", { 1 }, 1, FRAME_FDS_RECEIVED_MAX, "253 descriptors" },
};

TEST_TABLE(what_is_no_frame_is_refused_with_the_reason, garbage)
{
	struct pair pair;
	unsigned before = n_open_fds();

	pair_init(&pair);
	pair_send_raw(&pair, garbage[_i].bytes, garbage[_i].len, garbage[_i].n_fds);
	ck_assert_msg(pair_read(&pair) == -EPROTO, "%s", garbage[_i].what);
	ck_assert_msg(strstr(pair.why, garbage[_i].why), "%s: %s", garbage[_i].what, pair.why);
	pair_deinit(&pair);
	ck_assert_uint_eq(n_open_fds(), before);
}

TEST(the_kernel_closed_what_a_reader_had_no_room_for)
{
	static const uint8_t byte = 1;
	struct pair pair;

	pair_init(&pair);
	pair_send_raw(&pair, &byte, 1, FRAME_FDS_RECEIVED_MAX);
	ck_assert_int_eq(pair_read(&pair), -EPROTO);
	ck_assert_uint_eq(pair.reader.n_fds, FRAME_FDS_RECEIVED_MAX); /* for the reader's owner */
	pair_deinit(&pair);
}

TEST(descriptors_that_no_header_announced_are_refused_at_the_next_read)
{
	static const uint8_t bytes[] = { 1, 0, 0, 0, 0, 0, 0, 0, 'x' };
	struct pair pair;

	pair_init(&pair);
	pair_send_raw(&pair, bytes, sizeof(bytes), 2);
	ck_assert_int_eq(pair_read(&pair), 1);
	ck_assert_uint_eq(pair.frame.n_fds, 0);
	ck_assert_int_eq(pair_read(&pair), -EPROTO);
	ck_assert_uint_eq(pair.reader.n_fds, 2); /* for the reader's owner */
	pair_deinit(&pair);
}

TEST(descriptors_with_each_byte_of_a_header_do_not_gather)
{
	static const uint8_t zero;
	struct pair pair;
	int r;

	pair_init(&pair);
	for (int i = 0; i < 4; i++)
		pair_send_raw(&pair, &zero, 1, 4);
	do
		r = pair_read(&pair);
	while (r == 1);
	ck_assert_int_eq(r, -EPROTO);
	ck_assert_uint_le(pair.reader.n_fds, 2 * FRAME_FDS_MAX);
	pair_deinit(&pair);
}

TEST(the_end_between_frames_is_an_end)
{
	struct pair pair;

	pair_init(&pair);
	ck_assert_int_eq(shutdown(pair.a, SHUT_WR), 0);
	ck_assert_int_eq(pair_read(&pair), 0);
	pair_deinit(&pair);
}

TEST(the_end_within_a_frame_is_an_error)
{
	static const uint8_t bytes[] = { 4, 0, 0, 0, 0, 0, 0, 0, 'x' };
	struct pair pair;

	pair_init(&pair);
	pair_send_raw(&pair, bytes, sizeof(bytes), 0);
	ck_assert_int_eq(shutdown(pair.a, SHUT_WR), 0);
	ck_assert_int_eq(pair_read(&pair), -EPROTO);
	ck_assert_msg(strstr(pair.why, "9 bytes into it, of 12"), "%s", pair.why);
	pair_deinit(&pair);
}

TEST(a_full_socket_keeps_the_rest_for_later)
{
	struct pair pair;
	uint8_t *body = calloc(1, FRAME_BODY_MAX);
	unsigned n_read = 0;
	int r;

	pair_init(&pair);
	for (int i = 0; i < 40; i++)
		ck_assert_int_eq(frame_queue(&pair.writer, body, FRAME_BODY_MAX, NULL, 0), 0);
	ck_assert_int_eq(frame_flush(&pair.writer, pair.a), -EAGAIN);
	ck_assert_uint_gt(pair.writer.queued_bytes, 0);
	while (n_read < 40) {
		r = pair_read(&pair);
		if (r == -EAGAIN)
			ck_assert(frame_flush(&pair.writer, pair.a) <= 0);
		else
			n_read += r == 1;
	}
	ck_assert_uint_eq(pair.writer.queued_bytes, 0);
	pair_deinit(&pair);
	free(body);
}

TEST(a_frame_that_can_not_be_queued_costs_its_descriptors)
{
	struct pair pair;
	unsigned before = n_open_fds();
	uint8_t body = 0;
	int fd;

	pair_init(&pair);
	fd = open("/dev/null", O_RDWR);
	ck_assert_int_eq(frame_queue(&pair.writer, &body, 0, &fd, 1), -EMSGSIZE);
	fd = open("/dev/null", O_RDWR);
	ck_assert_int_eq(frame_queue(&pair.writer, &body, FRAME_BODY_MAX + 1, &fd, 1), -EMSGSIZE);
	fd = open("/dev/null", O_RDWR);
	ck_assert_int_eq(frame_queue(&pair.writer, &body, 1, &fd, 1), 0); /* never sent */
	pair_deinit(&pair);
	ck_assert_uint_eq(n_open_fds(), before);
}

TEST(a_peer_that_is_gone_is_an_error_and_no_signal)
{
	struct pair pair;
	uint8_t body = 1;

	pair_init(&pair);
	(void)close(pair.b);
	pair.b = -1;
	ck_assert_int_eq(frame_queue(&pair.writer, &body, 1, NULL, 0), 0);
	ck_assert_int_eq(frame_flush(&pair.writer, pair.a), -EPIPE);
	pair_deinit(&pair);
}

TEST_MAIN
