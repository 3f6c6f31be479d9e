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
 * Notes the keys of [daemon] that differ, and swaps all of live and next but the fields that need a restart.  So
 * next has the fields to be freed afterwards.
 */
void config_adopt(struct config *live, struct config *next, struct changes *changes);

/* Makes room for n more stores.  Returns 0 or -ENOMEM. */
int config_reserve_stores(struct config *config, unsigned n);
/* Moves a store of another configuration, which is served until a restart, to that room. */
void config_keep_store(struct config *config, struct store_config *store);

#endif
