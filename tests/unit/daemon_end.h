/*
 * The daemon's end of a connection, for tests of the client library.
 */
#ifndef DSAIO_TESTS_UNIT_DAEMON_END_H
#define DSAIO_TESTS_UNIT_DAEMON_END_H

#include "client/lib/link/conn.h"
#include "proto/dsaio.pb-c.h"
#include "proto/frame.h"
#include "tests/unit/suite.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

/* Makes conn the client's end of a connection, without Hello.  Returns the daemon's. */
static inline int daemon_end_connect(struct dsaio_conn *conn)
{
	int fds[2];

	memset(conn, 0, sizeof(*conn)); /* without a fork for each test they follow one another */
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	ck_assert_int_eq(fcntl(fds[0], F_SETFL, O_RDWR | O_NONBLOCK), 0);
	conn->fd = fds[0];
	conn->silence.limit_msec = CONN_SILENT_MSEC;
	(void)strcpy(conn->path, "test");
	conn_calls_init(conn);
	(void)pthread_mutex_init(&conn->lock, NULL); /* default attributes: cannot fail */
	return fds[1];
}

/* The next request, whose descriptors are in *ret_frame; NULL: the connection has ended. */
static inline Wire__Request *daemon_end_read(struct frame_reader *reader, int fd,
					     struct frame *ret_frame)
{
	Wire__Request *request;
	char text[160];

	if (frame_read(reader, fd, ret_frame, text, sizeof(text)) != 1)
		return NULL;
	request = wire__request__unpack(NULL, ret_frame->len, ret_frame->body);
	ck_assert_ptr_nonnull(request);
	return request;
}

/* sent: a descriptor, which it takes, or -1.  Returns as frame_flush(). */
static inline int daemon_end_reply(int fd, const Wire__Reply *reply, int sent)
{
	struct frame_writer writer = { 0 };
	uint8_t body[512];
	int r;

	ck_assert_int_eq(
		frame_queue(&writer, body, wire__reply__pack(reply, body), &sent, sent >= 0), 0);
	r = frame_flush(&writer, fd);
	frame_writer_deinit(&writer);
	return r;
}

#endif
