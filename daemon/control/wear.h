/*
 * Wear: the bytes that users and stores have written, saved across restarts.
 *
 * The state directory has a small file, wear.ini, with a line KEY = NUMBER for each, which is read at start.  Once a
 * minute, if bytes were written since, and at the orderly stop, a worker thread replaces it.  So a daemon that is
 * killed loses at most a minute of the count.  Daemons that share a state directory, as a user's own ones, replace each
 * other's file.
 *
 * The counters are those of usage.h, and of stores and channels that are there.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_WEAR_H
#define DSAIO_DAEMON_CONTROL_WEAR_H

#include "daemon/control/service.h"

struct wear {
	struct service *service;
	struct event *event; /* once a minute */
	char *text;	     /* the file's, if it could be written */
	bool has_failed;     /* and the log has the reason */
	bool is_damaged; /* what is there was not read: it is renamed to wear.ini.damaged first */
};

/* Reads the file into the service's usage.  Returns 0 or -ENOMEM. */
int wear_init(struct wear *wear, struct service *service);
void wear_deinit(
	struct wear
		*wear); /* after the registry's end and the mailbox's last run; zeroes are fine */

/* Has it saved, if something has changed.  Without a state directory, or before the registry's start, it does nothing.
   The registry's end waits for it. */
void wear_save(struct wear *wear);

/* Reads a file.  path: for messages.  False: up to where it is damaged. */
bool wear_read(FILE *file, const char *path, struct usage *usage, struct saved *saved);

#endif
