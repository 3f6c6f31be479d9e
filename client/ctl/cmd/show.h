/*
 * The daemon's status as text: parts of tables and of JSON that commands share.
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

const char *show_class(Wire__Class io_class);

/* Prints a status in one form.  Returns CTL_OK or CTL_FAILED (reported). */
typedef int show_status_fn(const struct ctl *ctl, const Wire__StatusReply *status);

/* Runs a command without arguments: asks for the status and prints it as tables, or as JSON. */
int show_status(struct ctl *ctl, show_status_fn *print_tables, show_status_fn *print_json);

/* The store of that id, or NULL. */
const Wire__Store *show_find_store(const Wire__StatusReply *status, uint32_t id);

/* Prints how many clients are shown, if these are not all. */
void show_left_out(const Wire__StatusReply *status);

/* Prints the same, then a line about clients of other users, if any. */
void show_others(const Wire__StatusReply *status);

/* Prints a line for each client whose GPU memory the daemon has imported. */
void show_device_bytes(const Wire__StatusReply *status);

/*
 * Prints the hung calls under a title, with an empty line after them; nothing if there are none.
 * Returns 0, -ENOMEM or -EIO.
 */
int show_stuck(const Wire__StatusReply *status, FILE *out);

/* ---- cells ---- */

#define SHOW_COUNTER_COLUMNS                                                                 \
	{ "OPEN", true }, { "READS", true }, { "READ", true }, { "WRITES", true },           \
		{ "WRITTEN", true }, { "SYNCS", true }, { "ERRORS", true }, { "P50", true }, \
	{                                                                                    \
		"P99", true                                                                  \
	}
#define SHOW_N_COUNTER_COLUMNS 9

/* For these columns; NULL: a '-' in each. */
void show_counters(struct table *table, const Wire__Counters *counters);

#define SHOW_TIME_COLUMNS                      \
	{ "QUEUE", true }, { "DEVICE", true }, \
	{                                      \
		"DELIVERY", true               \
	}
#define SHOW_N_TIME_COLUMNS 3

/* For these: shares of all the time that ops took; '-' where it is not known. */
void show_times(struct table *table, const Wire__Counters *counters);

/* The sums over a client's channels; no percentiles. */
Wire__Counters show_sum(const Wire__Client *client);

/* "1 MiB x 128", and the values that are not the default; NULL: "store's". */
void show_profile(struct table *table, const Wire__Profile *wire);

/* "3/0": the client's number and the handle's. */
void show_handle(struct table *table, const Wire__Client *client, const Wire__Handle *handle);

/* ---- JSON; NULL is null ---- */

struct json_object *show_pool_json(const Wire__Pool *pool);
struct json_object *show_stores_json(Wire__Store *const *stores, size_t n);
struct json_object *show_clients_json(const Wire__StatusReply *status);
/* Adds clients_shown, clients_total and others. */
void show_others_json(struct json_object *object, const Wire__StatusReply *status);
struct json_object *show_stuck_json(const Wire__StatusReply *status);

#endif
