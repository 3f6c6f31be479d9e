#include "client/lib/io/wait.h"

#include "client/lib/base/deadline.h"
#include "client/lib/io/end.h"
#include "proto/util/cpu.h"
#include "proto/util/spin.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define LOOK_NSEC (100 * UINT64_C(1000000)) /* between two looks at the control socket's end */
/* A wait counts as at most so many full spins, so that one long wait does not end all spinning. */
#define WAIT_COUNTS_MAX 2
#define SPIN_OPS_MAX 4		   /* a guess: see wait_may_spin() */
#define SPIN_CPUS_MIN 3		   /* a guess: for the lane, this thread and interrupts */
#define SPIN_BYTES_MAX (16u << 10) /* a guess: the device has enough work with larger ops */
#define SPINS_PER_LOOK 64	   /* looks at the rings per look at the clock, which costs 20 ns */

/* ---- the descriptor ---- */

bool wait_arm(struct dsaio_handle *handle)
{
	bool is_empty = true;

	CHANNEL_EACH(c, handle)
		if (!c->is_broken && !ring_client_arm(&c->ring, true))
			is_empty = false;
	return is_empty;
}

static void drain_doorbell(struct dsaio_handle *handle)
{
	char bytes[64];
	ssize_t n = 1;

	while (n > 0 && !handle->is_doorbell_at_end) {
		n = recv(handle->doorbell_fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n == 0)
			handle->is_doorbell_at_end =
				true; /* the control socket's end will follow */
	}
}

void wait_disarm(struct dsaio_handle *handle)
{
	CHANNEL_EACH(c, handle)
		if (!c->is_broken)
			ring_client_disarm(&c->ring);
	drain_doorbell(handle);
}

int wait_reap(struct dsaio_handle *handle, struct dsaio_completion *ret, int n)
{
	int got;
	LOCKED(&handle->lock);

	if (handle->is_own_rung) {
		eventfd_t count;

		handle->is_own_rung = false;
		(void)eventfd_read(handle->own_doorbell_fd, &count); /* not blocking */
	}
	got = ended_take(&handle->ended, ret, n);
	/* Some ops are left, so the descriptor stays readable. */
	if (handle->ended.ops.first && handle->epoll_fd >= 0 && !handle->is_own_rung)
		wake_descriptor(handle);
	return got;
}

/* ---- the consumer ---- */

void wait_collect(struct dsaio_handle *handle, int error, struct op_list *list)
{
	CHANNEL_EACH(c, handle) {
		channel_consume(c, list);
		if (error)
			channel_end_ops(c, error, list);
	}
}

static bool consume_all(struct dsaio_handle *handle)
{
	struct op_list list = { NULL, NULL };

	wait_collect(handle, 0, &list);
	if (!list.first)
		return false;
	handle->has_small_ops = list.first->len <= SPIN_BYTES_MAX;
	end_ops(handle, list.first, true);
	return true;
}

/* Consumes the rings; all other open ops end with that result. */
static void end_all_ops(struct dsaio_handle *handle, int result)
{
	struct op_list list = { NULL, NULL };

	wait_collect(handle, result, &list);
	end_ops(handle, list.first, true);
}

static bool is_any_ready(const struct dsaio_handle *handle)
{
	CHANNEL_EACH(c, handle)
		if (channel_is_ready(c))
			return true;
	return false;
}

static bool spin(struct dsaio_handle *handle, uint64_t now, uint64_t deadline_nsec)
{
	uint64_t end = now + handle->settings.spin_nsec;

	if (end > deadline_nsec)
		end = deadline_nsec;
	do {
		for (int i = 0; i < SPINS_PER_LOOK; i++) {
			if (is_any_ready(handle))
				return true;
			cpu_relax();
		}
		now = clock_nsec();
	} while (now < end);
	spin_note_look(&handle->rests_until_nsec, end, now);
	return false;
}

static void sleep_on_futex(struct handle_channel *channel, uint64_t nsec)
{
	struct timespec ts = timespec_of(nsec);
	uint32_t bell = ring_client_bell(&channel->ring); /* before arming */

	if (ring_client_arm(&channel->ring, false)) /* a shared futex, which the daemon wakes */
		(void)syscall(SYS_futex, &channel->ring.shared->cq_bell, FUTEX_WAIT, bell, &ts,
			      NULL, 0);
	ring_client_disarm(&channel->ring);
}

static void sleep_on_socket(struct dsaio_handle *handle, uint64_t nsec)
{
	struct timespec ts = timespec_of(nsec);
	struct pollfd fds[2];

	fds[1] = (struct pollfd){ .fd = handle->is_doorbell_at_end ? -1 : handle->doorbell_fd,
				  .events = POLLIN };
	if (wait_arm(handle))
		(void)conn_sleep(handle->client->conn, fds, 2, &ts); /* EINTR: looks again */
	wait_disarm(handle);
}

/* Completions came after a wait.  Records its length. */
static void note_wait(struct dsaio_handle *handle)
{
	uint64_t nsec = clock_nsec() - handle->wait_began_nsec;

	spin_note_wait(&handle->mean_wait_nsec, nsec, WAIT_COUNTS_MAX * handle->settings.spin_nsec);
	handle->wait_began_nsec = 0;
}

/*
 * With many open ops on a host with two cores, spinning takes half of a core from the lane (4 KiB
 * reads at depth 32: 0.82 of in-process libaio with spinning, 0.95 without).  With more cores and
 * short ops, spinning saves the lane the wake-ups (tmpfs: 0.89 with, 0.76 without).
 */
bool wait_may_spin(const struct dsaio_handle *handle, uint64_t n_open, uint64_t now_nsec)
{
	if (handle->settings.is_spin_given)
		return handle->settings.spin_nsec;
	return spin_pays(handle->mean_wait_nsec, handle->rests_until_nsec,
			 handle->settings.spin_nsec, now_nsec) &&
	       (n_open <= SPIN_OPS_MAX ||
		(handle->client->n_cpus >= SPIN_CPUS_MIN && handle->has_small_ops));
}

/*
 * Consumes completions.  If there are none, spins and then sleeps, at most LOOK_NSEC and not beyond
 * the deadline.  n_open: open ops that will end by a ring.
 */
static void consume_or_sleep(struct dsaio_handle *handle, uint64_t n_open, uint64_t deadline_nsec,
			     bool on_socket)
{
	struct handle_channel *channel = handle_first_channel(handle);
	struct dsaio_conn *conn = handle->client->conn;
	uint64_t now, nsec;

	if (consume_all(handle))
		return;
	now = clock_nsec();
	if (conn_was_lost(conn))
		end_all_ops(handle, -ECONNRESET);
	if (conn_was_gone(conn))
		return;
	if (!handle->wait_began_nsec)
		handle->wait_began_nsec = now;
	if (now < deadline_nsec && wait_may_spin(handle, n_open, now)) {
		if (spin(handle, now, deadline_nsec)) {
			note_wait(handle);
			(void)consume_all(handle);
			return;
		}
		now = clock_nsec();
	}
	if (now < deadline_nsec) {
		nsec = deadline_nsec - now < LOOK_NSEC ? deadline_nsec - now : LOOK_NSEC - 1;
		if (!channel || handle_next_channel(channel) || channel->is_broken)
			on_socket = true;
		if (on_socket)
			sleep_on_socket(handle, nsec);
		else
			sleep_on_futex(channel, nsec);
		if (consume_all(handle)) {
			note_wait(handle);
			return;
		}
		now = clock_nsec();
	}
	if (!conn_was_gone(conn) && now - handle->looked_nsec >= LOOK_NSEC / 2) {
		handle->looked_nsec = now;
		(void)conn_is_gone(conn);
	}
	if (conn_was_lost(conn) && conn_was_gone(conn))
		end_all_ops(handle, -ECONNRESET);
}

/* Under handle->lock. */
static void leave_role(struct dsaio_handle *handle)
{
	handle->has_consumer = false;
	handle->consumer_wait = NULL;
	/* The sleep may have disarmed the rings while the program polls the handle's descriptor. */
	if (handle->is_fd_armed && !wait_arm(handle))
		wake_descriptor(handle);
	if (handle->waiters.first)
		wake_waiters(handle);
}

/* Sleeps until wake_waiters() or the deadline.  Under handle->lock, which is released meanwhile. */
static void follow(struct dsaio_handle *handle, const struct wait_for *wait_for,
		   uint64_t deadline_nsec)
{
	struct waiter waiter = { .wait_for = wait_for, .cond = PTHREAD_COND_INITIALIZER };
	struct timespec ts = timespec_of(deadline_nsec);

	list_push_front(&handle->waiters, &waiter.node);
	(void)pthread_cond_clockwait(&waiter.cond, &handle->lock, CLOCK_MONOTONIC, &ts);
	list_remove(&handle->waiters, &waiter.node);
	(void)pthread_cond_destroy(&waiter.cond);
}

int wait_until(struct dsaio_handle *handle, const struct wait_for *w, uint64_t deadline_nsec)
{
	bool has_looked = false;
	int r = 0;

	(void)pthread_mutex_lock(&handle->lock);
	while (!wait_is_done(handle, w)) {
		if (has_looked && deadline_is_over(deadline_nsec)) {
			/* This thread may have been chosen for the role at the same moment: choose another. */
			if (handle->waiters.first)
				wake_waiters(handle);
			r = -ETIMEDOUT;
			break;
		}
		/* While the daemon is away, recovery alone has the role, and gives it to a waiter when it is over. */
		if (handle->has_consumer || !wait_may_consume(handle, w) ||
		    conn_is_away(handle->client->conn)) {
			follow(handle, w, deadline_nsec);
			has_looked = true;
			continue;
		}
		handle->has_consumer = true;
		handle->consumer_wait = w;
		handle->wait_began_nsec = 0;
		do {
			bool is_fd_armed = handle->is_fd_armed;
			uint64_t n_open = handle->n_open_ring;

			(void)pthread_mutex_unlock(&handle->lock);
			consume_or_sleep(handle, n_open, deadline_nsec, is_fd_armed);
			has_looked = true;
			(void)pthread_mutex_lock(&handle->lock);
		} while (!wait_is_done(handle, w) && wait_may_consume(handle, w) &&
			 !conn_is_away(handle->client->conn) && !deadline_is_over(deadline_nsec));
		leave_role(handle);
	}
	(void)pthread_mutex_unlock(&handle->lock);
	client_collect(handle->client);
	return r;
}

int wait_put(struct dsaio_op *op, bool is_batched)
{
	struct wait_for room = { .what = WAIT_ROOM, .channel = op->channel };
	const uint64_t deadline = deadline_in_msec(op->timeout_msec);
	int r;

	for (;;) {
		/* Before the try, so that a later completion is noticed. */
		room.head = channel_head(op->channel);
		r = channel_put(op, is_batched);
		if (r != -EAGAIN)
			return r;
		if (is_batched)
			handle_publish(op->handle);
		if (!conn_is_away(op->handle->client->conn)) {
			(void)wait_until(op->handle, &room, UINT64_MAX); /* no time-out */
			continue;
		}
		(void)wait_until(op->handle, &room, clock_nsec() + LOOK_NSEC);
		if (deadline_is_over(deadline))
			return -ETIMEDOUT;
		if (atomic_load(&op->is_cancelled))
			return -ECANCELED;
	}
}

bool wait_poll(struct dsaio_handle *handle, bool must_arm)
{
	bool has_role, has_ops;

	(void)pthread_mutex_lock(&handle->lock);
	/* Else the consumer ends ops, then writes to the handle's eventfd. */
	has_role = !handle->has_consumer && !conn_is_away(handle->client->conn);
	if (has_role) {
		handle->has_consumer = true;
		(void)pthread_mutex_unlock(&handle->lock);
		if (must_arm)
			drain_doorbell(handle);
		consume_or_sleep(handle, 0, 0, false);
		(void)pthread_mutex_lock(&handle->lock);
	}
	has_ops = handle->ended.ops.first;
	if (must_arm && !has_ops && handle->epoll_fd >= 0)
		handle->is_fd_armed = true;
	if (has_role)
		leave_role(handle); /* arms the rings */
	(void)pthread_mutex_unlock(&handle->lock);
	client_collect(handle->client);
	return has_ops;
}

void wait_channel_added(struct dsaio_handle *handle)
{
	LOCKED(&handle->lock);

	if (!handle->has_consumer && handle->is_fd_armed && !wait_arm(handle))
		wake_descriptor(handle);
	if (handle->has_consumer) /* it may sleep on the futex of another ring */
		wake_futexes(handle);
}

void wait_take_role(struct dsaio_handle *handle)
{
	struct wait_for role = { .what = WAIT_ROLE };
	LOCKED(&handle->lock);

	while (handle->has_consumer) {
		wake_futexes(handle);
		follow(handle, &role, clock_nsec() + LOOK_NSEC);
	}
	handle->has_consumer = true;
}

void wait_leave_role(struct dsaio_handle *handle)
{
	LOCKED(&handle->lock);

	leave_role(handle);
}

void wait_finish(struct dsaio_handle *handle, int result)
{
	wait_take_role(handle);
	end_all_ops(handle, result);
	wait_leave_role(handle);
	client_collect(handle->client);
}
