/*
 * The configuration: plain settings, from the command line and a file.
 *
 * Made in this order: config_init(), config_set_user(), the files, the other options, and last
 * config_check(), which computes what depends on other keys and judges all of it.  A mistake is
 * reported with file, line, key, value and what is allowed.
 *
 * proto/util/parser.c has the syntax, keys.c what each key sets, limits.c the limits that depend on
 * others, and config.c what a file may say where.
 */
#ifndef DSAIO_DAEMON_CONFIG_CONFIG_H
#define DSAIO_DAEMON_CONFIG_CONFIG_H

#include "daemon/base/error.h"
#include "daemon/base/quota.h"
#include "daemon/base/rate_limit.h"
#include "daemon/config/access.h"
#include "daemon/config/rados.h"
#include "proto/profile.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The spin_usec of a store that does not set it: the daemon's applies. */
#define CONFIG_SPIN_INHERIT UINT32_MAX

/* A store's name consists of 1 to STORE_NAME_MAX of these. */
#define STORE_NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
#define STORE_NAME_MAX 31u /* so that log lines stay short */

#define CONFIG_KEYS_MAX 48u
/* Mistakes of one file that are reported. */
#define CONFIG_MISTAKES_MAX 100u

/* The path of GPU memory.  The words of the key are in this order. */
enum gpu_mode {
	GPU_MODE_AUTO,	 /* cuFile, where it moves bytes without a copy; else as COPY */
	GPU_MODE_DIRECT, /* cuFile; ops fail rather than being copied */
	GPU_MODE_COPY,	 /* clients copy it through pinned memory */
};

/* Memory that cannot be locked is refused, or served unlocked. */
enum pool_lock { POOL_LOCK_YES, POOL_LOCK_AUTO };

/*
 * The pages of slabs.  The kernel's work for each page that an I/O pins is done once for a huge page:
 * blocks of 1 MiB cost a quarter of the processor time (virtio, Linux 6.18), blocks of 4 KiB the
 * same as before.
 */
enum pool_pages {
	POOL_PAGES_AUTO,     /* transparent huge pages, as far as the kernel has any */
	POOL_PAGES_RESERVED, /* those that the host has reserved, while some are free; else AUTO */
	POOL_PAGES_SMALL,
};

/* Where a file has a key. */
struct config_place {
	const char *path; /* of config->files */
	unsigned line;	  /* 0: no file has it, an option or a default sets it */
};

struct store_config {
	const char *name;
	const char *path;		/* a directory, a block device, or rados://POOL/NAMESPACE */
	struct config_place path_place; /* also if it is a mistake */
	const char *file; /* the last file with a section of it; NULL: an option names it */
	struct profile profile;
	bool has_profile; /* some of it is given */
	bool has_block_size, has_queue_depth;
	uint32_t spin_usec;   /* how long lanes spin before they sleep; 0: not at all */
	uint64_t window_max;  /* bytes; 0: none but the window's own */
	struct access access; /* borrowed by the store */
	bool is_multi_user;   /* set by config_store(); see struct lane_store */
	struct rados_config rados;
	const char *rados_key; /* one of these that is given; NULL: none */
	const char *state_dir; /* borrowed, set by config_store(); NULL: there is none */
};

/* keys.c has the meaning and the default of the fields that a key sets. */
struct config {
	const char *build; /* no setting: the program's build id, by main(); NULL: of no program */
	/* No setting: reads and checks options, files and host again, on a worker thread; by main(), NULL: of no
	   program.  Returns 0, or an error with config's mistakes.  config_deinit() is the caller's in both cases. */
	int (*reread)(struct config *config);
	bool is_user;	       /* --user: one user's own daemon; config_set_user() */
	char *socket_path;     /* NULL: a user's own daemon, on its default socket */
	uint64_t memory_bytes; /* no setting: a percentage of pool_size is one of these */
	uint64_t pool_size;    /* bytes */
	enum pool_pages huge_pages;
	enum pool_lock lock; /* default: yes as root or under systemd, else auto */
	uint32_t spin_usec;
	bool auto_stores;
	bool has_admin_group;
	gid_t admin_group;
	char *state_dir; /* NULL: profiles are not saved */
	enum gpu_mode gpu;
	char *cuda_library, *cufile_library; /* NULL: where the loader finds them */
	uint32_t idle_exit_sec;
	/* config_check() has the defaults of those that depend on others. */
	uint64_t client_limit[N_QUOTA_KINDS], user_limit[N_QUOTA_KINDS];
	uint64_t n_descriptors;			 /* RLIMIT_NOFILE */
	bool follows_descriptors[N_QUOTA_KINDS]; /* limits that RLIMIT_NOFILE made smaller */
	struct store_config *stores;
	unsigned n_stores;

	/* about the files */
	char **files; /* their paths, in the order they were read */
	unsigned n_files;
	struct config_place key_places[CONFIG_KEYS_MAX]; /* of the keys of [daemon] */
	char *mistakes[CONFIG_MISTAKES_MAX];		 /* "FILE:LINE: ...", in order */
	unsigned n_mistakes;
};

int config_init(struct config *config); /* the defaults; 0 or -ENOMEM */
void config_deinit(struct config *config);
/* --user, before any file: other defaults. */
void config_set_user(struct config *config);

/*
 * Reads an INI file, and after it those of PATH.d whose names end in .conf, in the order of these.  A file's values
 * override those of earlier files.  Returns 0, or -errno with a message if one cannot be read, or is_required and the
 * first does not exist.  config_check() reports the mistakes in them.
 */
int config_read(struct config *config, const char *path, bool is_required, struct error *error);
/* --socket.  0 or -ENOMEM. */
int config_set_socket(struct config *config, const char *path, struct error *error);
/* "NAME=DIR" of --store.  0, -EINVAL or -ENOMEM with a message. */
int config_add_store(struct config *config, const char *text, struct error *error);
/* Last: 0, or -EINVAL with the first mistake of all that are in config->mistakes. */
int config_check(struct config *config, struct error *error);

/* Administrators are root, the daemon's own user and the members of admin_group. */
bool config_is_admin(const struct config *config, const struct peer *peer);
/* Returns 0, or -EPERM with a message: what, who they are, and the advice. */
int config_check_admin(const struct config *config, const struct peer *peer, const char *what,
		       const char *advice, struct error *error);

/* NULL: there is none of that name. */
struct store_config *config_find_store(const struct config *config, const char *name);

/* The last place of this key of [daemon]. */
struct config_place config_key_place(const struct config *config, const char *key);
/* Adds a mistake to config->mistakes. */
void config_mistake(struct config *config, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Behind "dsaiod: " and the prefix. */
void config_log_mistakes(const struct config *config, const char *prefix);

/* The settings of a store that has these keys: the daemon's apply where it sets none.  NULL: of an automatic
   store, without name and path. */
struct store_config config_store(const struct config *config, const struct store_config *given);

/* Settings of a store, or of a user, by an administrator, which are saved. */
struct saved_settings {
	bool has_profile;
	struct profile profile;
	struct rate_limit limit;
	bool is_drained;
};

/* Reads a file with the section [profile], which has each key of a profile, or [settings], or both.  0, or -EINVAL with
   the first mistake; path is for that. */
int config_read_saved(FILE *file, const char *path, struct saved_settings *ret_settings,
		      struct error *error);

#endif
