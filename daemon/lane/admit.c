#include "daemon/lane/admit.h"

#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <assert.h>
#include <string.h>

/* Bytes of the limit that are reserved for each byte owed to clients that are away.  With 1, and 2 to 4 MiB
   that wait at the device, a client with one op of 1 MiB open had a third of what one with
   sixteen had. */
#define RESERVED_PER_OWED 4u

void admit_init(struct admit *admit, uint64_t window_max_bytes, uint32_t n_pages)
{
	memset(admit, 0, sizeof(*admit));
	sched_init(&admit->sched);
	window_init(&admit->window);
	if (window_max_bytes)
		window_set_most(&admit->window, window_max_bytes);
	admit->n_free_pages = n_pages;
}

/* ---- channels ---- */

void admit_channel_init(struct admit_channel *channel, const struct admit_channel_config *config)
{
	memset(channel, 0, sizeof(*channel));
	sched_queue_init(&channel->queue, config->client, config->io_class, config->weight);
	channel->page_wait.queue = channel->gpu_wait.queue = channel->limit_wait.queue =
		&channel->queue;
	memcpy(channel->limiters, config->limiters, sizeof(channel->limiters));
	channel->depth = config->depth;
	channel->overlap = config->overlap;
}

void admit_add_channel(struct admit_channel *channel)
{
	channel->queue.client->n_channels++;
}

void admit_remove_channel(struct admit *admit, struct admit_channel *channel)
{
	struct sched_client *client = channel->queue.client;

	assert(!channel->page_wait.is_waiting && !channel->gpu_wait.is_waiting &&
	       !channel->limit_wait.is_waiting);
	for (unsigned i = 0; i < ADMIT_LIMITERS; i++)
		if (channel->limiters[i])
			limiter_return(channel->limiters[i], &channel->shares[i]);
	sched_remove(&admit->sched, &channel->queue);
	if (--client->n_channels == 0)
		sched_client_gone(&admit->sched, client);
	if (admit->recent_client == client)
		admit->recent_client = NULL;
}

/* ---- open ops ---- */

/* After a change of the channel's open ops, or of its wait for a limit: ops that a limit holds back keep neither their
   client nor their class active. */
static void count_open(struct admit *admit, struct admit_channel *channel)
{
	struct sched_client *client = channel->queue.client;
	const uint32_t n = channel->limit_wait.is_waiting ? 0 : channel->n_open;

	admit->n_busy -= client->n_open > 0;
	client->n_open += n - channel->n_counted;
	admit->n_busy += client->n_open > 0;
	admit->sched.n_open[channel->queue.io_class] += n - channel->n_counted;
	channel->n_counted = n;
}

void admit_open_op(struct admit *admit, struct admit_channel *channel)
{
	channel->n_open++;
	count_open(admit, channel);
}

void admit_close_op(struct admit *admit, struct admit_channel *channel)
{
	channel->n_open--;
	count_open(admit, channel);
}

/* ---- waiters ---- */

/* A channel that waits already keeps its place. */
static void wait_start(struct admit_waiters *waiters, struct admit_wait *wait)
{
	if (wait->is_waiting)
		return;
	wait->is_waiting = true;
	list_push(&waiters->list, &wait->node);
}

static void wait_stop(struct admit_waiters *waiters, struct admit_wait *wait)
{
	if (!wait->is_waiting)
		return;
	wait->is_waiting = false;
	list_remove(&waiters->list, &wait->node);
}

/* Once in a turn all channels that wait may try again, so class, weight and order decide. */
static void waiters_offer(struct admit *admit, struct admit_waiters *waiters)
{
	if (!waiters->is_back)
		return;
	waiters->is_back = false;
	LIST_EACH(struct admit_wait, wait, &waiters->list, node)
		sched_add(&admit->sched, wait->queue);
}

static void waits_stop(struct admit *admit, struct admit_channel *channel)
{
	wait_stop(&admit->page_waiters, &channel->page_wait);
	wait_stop(&admit->gpu_waiters, &channel->gpu_wait);
	wait_stop(&admit->limit_waiters, &channel->limit_wait);
	count_open(admit, channel);
}

/* ---- limits ---- */

/* When to look again at a limit that is reached until then; 0: it is not. */
static uint64_t look_nsec(uint64_t start_nsec, uint64_t now_nsec)
{
	if (start_nsec <= now_nsec)
		return 0;
	return start_nsec - now_nsec < ADMIT_LIMIT_NSEC ? start_nsec : now_nsec + ADMIT_LIMIT_NSEC;
}

/* Likewise for the channel's head block.  If it is counted, it was charged when it started first. */
static uint64_t channel_limit_nsec(struct admit_channel *channel, const struct admit_head *head,
				   uint64_t now_nsec)
{
	uint64_t latest = 0;

	for (unsigned i = 0; i < ADMIT_LIMITERS && !head->is_counted; i++) {
		const uint64_t nsec = limiter_ask(channel->limiters[i], &channel->shares[i],
						  head->bytes, now_nsec);

		latest = nsec > latest ? nsec : latest;
	}
	return look_nsec(latest, now_nsec);
}

/* The bytes that a block counts in the scheduler.  A store that is limited in ops shares these, not bytes. */
static uint64_t sched_bytes(const struct admit *admit, uint32_t bytes, bool is_first)
{
	return is_first && bytes < SCHED_QUANTUM_BYTES && limiter_is_limited(admit->limiter) &&
			       limiter_get(admit->limiter).ops_per_sec
		       ? SCHED_QUANTUM_BYTES
		       : bytes;
}

/* Nothing is owed to its client meanwhile.  A channel that has started something since it last waited is the last: the
   channels of a user take turns. */
static void limit_wait(struct admit *admit, struct admit_channel *channel, uint64_t nsec)
{
	sched_set_aside(&admit->sched, &channel->queue);
	wait_start(&admit->limit_waiters, &channel->limit_wait);
	count_open(admit, channel);
	channel->limit_nsec = nsec;
	admit->limit_nsec = clock_first(admit->limit_nsec, nsec);
}

/* Channels whose time has come may try again. */
static void limits_offer(struct admit *admit, uint64_t now_nsec)
{
	if (!admit->limit_nsec || now_nsec < admit->limit_nsec)
		return;
	admit->limit_nsec = 0;
	LIST_EACH(struct admit_wait, wait, &admit->limit_waiters.list, node) {
		const struct admit_channel *channel = container_of(wait, struct admit_channel,
								   limit_wait);

		if (channel->limit_nsec <= now_nsec)
			sched_add(&admit->sched, wait->queue);
		else
			admit->limit_nsec = clock_first(admit->limit_nsec, channel->limit_nsec);
	}
}

static void limits_charge(struct admit *admit, struct admit_channel *channel, uint64_t bytes,
			  uint64_t ops, uint64_t now_nsec)
{
	limiter_charge(admit->limiter, &admit->share, bytes, ops, now_nsec);
	for (unsigned i = 0; i < ADMIT_LIMITERS; i++)
		limiter_charge(channel->limiters[i], &channel->shares[i], bytes, ops, now_nsec);
}

void admit_lift_limits(struct admit *admit, struct admit_channel *channel)
{
	admit->limiter = NULL;
	memset(channel->limiters, 0, sizeof(channel->limiters));
}

/* ---- bounce pages ---- */

/*
 * A client may hold at most as many pages as remain free, so a client without one gets a page at
 * once unless there are very many clients.
 */
static bool has_page_for(const struct admit *admit, const struct admit_channel *channel)
{
	return channel->queue.client->n_pages < admit->n_free_pages;
}

void admit_take_page(struct admit *admit, struct admit_channel *channel)
{
	assert(admit->n_free_pages > 0);
	admit->n_free_pages--;
	channel->queue.client->n_pages++;
}

void admit_release_page(struct admit *admit, struct admit_channel *channel)
{
	admit->n_free_pages++;
	channel->queue.client->n_pages--;
	admit->page_waiters.is_back = true;
}

/* ---- active clients ---- */

/* Several clients share the store if each had an op within 100 ms, or has one open.  An op may wait for
   longer at the device, and just then the others must not fill the queue. */
static void note_active(struct admit *admit, const struct admit_channel *channel, uint64_t now_nsec)
{
	const struct sched_client *client = channel->queue.client;

	if (admit->n_busy > 1 || (admit->recent_client && client != admit->recent_client &&
				  now_nsec - admit->recent_nsec < ADMIT_ACTIVE_NSEC)) {
		if (now_nsec >= admit->shared_until_nsec)
			window_open(&admit->window, now_nsec);
		admit->shared_until_nsec = now_nsec + ADMIT_ACTIVE_NSEC;
	}
	admit->recent_client = client;
	admit->recent_nsec = now_nsec;
	admit->sched.active_nsec[channel->queue.io_class] = now_nsec;
}

/* The largest block while the store's bytes are limited, in whole units of any file; else UINT64_MAX.  All other ops
   wait for the debt of a block, and longer than clients count as active. */
static uint64_t limited_block_bytes(const struct admit *admit)
{
	const uint64_t per_sec = limiter_is_limited(admit->limiter)
					 ? limiter_get(admit->limiter).bytes_per_sec
					 : 0;
	const uint64_t bytes = per_sec / ADMIT_LIMITED_BLOCKS &
			       ~(uint64_t)(ADMIT_LIMITED_LEAST - 1);

	if (!per_sec)
		return UINT64_MAX;
	return bytes > ADMIT_LIMITED_LEAST ? bytes : ADMIT_LIMITED_LEAST;
}

/* Blocks are cut only where that makes a wait shorter: those of large ops beside small ones, and those of a
   lower class beside a higher one, but no blocks for the sake of a lower class. */
static void update_sharing(struct admit *admit, uint64_t now_nsec)
{
	const bool was_throttled = admit->is_throttled;
	const uint64_t most = limited_block_bytes(admit);
	bool is_cut = false;

	admit->is_throttled = sched_is_throttled(&admit->sched, SCHED_BACKGROUND, now_nsec);
	if (was_throttled && !admit->is_throttled && admit->sched.n_open[SCHED_BACKGROUND])
		admit->shared_until_nsec = now_nsec; /* the higher classes are silent */
	admit->is_shared = now_nsec < admit->shared_until_nsec;
	admit->is_limited = most != UINT64_MAX;
	for (unsigned c = 0; c < N_SCHED_CLASSES; c++) {
		is_cut |= now_nsec - admit->small_op_nsec[c] < ADMIT_ACTIVE_NSEC;
		admit->block_bytes[c] = admit->is_shared && is_cut ? ADMIT_CUT_BYTES : UINT32_MAX;
		if (admit->block_bytes[c] > most)
			admit->block_bytes[c] = (uint32_t)most;
		is_cut |= now_nsec - admit->sched.active_nsec[c] < ADMIT_ACTIVE_NSEC;
	}
	if (admit->is_throttled)
		admit->block_bytes[SCHED_BACKGROUND] = SCHED_SHARE_BYTES;
}

void admit_note_op(struct admit *admit, struct admit_channel *channel, uint64_t bytes, bool is_sync,
		   uint64_t now_nsec)
{
	if (channel->limit_wait.is_waiting)
		return;
	note_active(admit, channel, now_nsec);
	if (bytes < ADMIT_CUT_BYTES && !is_sync)
		admit->small_op_nsec[channel->queue.io_class] = now_nsec;
}

void admit_set_ready(struct admit *admit, struct admit_channel *channel, bool is_ready)
{
	if (is_ready) {
		sched_add(&admit->sched, &channel->queue);
		return;
	}
	sched_remove(&admit->sched, &channel->queue);
	waits_stop(admit, channel);
}

/* ---- the decision ---- */

static bool depth_allows(const struct admit_channel *channel, const struct admit_head *head)
{
	return head->is_counted ||
	       (channel->overlap ? channel->n_in_flight : channel->n_started) < channel->depth;
}

/* One small block of each client with nothing in flight may exceed the limit. */
static bool is_small_and_first(const struct sched_queue *queue, uint32_t bytes)
{
	return !queue->client->blocks_in_flight && bytes <= WINDOW_SMALL_BYTES;
}

/*
 * The limit of bytes in flight for a block of that queue.  A client with one op open has no more than
 * that op in flight when it is back from being away.  It gets as much as the others only if they have no
 * more in flight, either.  If it does not come back, nothing is reserved for long (sched.h), so others
 * use it.
 */
static uint64_t limit_bytes(const struct admit *admit, const struct sched_queue *queue)
{
	const uint64_t least = admit->window.least_bytes;
	uint64_t bytes, reserved;

	if (!admit->is_shared)
		return window_alone_bytes(&admit->window);
	bytes = window_bytes(&admit->window);
	reserved = RESERVED_PER_OWED * sched_owed_bytes(&admit->sched, queue);
	return bytes > least + reserved ? bytes - reserved : least;
}

/* A block fits if at least half of it does, so that a large one starts beside a few small ones even at
   the lowest limit. */
static bool fits(uint64_t bytes_in_flight, uint32_t bytes, uint64_t limit)
{
	return bytes_in_flight + (bytes < limit ? bytes : limit) / 2 <= limit;
}

/* Is the part of GPU memory full? */
static bool gpu_is_full(const struct admit *admit, const struct sched_queue *queue, uint32_t bytes)
{
	return admit->is_shared && admit->gpu_bytes &&
	       !fits(admit->gpu_bytes, bytes, limit_bytes(admit, queue) / 2);
}

/* The bytes that count when the block is to start. */
static uint64_t counted_bytes(const struct admit *admit, const struct admit_head *head,
			      uint64_t limit)
{
	if (head->is_gpu || !admit->is_shared || admit->gpu_bytes <= limit / 2)
		return admit->bytes_in_flight;
	return admit->bytes_in_flight - admit->gpu_bytes + limit / 2;
}

/* May the next block start? */
static bool is_admitted(struct admit *admit, const struct sched_queue *queue,
			const struct admit_head *head, uint64_t now_nsec)
{
	const uint64_t limit = limit_bytes(admit, queue);

	if (head->bytes > WINDOW_SMALL_BYTES) {
		admit->guard_end_nsec = window_guard(&admit->window, now_nsec);
		if (admit->guard_end_nsec)
			return false;
	}
	if (head->is_gpu && now_nsec - admit->host_nsec < ADMIT_ACTIVE_NSEC &&
	    gpu_is_full(admit, queue, head->bytes))
		return false;
	if (fits(counted_bytes(admit, head, limit), head->bytes, limit))
		return true;
	window_note_full(&admit->window);
	return false;
}

void admit_begin_turn(struct admit *admit, uint64_t now_nsec)
{
	update_sharing(admit, now_nsec);
	admit->guard_end_nsec = 0;
	admit->is_over_limit = false;
	waiters_offer(admit, &admit->page_waiters);
	waiters_offer(admit, &admit->gpu_waiters);
	limits_offer(admit, now_nsec);
}

struct admit_channel *admit_candidate(struct admit *admit, uint64_t now_nsec)
{
	struct sched_queue *queue;

	if (admit->is_over_limit) {
		admit->until_nsec = admit->guard_end_nsec;
		do
			queue = sched_walk_next(&admit->sched, &admit->walk, now_nsec);
		while (queue && queue->client->blocks_in_flight);
	} else {
		queue = sched_next(&admit->sched, now_nsec);
		admit->until_nsec = queue ? 0 : sched_until_nsec(&admit->sched);
	}
	admit->until_nsec = clock_first(admit->until_nsec, admit->limit_nsec);
	return queue ? container_of(queue, struct admit_channel, queue) : NULL;
}

/* May the block pass the limit that others have reached? */
static enum admit_answer ask_to_pass(struct admit *admit, struct admit_channel *channel,
				     const struct admit_head *head, uint64_t now_nsec)
{
	if (!is_small_and_first(&channel->queue, head->bytes) || head->must_defer ||
	    !depth_allows(channel, head) || (head->needs_page && !has_page_for(admit, channel)) ||
	    channel_limit_nsec(channel, head, now_nsec))
		return ADMIT_OTHER;
	return head->is_unlimited || head->has_room ? ADMIT_START : ADMIT_NOTHING;
}

/* The block whose turn it is has to wait for bytes in flight: who may go on? */
static enum admit_answer wait_for_bytes(struct admit *admit, struct admit_channel *channel,
					const struct admit_head *head)
{
	if (head->is_gpu && !admit->guard_end_nsec &&
	    !is_small_and_first(&channel->queue, head->bytes) &&
	    gpu_is_full(admit, &channel->queue, head->bytes)) {
		sched_set_aside(&admit->sched, &channel->queue); /* others need not wait for that */
		wait_start(&admit->gpu_waiters, &channel->gpu_wait);
	} else {
		admit->is_over_limit = true;
		admit->walk = (struct sched_walk){ 0 };
	}
	return ADMIT_OTHER;
}

static enum admit_answer ask(struct admit *admit, struct admit_channel *channel,
			     const struct admit_head *head, uint64_t now_nsec)
{
	uint64_t limit_nsec;

	if (!depth_allows(channel, head)) {
		sched_remove(&admit->sched, &channel->queue);
		return ADMIT_FULL;
	}
	if (head->must_defer)
		return ADMIT_DEFER;
	if (head->needs_page && !has_page_for(admit, channel)) {
		sched_remove(&admit->sched, &channel->queue);
		wait_start(&admit->page_waiters, &channel->page_wait);
		return ADMIT_OTHER;
	}
	limit_nsec = channel_limit_nsec(channel, head, now_nsec);
	if (limit_nsec) {
		limit_wait(admit, channel, limit_nsec);
		return ADMIT_LIMITED;
	}
	if (head->is_unlimited)
		return ADMIT_START;
	if (!head->is_gpu)
		admit->host_nsec = now_nsec;
	if (!is_admitted(admit, &channel->queue, head, now_nsec))
		return wait_for_bytes(admit, channel, head);
	return head->has_room ? ADMIT_START : ADMIT_NOTHING;
}

enum admit_answer admit_ask(struct admit *admit, struct admit_channel *channel,
			    const struct admit_head *head, uint64_t now_nsec)
{
	const uint64_t store_nsec = head->is_counted ? 0
						     : limiter_ask(admit->limiter, &admit->share,
								   head->bytes, now_nsec);
	const uint64_t limit_nsec = look_nsec(store_nsec, now_nsec);
	enum admit_answer answer;

	if (limit_nsec) {
		admit->until_nsec = clock_first(admit->until_nsec, limit_nsec);
		return ADMIT_NOTHING;
	}
	if (!admit->is_over_limit)
		return ask(admit, channel, head, now_nsec);
	answer = ask_to_pass(admit, channel, head, now_nsec);
	admit->is_over_limit = answer == ADMIT_OTHER;
	return answer;
}

/* ---- in flight ---- */

void admit_note_start(struct admit *admit, struct admit_channel *channel, uint32_t bytes,
		      bool is_first, uint64_t now_nsec)
{
	waits_stop(admit, channel);
	limits_charge(admit, channel, bytes, is_first, now_nsec);
	sched_charge(&admit->sched, &channel->queue, sched_bytes(admit, bytes, is_first), now_nsec);
}

void admit_start_again(struct admit *admit, struct admit_channel *channel, uint64_t now_nsec)
{
	wait_stop(&admit->page_waiters, &channel->page_wait);
	sched_charge(&admit->sched, &channel->queue, 0, now_nsec);
}

void admit_depth_charge(struct admit_channel *channel)
{
	channel->n_in_flight++;
	channel->n_started++;
}

void admit_depth_discharge(struct admit *admit, struct admit_channel *channel, uint64_t now_nsec)
{
	if (--channel->n_in_flight == 0)
		channel->n_started = 0;
	note_active(admit, channel, now_nsec);
}

bool admit_window_charge(struct admit *admit, struct admit_channel *channel, unsigned kind,
			 uint32_t bytes, uint64_t now_nsec)
{
	struct sched_client *client = channel->queue.client;
	/* A higher class does not wait for the class background. */
	const bool is_guarded = admit->is_shared && !client->blocks_in_flight &&
				bytes <= WINDOW_SMALL_BYTES &&
				!sched_is_throttled(&admit->sched, channel->queue.io_class,
						    now_nsec);

	if (is_guarded)
		window_small_start(&admit->window, &client->small, kind, bytes, now_nsec);
	admit->n_in_flight++;
	admit->bytes_in_flight += bytes;
	if (kind & WINDOW_GPU)
		admit->gpu_bytes += bytes;
	return is_guarded;
}

void admit_window_discharge(struct admit *admit, struct admit_channel *channel, unsigned kind,
			    uint32_t bytes, bool is_guarded)
{
	if (is_guarded)
		window_small_end(&admit->window, &channel->queue.client->small);
	if (--admit->n_in_flight == 0)
		window_note_idle(&admit->window);
	admit->bytes_in_flight -= bytes;
	if (kind & WINDOW_GPU) {
		admit->gpu_bytes -= bytes;
		admit->gpu_waiters.is_back = true;
	}
}

void admit_client_charge(struct admit_channel *channel)
{
	channel->queue.client->blocks_in_flight++;
}

void admit_client_discharge(struct admit_channel *channel, uint64_t now_nsec)
{
	channel->queue.client->blocks_in_flight--;
	channel->queue.client->done_nsec = now_nsec;
}

void admit_note_done(struct admit *admit, unsigned kind, uint32_t bytes, uint64_t nsec,
		     uint64_t now_nsec)
{
	window_note_done(&admit->window, kind, bytes, nsec, admit->is_shared, now_nsec);
}
