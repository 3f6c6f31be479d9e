/*
 * frame_read(): any bytes, in any pieces, with any number of descriptors; as the daemon reads, and exactly, as the
 * library does.
 *
 * Input: a byte for the number of descriptors of the first piece, one for the size of the pieces and for how they are
 * read, then the stream.
 */
#include "proto/frame.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_send.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void send_piece(int fd, const uint8_t *data, size_t size, unsigned n_fds)
{
	const int fds[FRAME_FDS_RECEIVED_MAX] = { 0 };

	if (fuzz_send(fd, data, size, fds, n_fds) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame_reader reader = { 0 };
	int sockets[2], r = -EAGAIN, lowest, after;
	struct frame frame;
	unsigned n_fds, n_later; /* of the first piece, of each later one */
	size_t piece;
	char text[200];

	if (size < 3 || size > 32768) /* what the socket holds for sure */
		return 0;
	n_fds = data[0] % (FRAME_FDS_RECEIVED_MAX + 1);
	piece = 1 + (size_t)data[1] * data[1];
	n_later = data[1] % 4u / 2;
	reader.is_exact = data[1] % 2;
	data += 2;
	size -= 2;
	lowest = dup(0);
	(void)close(lowest);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) < 0)
		abort();
	while (size && (r == 1 || r == -EAGAIN)) {
		size_t n = piece < size ? piece : size;

		send_piece(sockets[0], data, n, n_fds);
		n_fds = n_later;
		data += n;
		size -= n;
		if (!size)
			(void)shutdown(sockets[0], SHUT_WR);
		for (r = 1; r == 1;) {
			memset(text, 0, sizeof(text));
			if (reader.is_exact)
				assert(frame_coming_fds(&reader, sockets[1]) <= FRAME_FDS_MAX);
			r = frame_read(&reader, sockets[1], &frame, text, sizeof(text));
			assert(r == 1 || r == 0 || r == -EAGAIN || r == -EPROTO || r == -ENOMEM);
			assert(r != -EPROTO || text[0]);
			if (r != 1)
				break;
			assert(frame.len >= 1 && frame.len <= FRAME_BODY_MAX);
			assert(frame.n_fds <= FRAME_FDS_MAX);
			for (size_t i = 0; i < frame.len; i++) /* it is all there */
				text[i % sizeof(text)] ^= (char)frame.body[i];
			frame_deinit(&frame);
		}
	}
	frame_reader_deinit(&reader);
	(void)close(sockets[0]);
	(void)close(sockets[1]);
	after = dup(0); /* no descriptor is left over */
	assert(after == lowest);
	(void)close(after);
	return 0;
}
