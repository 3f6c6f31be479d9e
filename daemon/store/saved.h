/*
 * Saved settings: what administrators have set of stores and users (profiles, limits, drains), saved across restarts.
 *
 * The state directory has one small INI file, KEY.conf, for each store and user.  It is replaced by a rename,
 * so it has either the old or the new settings.  The key identifies the store independently of its
 * mount point and device number: it is the file system's UUID, else the device's id, else the name
 * that the administrator gave the store.
 *
 * The files are read at start.  A thread of this module writes them one after the other.  A damaged
 * file is logged and ignored.  When something is set, it is renamed to KEY.conf.damaged.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_STORE_SAVED_H
#define DSAIO_DAEMON_STORE_SAVED_H

#include "daemon/base/error.h"
#include "daemon/base/mailbox.h"
#include "daemon/config/config.h"
#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct usage;
struct work_queue;

#define SAVED_KEY_BYTES 136
/* The key of a user, for printf(3) and scanf(3): no key of a store begins so. */
#define SAVED_USER_KEY "user-%u"

/* The settings and written bytes of a key.  It stays as long as struct saved. */
struct saved_entry {
	struct list_node node;
	char key[SAVED_KEY_BYTES];
	uint64_t
		written_bytes; /* before the daemon's start, and by stores that have gone: control/wear.h */
	bool is_there;	       /* it has settings; else they were removed, or are damaged */
	bool is_damaged;
	bool is_written; /* the file has these settings; else they are not written yet, or could not be */
	struct saved_settings settings;
	unsigned n_writings; /* that have not ended */
};

/* Settings that replace those of a store or a user. */
struct saved_change {
	struct saved_entry *entry; /* NULL: the store has no key */
	char title[80];		   /* "store nvme0", "user 7" */
	const char *what;	   /* of the settings has changed, */
	bool is_set;		   /* or is not set any more */
	const char *until;	   /* it lasts so long if it is not saved */
	bool is_quiet;		   /* the log has no line if it is not saved */
	struct saved_settings settings;
	/* Once, now or later.  note: why it is not saved, for people; "": it is on the disk, or was nowhere before. */
	void (*on_done)(void *arg, const char *note);
	void *arg;
};

struct saved {
	const char *dir;	       /* borrowed; NULL: nothing is saved */
	struct mailbox *main_mailbox;  /* borrowed */
	struct work_queue *work_queue; /* writes; the caller makes it before saved_set() */
	struct list entries;	       /* struct saved_entry */
	unsigned n_entries;
};

/* Reads the files in dir, which need not exist.  Without memory nothing is saved. */
void saved_init(struct saved *saved, const char *dir, struct mailbox *main_mailbox);
void saved_deinit(struct saved *saved); /* after all calls of on_done; zeroes are fine */

/* The entry of a key, made if there is none.  NULL: the key is "", there is no memory, or there are too many. */
struct saved_entry *saved_entry(struct saved *saved, const char *key);
/* Sets the limits of users.  Returns 0 or -ENOMEM. */
int saved_limit_users(const struct saved *saved, struct usage *usage);

/* Saves settings; if nothing is set by them, removes what was saved.  The entry has the new ones at once. */
void saved_set(struct saved *saved, const struct saved_change *change);
/* Likewise replaces another file of the directory, which may be damaged. */
void saved_write(struct saved *saved, const struct saved_change *change, const char *name,
		 const char *text, bool is_damaged);

/* Keys made from a UUID, from the device's id or UUID in /dev/disk (false: it has neither), and from
   the store's name. */
void saved_key_by_uuid(const uint8_t uuid[16], char key[SAVED_KEY_BYTES]);
bool saved_key_by_device(dev_t dev, bool is_block_device, char key[SAVED_KEY_BYTES]);
void saved_key_by_name(const char *name, char key[SAVED_KEY_BYTES]);

#endif
