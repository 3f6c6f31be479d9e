/*
 * How a lane works, turn by turn:
 *
 *     intake    entries of all channels, 64 in all or 8 of each user: each becomes an op
 *     transfer  takes back blocks that the engine has done
 *     publish   completions; wakes clients that sleep; then frees the ops, so those that waited
 *               for them may start
 *     transfer  starts a few blocks of ops, as admission says
 *
 * and when a turn did nothing, it spins for a while and then sleeps (poller.h).
 *
 * Each step is a part of the lane with a file of its own.  Calls go down only:
 *
 *     intake -> transfer -> next_block, block -> ready, publish -> admit -> sched, window
 *
 * and what a lower part has for an upper one it returns: publish the ops that may start, admission its answer
 * on a block that transfer has described.
 */
#include "daemon/lane/lane.h"

#include "daemon/account/recorder.h"
#include "daemon/base/signals.h"
#include "daemon/lane/block.h"
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
	pthread_t thread;
	struct mailbox mailbox;
	bool must_stop;
	struct message stop_message;
	struct message ping_message;
	_Atomic bool owes_ping;	    /* main thread sets, lane clears: release, acquire */
	uint64_t ping_nsec;	    /* main thread: when it was asked */
	struct log_limit log_limit; /* of lines that clients cause */
	struct hung_call call;	    /* of its engine */
	struct hung_call device;    /* a block that the device has not answered */
	const struct block *hung;   /* that block; NULL: none is known */
	uint64_t look_nsec;	    /* when it looks for one again */

	struct lane_turn turn;
	struct poller poller;
	struct engine *engine, *threads;
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

	intake_add_channel(&channel->lane->intake, channel);
}

static void do_remove_channel(struct message *message)
{
	struct channel *channel = container_of(message, struct channel, message);

	intake_remove_channel(&channel->lane->intake, channel);
}

static void do_quiesce_reply(struct message *message)
{
	struct lane_quiesce *quiesce = container_of(message, struct lane_quiesce, message);

	quiesce->on_quiet(quiesce);
}

static void do_quiesce(struct message *message)
{
	struct lane_quiesce *quiesce = container_of(message, struct lane_quiesce, message);

	mailbox_post(quiesce->lane->store->main_mailbox, message, do_quiesce_reply);
}

static void do_submit(struct message *message)
{
	struct batch *batch = container_of(message, struct batch, message);

	intake_submit(&batch->channel->lane->intake, batch);
}

static void do_cancel(struct message *message)
{
	struct lane_cancel *cancel = container_of(message, struct lane_cancel, message);

	intake_cancel(&cancel->channel->lane->intake, cancel);
}

static void do_ping(struct message *message)
{
	/* release: pairs with the acquire in lane_ping(), which posts the message again */
	atomic_store_explicit(&container_of(message, struct lane, ping_message)->owes_ping, false,
			      memory_order_release);
}

static void do_stop(struct message *message)
{
	container_of(message, struct lane, stop_message)->must_stop = true;
}

/* ---- the loop ---- */

static int run_turn(struct lane *lane, struct poller_activity *activity)
{
	struct intake *intake = &lane->intake;
	struct list may_start = { 0 };
	int did = 0, n;

	if (mailbox_has_any(&lane->mailbox))
		did += mailbox_run(&lane->mailbox);
	did += intake_take(intake);
	did += transfer_reap(&lane->transfer);
	intake_run_deadlines(intake);
	n = publish_run(&lane->publish, &may_start);
	intake_start(intake, &may_start);
	activity->has_published = n > 0;
	did += n;
	did += transfer_start(&lane->transfer);
	/* Also after a turn that did nothing: it may have run the message that a closing channel awaited. */
	intake_remove_idle(intake);
	intake_park(intake);
	activity->is_device_busy = lane->admit.n_in_flight;
	return did;
}

/* The look between announcing a sleep and sleeping. */
static bool has_work(void *arg)
{
	const struct lane *lane = arg;

	if (mailbox_has_any(&lane->mailbox))
		return true;
	return transfer_is_ready(&lane->transfer) || intake_is_ready(&lane->intake);
}

/* Reports the oldest block at the engine, if it is old: its device may never answer. */
static void look_for_hung(struct lane *lane)
{
	const uint64_t now_nsec = lane->turn.now_nsec;

	if (lane->hung ? block_is_at_engine(lane->hung, lane->device.since_nsec)
		       : now_nsec < lane->look_nsec)
		return;
	if (lane->hung)
		hung_leave(&lane->device);
	lane->hung = blocks_oldest(&lane->transfer);
	lane->look_nsec = now_nsec + HUNG_NSEC;
	if (lane->hung && lane->hung->started_nsec + HUNG_NSEC > now_nsec)
		lane->hung = NULL;
	if (lane->hung)
		hung_enter(&lane->device, &lane->hung->target->about.who, lane->hung->started_nsec);
}

/* When the lane has something to do though nothing wakes it; 0: not known. */
static uint64_t until_nsec(const struct lane *lane)
{
	if (transfer_has_waiting(&lane->transfer))
		return lane->turn.now_nsec + RETRY_NSEC;
	return clock_first(
		clock_first(lane->intake.next_deadline_nsec, lane->transfer.until_nsec),
		clock_first(blocks_hung_nsec(&lane->transfer),
			    lane->engine->n_in_flight && !lane->hung ? lane->look_nsec : 0));
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;

	lane->turn.now_nsec = clock_nsec();
	while (!lane->must_stop) {
		struct poller_activity activity = { 0 };

		lane->turn.before_nsec = lane->turn.now_nsec;
		lane->turn.now_nsec = clock_nsec();
		activity.did = run_turn(lane, &activity) > 0;
		activity.is_device_busy |= lane->engine->n_in_flight > 0;
		look_for_hung(lane);
		if (!poller_may_spin(&lane->poller, &activity))
			poller_sleep(&lane->poller, until_nsec(lane));
		else if (lane->intake.n_parked && poller_must_poll(&lane->poller, activity.did))
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
	if (lane->engine)
		lane->engine->ops->close(lane->engine);
	poller_deinit(&lane->poller);
	mailbox_deinit(&lane->mailbox);
	recorder_free(lane->turn.recording);
	free(lane);
}

CLEANUP_FUNCTION(struct lane, lane_free)

static int start_thread(struct lane *lane, struct error *error)
{
	sigset_t old;
	char name[16];
	int r;

	/* Lanes take no signals: io_submit is never interrupted. */
	signals_block(&old);
	r = pthread_create(&lane->thread, NULL, lane_main, lane);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) /* not -EAGAIN, by which an engine says that it has no room */
		return error_set(error, -ENOMEM,
				 "store %s: its lane's thread: %s" WORK_QUEUE_ADVICE,
				 lane->store->name, strerrordesc_np(r));
	(void)snprintf(name, sizeof(name), "lane %.10s", lane->store->name);
	(void)pthread_setname_np(lane->thread, name); /* for ps and perf only */
	return 0;
}

static int init_parts(struct lane *lane, const struct lane_config *config)
{
	admit_init(&lane->admit, lane->store->window_max_bytes, BOUNCES);
	lane->admit.limiter = &lane->store->limiter;
	lane->ready = (struct ready){ .admit = &lane->admit, .turn = &lane->turn };
	lane->publish = (struct publish){ .store = lane->store,
					  .turn = &lane->turn,
					  .admit = &lane->admit };
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
					    .engine = lane->engine,
					    .threads = lane->threads,
					    .log_limit = &lane->log_limit };
	return transfer_init(&lane->transfer);
}

int lane_start(const struct lane_config *config, struct lane **ret_lane, struct error *error)
{
	_cleanup_(lane_freep) struct lane *lane = NULL;
	struct poller_config poller = { .store_name = config->store->name,
					.idle_doorbells_max = config->idle_doorbells_max,
					.on_doorbell = intake_wake,
					.has_work = has_work };
	struct engine_config queue = { .depth = config->depth,
				       .room = config->room,
				       .rados_store = config->rados_store };
	struct hung_about about;
	char name[64];
	int r;

	if (posix_memalign((void **)&lane, 64, sizeof(*lane)))
		return error_set(error, -ENOMEM, "store %s: lane", config->store->name);
	memset(lane, 0, sizeof(*lane));
	lane->store = config->store;
	lane->poller.board_fd = lane->poller.epoll_fd = lane->mailbox.event_fd = -1;

	r = mailbox_init(&lane->mailbox);
	if (r < 0)
		return error_set(error, r, "store %s: lane: mailbox", config->store->name);
	r = config->engine->open(&queue, &lane->engine, error);
	if (r < 0)
		return r;
	lane->engine->call = &lane->call;
	poller.turn = &lane->turn;
	poller.log_limit = &lane->log_limit;
	poller.intake = &lane->intake;
	poller.arg = lane;
	if (cpu_count() > 1) /* else it would only keep the clients off the one core */
		poller.spin_nsec = config->store->spin_usec * UINT64_C(1000);
	r = poller_init(&lane->poller, &poller, error);
	if (r < 0)
		return r;
	r = engine_ops_get(ENGINE_THREADS)
		    ->open(&(struct engine_config){ .depth = UINT32_MAX }, &lane->threads, error);
	if (r < 0)
		return r;
	r = init_parts(lane, config);
	if (r < 0)
		return error_set(error, r, "store %s: lane: blocks", config->store->name);
	r = poller_add(&lane->poller, lane->mailbox.event_fd, NULL);
	if (r == 0)
		r = poller_add(&lane->poller, lane->engine->event_fd, NULL);
	if (r == 0)
		r = poller_add(&lane->poller, lane->threads->event_fd, NULL);
	if (r < 0)
		return error_set(error, r, "store %s: lane: epoll", config->store->name);
	lane->turn.recording = recorder_new(lane->store->name);
	r = start_thread(lane, error);
	if (r < 0)
		return r;
	(void)snprintf(name, sizeof(name), "store %s, lane", lane->store->name);
	about = (struct hung_about){ .what = "io_submit",
				     .file = name,
				     .store = lane->store->name,
				     .dev = lane->store->dev,
				     .is_cluster = config->rados_store,
				     .is_block = true };
	hung_add_lane(&lane->call, &about);
	(void)snprintf(name, sizeof(name), "store %s", lane->store->name);
	about.what = "block";
	about.is_device = true;
	hung_add_lane(&lane->device, &about);
	lane->store->lane = lane;
	lane->store->depth = lane->engine->depth;
	*ret_lane = TAKE_PTR(lane);
	return 0;
}

void lane_stop(struct lane *lane)
{
	mailbox_post(&lane->mailbox, &lane->stop_message, do_stop);
	(void)pthread_join(lane->thread, NULL); /* it was started: cannot fail */
	hung_end(&lane->call);
	hung_end(&lane->device);
	assert(!lane->intake.n_channels && !lane->admit.n_in_flight);
}

uint32_t lane_room(const struct lane *lane)
{
	return lane->engine->room;
}

int lane_grow(struct lane *lane, uint32_t room, struct error *error)
{
	return lane->engine->ops->grow(lane->engine, room, error);
}

uint64_t lane_ping(struct lane *lane, uint64_t now_nsec)
{
	if (!atomic_load_explicit(&lane->owes_ping, memory_order_acquire)) {
		lane->ping_nsec = now_nsec;
		atomic_store_explicit(&lane->owes_ping, true, memory_order_relaxed);
		mailbox_post(&lane->mailbox, &lane->ping_message, do_ping);
	} else if (atomic_load_explicit(&lane->call.since_nsec, memory_order_relaxed)) {
		lane->ping_nsec = now_nsec; /* it has this long again, from the end of the call */
	}
	return now_nsec - lane->ping_nsec;
}

int lane_board_fd(const struct lane *lane)
{
	return lane->poller.board_fd;
}

void lane_add_channel(struct lane *lane, struct channel *channel)
{
	mailbox_post(&lane->mailbox, &channel->add_message, do_add_channel);
}

void lane_remove_channel(struct lane *lane, struct channel *channel, bool drain)
{
	channel->drain = drain;
	mailbox_post(&lane->mailbox, &channel->message, do_remove_channel);
}

void lane_hurry_channel(struct channel *channel)
{
	atomic_store_explicit(&channel->must_hurry, true, memory_order_relaxed);
}

void lane_submit(struct batch *batch)
{
	mailbox_post(&batch->channel->lane->mailbox, &batch->message, do_submit);
}

void lane_cancel(struct lane_cancel *cancel)
{
	mailbox_post(&cancel->channel->lane->mailbox, &cancel->message, do_cancel);
}

void lane_quiesce(struct lane *lane, struct lane_quiesce *quiesce)
{
	quiesce->lane = lane;
	mailbox_post(&lane->mailbox, &quiesce->message, do_quiesce);
}
