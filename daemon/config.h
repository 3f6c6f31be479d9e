/*
 * The configuration: the command line and an INI file (libinih), as a table of keys.  Each has a
 * default; a mistake is refused with file, line, key, value and what is allowed.
 */
#ifndef DSAIO_DAEMON_CONFIG_H
#define DSAIO_DAEMON_CONFIG_H

#include "daemon/charge.h"
#include "daemon/error.h"
#include "daemon/pool.h"
#include "daemon/store.h"

#include <stdbool.h>
#include <stdint.h>

/* A store's spin_usec that was not given: it is the daemon's. */
#define CONFIG_SPIN_INHERIT UINT32_MAX

/* A store's name has 1 to STORE_NAME_MAX of these. */
#define STORE_NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
#define STORE_NAME_MAX 31u /* so that log lines stay short */

struct config {
	bool is_user; /* --user: one user's own daemon; config_set_user() */
	char *socket_path;
	uint64_t pool_size;	  /* bytes; default half of memory */
	uint64_t client_pool_max; /* bytes; default half of that */
	bool has_client_pool_max; /* was given; else it follows pool_size */
	enum pool_lock lock;	  /* default: yes as root or under systemd, else auto */
	uint32_t spin_usec;	  /* default 200 */
	bool auto_stores;	  /* serve devices that no store names, too; default yes */
	bool has_admin_group;
	gid_t admin_group;	/* its members are administrators */
	uint32_t idle_exit_sec; /* ends so long after the last client has gone; 0: never, the
				     default but for a user's own, where it is 60 */
	uint64_t client_limit[N_CHARGE_KINDS], user_limit[N_CHARGE_KINDS];
	struct store_config *stores;
	unsigned n_stores;
};

int config_init(struct config *config); /* the defaults; 0 or -ENOMEM */
void config_deinit(struct config *config);
/* --user, before any file: other defaults, and it may have no store. */
void config_set_user(struct config *config);

/* Reads an INI file on top.  0, or -errno with a sentence "FILE:LINE: KEY = VALUE: ...". */
int config_read(struct config *config, const char *path, struct error *error);
/* --socket.  0 or -ENOMEM. */
int config_set_socket(struct config *config, const char *path, struct error *error);
/* "NAME=DIR" of --store.  0, -EINVAL or -ENOMEM with a sentence. */
int config_add_store(struct config *config, const char *text, struct error *error);
/* What a store has of which nothing is configured: no name, no path. */
void config_default_store(const struct config *config, struct store_config *ret_store);
/* What only shows when all is known.  0 or -EINVAL with a sentence. */
int config_check(const struct config *config, struct error *error);

#endif
