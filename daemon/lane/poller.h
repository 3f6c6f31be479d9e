/*
 * How a lane waits: spin for a while, then announce sleep, look once more, sleep in epoll_wait on the
 * channels' doorbells, the engine's eventfd and the mailbox.
 *
 * Doorbells and eventfds are edge-triggered and never read: each write wakes again.  Every event is
 * acted on, whichever call returned it, since its edge does not come again.  A lane that does not sleep
 * hears the doorbells of parked channels by polling.
 */
#ifndef DSAIO_DAEMON_LANE_POLLER_H
#define DSAIO_DAEMON_LANE_POLLER_H

#include "daemon/base/error.h"
#include "daemon/base/log.h"
#include "daemon/lane/turn.h"

#include <stdbool.h>
#include <stdint.h>

struct channel;

struct poller_config {
	const char *store_name; /* borrowed, as all pointers here */
	struct turn *turn;	/* a sleep moves its time on */
	struct log_limit *log_limit;
	uint64_t spin_nsec;	     /* how long it may spin, for one op */
	uint32_t idle_doorbells_max; /* of a channel, in a second */
	void (*on_doorbell)(struct channel *channel, void *arg);
	bool (*has_work)(void *arg); /* the look between announcing a sleep and sleeping */
	void *arg;
};

/* What the lane did in a turn, and has in flight. */
struct poller_turn {
	bool did;
	bool has_published; /* completions, so that ops may follow */
	bool is_device_busy;
	uint32_t n_in_flight;
	uint64_t bytes_in_flight;
};

struct poller {
	struct poller_config config;
	int epoll_fd;
	int board_fd;
	struct lane_board *board; /* home: shared with clients; side: with the home lane */
	uint64_t state;		  /* private copy of the board's */
	uint64_t polled_nsec;	  /* when the doorbells were heard */

	uint64_t last_did_nsec;	   /* the last turn that did something */
	uint64_t spun_nsec;	   /* the last look of this spin; 0: none */
	uint64_t rests_until_nsec; /* it does not spin: the core is wanted */
	bool was_idle;		   /* the last turn did nothing */
	enum { WAITS_FOR_OP, WAITS_FOR_DEVICE } waits_for;
	uint64_t mean_gap_nsec[2]; /* of waits, by what was waited for */
};

/* 0, or -errno with a sentence; then, too, poller_deinit(). */
int poller_init(struct poller *poller, const struct poller_config *config, struct error *error);
void poller_deinit(struct poller *poller);

int poller_add_fd(struct poller *poller, int fd); /* an eventfd of the lane's; 0, -errno */
int poller_add_channel(struct poller *poller, struct channel *channel);
void poller_remove_channel(struct poller *poller, struct channel *channel);

/* True: spin on, else sleep.  After each turn, in which time was as in config.turn. */
bool poller_may_spin(struct poller *poller, const struct poller_turn *turn);
/* Is it time to hear the doorbells of parked channels? */
bool poller_must_poll(const struct poller *poller, bool did);
void poller_poll(struct poller *poller);
/* until_nsec: sleeps no longer; 0: until something wakes it. */
void poller_sleep(struct poller *poller, uint64_t until_nsec);

#endif
