#include "daemon/lane/sched.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/*
 * Deficit round robin, twice: a class has a list of clients with something to do (struct
 * sched_flow), a flow a list of queues.  The head of each list is served, and goes to its end.  When it becomes the
 * head it gets its quantum; while its deficit is positive it may start a block, which may be
 * larger than what is left: the debt is paid in later rounds.
 *
 * A client's quantum is that of its heaviest queue there, so that opening more handles gains
 * nothing.
 *
 * A flow without queues that is away stands in the list like the others, is passed over with its
 * quantum, and leaves the list when it is the head and the client has been gone for too long.
 */

static struct sched_flow *flow_of(struct list_node *node)
{
	return list_entry(node, struct sched_flow, node);
}

static struct sched_queue *queue_of(struct list_node *node)
{
	return list_entry(node, struct sched_queue, node);
}

/* The head becomes the last. */
static void rotate(struct list *list)
{
	list_push(list, list_pop(list));
}

void sched_init(struct sched *sched)
{
	memset(sched, 0, sizeof(*sched));
}

void sched_client_init(struct sched_client *client)
{
	memset(client, 0, sizeof(*client));
	for (unsigned i = 0; i < N_SCHED_CLASSES; i++)
		client->flows[i].client = client;
}

void sched_queue_init(struct sched_queue *queue, struct sched_client *client,
		      enum sched_class io_class, uint32_t weight)
{
	memset(queue, 0, sizeof(*queue));
	queue->client = client;
	queue->io_class = io_class;
	sched_set_weight(queue, weight);
}

static int64_t quantum(const struct sched_queue *queue)
{
	return (int64_t)SCHED_QUANTUM_BYTES *
	       atomic_load_explicit(&queue->weight, memory_order_relaxed);
}

static int64_t flow_quantum(const struct sched_flow *flow)
{
	int64_t most = 0;

	LIST_EACH(const struct sched_queue, queue, &flow->queues, node)
		most = quantum(queue) > most ? quantum(queue) : most;
	return most;
}

static int64_t credit(const struct sched_flow *flow)
{
	return flow->deficit_bytes > 0 ? flow->deficit_bytes : 0;
}

static void flow_enter(struct sched *sched, unsigned c, struct sched_flow *flow)
{
	sched->n_active[c]++;
	flow->stay_bytes = 0;
	if (!flow->is_away) {
		list_push(&sched->flows[c], &flow->node);
		return;
	}
	flow->is_away = false;
	sched->owed_bytes[c] -= credit(flow);
	if (flow->deficit_bytes <= 0)
		return;
	/* It was passed over while it was away: it is next, and all others keep their order. */
	list_remove(&sched->flows[c], &flow->node);
	list_push_front(&sched->flows[c], &flow->node);
	flow->is_charged = true;
}

/* A debt is kept; credit is not saved up by being idle. */
static void flow_drop(struct sched *sched, unsigned c, struct sched_flow *flow)
{
	if (sched->flows[c].first == &flow->node)
		flow->is_charged = false;
	list_remove(&sched->flows[c], &flow->node);
	if (flow->is_away)
		sched->owed_bytes[c] -= credit(flow);
	flow->is_away = false;
	if (flow->deficit_bytes > 0)
		flow->deficit_bytes = 0;
}

/* It may have at most so much, to have it when it is back. */
static void flow_credit(struct sched *sched, unsigned c, struct sched_flow *flow, int64_t bytes)
{
	int64_t before = credit(flow);

	flow->deficit_bytes += bytes;
	if (flow->deficit_bytes > flow->owed_max)
		flow->deficit_bytes = flow->owed_max;
	sched->owed_bytes[c] += credit(flow) - before;
}

static void flow_go_away(struct sched *sched, unsigned c, struct sched_flow *flow,
			 int64_t quantum_bytes)
{
	flow->is_away = true;
	flow->is_charged = false;
	if (sched->flows[c].first == &flow->node)
		rotate(&sched->flows[c]);
	flow->quantum_bytes = quantum_bytes;
	flow->owed_max = flow->stay_bytes < SCHED_OWED_MAX ? flow->stay_bytes : SCHED_OWED_MAX;
	sched->owed_bytes[c] += credit(flow);
	flow_credit(sched, c, flow, 0);
}

void sched_client_gone(struct sched *sched, struct sched_client *client)
{
	for (unsigned c = 0; c < N_SCHED_CLASSES; c++)
		if (client->flows[c].is_away)
			flow_drop(sched, c, &client->flows[c]);
}

void sched_add(struct sched *sched, struct sched_queue *queue)
{
	struct sched_flow *flow = &queue->client->flows[queue->io_class];

	if (queue->is_active)
		return;
	queue->is_active = true;
	if (!flow->queues.first)
		flow_enter(sched, queue->io_class, flow);
	list_push(&flow->queues, &queue->node);
}

static void leave(struct sched *sched, struct sched_queue *queue, bool may_return)
{
	struct sched_flow *flow = &queue->client->flows[queue->io_class];

	assert(queue->is_active);
	queue->is_active = false;
	if (flow->queues.first == &queue->node)
		queue->is_charged = false; /* it gets a quantum when it comes back */
	list_remove(&flow->queues, &queue->node);
	if (queue->deficit_bytes > 0)
		queue->deficit_bytes = 0;
	if (flow->queues.first)
		return;
	sched->n_active[queue->io_class]--;
	if (may_return)
		flow_go_away(sched, queue->io_class, flow, quantum(queue));
	else
		flow_drop(sched, queue->io_class, flow);
}

void sched_remove(struct sched *sched, struct sched_queue *queue)
{
	if (queue->is_active)
		leave(sched, queue, true);
}

void sched_set_aside(struct sched *sched, struct sched_queue *queue)
{
	leave(sched, queue, false);
}

/* ---- classes ---- */

/* When the class is active no more, if nothing happens. */
static uint64_t active_until(const struct sched *sched, unsigned c)
{
	return sched->active_nsec[c] + (sched->n_open[c] ? WINDOW_HUNG_NSEC : SCHED_ACTIVE_NSEC);
}

bool sched_is_throttled(const struct sched *sched, enum sched_class io_class, uint64_t now_nsec)
{
	if (io_class != SCHED_BACKGROUND)
		return io_class == SCHED_NORMAL && sched->n_active[SCHED_DEMAND];
	return now_nsec < active_until(sched, SCHED_DEMAND) ||
	       now_nsec < active_until(sched, SCHED_NORMAL);
}

static void share_add(struct sched_share *share, uint64_t bytes)
{
	share->bytes += (int64_t)bytes;
	if (share->bytes > (int64_t)SCHED_SHARE_BYTES)
		share->bytes = SCHED_SHARE_BYTES;
}

static bool has_credit(struct sched_share *share, uint64_t now_nsec)
{
	uint64_t bytes = (now_nsec - share->since_nsec) / SCHED_SHARE_NSEC;

	share->since_nsec += bytes * SCHED_SHARE_NSEC;
	share_add(share, bytes);
	return share->bytes > 0;
}

/* The class that is served now, or N_SCHED_CLASSES. */
static unsigned next_class(struct sched *sched, uint64_t now_nsec)
{
	unsigned first = N_SCHED_CLASSES;

	for (unsigned c = 0; c < N_SCHED_CLASSES; c++) {
		if (!sched->n_active[c])
			continue;
		if (!sched_is_throttled(sched, c, now_nsec))
			first = c < first ? c : first;
		else if (has_credit(&sched->shares[c], now_nsec))
			return c; /* its share goes first */
	}
	return first;
}

uint64_t sched_until_nsec(const struct sched *sched)
{
	/* Beside a class with a block to start, which would have been the answer, no other waits. */
	const struct sched_share *share = &sched->shares[SCHED_BACKGROUND];
	uint64_t demand = active_until(sched, SCHED_DEMAND);
	uint64_t normal = active_until(sched, SCHED_NORMAL);
	uint64_t quiet = demand > normal ? demand : normal;
	uint64_t credit = share->since_nsec + (uint64_t)(1 - share->bytes) * SCHED_SHARE_NSEC;

	if (!sched->n_active[SCHED_BACKGROUND])
		return 0;
	return credit < quiet ? credit : quiet;
}

static bool is_gone(const struct sched_flow *flow, uint64_t now_nsec)
{
	const struct sched_client *client = flow->client;

	/* A call that hangs, of a GPU's driver for example, must not reserve room forever. */
	if (client->blocks_in_flight)
		return now_nsec - client->started_nsec >= WINDOW_HUNG_NSEC;
	return now_nsec - client->done_nsec >= SCHED_AWAY_NSEC;
}

/* The class's flow that is served now: one with something to do, of which there is at least one. */
static struct sched_flow *next_flow(struct sched *sched, unsigned c, uint64_t now_nsec)
{
	/* Each step gives a quantum, so a debt of one block of 64 MiB at weight 1 is paid in 256
	   rounds at most. */
	for (;;) {
		struct sched_flow *flow = flow_of(sched->flows[c].first);

		if (flow->is_away && is_gone(flow, now_nsec)) {
			flow_drop(sched, c, flow); /* the next one is the head by that */
			continue;
		}
		if (flow->is_away) {
			flow_credit(sched, c, flow, flow->quantum_bytes);
		} else {
			if (!flow->is_charged) {
				flow->is_charged = true;
				flow->deficit_bytes += flow_quantum(flow);
			}
			if (flow->deficit_bytes > 0)
				return flow;
			flow->is_charged = false;
		}
		rotate(&sched->flows[c]);
	}
}

struct sched_queue *sched_next(struct sched *sched, uint64_t now_nsec)
{
	const unsigned c = next_class(sched, now_nsec);
	struct sched_flow *flow;

	if (c == N_SCHED_CLASSES)
		return NULL;
	flow = next_flow(sched, c, now_nsec);
	for (;;) {
		struct sched_queue *queue = queue_of(flow->queues.first);

		if (!queue->is_charged) {
			queue->is_charged = true;
			queue->deficit_bytes += quantum(queue);
		}
		if (queue->deficit_bytes > 0)
			return queue;
		queue->is_charged = false;
		rotate(&flow->queues);
	}
}

/* The first flow of the next class that may start blocks; NULL: there is none. */
static struct sched_flow *walk_class(struct sched *sched, struct sched_walk *walk,
				     uint64_t now_nsec)
{
	while (walk->n_classes < N_SCHED_CLASSES) {
		const unsigned c = walk->n_classes++;

		if (sched->n_active[c] && (!sched_is_throttled(sched, c, now_nsec) ||
					   has_credit(&sched->shares[c], now_nsec)))
			return flow_of(sched->flows[c].first);
	}
	return NULL;
}

struct sched_queue *sched_walk_next(struct sched *sched, struct sched_walk *walk, uint64_t now_nsec)
{
	if (walk->queue)
		walk->queue = queue_of(walk->queue->node.next);
	while (!walk->queue) { /* a flow that is away has none */
		if (walk->flow)
			walk->flow = flow_of(walk->flow->node.next);
		if (!walk->flow)
			walk->flow = walk_class(sched, walk, now_nsec);
		if (!walk->flow)
			return NULL;
		walk->queue = queue_of(walk->flow->queues.first);
	}
	return walk->queue;
}

uint64_t sched_owed_bytes(const struct sched *sched, const struct sched_queue *queue)
{
	return (uint64_t)sched->owed_bytes[queue->io_class];
}

static void owe(int64_t *deficit_bytes, uint64_t bytes)
{
	*deficit_bytes -= (int64_t)bytes;
	if (*deficit_bytes < -SCHED_DEBT_MAX)
		*deficit_bytes = -SCHED_DEBT_MAX;
}

void sched_charge(struct sched *sched, struct sched_queue *queue, uint64_t bytes, uint64_t now_nsec)
{
	struct sched_flow *flow = &queue->client->flows[queue->io_class];

	owe(&queue->deficit_bytes, bytes);
	owe(&flow->deficit_bytes, bytes);
	flow->stay_bytes += (int64_t)bytes;
	queue->client->started_nsec = now_nsec;
	if (sched_is_throttled(sched, queue->io_class, now_nsec))
		owe(&sched->shares[queue->io_class].bytes, bytes);
	for (unsigned c = queue->io_class + 1; c < N_SCHED_CLASSES; c++)
		share_add(&sched->shares[c], bytes / SCHED_SHARE_PART);
}
