/*
 * dsaioctl status: the daemon's stores, clients and speed.
 *
 * Sends one Status request and prints its reply as tables, or all of it as JSON.  The commands stores,
 * clients and pool show more of each.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
	"dsaioctl status - the daemon's stores, clients and speed\n"
	"\n"
	"    dsaioctl status\n"
	"    dsaioctl status --socket /run/user/1000/dsaiod/dsaiod.sock\n"
	"    dsaioctl status --json | jq '.stores[].counters.latency_p99_nsec'\n"
	"\n"
	"Calls that were not answered stand first, with what frees them.  A row of the last\n"
	"table is a handle's part on one store.  BLOCK SIZE is what one request to the device has:\n"
	"the profile's block size, or less where the device takes less at once.  OPEN are ops taken\n"
	"and not ended, P50 and P99 the times from then to the end that half and 99% of them did\n"
	"not pass.  Clients of other users are shown to administrators; to others they are one line.\n"
	"QUEUE, DEVICE and DELIVERY are shares of the time that a client's ops took: waiting for\n"
	"their turn, with a block in flight, and on the way between program and daemon.\n"
	"\n"
	"    --json         all numbers, in bytes and nanoseconds\n"
	"    --socket PATH  the daemon's socket\n"
	"    --private      a daemon for this command alone, with a store on this directory\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers\n";

/* ---- tables ---- */

static int print_stores(const Wire__StatusReply *status)
{
	static const struct table_column about_columns[] = {
		{ "STORE", false },	{ "PATH", false },	{ "TYPE", false },
		{ "ENGINE", false },	{ "LANE DEPTH", true }, { "IN FLIGHT", true },
		{ "BLOCK SIZE", true }, { "PROFILE", false },
	};
	static const struct table_column counter_columns[] = { { "STORE", false },
							       SHOW_COUNTER_COLUMNS };
	_cleanup_(table_deinit) struct table about, counters;
	char text[UNITS_TEXT_BYTES];
	int r;

	table_init(&about, about_columns, sizeof(about_columns) / sizeof(about_columns[0]));
	table_init(&counters, counter_columns, 1 + SHOW_N_COUNTER_COLUMNS);
	for (size_t i = 0; i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];

		table_add(&about, "%s", store->name);
		table_add(&about, "%s", store->path);
		table_add(&about, "%s", store->fs_type);
		table_add(&about, "%s", store->is_blocking ? "threads" : store->engine);
		table_add(&about, "%" PRIu32, store->lane_depth);
		table_add(&about, "%s",
			  units_format_size(text, store->counters ? store->counters->bytes_in_flight
								  : 0));
		table_add(&about, "%s", units_format_size(text, store->block_bytes));
		show_profile(&about, store->profile);
		table_add(&counters, "%s", store->name);
		show_counters(&counters, store->counters);
	}
	r = table_print(&about, stdout);
	for (size_t i = 0; i < status->n_stores; i++)
		if (status->stores[i]->is_drained)
			(void)printf(
				"store %s is drained: until dsaioctl undrain %s it refuses new "
				"files and ops\n",
				status->stores[i]->name, status->stores[i]->name);
	(void)putchar('\n');
	return r < 0 ? r : table_print(&counters, stdout);
}

static void add_handle(struct table *table, const Wire__StatusReply *status,
		       const Wire__Client *client, const Wire__Handle *handle,
		       const Wire__Channel *channel)
{
	const Wire__Store *store = channel ? show_find_store(status, channel->store) : NULL;
	char class[SHOW_ENUM_BYTES];

	show_handle(table, client, handle);
	table_add(table, "%s", store ? store->name : "-");
	table_add(table, "%s %" PRIu32,
		  show_enum(class, &wire__class__descriptor, (int)handle->io_class),
		  handle->weight);
	show_profile(table, handle->profile);
	show_counters(table, channel ? channel->counters : NULL);
}

static int print_clients(const Wire__StatusReply *status)
{
	static const struct table_column client_columns[] = {
		{ "CLIENT", true }, { "NAME", false },	 { "PID", true },
		{ "UID", true },    { "POOL", true },	 { "SLABS", true },
		{ "FILES", true },  { "HANDLES", true }, SHOW_TIME_COLUMNS
	};
	static const struct table_column handle_columns[] = { { "HANDLE", true },
							      { "STORE", false },
							      { "CLASS", false },
							      { "PROFILE", false },
							      SHOW_COUNTER_COLUMNS };
	_cleanup_(table_deinit) struct table clients, handles;
	char text[UNITS_TEXT_BYTES];
	bool has_handles = false;
	int r;

	table_init(&clients, client_columns, sizeof(client_columns) / sizeof(client_columns[0]));
	table_init(&handles, handle_columns, 4 + SHOW_N_COUNTER_COLUMNS);
	for (size_t i = 0; i < status->n_clients; i++) {
		const Wire__Client *client = status->clients[i];
		Wire__Counters sum;

		table_add(&clients, "%" PRIu32, client->client);
		table_add(&clients, "%s", client->name);
		table_add(&clients, "%" PRIu32, client->pid);
		table_add(&clients, "%" PRIu32, client->uid);
		table_add(&clients, "%s", units_format_size(text, client->pool_bytes));
		table_add(&clients, "%" PRIu32, client->slabs);
		table_add(&clients, "%" PRIu32, client->files);
		table_add(&clients, "%zu", client->n_handles);
		sum = show_sum(client);
		show_times(&clients, &sum);
		for (size_t k = 0; k < client->n_handles; k++) {
			const Wire__Handle *handle = client->handles[k];

			has_handles = true;
			for (size_t c = 0; c < handle->n_channels; c++)
				add_handle(&handles, status, client, handle, handle->channels[c]);
			if (handle->n_channels == 0)
				add_handle(&handles, status, client, handle, NULL);
		}
	}
	r = status->n_clients ? table_print(&clients, stdout) : 0;
	show_device_bytes(status);
	show_others(status);
	if (r < 0 || !has_handles)
		return r;
	(void)putchar('\n');
	return table_print(&handles, stdout);
}

/* How GPU memory reaches files. */
static const char *path_text(Wire__GpuPath path)
{
	switch (path) {
	case WIRE__GPU_PATH__GPU_AUTO:
		return "GPU memory is used directly where cuFile takes the file, else copied";
	case WIRE__GPU_PATH__GPU_DIRECT:
		return "GPU memory goes through cuFile, or the op fails";
	default:
		return "GPU memory is copied through pinned memory";
	}
}

static int print_gpus(const Wire__Gpus *gpus)
{
	static const struct table_column columns[] = { { "GPU", false },
						       { "NAME", false },
						       { "MEMORY", true } };
	_cleanup_(table_deinit) struct table table = { .n_cells = 0 };
	char text[UNITS_TEXT_BYTES];
	int r;

	if (!gpus)
		return 0;
	if (gpus->problem[0])
		(void)printf("GPUs cannot be used: %s\n", gpus->problem);
	else if (gpus->call[0])
		(void)printf("the GPU driver has not answered yet: %s\n", gpus->call);
	if (gpus->n_gpus) {
		table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
		for (size_t i = 0; i < gpus->n_gpus; i++) {
			table_add(&table, "%s", gpus->gpus[i]->uuid);
			table_add(&table, "%s", gpus->gpus[i]->name);
			table_add(&table, "%s",
				  units_format_size(text, gpus->gpus[i]->memory_bytes));
		}
		r = table_print(&table, stdout);
		if (r < 0)
			return r;
		(void)printf("CUDA %" PRIu32 ".%" PRIu32 "%s%s\n", gpus->cuda_version / 1000,
			     gpus->cuda_version % 1000 / 10, gpus->cufile[0] ? ", " : "",
			     gpus->cufile);
	}
	(void)printf("%s: %s\n", path_text(gpus->path), gpus->why);
	(void)putchar('\n');
	return 0;
}

/* An upgrade leaves the daemon running.  A program that was linked without a build id shows none. */
static void print_program(const struct ctl *ctl, const Wire__StatusReply *status)
{
	char up[UNITS_TEXT_BYTES];

	(void)printf("dsaiod %s", status->daemon_version);
	if (status->daemon_build[0])
		(void)printf(" (build %s)", status->daemon_build);
	(void)printf(", pid %" PRIu32 ", up %s\n", status->pid,
		     units_format_nsec(up, status->uptime_usec * 1000));
	if (status->is_replaced)
		(void)printf("its program was replaced after its start");
	else if (strcmp(status->daemon_build, ctl->build) != 0)
		(void)printf("dsaioctl is of another build, %s (build %s)", DSAIO_VERSION,
			     ctl->build);
	else
		return;
	(void)printf(": after an upgrade restart the daemon: systemctl restart dsaiod, or, "
		     "for a user's own, kill %" PRIu32 "\n",
		     status->pid);
}

static int print_tables(const struct ctl *ctl, const Wire__StatusReply *status)
{
	char used[UNITS_TEXT_BYTES], size[UNITS_TEXT_BYTES];
	const Wire__Pool *pool = status->pool;
	int r;

	print_program(ctl, status);
	if (pool) {
		(void)printf("pool: %s of %s used, %s", units_format_size(used, pool->used_bytes),
			     units_format_size(size, pool->size_bytes),
			     pool->is_locked ? "locked" : "cannot all be locked");
		(void)printf("%s%s\n", pool->why_unlocked[0] ? ": " : "", pool->why_unlocked);
	}
	(void)putchar('\n');
	r = show_hung(status, stdout);
	if (r == 0)
		r = print_gpus(status->gpus);
	if (r == 0)
		r = print_stores(status);
	if (r == 0) {
		(void)putchar('\n');
		r = print_clients(status);
	}
	if (r == -ENOMEM)
		return ctl_fail(ctl, "out of memory");
	return ctl_flush(ctl);
}

static int status_run(struct ctl *ctl)
{
	return show_status(ctl, print_tables, NULL);
}

const struct command command_status = {
	"status", status_run, "the daemon's stores, clients and speed", help, { NULL, 0 }, NULL
};
