/*
 * The poller decides how a lane waits.  The lane spins for a while, announces its sleep, checks for work
 * once more, and sleeps in epoll_wait on the channels' doorbells, the eventfds of its engines and
 * the mailbox.
 *
 * Doorbells and eventfds are edge-triggered and never read, so each write wakes the lane again.  The
 * poller acts on every event that a call returns, because its edge does not come again.  A lane that
 * does not sleep polls the doorbells of parked channels.
 */
#ifndef DSAIO_DAEMON_LANE_POLLER_H
#define DSAIO_DAEMON_LANE_POLLER_H

#include "daemon/base/error.h"
#include "daemon/base/log.h"
#include "daemon/lane/turn.h"

#include <stdbool.h>
#include <stdint.h>

struct channel;
struct intake;

struct poller_config {
	const char *store_name; /* borrowed, as all pointers here */
	struct lane_turn *turn; /* a sleep advances its time */
	struct log_limit *log_limit;
	uint64_t spin_nsec;	     /* how long it may spin */
	uint32_t idle_doorbells_max; /* of a channel, in a second */
	/* The doorbell of a channel that is not awake was written. */
	void (*on_doorbell)(struct intake *intake, struct channel *channel);
	struct intake *intake;
	bool (*has_work)(void *arg); /* the check between announcing a sleep and sleeping */
	void *arg;
};

/* The lane's activity in a turn. */
struct poller_activity {
	bool did;
	bool has_published;  /* completions, so that ops may follow */
	bool is_device_busy; /* it has blocks of the lane in flight */
};

struct poller {
	struct poller_config config;
	int epoll_fd;
	int board_fd;
	struct lane_board *board; /* shared with clients */
	uint64_t state;		  /* private copy of the board's */
	uint64_t polled_nsec;	  /* when the doorbells were polled */

	uint64_t last_did_nsec;	   /* the last turn that did something */
	uint64_t spun_nsec;	   /* the last look of this spin; 0: none */
	uint64_t rests_until_nsec; /* until then it does not spin: another thread needs the core */
	bool was_idle;		   /* the last turn did nothing */
	enum { WAITS_FOR_OP, WAITS_FOR_DEVICE } waits_for;
	uint64_t mean_gap_nsec[2]; /* mean wait, for ops and for the device */
};

/* 0, or -errno with a message; then, too, poller_deinit(). */
int poller_init(struct poller *poller, const struct poller_config *config, struct error *error);
void poller_deinit(struct poller *poller);

/* A channel's doorbell, or (channel: NULL) an eventfd of the lane's.  0, -errno. */
int poller_add(struct poller *poller, int fd, struct channel *channel);
void poller_remove_channel(struct poller *poller, struct channel *channel);

/* Call it after each turn.  Returns true: the lane goes on spinning; false: it sleeps. */
bool poller_may_spin(struct poller *poller, const struct poller_activity *activity);
/* Whether it is time to poll the doorbells of parked channels. */
bool poller_must_poll(const struct poller *poller, bool did);
void poller_poll(struct poller *poller);
/* Sleeps until an event, or until_nsec (0: no limit). */
void poller_sleep(struct poller *poller, uint64_t until_nsec);

#endif
