/*
 * dsaioctl limit: shows or sets how many bytes and ops stores, users and clients may move in a second.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "proto/util/cleanup.h"

static const char help[] =
	"dsaioctl limit - bandwidth and IOPS of stores, users and clients\n"
	"\n"
	"    dsaioctl limit                                       what is limited\n"
	"    dsaioctl limit --store nvme0 --bandwidth 500M --iops 20000\n"
	"    dsaioctl limit --user alice --bandwidth 1G           all her clients together\n"
	"    dsaioctl limit --client 7 --bandwidth 100M           until it disconnects\n"
	"    dsaioctl limit --client 7 --weight 8                 its share\n"
	"    dsaioctl limit --user alice --bandwidth 0            no limit again\n"
	"    dsaioctl limit --json | jq '.users[] | select(.limit)'\n"
	"\n"
	"A limit holds at once, for reads and writes together, and takes the place of the last one:\n"
	"of --bandwidth and --iops, what is not named is not limited.  Those of stores and users are\n"
	"saved across restarts of the daemon (a failure is reported).  A row \"others\" says that users\n"
	"beyond the 128 that are shown are limited, too.  Where everybody waits for a store, a client\n"
	"of weight 8 has 8 times the bytes of one of weight 1.  Setting is for administrators.\n"
	"\n"
	"    --store STORE      a store: its name, or (with a '/') a path on it\n"
	"    --user USER        a user: name or number\n"
	"    --client N         a client: its number in dsaioctl clients\n"
	"    --bandwidth N      bytes per second, with K, M, G, T (powers of 1024); 0: no limit\n"
	"    --iops N           ops per second: reads, writes and syncs; 0: no limit\n"
	"    --weight N         of a client: that of all its handles, 1 to 16\n" HELP_JSON
		HELP_SOCKET HELP_EXIT;

static const char *store_arg, *user_arg;
static uint64_t bandwidth_arg = UINT64_MAX; /* it is not given; also the next */
static uint32_t iops_arg = UINT32_MAX, client_arg, weight_arg;

static const struct flag flags[] = {
	{ "store", FLAG_STRING, &store_arg, 0, 0 },
	{ "user", FLAG_STRING, &user_arg, 0, 0 },
	{ "client", FLAG_COUNT, &client_arg, 1, UINT32_MAX },
	{ "bandwidth", FLAG_SIZE, &bandwidth_arg, 0, UINT64_MAX - 1 },
	{ "iops", FLAG_COUNT, &iops_arg, 0, UINT32_MAX - 1 },
	{ "weight", FLAG_COUNT, &weight_arg, 1, 16 },
};

static int print_limits(const struct ctl *ctl, const Wire__StatusReply *status)
{
	return show_limits(ctl, status, true);
}

/* ---- set ---- */

static int set_limit(struct ctl *ctl, Wire__LimitSet *set)
{
	_cleanup_(wire_replyp) Wire__Reply *store = NULL, *reply = NULL;
	int r = CTL_OK;

	set->client = client_arg;
	set->weight = weight_arg;
	set->has_uid = user_arg != NULL;
	if (user_arg && !show_find_uid(user_arg, &set->uid))
		return ctl_fail(ctl, "user %s: this host has none of that name", user_arg);
	if (store_arg) {
		r = ask_store(ctl, store_arg, &store);
		set->store = r == CTL_OK ? store->store_get->name : NULL;
	}
	if (r == CTL_OK)
		r = ask(ctl, "limit", WIRE__REQUEST__BODY_LIMIT_SET, set, &reply);
	if (r == CTL_OK && reply->text[0])
		ctl_note(ctl, "%s", reply->text);
	return r;
}

static int limit_run(struct ctl *ctl)
{
	const bool has_bandwidth = bandwidth_arg < UINT64_MAX, has_iops = iops_arg < UINT32_MAX;
	const int n_names = !!store_arg + !!user_arg + !!client_arg;
	Wire__LimitSet set = WIRE__LIMIT_SET__INIT;
	Wire__Limit limit = WIRE__LIMIT__INIT;
	int r = CTL_OK;

	limit.bytes_per_sec = has_bandwidth ? bandwidth_arg : 0;
	limit.ops_per_sec = has_iops ? iops_arg : 0;
	if (has_bandwidth || has_iops)
		set.limit = &limit;
	if (n_names > 1 || (set.limit || weight_arg) != n_names)
		return ctl_usage(ctl, "name one of --store, --user and --client, and --bandwidth, "
				      "--iops or --weight: see dsaioctl limit --help");
	if (weight_arg && !client_arg)
		return ctl_usage(ctl, "--weight: only a client has one: --client N");
	if (n_names)
		r = set_limit(ctl, &set);
	return r == CTL_OK ? show_status(ctl, print_limits) : r;
}

const struct command command_limit = COMMAND(
	"limit", limit_run, "bandwidth and IOPS of stores, users and clients", help,
	.flags = FLAG_TABLE(flags), .no_arguments = true, .of_all = true);
