#include "daemon/lane/sched.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/*
 * Deficit round robin, twice: a class has a ring of clients with something to do (struct
 * sched_turn), a turn a ring of queues.  The head of each ring has the turn.  When its turn
 * begins it gets its quantum; while its deficit is positive it may start a block, which may be
 * larger than what is left: the debt is paid in later turns.
 *
 * A client's quantum is that of its heaviest queue there, so that opening more handles gains
 * nothing.
 *
 * A turn without queues that is away stands in the ring like the others, is passed over with its
 * quantum, and leaves the ring when its turn comes and the client has been gone for too long.
 */

#define RING_INSERT_BEFORE(head, item)                        \
	do {                                                  \
		if (head) {                                   \
			(item)->next = (head);                \
			(item)->prev = (head)->prev;          \
			(item)->prev->next = (item);          \
			(head)->prev = (item);                \
		} else {                                      \
			(item)->next = (item)->prev = (item); \
			(head) = (item);                      \
		}                                             \
	} while (0)
#define RING_REMOVE(head, item)                            \
	do {                                               \
		if ((item)->next == (item)) {              \
			(head) = NULL;                     \
		} else {                                   \
			if ((head) == (item))              \
				(head) = (item)->next;     \
			(item)->prev->next = (item)->next; \
			(item)->next->prev = (item)->prev; \
		}                                          \
		(item)->next = (item)->prev = NULL;        \
	} while (0)

void sched_init(struct sched *sched)
{
	memset(sched, 0, sizeof(*sched));
}

void sched_client_init(struct sched_client *client)
{
	memset(client, 0, sizeof(*client));
	for (unsigned i = 0; i < N_SCHED_CLASSES; i++)
		client->turns[i].client = client;
}

void sched_queue_init(struct sched_queue *queue, struct sched_client *client,
		      enum sched_class io_class, uint32_t weight)
{
	memset(queue, 0, sizeof(*queue));
	queue->client = client;
	queue->io_class = io_class;
	queue->weight = weight;
}

static int64_t quantum(uint32_t weight)
{
	return (int64_t)SCHED_QUANTUM_BYTES * weight;
}

static int64_t turn_quantum(const struct sched_turn *turn)
{
	const struct sched_queue *queue = turn->queues;
	uint32_t weight = 0;

	do {
		if (queue->weight > weight)
			weight = queue->weight;
		queue = queue->next;
	} while (queue != turn->queues);
	return quantum(weight);
}

static int64_t credit(const struct sched_turn *turn)
{
	return turn->deficit_bytes > 0 ? turn->deficit_bytes : 0;
}

static void turn_enter(struct sched *sched, unsigned c, struct sched_turn *turn)
{
	sched->n_active[c]++;
	turn->stay_bytes = 0;
	if (!turn->is_away) {
		RING_INSERT_BEFORE(sched->turns[c], turn);
		return;
	}
	turn->is_away = false;
	sched->owed_bytes[c] -= credit(turn);
	if (turn->deficit_bytes <= 0)
		return;
	/* Its turn has passed while it was away: it is next, and all others keep their order. */
	RING_REMOVE(sched->turns[c], turn);
	RING_INSERT_BEFORE(sched->turns[c], turn);
	sched->turns[c] = turn;
	turn->is_charged = true;
}

/* A debt is kept; credit is not saved up by being idle. */
static void turn_drop(struct sched *sched, unsigned c, struct sched_turn *turn)
{
	if (sched->turns[c] == turn)
		turn->is_charged = false;
	RING_REMOVE(sched->turns[c], turn);
	if (turn->is_away)
		sched->owed_bytes[c] -= credit(turn);
	turn->is_away = false;
	if (turn->deficit_bytes > 0)
		turn->deficit_bytes = 0;
}

/* It may have at most so much, to have it when it is back. */
static void turn_credit(struct sched *sched, unsigned c, struct sched_turn *turn, int64_t bytes)
{
	int64_t before = credit(turn);

	turn->deficit_bytes += bytes;
	if (turn->deficit_bytes > turn->owed_max)
		turn->deficit_bytes = turn->owed_max;
	sched->owed_bytes[c] += credit(turn) - before;
}

static void turn_go_away(struct sched *sched, unsigned c, struct sched_turn *turn,
			 int64_t quantum_bytes)
{
	turn->is_away = true;
	turn->is_charged = false;
	if (sched->turns[c] == turn)
		sched->turns[c] = turn->next;
	turn->quantum_bytes = quantum_bytes;
	turn->owed_max = turn->stay_bytes < SCHED_OWED_MAX ? turn->stay_bytes : SCHED_OWED_MAX;
	sched->owed_bytes[c] += credit(turn);
	turn_credit(sched, c, turn, 0);
}

void sched_client_gone(struct sched *sched, struct sched_client *client)
{
	for (unsigned c = 0; c < N_SCHED_CLASSES; c++)
		if (client->turns[c].is_away)
			turn_drop(sched, c, &client->turns[c]);
}

void sched_add(struct sched *sched, struct sched_queue *queue)
{
	struct sched_turn *turn = &queue->client->turns[queue->io_class];

	if (queue->is_active)
		return;
	queue->is_active = true;
	if (!turn->queues)
		turn_enter(sched, queue->io_class, turn);
	RING_INSERT_BEFORE(turn->queues, queue);
}

static void leave(struct sched *sched, struct sched_queue *queue, bool may_return)
{
	struct sched_turn *turn = &queue->client->turns[queue->io_class];

	assert(queue->is_active);
	queue->is_active = false;
	if (turn->queues == queue)
		queue->is_charged = false; /* a new turn, when it comes back */
	RING_REMOVE(turn->queues, queue);
	if (queue->deficit_bytes > 0)
		queue->deficit_bytes = 0;
	if (turn->queues)
		return;
	sched->n_active[queue->io_class]--;
	if (may_return)
		turn_go_away(sched, queue->io_class, turn, quantum(queue->weight));
	else
		turn_drop(sched, queue->io_class, turn);
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

/* The class whose turn it is, or N_SCHED_CLASSES. */
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

static bool is_gone(const struct sched_turn *turn, uint64_t now_nsec)
{
	const struct sched_client *client = turn->client;

	/* A call that hangs, of a GPU's driver for example, must not reserve room forever. */
	if (client->blocks_in_flight)
		return now_nsec - client->started_nsec >= WINDOW_HUNG_NSEC;
	return now_nsec - client->done_nsec >= SCHED_AWAY_NSEC;
}

/* The class's turn that has it now: one with something to do, of which there is at least one. */
static struct sched_turn *next_turn(struct sched *sched, unsigned c, uint64_t now_nsec)
{
	/* Each step gives a quantum, so a debt of one block of 64 MiB at weight 1 is paid in 256
	   rounds at most. */
	for (;;) {
		struct sched_turn *turn = sched->turns[c];

		if (turn->is_away && is_gone(turn, now_nsec)) {
			turn_drop(sched, c, turn); /* the next has its turn by that */
			continue;
		}
		if (turn->is_away) {
			turn_credit(sched, c, turn, turn->quantum_bytes);
		} else {
			if (!turn->is_charged) {
				turn->is_charged = true;
				turn->deficit_bytes += turn_quantum(turn);
			}
			if (turn->deficit_bytes > 0)
				return turn;
			turn->is_charged = false;
		}
		sched->turns[c] = turn->next;
	}
}

struct sched_queue *sched_next(struct sched *sched, uint64_t now_nsec)
{
	const unsigned c = next_class(sched, now_nsec);
	struct sched_turn *turn;

	if (c == N_SCHED_CLASSES)
		return NULL;
	turn = next_turn(sched, c, now_nsec);
	for (;;) {
		struct sched_queue *queue = turn->queues;

		if (!queue->is_charged) {
			queue->is_charged = true;
			queue->deficit_bytes += quantum(queue->weight);
		}
		if (queue->deficit_bytes > 0)
			return queue;
		queue->is_charged = false;
		turn->queues = queue->next;
	}
}

struct sched_queue *sched_find(struct sched *sched, uint64_t now_nsec,
			       bool (*may)(const struct sched_queue *queue, void *arg), void *arg)
{
	for (unsigned c = 0; c < N_SCHED_CLASSES; c++) {
		struct sched_turn *turn = sched->turns[c];

		if (!sched->n_active[c] || (sched_is_throttled(sched, c, now_nsec) &&
					    !has_credit(&sched->shares[c], now_nsec)))
			continue;
		do {
			struct sched_queue *queue = turn->queues;

			while (queue) {
				if (may(queue, arg))
					return queue;
				queue = queue->next != turn->queues ? queue->next : NULL;
			}
			turn = turn->next;
		} while (turn != sched->turns[c]);
	}
	return NULL;
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
	struct sched_turn *turn = &queue->client->turns[queue->io_class];

	owe(&queue->deficit_bytes, bytes);
	owe(&turn->deficit_bytes, bytes);
	turn->stay_bytes += (int64_t)bytes;
	queue->client->started_nsec = now_nsec;
	if (sched_is_throttled(sched, queue->io_class, now_nsec))
		owe(&sched->shares[queue->io_class].bytes, bytes);
	for (unsigned c = queue->io_class + 1; c < N_SCHED_CLASSES; c++)
		share_add(&sched->shares[c], bytes / SCHED_SHARE_PART);
}
