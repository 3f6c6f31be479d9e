/*
 * Length-framed messages with file descriptors over a Unix stream socket.
 *
 * A frame is a header, then len bytes of one packed Request or Reply:
 *     u32 len (little endian, 1..FRAME_BODY_MAX)   u16 n_fds (0..FRAME_FDS_MAX)   u16 zero
 * The descriptors travel by SCM_RIGHTS with the frame's first byte, so they are always there
 * when the header is.
 *
 * Sockets do not block: a call that would block returns -EAGAIN and continues at the next call.
 * Nothing here is thread-safe.
 */
#ifndef DSAIO_PROTO_FRAME_H
#define DSAIO_PROTO_FRAME_H

#include "proto/util/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_BODY_MAX (128u << 10) /* a Submit of 1024 entries with room to spare */
#define FRAME_FDS_MAX 4u
/* Descriptors that one recvmsg(2) can bring: the kernel's SCM_MAX_FD.  There is room for all of them:
   the kernel closes the others itself in the receiving thread, and close(2) may wait. */
#define FRAME_FDS_RECEIVED_MAX 253u
#define FRAME_HEADER_BYTES 8u

/* One received frame.  It owns its descriptors: take them with TAKE_FD; frame_deinit() closes the
   others. */
struct frame {
	uint8_t *body; /* borrowed from the reader until its next call */
	size_t len;
	int fds[FRAME_FDS_MAX];
	unsigned n_fds;
};
void frame_deinit(struct frame *frame);

/* Received bytes and descriptors that are not yet a whole frame. */
struct frame_reader {
	uint8_t *buf;
	size_t size, start, fill; /* allocated; first byte not yet returned; end of what was read */
	int fds[FRAME_FDS_MAX + FRAME_FDS_RECEIVED_MAX];
	unsigned n_fds;
	/* Never reads beyond the end of the next frame, so frame_coming_fds() is exact. */
	bool is_exact;
};
void frame_reader_deinit(struct frame_reader *reader);

/*
 * Reads from the socket until a frame is whole.  Returns
 *   1         *ret_frame is filled in
 *   0         end of file, between two frames
 *   -EAGAIN   the socket has no more bytes yet
 *   -EPROTO   not a frame: too long, empty, too many or missing descriptors, or cut short by the
 *             end of file; text (of size bytes) names the case.  The stream is unusable.  The
 *             reader still owns the descriptors that arrived.
 *   -ENOMEM, or the errno of recvmsg(2)
 */
int frame_read(struct frame_reader *reader, int socket_fd, struct frame *ret_frame, char *text,
	       size_t size);

/*
 * The number of descriptors that the next frame_read() receives: those that the next frame's header
 * announces, at most FRAME_FDS_MAX.  0 if no frame has begun to arrive, or if the reader already has
 * its start.  Reads nothing and never sleeps.  For readers with is_exact.
 */
unsigned frame_coming_fds(const struct frame_reader *reader, int socket_fd);

/* Frames to be sent, oldest first.  Zeroes: none. */
struct frame_writer {
	struct list queue;   /* struct frame_out */
	size_t queued_bytes; /* bodies and headers not yet sent */
	unsigned n_queued_fds;
	/* Called for descriptors that were sent, or never will be; NULL: close(2).  An owner sets
	   it if the close of some of its descriptors can hang. */
	void (*close_fds)(struct frame_writer *writer, const int *fds, unsigned n_fds);
};
void frame_writer_deinit(struct frame_writer *writer); /* closes descriptors not sent */

/*
 * Queues a copy of body.  Takes the n_fds descriptors, also on error.
 * Returns 0, -EMSGSIZE (len over FRAME_BODY_MAX or 0, or n_fds over FRAME_FDS_MAX) or -ENOMEM.
 */
int frame_queue(struct frame_writer *writer, const void *body, size_t len, const int *fds,
		unsigned n_fds);

/*
 * Sends queued frames.  Returns 0 when all are sent, -EAGAIN if the socket is full, or the errno of
 * sendmsg(2) (-EPIPE: the peer has closed it; no SIGPIPE).
 */
int frame_flush(struct frame_writer *writer, int socket_fd);

#endif
