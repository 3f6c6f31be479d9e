/*
 * dsaioctl limit: shows or sets how many bytes and ops stores, users and clients may move in a second.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
	"dsaioctl limit - bandwidth and IOPS of stores, users and clients\n"
	"\n"
	"    dsaioctl limit                                       what is limited\n"
	"    dsaioctl limit --store nvme0 --bandwidth 500M --iops 20000\n"
	"    dsaioctl limit --user alice --bandwidth 1G           all her clients together\n"
	"    dsaioctl limit --client 7 --bandwidth 100M           until it disconnects\n"
	"    dsaioctl limit --client 7 --weight 8                 its share, see below\n"
	"    dsaioctl limit --user alice --bandwidth none         no limit again\n"
	"    dsaioctl limit --json | jq '.limits[] | select(.kind == \"user\")'\n"
	"\n"
	"A limit holds at once, for reads and writes together, whatever else is free; what is not\n"
	"named stays.  A large op is not split: it starts, and those after it wait the longer.\n"
	"A pause of the client is made up for by a burst of 50 ms.  All limits hold.\n"
	"Limits of stores and users are saved across restarts of the daemon (a failure is reported).\n"
	"Where the store is what everybody waits for, a weight is better than a limit: a client of\n"
	"weight 8 moves 8 times the bytes of one of weight 1, and all of them if it is alone.\n"
	"Setting is for administrators.\n"
	"\n"
	"    --store STORE      a store: its name, or (with a '/') a path on it\n"
	"    --user USER        a user: name or number\n"
	"    --client N         a client: its number in dsaioctl clients\n"
	"    --bandwidth N|none bytes per second, with K, M, G, T (powers of 1024)\n"
	"    --iops N|none      ops per second: reads, writes and syncs\n"
	"    --weight N         of a client: that of all its handles, 1 to 16\n"
	"    --json             the same as JSON\n"
	"    --socket PATH      the daemon's socket\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers\n";

static const char *store_arg, *user_arg, *bandwidth_arg, *iops_arg;
static uint32_t client_arg, weight_arg;

static const struct flag flags[] = {
	{ "store", FLAG_STRING, &store_arg, 0, 0 },
	{ "user", FLAG_STRING, &user_arg, 0, 0 },
	{ "client", FLAG_COUNT, &client_arg, 1, UINT32_MAX },
	{ "bandwidth", FLAG_STRING, &bandwidth_arg, 0, 0 },
	{ "iops", FLAG_STRING, &iops_arg, 0, 0 },
	{ "weight", FLAG_COUNT, &weight_arg, 1, 16 },
};

/* ---- show ---- */

/* A row of the list, and how it is shown. */
struct limited {
	const char *kind, *name;
	uint32_t id; /* of a user or client */
	const Wire__Limit *limit;
	uint32_t weight;
};
typedef void show_fn(const struct limited *limited, void *arg);

static void show_row(const struct limited *limited, void *arg)
{
	const Wire__Limit *limit = limited->limit;
	char text[UNITS_TEXT_BYTES];
	struct table *table = arg;

	table_add(table, "%s", limited->kind);
	if (strcmp(limited->kind, "store") == 0)
		table_add(table, "%s", limited->name);
	else
		table_add(table, "%" PRIu32 "%s%s", limited->id, limited->name[0] ? " " : "",
			  limited->name);
	if (limit && limit->bytes_per_sec)
		table_add(table, "%s", units_format_rate(text, limit->bytes_per_sec, 1000000000));
	else
		table_add(table, "-");
	if (limit && limit->ops_per_sec)
		table_add(table, "%" PRIu64, limit->ops_per_sec);
	else
		table_add(table, "-");
	if (limited->weight)
		table_add(table, "%" PRIu32, limited->weight);
	else
		table_add(table, "-");
}

static void show_object(const struct limited *limited, void *arg)
{
	struct json_object *object = json_object_new_object();

	json_object_object_add(object, "kind", json_object_new_string(limited->kind));
	json_object_object_add(object, "name", json_object_new_string(limited->name));
	json_add_number(object, "id", limited->id);
	json_add_number(object, "bytes_per_sec",
			limited->limit ? limited->limit->bytes_per_sec : 0);
	json_add_number(object, "ops_per_sec", limited->limit ? limited->limit->ops_per_sec : 0);
	json_add_number(object, "weight", limited->weight);
	(void)json_object_array_add(arg, object);
}

/* The user's name on this host, or "". */
static const char *user_name(uid_t uid)
{
	const struct passwd *passwd = getpwuid(uid);

	return passwd ? passwd->pw_name : "";
}

static void each_limited(const Wire__StatusReply *status, show_fn *show, void *arg)
{
	for (size_t i = 0; i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];

		if (store->limit)
			show(&(struct limited){ "store", store->name, store->store, store->limit,
						0 },
			     arg);
	}
	for (size_t i = 0; i < status->n_users; i++) {
		const Wire__User *user = status->users[i];

		if (user->limit)
			show(&(struct limited){ "user", user_name(user->uid), user->uid,
						user->limit, 0 },
			     arg);
	}
	for (size_t i = 0; i < status->n_clients; i++) {
		const Wire__Client *client = status->clients[i];

		if (client->limit || client->weight)
			show(&(struct limited){ "client", client->name, client->client,
						client->limit, client->weight },
			     arg);
	}
}

static int print_limits(const struct ctl *ctl, const Wire__StatusReply *status)
{
	static const struct table_column columns[] = { { "KIND", false },
						       { "NAME", false },
						       { "BANDWIDTH", true },
						       { "IOPS", true },
						       { "WEIGHT", true } };
	_cleanup_(table_deinit) struct table table;
	int r;

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	if (ctl->is_json) {
		struct json_object *object = json_object_new_object();
		struct json_object *array = json_object_new_array();

		json_object_object_add(object, "limits", array);
		each_limited(status, show_object, array);
		return ctl_print_json(ctl, object);
	}
	each_limited(status, show_row, &table);
	if (!table.n_cells)
		return ctl_print_line(ctl, "nothing is limited");
	r = table_print(&table, stdout);
	return r == -ENOMEM ? ctl_fail(ctl, "out of memory") : ctl_flush(ctl);
}

/* ---- set ---- */

/* Reads a value; text NULL: it stays. */
static int read_value(const struct ctl *ctl, const char *option, const char *text, bool is_size,
		      uint64_t *value)
{
	if (!text)
		return CTL_OK;
	if (strcmp(text, "none") == 0) {
		*value = 0;
		return CTL_OK;
	}
	if ((!is_size && text[strspn(text, "0123456789")]) || size_parse(text, value) < 0 ||
	    !*value)
		return ctl_usage(ctl, "--%s %s: must be a number above 0%s, or none", option, text,
				 is_size ? " (bytes per second, or with K, M, G, T behind it)"
					 : "");
	return CTL_OK;
}

static int find_user(const struct ctl *ctl, uint32_t *ret_uid)
{
	const struct passwd *passwd = getpwnam(user_arg);
	uint64_t uid;

	if (passwd) {
		*ret_uid = passwd->pw_uid;
		return CTL_OK;
	}
	if (user_arg[strspn(user_arg, "0123456789")] || size_parse(user_arg, &uid) < 0 ||
	    uid >= UINT32_MAX)
		return ctl_fail(ctl, "user %s: this host has none of that name", user_arg);
	*ret_uid = (uint32_t)uid;
	return CTL_OK;
}

/* The present limit of the object that the request names, or NULL. */
static const Wire__Limit *limit_now(const Wire__StatusReply *status, const Wire__LimitSet *set)
{
	for (size_t i = 0; set->has_uid && i < status->n_users; i++)
		if (status->users[i]->uid == set->uid)
			return status->users[i]->limit;
	for (size_t i = 0; set->client && i < status->n_clients; i++)
		if (status->clients[i]->client == set->client)
			return status->clients[i]->limit;
	for (size_t i = 0; set->store[0] && i < status->n_stores; i++)
		if (strcmp(status->stores[i]->name, set->store) == 0)
			return status->stores[i]->limit;
	return NULL;
}

/* Sends the change.  The values that are not named stay as they are. */
static int send_limit(struct ctl *ctl, struct dsaio_client **client, const Wire__LimitSet *named)
{
	_cleanup_(wire_replyp) Wire__Reply *status = NULL, *reply = NULL;
	Wire__LimitSet set = *named;
	Wire__Limit limit = WIRE__LIMIT__INIT;
	const Wire__Limit *now;
	int r = ask_status(ctl, client, &status);

	if (r != CTL_OK)
		return r;
	now = limit_now(status->status, named);
	if (now)
		limit = *now;
	if (bandwidth_arg || iops_arg)
		set.limit = &limit;
	r = read_value(ctl, "bandwidth", bandwidth_arg, true, &limit.bytes_per_sec);
	if (r == CTL_OK)
		r = read_value(ctl, "iops", iops_arg, false, &limit.ops_per_sec);
	if (r == CTL_OK)
		r = ask_limit_set(ctl, client, &set, &reply);
	if (r == CTL_OK && reply->text[0])
		ctl_note(ctl, "%s", reply->text);
	return r;
}

static int set_limit(struct ctl *ctl, struct dsaio_client **client)
{
	_cleanup_(wire_replyp) Wire__Reply *store = NULL;
	Wire__LimitSet set = WIRE__LIMIT_SET__INIT;
	int r = CTL_OK;

	set.client = client_arg;
	set.weight = weight_arg;
	set.has_uid = user_arg != NULL;
	if (user_arg)
		r = find_user(ctl, &set.uid);
	if (store_arg)
		r = ask_store(ctl, client, store_arg, &store);
	if (r != CTL_OK)
		return r;
	if (store)
		set.store = store->store_get->name;
	return send_limit(ctl, client, &set);
}

static int check_usage(const struct ctl *ctl, bool *ret_is_set)
{
	const int n_names = !!store_arg + !!user_arg + !!client_arg;
	uint64_t value;
	int r;

	*ret_is_set = bandwidth_arg || iops_arg || weight_arg;
	if (ctl->n_args)
		return ctl_usage(ctl,
				 "%s: name what to limit by an option: --store, --user or "
				 "--client: see dsaioctl limit --help",
				 ctl->args[0]);
	if (ctl->is_private)
		return ctl_usage(ctl,
				 "--private: a daemon for this command alone serves no others: "
				 "leave it out");
	if (n_names > 1 || (*ret_is_set && !n_names))
		return ctl_usage(ctl, "name one of --store, --user and --client");
	if (n_names && !*ret_is_set)
		return ctl_usage(ctl, "--bandwidth, --iops or --weight? see dsaioctl limit --help");
	if (weight_arg && !client_arg)
		return ctl_usage(ctl, "--weight: only a client has one: --client N");
	r = read_value(ctl, "bandwidth", bandwidth_arg, true, &value);
	return r == CTL_OK ? read_value(ctl, "iops", iops_arg, false, &value) : r;
}

static int limit_run(struct ctl *ctl)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	bool is_set;
	int r = check_usage(ctl, &is_set);

	ctl->is_of_all = true;
	if (r == CTL_OK && is_set)
		r = set_limit(ctl, &client);
	if (r == CTL_OK)
		r = ask_status(ctl, &client, &reply);
	return r == CTL_OK ? print_limits(ctl, reply->status) : r;
}

const struct command command_limit = {
	"limit", limit_run,	    "bandwidth and IOPS of stores, users and clients",
	help,	 FLAG_TABLE(flags), NULL
};
