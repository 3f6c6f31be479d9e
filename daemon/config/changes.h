/*
 * The changes that a reload of the configuration makes, and those that have to wait for a restart: lines for people.
 *
 * config_adopt() replaces the daemon's running configuration by a new one that has been checked, except what only a
 * start can apply.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONFIG_CHANGES_H
#define DSAIO_DAEMON_CONFIG_CHANGES_H

#include "daemon/config/keys.h"

#include <stddef.h>

struct config;
struct store_config;

struct change_list {
	char **lines;
	size_t n;
};

/* Zeroed at first. */
struct changes {
	struct change_list applied, needs_restart;
};
void changes_deinit(struct changes *changes);

/* Without memory the line is left out: the change is made nevertheless. */
void changes_add(struct change_list *list, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Notes the keys of the section that differ in two objects, with words before and behind.  Keys that need a restart are
 * exchanged, so that next has the value that is in use, and live its text: others may have borrowed it.
 */
void changes_of_keys(struct changes *changes, enum key_section section, void *live, void *next,
		     const char *title, const char *note);
/* Notes those of [daemon], and exchanges live and next.  So next has what is to be freed afterwards. */
void config_adopt(struct config *live, struct config *next, struct changes *changes);

/* Makes room for n more stores.  Returns 0 or -ENOMEM. */
int config_reserve_stores(struct config *config, unsigned n);
/* Moves a store of from to that room of to. */
void config_move_store(struct config *to, struct config *from, struct store_config *store);

#endif
