/*
 * Saved profiles: the profiles that administrators have set, saved across restarts.
 *
 * The state directory has one small INI file, KEY.conf, for each store.  It is replaced by a rename,
 * so it has either the old or the new profile.  The key identifies the store independently of its
 * mount point and device number: it is the file system's UUID, else the device's id, else the name
 * that the administrator gave the store.
 *
 * The files are read at start.  A thread of this module writes them one after the other.  A damaged
 * file is logged and ignored.  When a new profile is set, it is renamed to KEY.conf.damaged.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_STORE_SAVED_PROFILES_H
#define DSAIO_DAEMON_STORE_SAVED_PROFILES_H

#include "daemon/base/error.h"
#include "daemon/base/mailbox.h"
#include "proto/profile.h"
#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct work_queue;

#define SAVED_KEY_BYTES 136

struct saved_profiles {
	char *dir;
	struct mailbox *main_mailbox;  /* borrowed */
	struct work_queue *work_queue; /* writes; the caller makes it before saved_set() */
	struct list profiles;	       /* struct saved_profile */
};

/* Reads the files in dir, which need not exist.  Returns 0 or -ENOMEM. */
int saved_init(struct saved_profiles *saved, const char *dir, struct mailbox *main_mailbox,
	       struct error *error);
void saved_deinit(struct saved_profiles *saved); /* after all calls of on_done; zeroes are fine */

/*
 * Returns NULL if no profile is saved under the key.  *ret_is_written: the file has this profile; else it is
 * not written yet, or could not be written.
 */
const struct profile *saved_find(const struct saved_profiles *saved, const char *key,
				 bool *ret_is_written);

/*
 * Saves a profile, or (NULL) removes the saved one.  Returns 0 or -ENOMEM.  After 0 saved_find() returns
 * the new profile, and on_done is called later: with 0 when the profile is on the disk, or with an
 * error, when it lasts only as long as the daemon.  title: the store's name, for a comment in the file.
 */
int saved_set(struct saved_profiles *saved, const char *key, const char *title,
	      const struct profile *profile,
	      void (*on_done)(void *arg, int result, const struct error *error), void *arg,
	      struct error *error);

/* Keys made from a UUID, from the device's id or UUID in /dev/disk (false: it has neither), and from
   the store's name. */
void saved_key_by_uuid(const uint8_t uuid[16], char key[SAVED_KEY_BYTES]);
bool saved_key_by_device(dev_t dev, bool is_block_device, char key[SAVED_KEY_BYTES]);
void saved_key_by_name(const char *name, char key[SAVED_KEY_BYTES]);

#endif
