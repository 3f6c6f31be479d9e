/*
 * Both sides of a channel as threads of one process over one mapping.
 *
 * The stress test has a small lane of its own that polls, publishes and sleeps exactly as the
 * protocol says, with nothing behind it: an op's result is made from its id.  Each side now and
 * then sleeps at once and now and then spins, so that the two fall asleep past each other as
 * often as can be.  A lost wake-up shows as a sleep that ends by its time-out although there was
 * something to do.  ThreadSanitizer sees both sides here, which it cannot across processes.
 * Under valgrind threads take turns: nothing is tested then (run.sh).
 *
 * Compiled with RING_MUTANT=n one fence is missing: tests/model/mutants.sh tells which of them
 * this machine needs.
 */
#include "tests/unit/ring_pair.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

static uint64_t now_nsec(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- each pair of fences: both halves at the same moment, a great many times ---- */

/* On two processors of our own a third of a second; on busy ones as many as fit into the time. */
#define LITMUS_ROUNDS 300000u
#define LITMUS_NSEC UINT64_C(4000000000)
#define LITMUS_OVER (1u << 30) /* instead of a round: there is none any more */
#define SECOND (1u << 31)      /* of a round: both halves learn the outcome and get ready again */

enum litmus_case { LITMUS_SUBMIT_SLEEP, LITMUS_SUBMIT_PARK, LITMUS_WAIT_COMPLETE };

struct litmus {
	enum litmus_case which;
	struct pair pair;
	uint64_t state; /* of lane_state */
	bool lane_saw;	/* what the lane's half saw of the client's, in this round */
	_Alignas(64) _Atomic uint32_t go; /* the round that may start, or LITMUS_OVER; the client's
					       thread */
	_Alignas(64) _Atomic uint32_t done; /* the round that the lane's half has ended */
};

/*
 * False: it is over.  A wait longer than a round is a wait for a thread that does not
 * run: perhaps it needs this processor.
 */
static bool wait_round(const _Atomic uint32_t *word, uint32_t round)
{
	for (unsigned i = 1;; i++) {
		uint32_t now = atomic_load_explicit(word, memory_order_acquire);

		if (now == round || now == LITMUS_OVER)
			return now == round;
		if (i % 4096 == 0)
			(void)sched_yield(); /* cannot fail */
	}
}

/* A few steps more or less, so that the halves meet in every way. */
static void dither(uint32_t round, uint32_t step)
{
	for (volatile uint32_t i = round * step % 61; i; i--)
		;
}

static void *litmus_lane_main(void *arg)
{
	struct litmus *l = arg;
	struct ring_lane *ring = &l->pair.lane;
	struct ring_entry entry;

	for (uint32_t round = 1; wait_round(&l->go, round); round++) {
		dither(round, 7);
		switch (l->which) {
		case LITMUS_SUBMIT_SLEEP:
			lane_board_set(&l->pair.board, ++l->state);
			RING_FENCE_SLEEP();
			l->lane_saw = ring_lane_has_entries(ring);
			break;
		case LITMUS_SUBMIT_PARK:
			ring_lane_park(ring);
			RING_FENCE_PARK();
			l->lane_saw = ring_lane_has_entries(ring);
			break;
		case LITMUS_WAIT_COMPLETE:
			ring_lane_complete(ring, round, 0);
			(void)ring_lane_publish(ring); /* there is one */
			RING_FENCE_COMPLETE();
			l->lane_saw = ring_lane_wake(ring) != RING_WAKE_NONE;
			break;
		}
		atomic_store_explicit(&l->done, round, memory_order_release);
		(void)wait_round(&l->go, round | SECOND); /* the client's half is done: it comes */
		while (ring_lane_ready(ring) > 0)
			ring_lane_take(ring, &entry);
		/* Takes the client's line, so that its next store waits in a buffer. */
		(void)ring_lane_wake(ring);
		if (l->which != LITMUS_WAIT_COMPLETE) {
			ring->cq_tail = ring->taken;
			(void)ring_lane_publish(ring); /* nobody sleeps */
		}
		if (l->which == LITMUS_SUBMIT_SLEEP)
			lane_board_set(&l->pair.board, ++l->state);
		if (l->which == LITMUS_SUBMIT_PARK)
			ring_lane_unpark(ring);
		atomic_store_explicit(&l->done, round | SECOND, memory_order_release);
	}
	return NULL;
}

TEST_LOOP(of_two_sides_at_the_same_moment_one_sees_the_other, 3)
{
	struct litmus l = { .which = (enum litmus_case)_i };
	struct ring_entry entry = { 0 };
	const uint64_t end_nsec = now_nsec() + LITMUS_NSEC;
	uint32_t n_lost = 0, round = 0;
	pthread_t lane;

	pair_init(&l.pair, 4);
	ck_assert_int_eq(pthread_create(&lane, NULL, litmus_lane_main, &l), 0);
	while (round < LITMUS_ROUNDS && now_nsec() < end_nsec) {
		bool saw;

		round++;
		atomic_store_explicit(&l.go, round, memory_order_release);
		dither(round, 11);
		if (l.which == LITMUS_WAIT_COMPLETE) {
			saw = !ring_client_arm(&l.pair.client, false);
		} else {
			ring_client_put(&l.pair.client, &entry);
			saw = ring_client_submit(&l.pair.client);
		}
		(void)wait_round(&l.done, round); /* this one is never over */
		if (!saw && !l.lane_saw)
			n_lost++;
		if (l.which == LITMUS_WAIT_COMPLETE) {
			ring_client_disarm(&l.pair.client);
			ck_assert_uint_eq(ring_client_ready(&l.pair.client), 1);
			ring_client_consume(&l.pair.client, 1);
		}
		atomic_store_explicit(&l.go, round | SECOND, memory_order_release);
		(void)wait_round(&l.done, round | SECOND);
		if (l.which != LITMUS_WAIT_COMPLETE) {
			ck_assert_uint_eq(ring_client_ready(&l.pair.client), 1);
			ring_client_consume(&l.pair.client, 1);
		}
	}
	atomic_store_explicit(&l.go, LITMUS_OVER, memory_order_release);
	ck_assert_int_eq(pthread_join(lane, NULL), 0);
	ck_assert_msg(n_lost == 0, "in %u of %u rounds a wake-up is lost", n_lost, round);
	pair_deinit(&l.pair);
}

/* ---- the stress: two threads that sleep ---- */

#define LOST_MSEC 30000 /* a sleep that lasts so long, with work there, was not rung for */

enum wait_mode { WAIT_SPIN, WAIT_FUTEX, WAIT_SOCKET, WAIT_MIXED };

struct stress {
	struct pair pair;
	enum wait_mode mode;
	uint32_t depth;
	uint64_t n_ops; /* 0: until the end of time_nsec */
	uint64_t end_nsec;
	bool is_parking; /* the lane parks the channel when it is quiet */
	int epoll_fd, bell_fd, client_socket, lane_socket;
	_Atomic bool is_over;	      /* the client to the lane, which then looks at no ring */
	_Atomic(const char *) lost;   /* which wake-up was lost */
	uint64_t n_announced, n_rung; /* sleeps, by the lane; doorbells, by the client */
	uint64_t n_client_sleeps, n_done;
};

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

static bool is_over(const struct stress *s)
{
	return atomic_load_explicit(&s->is_over, memory_order_acquire);
}

static int64_t result_of(uint64_t id)
{
	return (int64_t)(id * 0x9e3779b97f4a7c15u >> 1);
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

/* Publishes and wakes the client if it sleeps. */
static bool lane_publish(struct stress *s)
{
	struct ring_lane *ring = &s->pair.lane;

	if (!ring_lane_publish(ring))
		return false;
	RING_FENCE_COMPLETE();
	switch (ring_lane_wake(ring)) {
	case RING_WAKE_FUTEX:
		(void)futex(&ring->shared->cq_bell, FUTEX_WAKE, INT32_MAX, NULL);
		break;
	case RING_WAKE_SOCKET:
		(void)send(s->lane_socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* full: it wakes */
		break;
	case RING_WAKE_NONE:
		break;
	}
	return true;
}

static bool lane_take(struct stress *s)
{
	struct ring_lane *ring = &s->pair.lane;
	struct ring_entry entry;
	int n = ring_lane_ready(ring);

	if (n < 0) {
		atomic_store(&s->lost, "the indices make no sense");
		return false;
	}
	for (int i = 0; i < n; i++) {
		ring_lane_take(ring, &entry);
		ring_lane_complete(ring, entry.id,
				   entry.off == ~entry.id ? result_of(entry.id) : -EIO);
	}
	return n > 0;
}

/* The lane's loop of proto/README.md "Sleep and wake-up", with one channel and no engine. */
static void *lane_main(void *arg)
{
	struct stress *s = arg;
	struct ring_lane *ring = &s->pair.lane;
	uint64_t state = 0, random = 1;
	struct epoll_event event;

	while (!is_over(s) && !atomic_load(&s->lost)) {
		bool is_parked = ring_lane_is_parked(ring);
		uint32_t spins = next_random(&random) % 4 ? 0 : next_random(&random) % 300;
		bool did = false;

		for (uint32_t i = 0; i <= spins && !did; i++) {
			if (!is_parked)
				did = lane_take(s);
			did |= lane_publish(s);
		}
		if (did)
			continue;
		if (s->is_parking && !is_parked && next_random(&random) % 2) {
			ring_lane_park(ring);
			RING_FENCE_PARK();
			if (ring_lane_has_entries(ring)) {
				ring_lane_unpark(ring);
				continue;
			}
			is_parked = true;
		}
		if (is_parked && next_random(&random) % 8) {
			/* busy with other channels, so it polls the doorbells */
			if (epoll_wait(s->epoll_fd, &event, 1, 0) == 1)
				ring_lane_unpark(ring);
			continue;
		}
		lane_board_set(&s->pair.board, ++state);
		s->n_announced++;
		RING_FENCE_SLEEP();
		if ((is_parked || !ring_lane_has_entries(ring)) && !is_over(s)) {
			int n = epoll_wait(s->epoll_fd, &event, 1, LOST_MSEC);

			if (n == 0 && ring_lane_has_entries(ring))
				atomic_store(&s->lost, "the lane's");
			if (n == 1 && is_parked)
				ring_lane_unpark(ring);
		}
		lane_board_set(&s->pair.board, ++state);
	}
	return NULL;
}

static void client_sleep(struct stress *s, bool on_socket, uint32_t bell)
{
	struct ring_client *ring = &s->pair.client;
	struct timespec timeout = { LOST_MSEC / 1000, LOST_MSEC % 1000 * 1000000 };
	char bytes[16];

	s->n_client_sleeps++;
	if (on_socket) {
		ssize_t n = recv(s->client_socket, bytes, sizeof(bytes), 0);

		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && ring_client_ready(ring))
			atomic_store(&s->lost, "the client's (socket)");
	} else if (futex(&ring->shared->cq_bell, FUTEX_WAIT, bell, &timeout) < 0 &&
		   errno == ETIMEDOUT && ring_client_ready(ring)) {
		atomic_store(&s->lost, "the client's (futex)");
	}
}

/* Waits as proto/README.md "Sleep and wake-up" says, until completions are there. */
static uint32_t client_wait(struct stress *s, uint64_t *random)
{
	struct ring_client *ring = &s->pair.client;
	uint32_t n, bell, spins = next_random(random) % 300;
	const uint64_t begin_nsec = now_nsec();
	enum wait_mode mode = s->mode;
	char bytes[16];

	if (mode == WAIT_MIXED)
		mode = (enum wait_mode)(next_random(random) % 3);
	for (uint32_t i = 0; i < spins; i++) {
		n = ring_client_ready(ring);
		if (n)
			return n;
	}
	while ((n = ring_client_ready(ring)) == 0 && !atomic_load(&s->lost)) {
		if (mode == WAIT_SPIN) {
			(void)sched_yield(); /* cannot fail */
			if (now_nsec() > begin_nsec + LOST_MSEC * UINT64_C(1000000))
				atomic_store(&s->lost, "the lane's, or it has ended");
			continue;
		}
		bell = ring_client_bell(ring);
		if (mode == WAIT_SOCKET) /* what an earlier sleep was woken by */
			while (recv(s->client_socket, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
				;
		if (ring_client_arm(ring, mode == WAIT_SOCKET))
			client_sleep(s, mode == WAIT_SOCKET, bell);
		ring_client_disarm(ring);
	}
	return n;
}

#define STRESS_OPS 100000
/* However long they take: on a busy processor sides that spin wait for each other's time slices. */
#define STRESS_OPS_MIN 101

static void client_main(struct stress *s)
{
	struct ring_client *ring = &s->pair.client;
	static _Thread_local uint8_t is_open[RING_ENTRIES_MAX];
	uint64_t submitted = 0, random = 2;
	uint32_t n;

	memset(is_open, 0, sizeof(is_open));
	while (!atomic_load(&s->lost)) {
		bool is_last = s->n_ops ? submitted == s->n_ops
					: submitted >= STRESS_OPS_MIN && now_nsec() > s->end_nsec;
		uint32_t burst = 1 + next_random(&random) % s->depth;

		for (uint32_t i = 0; !is_last && i < burst && submitted - s->n_done < s->depth;
		     i++) {
			struct ring_entry entry = { .id = submitted, .off = ~submitted };

			ck_assert_uint_gt(ring_client_room(ring), 0);
			ring_client_put(ring, &entry);
			ck_assert_uint_eq(is_open[submitted % RING_ENTRIES_MAX], 0);
			is_open[submitted % RING_ENTRIES_MAX] = 1;
			if (++submitted == s->n_ops)
				break;
		}
		if (ring_client_submit(ring)) {
			uint64_t one = 1;

			s->n_rung++;
			ck_assert_int_eq(write(s->bell_fd, &one, sizeof(one)), sizeof(one));
		}
		if (submitted == s->n_done) {
			if (is_last)
				break;
			continue;
		}
		n = client_wait(s, &random);
		ck_assert_uint_le(n, s->pair.client.entries);
		for (uint32_t i = 0; i < n; i++) {
			struct ring_completion done = ring_client_peek(ring, i);

			ck_assert_uint_lt(done.id, submitted);
			ck_assert_uint_eq(is_open[done.id % RING_ENTRIES_MAX], 1);
			ck_assert_uint_eq(done.id, s->n_done + i); /* this lane keeps order */
			ck_assert_int_eq(done.result, result_of(done.id));
			is_open[done.id % RING_ENTRIES_MAX] = 0;
		}
		ring_client_consume(ring, n);
		s->n_done += n;
	}
}

static void stress_run(struct stress *s, uint32_t entries)
{
	struct timeval timeout = { LOST_MSEC / 1000, LOST_MSEC % 1000 * 1000 };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	uint64_t one = 1;
	pthread_t lane;
	int sockets[2];

	pair_init(&s->pair, entries);
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->bell_fd = eventfd(0, EFD_CLOEXEC);
	ck_assert_int_ge(s->epoll_fd, 0);
	ck_assert_int_ge(s->bell_fd, 0);
	ck_assert_int_eq(epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->bell_fd, &event), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	ck_assert_int_eq(setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)),
			 0);
	s->client_socket = sockets[0];
	s->lane_socket = sockets[1];
	ck_assert_int_eq(pthread_create(&lane, NULL, lane_main, s), 0);

	client_main(s);

	atomic_store_explicit(&s->is_over, true, memory_order_release);
	ck_assert_int_eq(write(s->bell_fd, &one, sizeof(one)), sizeof(one));
	ck_assert_int_eq(pthread_join(lane, NULL), 0);
	closep(&s->epoll_fd);
	closep(&s->bell_fd);
	closep(&s->client_socket);
	closep(&s->lane_socket);
	pair_deinit(&s->pair);
}

static const struct {
	const char *what;
	enum wait_mode mode;
	uint32_t entries, depth;
	bool is_parking;
} stresses[] = {
	{ "the client spins, depth 1", WAIT_SPIN, 4, 1, false },
	{ "the client spins, depth 32", WAIT_SPIN, 32, 32, false },
	{ "the client sleeps on the futex, depth 1", WAIT_FUTEX, 4, 1, false },
	{ "the client sleeps on the futex, depth 32", WAIT_FUTEX, 64, 32, false },
	{ "the client sleeps on the socket, depth 1", WAIT_SOCKET, 4, 1, false },
	{ "the client sleeps on the socket, depth 32", WAIT_SOCKET, 64, 32, false },
	{ "in turns", WAIT_MIXED, 256, 256, false },
	{ "the lane parks, depth 1", WAIT_MIXED, 4, 1, true },
	{ "the lane parks, depth 32", WAIT_MIXED, 64, 32, true },
};

#define STRESS_NSEC UINT64_C(3000000000)

TEST_TABLE(no_wake_up_is_lost_and_each_op_ends_once, stresses)
{
	struct stress s = { .mode = stresses[_i].mode,
			    .depth = stresses[_i].depth,
			    .is_parking = stresses[_i].is_parking,
			    .n_ops = 0,
			    .end_nsec = now_nsec() + STRESS_NSEC / 4 };

	stress_run(&s, stresses[_i].entries);
	ck_assert_msg(!s.lost, "%s: after %ju ops: %s wake-up is lost", stresses[_i].what,
		      (uintmax_t)s.n_done, s.lost);
	ck_assert_uint_ge(s.n_done, STRESS_OPS_MIN);
	ck_assert_uint_le(s.n_rung, s.n_announced + (s.is_parking ? s.n_done : 0));
}

TEST_LOOP(every_op_of_a_fixed_number_ends, 2)
{
	struct stress s = { .mode = WAIT_MIXED,
			    .depth = 100,
			    .is_parking = _i,
			    .n_ops = rounds(STRESS_OPS),
			    .end_nsec = now_nsec() + 60 * STRESS_NSEC };

	stress_run(&s, 128);
	ck_assert_msg(!s.lost, "after %ju ops: %s wake-up is lost", (uintmax_t)s.n_done, s.lost);
	ck_assert_uint_eq(s.n_done, s.n_ops);
}

TEST_MAIN
