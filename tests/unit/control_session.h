/*
 * For unit tests: control_parts.h with one client, whose session and socket these are.
 */
#ifndef DSAIO_TESTS_UNIT_CONTROL_SESSION_H
#define DSAIO_TESTS_UNIT_CONTROL_SESSION_H

#include "tests/unit/control_parts.h"

static struct session *session;
static int fd;

static inline void session_setup(void)
{
	control_setup();
	session = control_client(&fd);
}

static inline void session_teardown(void)
{
	control_teardown();
	(void)close(fd);
}

#endif
