/*
 * How a home lane works, turn by turn:
 *
 *     intake    entries of all channels, 64 in all or 8 of each user: each becomes an op
 *     transfer  takes back blocks that the engine, or a side lane, has done
 *     publish   completions; wakes clients that sleep; then frees the ops, so those that waited
 *               for them may start
 *     transfer  starts a few blocks of ops, as admission says
 *
 * and when a turn did nothing, it spins for a while and then sleeps (poller.h).  A side lane
 * (side_lane.h) does the same with blocks from a queue of the home lane's instead of entries.
 *
 * Each step is a part of the lane with a file of its own, and knows only the steps below it, except
 * that transfer gives ops back to ready, and publish ends them in order and admission:
 *
 *     intake -> order -> ready -> admit -> transfer -> publish
 */
#include "daemon/lane/lane.h"

#include "daemon/base/signals.h"
#include "daemon/lane/in_flight.h"
#include "daemon/lane/intake.h"
#include "daemon/lane/transfer_end.h"
#include "daemon/lane/transfer_start.h"
#include "proto/util/clock.h"
#include "proto/util/cpu.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* When the kernel has no request for us and nothing of ours is in flight: look again then. */
#define RETRY_NSEC 1000000u

struct lane {
	struct lane_store *store;
	uint32_t index;
	struct lane *home; /* NULL: it is home itself */
	pthread_t thread;
	struct mailbox mailbox;
	bool must_stop;
	struct message stop_message, add_message;
	struct log_limit log_limit; /* of lines that clients cause */
	struct hung_call call;	    /* of its engine */

	struct lane_turn turn;
	struct poller poller;
	struct engine_queue engine;
	struct side_lane side; /* a side lane's */

	/* the home lane's */
	struct engine *threads;
	struct admit admit;
	struct ready ready;
	struct publish publish;
	struct transfer transfer;
	struct intake intake;
};

/* ---- messages from the main thread ---- */

static void do_add_channel(struct message *message)
{
	struct channel *channel = container_of(message, struct channel, add_message);

	intake_add_channel(&channel->home->intake, channel);
}

static void do_remove_channel(struct message *message)
{
	struct channel *channel = container_of(message, struct channel, message);

	intake_remove_channel(&channel->home->intake, channel);
}

static void do_quiesce_reply(struct message *message)
{
	struct lane_quiesce *quiesce = container_of(message, struct lane_quiesce, message);

	quiesce->on_quiet(quiesce);
}

static void do_quiesce(struct message *message)
{
	struct lane_quiesce *quiesce = container_of(message, struct lane_quiesce, message);

	message->run = do_quiesce_reply;
	mailbox_post(quiesce->lane->store->main_mailbox, message);
}

static void do_submit(struct message *message)
{
	struct batch *batch = container_of(message, struct batch, message);

	intake_submit(&batch->channel->home->intake, batch);
}

static void do_cancel(struct message *message)
{
	struct lane_cancel *cancel = container_of(message, struct lane_cancel, message);

	intake_cancel(&cancel->channel->home->intake, cancel);
}

static struct lane_doorbell doorbell_of(const struct lane *lane)
{
	return (struct lane_doorbell){ .board = lane->poller.board,
				       .event_fd = lane->mailbox.event_fd };
}

static void do_add_side_lane(struct message *message)
{
	struct lane *lane = container_of(message, struct lane, add_message);
	const struct lane_doorbell doorbell = doorbell_of(lane);

	transfer_add_side(&lane->home->transfer, &lane->side, lane->engine.depth, &doorbell);
}

static void do_stop(struct message *message)
{
	container_of(message, struct lane, stop_message)->must_stop = true;
}

/* ---- the two loops ---- */

static int home_turn(struct lane *lane, struct poller_turn *turn)
{
	struct intake *intake = &lane->intake;
	int did = 0, n;

	if (mailbox_has_any(&lane->mailbox))
		did += mailbox_run(&lane->mailbox);
	did += intake_take(intake);
	did += transfer_reap(&lane->transfer);
	intake_run_deadlines(intake);
	n = publish_run(&lane->publish);
	turn->has_published = n > 0;
	did += n;
	did += transfer_start(&lane->transfer);
	/* Also after a turn that did nothing: it may have run the message that a closing channel awaited. */
	intake_remove_idle(intake);
	intake_park(intake);
	turn->is_device_busy = lane->admit.n_in_flight;
	return did;
}

static int side_turn(struct lane *lane)
{
	int did = mailbox_has_any(&lane->mailbox) ? mailbox_run(&lane->mailbox) : 0;

	return did + side_lane_turn(&lane->side, &lane->engine);
}

/* The look between announcing a sleep and sleeping. */
static bool has_work(void *arg)
{
	const struct lane *lane = arg;

	if (mailbox_has_any(&lane->mailbox))
		return true;
	if (lane->home)
		return engine_queue_is_ready(&lane->engine) ||
		       block_queue_has_any(&lane->side.from_home);
	return transfer_is_ready(&lane->transfer) || intake_is_ready(&lane->intake);
}

/* The first of two times; 0 is none. */
static uint64_t first_of(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* When the lane has something to do though nothing wakes it; 0: not known. */
static uint64_t until_nsec(const struct lane *lane)
{
	if (engine_queue_has_waiting(&lane->engine))
		return lane->turn.now_nsec + RETRY_NSEC;
	return first_of(first_of(lane->intake.next_deadline_nsec, lane->transfer.until_nsec),
			in_flight_hung_nsec(&lane->transfer));
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;

	lane->turn.now_nsec = clock_nsec();
	while (!lane->must_stop) {
		struct poller_turn turn = { 0 };

		lane->turn.before_nsec = lane->turn.now_nsec;
		lane->turn.now_nsec = clock_nsec();
		turn.did = (lane->home ? side_turn(lane) : home_turn(lane, &turn)) > 0;
		turn.is_device_busy |= lane->engine.engine->n_in_flight > 0;
		if (!poller_may_spin(&lane->poller, &turn))
			poller_sleep(&lane->poller, until_nsec(lane));
		else if (lane->intake.n_parked && poller_must_poll(&lane->poller, turn.did))
			poller_poll(&lane->poller);
		else
			cpu_relax();
	}
	return NULL;
}

/* ---- start and stop ---- */

void lane_free(struct lane *lane)
{
	if (!lane)
		return;
	transfer_deinit(&lane->transfer);
	engine_ops_get(ENGINE_THREADS)->close(lane->threads);
	side_lane_deinit(&lane->side);
	engine_queue_close(&lane->engine);
	poller_deinit(&lane->poller);
	mailbox_deinit(&lane->mailbox);
	free(lane);
}

static void lane_freep(struct lane **lane)
{
	lane_free(*lane);
}

static int start_thread(struct lane *lane, struct error *error)
{
	sigset_t old;
	char name[16];
	int r;

	/* Lanes take no signals: io_submit is never interrupted. */
	signals_block(&old);
	r = pthread_create(&lane->thread, NULL, lane_main, lane);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r)
		return error_set(error, -r, "store %s: lane %" PRIu32 ": thread", lane->store->name,
				 lane->index);
	(void)snprintf(name, sizeof(name), "%.11s/%" PRIu32, lane->store->name, lane->index);
	(void)pthread_setname_np(lane->thread, name); /* for ps and perf only */
	return 0;
}

/* A doorbell has rung; of a channel that is awake, it tells nothing new. */
static void on_doorbell(struct channel *channel, void *arg)
{
	struct lane *lane = arg;

	if (!channel->is_awake)
		intake_wake(&lane->intake, channel);
}

/* The parts that only a home lane has. */
static int init_home(struct lane *lane, const struct lane_config *config)
{
	admit_init(&lane->admit, lane->store->window_bytes, BOUNCES, transfer_look,
		   &lane->transfer);
	lane->ready = (struct ready){ .admit = &lane->admit, .turn = &lane->turn };
	lane->publish = (struct publish){ .store = lane->store,
					  .turn = &lane->turn,
					  .admit = &lane->admit,
					  .may_start = intake_may_start,
					  .arg = &lane->intake };
	lane->intake = (struct intake){ .store = lane->store,
					.turn = &lane->turn,
					.admit = &lane->admit,
					.ready = &lane->ready,
					.publish = &lane->publish,
					.transfer = &lane->transfer,
					.poller = &lane->poller,
					.park_nsec = config->park_nsec };
	lane->transfer = (struct transfer){ .store = lane->store,
					    .turn = &lane->turn,
					    .admit = &lane->admit,
					    .ready = &lane->ready,
					    .publish = &lane->publish,
					    .engine = &lane->engine,
					    .threads = lane->threads,
					    .log_limit = &lane->log_limit };
	return transfer_init(&lane->transfer);
}

int lane_start(const struct lane_config *config, struct lane **ret_lane, struct error *error)
{
	_cleanup_(lane_freep) struct lane *lane = NULL;
	struct poller_config poller = { .store_name = config->store->name,
					.idle_doorbells_max = config->idle_doorbells_max,
					.on_doorbell = on_doorbell,
					.has_work = has_work };
	char name[64];
	int r;

	if (posix_memalign((void **)&lane, 64, sizeof(*lane)))
		return error_set(error, -ENOMEM, "store %s: lane %" PRIu32, config->store->name,
				 config->index);
	memset(lane, 0, sizeof(*lane));
	lane->store = config->store;
	lane->index = config->index;
	lane->home = config->home;
	lane->poller.board_fd = lane->poller.epoll_fd = lane->mailbox.event_fd = -1;

	r = mailbox_init(&lane->mailbox);
	if (r < 0)
		return error_set(error, r, "store %s: lane %" PRIu32 ": mailbox",
				 config->store->name, config->index);
	r = engine_queue_open(&lane->engine, config->engine, config->depth, config->room,
			      &lane->call, error);
	if (r < 0)
		return r;
	poller.turn = &lane->turn;
	poller.log_limit = &lane->log_limit;
	poller.arg = lane;
	if (cpu_count() > 1) /* else it would only keep the clients off the one core */
		poller.spin_nsec = config->store->spin_usec * UINT64_C(1000);
	r = poller_init(&lane->poller, &poller, error);
	if (r < 0)
		return r;
	if (lane->home) {
		const struct lane_doorbell home = doorbell_of(lane->home);

		r = side_lane_init(&lane->side, lane->engine.depth, &home);
	} else {
		r = engine_ops_get(ENGINE_THREADS)->open(UINT32_MAX, 0, &lane->threads, error);
		if (r < 0)
			return r;
		r = init_home(lane, config);
	}
	if (r < 0)
		return error_set(error, r, "store %s: lane %" PRIu32 ": blocks",
				 config->store->name, config->index);
	r = poller_add_fd(&lane->poller, lane->mailbox.event_fd);
	if (r == 0)
		r = poller_add_fd(&lane->poller, config->engine->event_fd(lane->engine.engine));
	if (r == 0 && lane->threads)
		r = poller_add_fd(&lane->poller, lane->threads->ops->event_fd(lane->threads));
	if (r < 0)
		return error_set(error, r, "store %s: lane %" PRIu32 ": epoll", config->store->name,
				 config->index);
	r = start_thread(lane, error);
	if (r < 0)
		return r;
	(void)snprintf(name, sizeof(name), "store %s, lane %" PRIu32, lane->store->name,
		       lane->index);
	hung_add_lane(&lane->call, &(struct hung_about){ .what = "io_submit",
							 .file = name,
							 .dev = lane->store->dev,
							 .is_block = true });
	if (!lane->home)
		lane->store->home = lane;
	*ret_lane = TAKE_PTR(lane);
	return 0;
}

void lane_stop(struct lane *lane)
{
	lane->stop_message.run = do_stop;
	mailbox_post(&lane->mailbox, &lane->stop_message);
	(void)pthread_join(lane->thread, NULL); /* it was started: cannot fail */
	hung_remove_lane(&lane->call);
	assert(!lane->intake.n_channels && !lane->admit.n_in_flight);
}

uint32_t lane_depth(const struct lane *lane)
{
	return lane->engine.depth;
}

uint32_t lane_room(const struct lane *lane)
{
	return lane->engine.engine->room;
}

int lane_grow(struct lane *lane, uint32_t room, struct error *error)
{
	return lane->engine.ops->grow(lane->engine.engine, room, error);
}

int lane_board_fd(const struct lane *lane)
{
	return lane->poller.board_fd;
}

int lane_add_side_lane(struct lane *home, struct lane *side)
{
	if (transfer_prepare_side(&home->transfer, side->index) < 0)
		return -ENOMEM;
	side->add_message.run = do_add_side_lane;
	mailbox_post(&home->mailbox, &side->add_message);
	return 0;
}

void lane_add_channel(struct lane *lane, struct channel *channel)
{
	channel->add_message.run = do_add_channel;
	mailbox_post(&lane->mailbox, &channel->add_message);
}

void lane_remove_channel(struct lane *lane, struct channel *channel, bool drain)
{
	channel->drain = drain;
	channel->message.run = do_remove_channel;
	mailbox_post(&lane->mailbox, &channel->message);
}

void lane_hurry_channel(struct channel *channel)
{
	atomic_store_explicit(&channel->must_hurry, true, memory_order_relaxed);
}

void lane_submit(struct batch *batch)
{
	batch->message.run = do_submit;
	mailbox_post(&batch->channel->home->mailbox, &batch->message);
}

void lane_cancel(struct lane_cancel *cancel)
{
	cancel->message.run = do_cancel;
	mailbox_post(&cancel->channel->home->mailbox, &cancel->message);
}

void lane_quiesce(struct lane *lane, struct lane_quiesce *quiesce)
{
	quiesce->lane = lane;
	quiesce->message.run = do_quiesce;
	mailbox_post(&lane->mailbox, &quiesce->message);
}
