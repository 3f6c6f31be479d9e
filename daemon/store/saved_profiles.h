/*
 * Kept profiles: what administrators have set, across restarts.
 *
 * One small INI file, KEY.conf, for each store in the state directory, written whole under
 * another name and renamed, so that it is always one or the other.  The key says what the store
 * is, wherever it is mounted and whatever number its device has: the file system's UUID, the
 * device's id, or, where there is neither, the name that the administrator gave it.
 *
 * All are read at the start and held in memory; files are written on a thread of this module's,
 * one after the other.  A damaged file is logged and left alone; when a new profile is set it is
 * put aside as KEY.conf.damaged.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_STORE_SAVED_PROFILES_H
#define DSAIO_DAEMON_STORE_SAVED_PROFILES_H

#include "daemon/base/error.h"
#include "daemon/base/mailbox.h"
#include "proto/profile.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct work_queue;

#define SAVED_KEY_BYTES 136

struct saved_profiles {
	char *dir;
	struct mailbox *main_mailbox;  /* borrowed */
	struct work_queue *work_queue; /* writes */
	struct saved_profile *profiles;
};

/* Reads what is in dir, which need not exist.  0, or an error without memory. */
int saved_init(struct saved_profiles *saved, const char *dir, struct mailbox *main_mailbox,
	       struct error *error);
int saved_start(
	struct saved_profiles *saved); /* before saved_set(), which needs a thread; 0 or -errno */
void saved_deinit(struct saved_profiles *saved); /* after all on_done; a zeroed one is fine */

/* NULL: none is saved. */
const struct profile *saved_find(const struct saved_profiles *saved, const char *key);

/*
 * Keeps a profile, or (NULL) none any more.  Returns 0, and saved_find() has it from now on, and
 * later calls on_done, with 0 when it will outlast a crash, or an error: then it lasts as long
 * as the daemon.  Or returns -ENOMEM and calls nothing.  title: of the store, for who reads it.
 */
int saved_set(struct saved_profiles *saved, const char *key, const char *title,
	      const struct profile *profile,
	      void (*on_done)(void *arg, int result, const struct error *error), void *arg,
	      struct error *error);

/* The keys: by UUID; by the device's id or its file system's UUID as /dev/disk has them (false:
   it has none); by the store's name. */
void saved_key_by_uuid(const uint8_t uuid[16], char key[SAVED_KEY_BYTES]);
bool saved_key_by_device(dev_t dev, bool is_block_device, char key[SAVED_KEY_BYTES]);
void saved_key_by_name(const char *name, char key[SAVED_KEY_BYTES]);

#endif
