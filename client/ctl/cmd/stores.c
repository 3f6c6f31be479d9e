/*
 * dsaioctl stores: what is served, and how: all of them, or those that paths belong to.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>

static const char help[] =
	"dsaioctl stores - what the daemon serves, and how\n"
	"\n"
	"    dsaioctl stores                             all\n"
	"    dsaioctl stores /nvme/model.bin ./tensors   those that these paths belong to\n"
	"    dsaioctl stores --json | jq '.stores[].profile'\n"
	"\n"
	"ENGINE is what does the blocks: libaio, or as many worker threads as the profile's queue\n"
	"depth says, where io_submit(2) would wait until the bytes are moved; in brackets why.\n"
	"FROM is the source of the profile: the default, the configuration, saved by\n"
	"dsaioctl profile set, or set and not saved.  AUTO is a store that no configuration names.\n"
	"BLOCK SIZE is what one request to the device has: the profile's block size, or less where\n"
	"the device takes less at once.\n"
	"DRAINED stores refuse new files and ops, until dsaioctl undrain.  USERS are those it serves,\n"
	"CLIENTS how many have files or channels there.  OPEN are ops taken and not ended, IN FLIGHT\n"
	"their bytes at the device, WINDOW how many of those the store lets be while several clients\n"
	"are active, P50 and P99 the times that half and 99% of the ops did not pass; QUEUE and\n"
	"DEVICE shares of that time: waiting for their turn, and with a block in flight.\n"
	"A PATH that is on no store yet gets an automatic one, where the daemon makes such.  After\n"
	"one that belongs to none the others are still shown.\n"
	"\n" HELP_JSON HELP_SOCKET HELP_PRIVATE HELP_EXIT;

/* args: the path that was asked for, for each store; NULL: all stores were. */
static int print_tables(const struct ctl *ctl, Wire__Store *const *stores, size_t n, char **args)
{
	static const struct table_column about_columns[] = {
		{ "ASKED FOR", false }, { "STORE", false },   { "PATH", false },
		{ "TYPE", false },	{ "ENGINE", false },  { "LANE DEPTH", true },
		{ "BLOCK SIZE", true }, { "PROFILE", false }, { "FROM", false },
		{ "AUTO", false },	{ "DRAINED", false }, { "CLIENTS", true },
		{ "USERS", false },
	};
	static const struct table_column counter_columns[] = { { "STORE", false },
							       { "IN FLIGHT", true },
							       { "BLOCKS", true },
							       { "WINDOW", true },
							       SHOW_COUNTER_COLUMNS };
	size_t skip = args ? 0 : 1; /* the first column */
	_cleanup_(table_deinit) struct table about, counters;
	char text[UNITS_TEXT_BYTES];
	int r;

	table_init(&about, about_columns + skip,
		   sizeof(about_columns) / sizeof(about_columns[0]) - skip);
	table_init(&counters, counter_columns, 4 + SHOW_N_COUNTER_COLUMNS);
	for (size_t i = 0; i < n; i++) {
		const Wire__Store *store = stores[i];
		const Wire__Counters *c = store->counters;

		if (args)
			table_add(&about, "%s", args[i]);
		table_add(&about, "%s", store->name);
		table_add(&about, "%s", store->path);
		table_add(&about, "%s", store->fs_type);
		table_add(&about, "%s (%s)", store->is_blocking ? "worker threads" : store->engine,
			  store->engine_text);
		table_add(&about, "%" PRIu32, store->lane_depth);
		table_add(&about, "%s", units_format_size(text, store->block_bytes));
		show_profile(&about, store->profile);
		table_add(&about, "%s", store->profile_source);
		table_add(&about, "%s", store->is_automatic ? "yes" : "no");
		table_add(&about, "%s", store->is_drained ? "yes" : "no");
		table_add(&about, "%" PRIu32, store->clients);
		table_add(&about, "%s", store->allowed[0] ? store->allowed : "everybody");
		table_add(&counters, "%s", store->name);
		table_add(&counters, "%s", units_format_size(text, c ? c->bytes_in_flight : 0));
		table_add(&counters, "%" PRIu64, c ? c->blocks_in_flight : 0);
		table_add(&counters, "%s", units_format_size(text, store->window_bytes));
		show_counters(&counters, c);
	}
	r = table_print(&about, stdout);
	(void)putchar('\n');
	if (r == 0)
		r = table_print(&counters, stdout);
	return r == -ENOMEM ? ctl_fail(ctl, "out of memory") : ctl_flush(ctl);
}

static int print_stores(const struct ctl *ctl, Wire__Store **stores, size_t n, char **args)
{
	struct json_object *object, *array;

	if (!ctl->is_json)
		return print_tables(ctl, stores, n, args);
	object = show_stores_json(stores, n);
	array = json_object_object_get(object, "stores");
	for (size_t i = 0; args && i < n; i++)
		json_object_object_add(json_object_array_get_idx(array, i), "asked_for",
				       json_object_new_string(args[i]));
	if (ctl->errors && json_object_array_length(ctl->errors))
		json_object_object_add(object, "errors", json_object_get(ctl->errors));
	return ctl_print_json(ctl, object);
}

/* The stores that the arguments name. */
struct named_stores {
	Wire__Reply **replies;
	Wire__Store **stores;
	size_t n;
};

static void named_stores_deinit(struct named_stores *found)
{
	for (size_t i = 0; i < found->n; i++)
		wire_replyp(&found->replies[i]);
	free(found->replies);
	free(found->stores);
}

/* Asks for each argument, and keeps those that have a store. */
static int find_stores(struct ctl *ctl, struct dsaio_client **client, struct named_stores *found)
{
	int r = CTL_OK;

	for (int i = 0; i < ctl->n_args; i++) {
		Wire__Reply **reply = &found->replies[found->n];
		int status = ask_store(ctl, client, ctl->args[i], reply);

		if (status == CTL_OK) {
			ctl->args[found->n] = ctl->args[i];
			found->stores[found->n++] = (*reply)->store_get;
			continue;
		}
		r = status;
		if (r == CTL_USAGE || !*client) /* without a daemon the others would fail, too */
			break;
	}
	return r;
}

static int print_found(struct ctl *ctl, struct dsaio_client **client)
{
	size_t n = (size_t)ctl->n_args;
	_cleanup_(named_stores_deinit) struct named_stores found = {
		.replies = calloc(n, sizeof(Wire__Reply *)),
		.stores = calloc(n, sizeof(Wire__Store *))
	};
	int r, status;

	if (!found.replies || !found.stores)
		return ctl_fail(ctl, "out of memory");
	if (ctl->is_json && n > 1)
		ctl->errors = json_object_new_array();
	r = find_stores(ctl, client, &found);
	status = found.n || ctl->errors ? print_stores(ctl, found.stores, found.n, ctl->args) : r;
	json_object_put(ctl->errors);
	ctl->errors = NULL;
	return r == CTL_OK ? status : r;
}

static int stores_run(struct ctl *ctl)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int r;

	if (ctl->n_args > 0)
		return print_found(ctl, &client);
	r = ask_status(ctl, &client, &reply);
	if (r != CTL_OK)
		return r;
	return print_stores(ctl, reply->status->stores, reply->status->n_stores, NULL);
}

const struct command command_stores = { "stores", stores_run,  "what is served, and how",
					help,	  { NULL, 0 }, NULL };
