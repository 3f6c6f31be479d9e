/*
 * The keys of the configuration file, each declared once: section, name, setter, limits, default and
 * the text that documents it.
 *
 * A new key is a row of the table in keys.c, and the code that reads the field which the row sets.
 * `dsaiod --sample-config` prints the table as a configuration file.  systemd/dsaiod.conf is that
 * output, and .ci/tidy compares dsaiod.conf(5) with it.
 */
#ifndef DSAIO_DAEMON_CONFIG_KEYS_H
#define DSAIO_DAEMON_CONFIG_KEYS_H

#include "daemon/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct config;

enum key_section {
	KEYS_DAEMON,  /* [daemon]: sets a field of struct config */
	KEYS_STORE,   /* [store NAME]: of struct store_config */
	KEYS_PROFILE, /* [store NAME], and [profile] of a saved file: of struct store_config */
	KEYS_RADOS,   /* [store NAME] on RADOS: likewise */
	KEYS_SAVED, /* [settings] of a saved file, which the daemon writes: of struct saved_settings */
};

struct key {
	enum key_section section;
	bool is_live;		    /* a reload applies it, else only a start */
	size_t offset, field_bytes; /* where its field is */
	const char *name;
	int (*set)(void *field, const struct key *key, const char *text, struct error *error);
	uint64_t min, max;
	const char *preset;  /* the default; NULL: it has none, or code computes it */
	const char *example; /* the sample's value; NULL: the default */
	const char *meaning; /* the first line in dsaiod.conf(5) */
};

/* In the order of the manual; NULL behind the last. */
const struct key *key_at(unsigned index);
unsigned key_index(const struct key *key);
/* NULL: the section has no such key, and error has a message that names those it has. */
const struct key *key_find(enum key_section section, const char *name, struct error *error);
/* The key of [daemon] with this name: there is one. */
const struct key *key_of_daemon(const char *name);

/* Returns 0, or -EINVAL: it is not rados://POOL/NAMESPACE. */
int rados_path_check(const char *path, struct error *error);
/* Sets the key's field of object.  0, or -EINVAL or -ENOMEM with a message. */
int key_set(const struct key *key, void *object, const char *text, struct error *error);
/* Compares, and exchanges, the key's fields of two objects. */
bool key_is_same(const struct key *key, const void *a, const void *b);
void key_swap(const struct key *key, void *a, void *b);
/* Sets the defaults of the keys of a section.  0 or -ENOMEM. */
int keys_preset(enum key_section section, void *object);

/* Prints the sample: a configuration file with each key, commented out.  is_user: of a user's own daemon. */
void keys_print(FILE *file, bool is_user);

#endif
