/*
 * The daemon's status as text: parts of tables that commands share, and JSON.
 *
 * JSON has numbers unchanged: bytes, nanoseconds, whole ids.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_SHOW_H
#define DSAIO_CLIENT_CTL_CMD_SHOW_H

#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/table.h"
#include "proto/dsaio.pb-c.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json_object;

/* The name of an enum's value as people write it, "background" or "direct"; "?": a later version's. */
#define SHOW_ENUM_BYTES 32
const char *show_enum(char *text, const ProtobufCEnumDescriptor *kind, int value);

/* The user's name, else the number; show_user(): "others", of the rest. */
#define SHOW_USER_BYTES 64
char *show_uid(char *text, uint32_t uid);
const char *show_user(char *text, const Wire__User *user);

/* The number of a user by name or number.  False: this host has none of that name. */
bool show_find_uid(const char *user, uint32_t *ret_uid);

/* Prints a status as tables.  Returns CTL_OK or CTL_FAILED (reported). */
typedef int show_status_fn(const struct ctl *ctl, const Wire__StatusReply *status);

/* Runs a command without arguments: asks for the status and prints it as tables, or all of it as JSON. */
int show_status(struct ctl *ctl, show_status_fn *print_tables);

/* Prints stores as two tables, or as JSON, {"stores": [...]}.  Returns CTL_OK or CTL_FAILED (reported). */
int show_stores(const struct ctl *ctl, Wire__Store *const *stores, size_t n);

/* Prints what stores, users and clients have written, and their limits.  Returns CTL_OK or CTL_FAILED (reported). */
int show_limits(const struct ctl *ctl, const Wire__StatusReply *status, bool only_limited);

/* The store of that id, or NULL. */
const Wire__Store *show_find_store(const Wire__StatusReply *status, uint32_t id);

/* Prints a line about clients of other users, if any; or that there are none at all. */
void show_others(const Wire__StatusReply *status);

/* Prints the hung calls under a title, with an empty line after them; nothing if there are none. */
void show_hung(const Wire__StatusReply *status, FILE *out);

/* ---- cells ---- */

#define SHOW_COUNTER_COLUMNS \
	">OPEN|>READS|>READ|>WRITES|>WRITTEN|>SYNCS|>ERRORS|>P50|>P99|>QUEUE|>DEVICE|>DELIVERY"
#define SHOW_N_COUNTER_COLUMNS 12

/* For these columns; NULL: a '-' in each.  The last three are shares of all the time that ops took. */
void show_counters(struct table *table, const Wire__Counters *counters);

/* "1 MiB x 128", and the values that are not the default; NULL: "store's". */
void show_profile(struct table *table, const Wire__Profile *wire);

/* "3/0": the client's number and the handle's. */
void show_handle(struct table *table, const Wire__Client *client, const Wire__Handle *handle);

/* ---- JSON ---- */

/* A status, or a message that has no channels; fields have their names in dsaio.proto. */
struct json_object *show_json(const ProtobufCMessage *message);

#endif
