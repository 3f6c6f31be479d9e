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
	queue->io_class = queue->now_class = io_class;
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

static void enter(struct sched *sched, struct sched_queue *queue)
{
	struct sched_turn *turn = &queue->client->turns[queue->now_class];

	if (!turn->queues)
		turn_enter(sched, queue->now_class, turn);
	RING_INSERT_BEFORE(turn->queues, queue);
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

/* may_return: it has nothing to start; else it goes to another class. */
static void leave(struct sched *sched, struct sched_queue *queue, bool may_return)
{
	struct sched_turn *turn = &queue->client->turns[queue->now_class];

	if (turn->queues == queue)
		queue->is_charged = false; /* a new turn, when it comes back */
	RING_REMOVE(turn->queues, queue);
	if (queue->deficit_bytes > 0)
		queue->deficit_bytes = 0;
	if (turn->queues)
		return;
	sched->n_active[queue->now_class]--;
	if (may_return)
		turn_go_away(sched, queue->now_class, turn, quantum(queue->weight));
	else
		turn_drop(sched, queue->now_class, turn);
}

void sched_client_gone(struct sched *sched, struct sched_client *client)
{
	for (unsigned c = 0; c < N_SCHED_CLASSES; c++)
		if (client->turns[c].is_away)
			turn_drop(sched, c, &client->turns[c]);
}

void sched_add(struct sched *sched, struct sched_queue *queue, uint64_t now_nsec)
{
	if (queue->is_active)
		return;
	queue->is_active = true;
	if (!queue->is_paused) {
		queue->now_class = queue->io_class;
		queue->head_since_nsec = now_nsec;
	}
	queue->is_paused = false;
	sched->n_queues++;
	enter(sched, queue);
}

static void pause_queue(struct sched *sched, struct sched_queue *queue, bool may_return)
{
	assert(queue->is_active && sched->n_queues > 0);
	leave(sched, queue, may_return);
	queue->is_active = false;
	queue->is_paused = true;
	sched->n_queues--;
}

void sched_pause(struct sched *sched, struct sched_queue *queue)
{
	pause_queue(sched, queue, true);
}

void sched_set_aside(struct sched *sched, struct sched_queue *queue)
{
	pause_queue(sched, queue, false);
}

void sched_remove(struct sched *sched, struct sched_queue *queue)
{
	if (queue->is_active)
		sched_pause(sched, queue);
	queue->is_paused = false;
}

static void lift(struct sched *sched, struct sched_queue *queue, enum sched_class to)
{
	leave(sched, queue, false);
	queue->now_class = to;
	enter(sched, queue);
}

/* Queues whose head block has waited too long go up a class for that block. */
static void age(struct sched *sched, uint64_t now_nsec)
{
	for (unsigned c = SCHED_NORMAL; c < N_SCHED_CLASSES; c++) {
		/* Collected first: lifting changes the rings that are walked. */
		struct sched_queue *old[32];
		unsigned n_old = 0;
		struct sched_turn *turn = sched->turns[c];

		if (!sched->n_active[c])
			continue;
		do {
			struct sched_queue *queue = turn->queues;

			while (queue) {
				if (now_nsec - queue->head_since_nsec >= SCHED_AGEING_NSEC &&
				    n_old < sizeof(old) / sizeof(*old))
					old[n_old++] = queue;
				queue = queue->next != turn->queues ? queue->next : NULL;
			}
			turn = turn->next;
		} while (turn != sched->turns[c]);
		for (unsigned i = 0; i < n_old; i++) {
			old[i]->head_since_nsec = now_nsec; /* 10 ms more for the next class */
			lift(sched, old[i], (enum sched_class)(c - 1));
		}
	}
	sched->next_ageing_nsec = now_nsec + SCHED_AGEING_NSEC / 4;
}

static bool has_several_classes(const struct sched *sched)
{
	unsigned n = 0;

	for (unsigned c = 0; c < N_SCHED_CLASSES; c++)
		n += sched->n_active[c] > 0;
	return n > 1;
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
	struct sched_turn *turn;
	unsigned c = 0;

	if (!sched->n_queues)
		return NULL;
	if (now_nsec >= sched->next_ageing_nsec && has_several_classes(sched))
		age(sched, now_nsec);
	while (!sched->n_active[c])
		c++;
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

struct sched_queue *sched_find(struct sched *sched,
			       bool (*may)(const struct sched_queue *queue, void *arg), void *arg)
{
	for (unsigned c = 0; c < N_SCHED_CLASSES; c++) {
		struct sched_turn *turn = sched->turns[c];

		if (!sched->n_active[c])
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
	return (uint64_t)sched->owed_bytes[queue->now_class];
}

static void owe(int64_t *deficit_bytes, uint64_t bytes)
{
	*deficit_bytes -= (int64_t)bytes;
	if (*deficit_bytes < -SCHED_DEBT_MAX)
		*deficit_bytes = -SCHED_DEBT_MAX;
}

void sched_charge(struct sched *sched, struct sched_queue *queue, uint64_t bytes, uint64_t now_nsec)
{
	struct sched_turn *turn = &queue->client->turns[queue->now_class];

	owe(&queue->deficit_bytes, bytes);
	owe(&turn->deficit_bytes, bytes);
	turn->stay_bytes += (int64_t)bytes;
	queue->client->started_nsec = now_nsec;
	queue->head_since_nsec = now_nsec;
	if (queue->now_class != queue->io_class)
		lift(sched, queue, queue->io_class); /* it was lifted for one block */
}
