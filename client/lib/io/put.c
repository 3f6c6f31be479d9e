#include "client/lib/io/put.h"

#include "client/lib/io/wait.h"

void put_publish_all(const struct dsaio_handle *handle)
{
	struct handle_channel *channel = handle_first_channel(handle);

	for (; channel; channel = handle_next_channel(channel))
		channel_publish(channel);
}

int put_op(struct dsaio_op *op, bool is_batched)
{
	return is_batched ? channel_add(op) : channel_put(op);
}

int put_with_room(struct dsaio_op *op, bool is_batched)
{
	struct wait_for room = { .what = WAIT_ROOM, .channel = op->channel };
	int r;

	for (;;) {
		/* Before the try, so that a later completion is noticed. */
		room.head = channel_head(op->channel);
		r = put_op(op, is_batched);
		if (r != -EAGAIN)
			return r;
		if (is_batched)
			put_publish_all(op->handle);
		(void)wait_until(op->handle, &room, UINT64_MAX); /* no time-out */
	}
}
