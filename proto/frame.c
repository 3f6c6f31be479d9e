/*
 * Reading: one buffer collects bytes.  It starts small, grows to the size of the next frame and
 * shrinks again, because a daemon has many readers.  Descriptors queue beside it, oldest first.
 *
 * The kernel ends a recvmsg(2) behind the data that descriptors came with, and delivers them with
 * the first byte of that data.  So while the buffer contains no whole frame, queued descriptors belong to
 * the next frame, and each recvmsg(2) brings descriptors of at most one more frame: the queue has
 * room for two frames.  A hostile peer sends more with one message.  The reader receives these, too,
 * so the owner can close them on a thread that may wait.
 */
#include "proto/frame.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Buffer of an idle reader: most requests and replies fit. */
#define READER_BYTES 4096u

struct frame_out {
	struct list_node node;
	size_t size, sent; /* header and body */
	int fds[FRAME_FDS_MAX];
	unsigned n_fds; /* not yet sent */
	uint8_t bytes[];
};

union fds_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
};

union received_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(FRAME_FDS_RECEIVED_MAX * sizeof(int))];
};

static void fds_close(const int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (fds[i] >= 0)
			(void)close(fds[i]); /* no data of ours can be lost */
}

static void header_put(uint8_t *bytes, uint32_t len, uint16_t n_fds)
{
	for (unsigned i = 0; i < 4; i++)
		bytes[i] = (uint8_t)(len >> 8 * i);
	bytes[4] = (uint8_t)n_fds;
	bytes[5] = (uint8_t)(n_fds >> 8);
	bytes[6] = bytes[7] = 0;
}

/* Decodes and checks a header.  Returns 0 or -EPROTO. */
static int header_get(const uint8_t *bytes, uint32_t *ret_len, unsigned *ret_n_fds, char *text,
		      size_t size)
{
	uint32_t len = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
		       (uint32_t)bytes[3] << 24;
	unsigned n_fds = (unsigned)bytes[4] | (unsigned)bytes[5] << 8;

	if (len == 0 || len > FRAME_BODY_MAX) {
		(void)snprintf(text, size, "frame: %u bytes: must be from 1 to %u", len,
			       FRAME_BODY_MAX);
		return -EPROTO;
	}
	if (n_fds > FRAME_FDS_MAX) {
		(void)snprintf(text, size, "frame: %u descriptors: at most %u may come with one",
			       n_fds, FRAME_FDS_MAX);
		return -EPROTO;
	}
	if (bytes[6] || bytes[7]) {
		(void)snprintf(text, size, "frame: header ends in %02x%02x, not in zeros: garbage",
			       bytes[6], bytes[7]);
		return -EPROTO;
	}
	*ret_len = len;
	*ret_n_fds = n_fds;
	return 0;
}

void frame_deinit(struct frame *frame)
{
	fds_close(frame->fds, frame->n_fds);
	frame->n_fds = 0;
}

void frame_reader_deinit(struct frame_reader *reader)
{
	fds_close(reader->fds, reader->n_fds);
	free(reader->buf);
	memset(reader, 0, sizeof(*reader));
}

/* Cuts the next frame from the buffer: 1, 0 (not whole; it needs *ret_need bytes), or -EPROTO. */
static int reader_cut(struct frame_reader *reader, struct frame *ret_frame, size_t *ret_need,
		      char *text, size_t size)
{
	size_t have = reader->fill - reader->start;
	uint32_t len;
	unsigned n_fds;
	int r;

	*ret_need = FRAME_HEADER_BYTES;
	if (have < FRAME_HEADER_BYTES)
		return 0;
	r = header_get(reader->buf + reader->start, &len, &n_fds, text, size);
	if (r < 0)
		return r;
	if (reader->n_fds < n_fds) {
		(void)snprintf(text, size, "frame: %u descriptors announced, %u came", n_fds,
			       reader->n_fds);
		return -EPROTO;
	}
	*ret_need = FRAME_HEADER_BYTES + len;
	if (have < *ret_need)
		return 0;

	ret_frame->body = reader->buf + reader->start + FRAME_HEADER_BYTES;
	ret_frame->len = len;
	ret_frame->n_fds = n_fds;
	for (unsigned i = 0; i < FRAME_FDS_MAX; i++)
		ret_frame->fds[i] = i < n_fds ? reader->fds[i] : -1;
	reader->n_fds -= n_fds;
	memmove(reader->fds, reader->fds + n_fds, reader->n_fds * sizeof(reader->fds[0]));
	reader->start += *ret_need;
	return 1;
}

/* Makes need bytes fit behind start, in a buffer that is no larger than necessary. */
static int reader_make_room(struct frame_reader *reader, size_t need)
{
	size_t have = reader->fill - reader->start;
	size_t want = need > READER_BYTES ? need : READER_BYTES;

	if (reader->start > 0) {
		memmove(reader->buf, reader->buf + reader->start, have);
		reader->start = 0;
		reader->fill = have;
	}
	if (want < have)
		want = have;
	if (reader->size < want || (reader->size > READER_BYTES && have == 0)) {
		uint8_t *buf = realloc(reader->buf, want);

		if (!buf)
			return -ENOMEM;
		reader->buf = buf;
		reader->size = want;
	}
	return 0;
}

/* Copies the descriptors of one recvmsg(2); returns how many. */
static unsigned received_fds(struct msghdr *msg, int ret_fds[FRAME_FDS_RECEIVED_MAX])
{
	unsigned n_fds = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		unsigned n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		assert(n_fds + n <= FRAME_FDS_RECEIVED_MAX); /* the control buffer holds no more */
		memcpy(ret_fds + n_fds, CMSG_DATA(c), n * sizeof(int));
		n_fds += n;
	}
	return n_fds;
}

/* Takes the descriptors of one recvmsg(2). */
static int reader_take_fds(struct frame_reader *reader, struct msghdr *msg, char *text, size_t size)
{
	unsigned n;

	assert(reader->n_fds <= FRAME_FDS_MAX); /* frame_read() has checked it */
	n = received_fds(msg, reader->fds + reader->n_fds);
	reader->n_fds += n;
	if (n > FRAME_FDS_MAX) {
		(void)snprintf(text, size,
			       "frame: %u descriptors came at once: at most %u are allowed", n,
			       FRAME_FDS_MAX);
		return -EPROTO;
	}
	if (msg->msg_flags & MSG_CTRUNC) {
		(void)snprintf(text, size,
			       "frame: some of its descriptors were lost: this process may not "
			       "open more (RLIMIT_NOFILE)");
		return -EPROTO;
	}
	return 0;
}

int frame_read(struct frame_reader *reader, int socket_fd, struct frame *ret_frame, char *text,
	       size_t size)
{
	if (size)
		text[0] = 0;
	for (;;) {
		union received_control control;
		struct iovec iov;
		struct msghdr msg = { .msg_iov = &iov,
				      .msg_iovlen = 1,
				      .msg_control = &control,
				      .msg_controllen = sizeof(control) };
		size_t need;
		ssize_t n;
		int r;

		r = reader_cut(reader, ret_frame, &need, text, size);
		if (r != 0)
			return r;
		if (reader->n_fds > FRAME_FDS_MAX ||
		    (reader->n_fds > 0 && reader->fill == reader->start)) {
			(void)snprintf(text, size,
				       "frame: more descriptors came than its header announced");
			return -EPROTO;
		}
		r = reader_make_room(reader, need);
		if (r < 0)
			return r;

		iov.iov_base = reader->buf + reader->fill;
		iov.iov_len = (reader->is_exact ? need : reader->size) - reader->fill;
		n = recvmsg(socket_fd, &msg, MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		r = reader_take_fds(reader, &msg, text, size);
		if (r < 0)
			return r;
		if (n == 0 && reader->fill == reader->start)
			return 0;
		if (n == 0) {
			(void)snprintf(text, size,
				       "frame: the connection ended %zu bytes into it, of %zu",
				       reader->fill - reader->start, need);
			return -EPROTO;
		}
		reader->fill += (size_t)n;
	}
}

unsigned frame_coming_fds(const struct frame_reader *reader, int socket_fd)
{
	uint8_t header[FRAME_HEADER_BYTES];
	uint32_t len;
	unsigned n_fds;
	char text[1];
	ssize_t n;

	if (reader->fill > reader->start)
		return 0;
	/* Without room for control messages the descriptors stay in the socket. */
	n = recv(socket_fd, header, sizeof(header), MSG_PEEK | MSG_DONTWAIT);
	if (n <= 0)
		return 0;
	if (n < (ssize_t)sizeof(header))
		return FRAME_FDS_MAX;
	return header_get(header, &len, &n_fds, text, sizeof(text)) < 0 ? 0 : n_fds;
}

static void writer_close_fds(struct frame_writer *writer, const int *fds, unsigned n_fds)
{
	if (writer->close_fds)
		writer->close_fds(writer, fds, n_fds);
	else
		fds_close(fds, n_fds);
}

static void out_close_fds(struct frame_writer *writer, struct frame_out *out)
{
	writer_close_fds(writer, out->fds, out->n_fds);
	writer->n_queued_fds -= out->n_fds;
	out->n_fds = 0;
}

/* Removes the oldest frame, which was sent or never will be. */
static void writer_pop(struct frame_writer *writer)
{
	struct frame_out *out = list_entry(list_pop(&writer->queue), struct frame_out, node);

	writer->queued_bytes -= out->size - out->sent;
	out_close_fds(writer, out);
	free(out);
}

void frame_writer_deinit(struct frame_writer *writer)
{
	while (writer->queue.first)
		writer_pop(writer);
}

int frame_queue(struct frame_writer *writer, const void *body, size_t len, const int *fds,
		unsigned n_fds)
{
	struct frame_out *out = NULL;
	bool fits = len > 0 && len <= FRAME_BODY_MAX && n_fds <= FRAME_FDS_MAX;

	if (fits)
		out = malloc(sizeof(*out) + FRAME_HEADER_BYTES + len);
	if (!out) {
		writer_close_fds(writer, fds, n_fds);
		return fits ? -ENOMEM : -EMSGSIZE;
	}

	out->size = FRAME_HEADER_BYTES + len;
	out->sent = 0;
	out->n_fds = n_fds;
	for (unsigned i = 0; i < n_fds; i++)
		out->fds[i] = fds[i];
	header_put(out->bytes, (uint32_t)len, (uint16_t)n_fds);
	memcpy(out->bytes + FRAME_HEADER_BYTES, body, len);

	list_push(&writer->queue, &out->node);
	writer->queued_bytes += out->size;
	writer->n_queued_fds += n_fds;
	return 0;
}

/* Sends as much of one frame as fits, its descriptors with the first byte. */
static ssize_t out_send(const struct frame_out *out, int socket_fd)
{
	union fds_control control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)(out->bytes + out->sent),
			     .iov_len = out->size - out->sent };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (out->n_fds > 0) {
		struct cmsghdr *c;

		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(out->n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(out->n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), out->fds, out->n_fds * sizeof(int));
	}
	return sendmsg(socket_fd, &msg, MSG_NOSIGNAL);
}

int frame_flush(struct frame_writer *writer, int socket_fd)
{
	struct frame_out *out;

	while ((out = list_entry(writer->queue.first, struct frame_out, node))) {
		ssize_t n = out_send(out, socket_fd);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		out_close_fds(writer, out);
		out->sent += (size_t)n;
		writer->queued_bytes -= (size_t)n;
		if (out->sent == out->size)
			writer_pop(writer);
	}
	return 0;
}
