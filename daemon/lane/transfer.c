#include "daemon/lane/transfer.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdlib.h>

int transfer_init(struct transfer *transfer)
{
	int r = bounces_init(&transfer->bounces);

	if (r < 0)
		return r;
	transfer->blocks.n_max = transfer->engine->depth;
	transfer->blocks.blocks = calloc(transfer->blocks.n_max, sizeof(struct lane_block));
	return transfer->blocks.blocks ? 0 : -ENOMEM;
}

void transfer_deinit(struct transfer *transfer)
{
	bounces_deinit(&transfer->bounces);
	free(transfer->blocks.blocks);
}

/* A worker may be free again. */
static void on_room(struct workers *workers)
{
	struct channel *channel = container_of(workers, struct channel, workers);

	ready_resume(channel->transfer->ready, &channel->worker_waiters);
}

void transfer_add_channel(struct transfer *transfer, struct channel *channel)
{
	channel->transfer = transfer;
	channel->workers.engine = transfer->threads;
	channel->workers.on_room = on_room;
}

bool transfer_remove_channel(struct channel *channel)
{
	return workers_stop_waiting(&channel->workers);
}
