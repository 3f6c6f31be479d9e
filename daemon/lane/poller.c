#include "daemon/lane/poller.h"

#include "daemon/base/memfd.h"
#include "daemon/lane/channel.h"
#include "proto/util/clock.h"
#include "proto/util/spin.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * A pause counts as a gap of this at most, so that a busy client soon makes spinning pay again: a
 * guess.  Events in a bunch have no gap: the check before a sleep finds them without spinning.
 * A long turn is no gap either, because the lane did not wait.
 */
#define GAP_MAX_NSEC 1000000u
#define GAP_MIN_NSEC 5000u
/* While a channel is parked, doorbells are polled so often: by a lane that works, and by one that spins,
   to which it costs nothing but the call, 0.2 us. */
#define POLL_BUSY_NSEC 50000u
#define POLL_SPIN_NSEC 5000u
/* Events taken by one call; what is left comes with the next. */
#define EVENTS_MAX 64

static int make_board(struct poller *poller, struct error *error)
{
	long page = sysconf(_SC_PAGESIZE);
	int r;

	poller->board_fd = memfd_new("dsaio-lane", (uint64_t)page, 0);
	if (poller->board_fd < 0)
		return error_set(error, poller->board_fd, "lane: board");
	poller->board = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_SHARED,
			     poller->board_fd, 0);
	if (poller->board == MAP_FAILED) {
		poller->board = NULL;
		return error_set(error, -errno, "lane: mapping the board");
	}
	/* After our own mapping nobody gets a writable one. */
	r = memfd_seal(poller->board_fd, F_SEAL_FUTURE_WRITE);
	if (r < 0)
		return error_set(error, r, "lane: sealing the board");
	poller->board->magic = LANE_BOARD_MAGIC;
	poller->board->version = RING_VERSION;
	return 0;
}

int poller_init(struct poller *poller, const struct poller_config *config, struct error *error)
{
	int r;

	poller->config = *config;
	poller->epoll_fd = poller->board_fd = -1;
	r = make_board(poller, error);
	if (r < 0)
		return r;
	poller->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (poller->epoll_fd < 0)
		return error_set(error, -errno, "lane: epoll");
	poller->last_did_nsec = clock_nsec();
	return 0;
}

void poller_deinit(struct poller *poller)
{
	if (poller->board)
		(void)munmap(poller->board,
			     (size_t)sysconf(_SC_PAGESIZE)); /* our own mapping: cannot fail */
	closep(&poller->board_fd);
	closep(&poller->epoll_fd);
}

int poller_add(struct poller *poller, int fd, struct channel *channel)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = channel };

	return epoll_ctl(poller->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void poller_remove_channel(struct poller *poller, struct channel *channel)
{
	if (!channel->has_left_epoll)
		(void)epoll_ctl(poller->epoll_fd, EPOLL_CTL_DEL, channel->doorbell_fd, NULL);
	channel->has_left_epoll = true;
}

static void note_idle_doorbell(struct poller *poller, struct channel *channel)
{
	/* One that comes late, for entries that were found without it, is not idle. */
	if (ring_lane_has_entries(&channel->ring) ||
	    channel->ring.taken != channel->doorbell_taken) {
		channel->doorbell_taken = channel->ring.taken;
		return;
	}
	if (poller->config.turn->now_nsec - channel->idle_doorbells_since_nsec > 1000000000u) {
		channel->idle_doorbells_since_nsec = poller->config.turn->now_nsec;
		channel->n_idle_doorbells = 0;
	}
	if (++channel->n_idle_doorbells <= poller->config.idle_doorbells_max)
		return;
	poller_remove_channel(poller, channel);
	log_client(poller->config.log_limit,
		   "store %s: channel %" PRIu32 " of user %u: its doorbell rang %" PRIu32
		   " times in a second without entries: it was removed from epoll; the client must "
		   "open the store again",
		   poller->config.store_name, channel->id, (unsigned)channel->uid,
		   channel->n_idle_doorbells);
}

static int sleep_msec(const struct poller *poller, uint64_t until_nsec)
{
	uint64_t now_nsec = poller->config.turn->now_nsec, left;

	if (!until_nsec)
		return -1;
	if (until_nsec <= now_nsec)
		return 0;
	left = (until_nsec - now_nsec + 999999) / 1000000;
	return left < INT_MAX ? (int)left : INT_MAX;
}

/* Acts on every event, because its edge does not come again.  The lane polls its engine and its mailbox
   in each turn and before each sleep, so their events need no action. */
static void act_on(struct poller *poller, const struct epoll_event *events, int n)
{
	assert(n >= 0 || errno == EINTR);
	if (n < 0)
		return;
	for (int i = 0; i < n; i++) {
		struct channel *channel = events[i].data.ptr;

		if (!channel)
			continue;
		note_idle_doorbell(poller, channel);
		if (!channel->is_awake) /* else it tells nothing new */
			poller->config.on_doorbell(poller->config.intake, channel);
	}
	poller->polled_nsec = n < EVENTS_MAX ? poller->config.turn->now_nsec
					     : 0; /* 0: there may be more */
}

void poller_poll(struct poller *poller)
{
	struct epoll_event events[EVENTS_MAX];

	act_on(poller, events, epoll_wait(poller->epoll_fd, events, EVENTS_MAX, 0));
}

void poller_sleep(struct poller *poller, uint64_t until_nsec)
{
	const struct poller_config *config = &poller->config;
	struct epoll_event events[EVENTS_MAX];
	bool has_slept = false;
	int n = 0;

	poller->spun_nsec = 0;
	lane_board_set(poller->board, ++poller->state); /* odd */
	RING_FENCE_SLEEP();
	if (!config->has_work(config->arg)) {
		n = epoll_wait(poller->epoll_fd, events, EVENTS_MAX,
			       sleep_msec(poller, until_nsec));
		has_slept = true;
	}
	lane_board_set(poller->board, ++poller->state); /* even */
	config->turn->now_nsec = clock_nsec();
	if (has_slept)
		act_on(poller, events, n);
}

/* With completions just published their owner's next ops come first, else the device. */
bool poller_may_spin(struct poller *poller, const struct poller_activity *activity)
{
	const uint64_t now_nsec = poller->config.turn->now_nsec;
	const uint64_t allowed = poller->config.spin_nsec;
	uint64_t gap = now_nsec - poller->last_did_nsec;

	if (poller->spun_nsec)
		spin_note_look(&poller->rests_until_nsec, poller->spun_nsec, now_nsec);
	if (activity->did) {
		if (poller->was_idle && gap >= GAP_MIN_NSEC)
			spin_note_wait(&poller->mean_gap_nsec[poller->waits_for], gap,
				       GAP_MAX_NSEC);
		poller->waits_for = !activity->has_published && activity->is_device_busy
					    ? WAITS_FOR_DEVICE
					    : WAITS_FOR_OP;
		poller->last_did_nsec = now_nsec;
		poller->spun_nsec = 0;
		poller->was_idle = false;
		return true;
	}
	poller->was_idle = true;
	poller->spun_nsec = now_nsec;
	return gap < allowed && spin_pays(poller->mean_gap_nsec[poller->waits_for],
					  poller->rests_until_nsec, allowed, now_nsec);
}

bool poller_must_poll(const struct poller *poller, bool did)
{
	return poller->config.turn->now_nsec - poller->polled_nsec >=
	       (did ? POLL_BUSY_NSEC : POLL_SPIN_NSEC);
}
