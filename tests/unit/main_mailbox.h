/*
 * The daemon's main thread in a test: its mailbox, which the test runs.
 */
#ifndef DSAIO_TESTS_UNIT_MAIN_MAILBOX_H
#define DSAIO_TESTS_UNIT_MAIN_MAILBOX_H

#include "daemon/base/mailbox.h"
#include "tests/unit/suite.h"

#include <poll.h>

static struct mailbox mailbox;

/* Runs it until a report has been counted. */
static inline void run_until(const int *count)
{
	int before = *count;

	while (*count == before) {
		struct pollfd fd = { .fd = mailbox.event_fd, .events = POLLIN };

		ck_assert_int_eq(poll(&fd, 1, 10000), 1);
		(void)mailbox_run(&mailbox);
	}
}

#endif
