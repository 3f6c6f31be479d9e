/*
 * dsaioctl clients: the clients of the daemon, their handles and channels.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static const char help[] =
	"dsaioctl clients - who uses the daemon, and for what\n"
	"\n"
	"    dsaioctl clients\n"
	"    dsaioctl clients --json | jq '.clients[] | select(.pid == 4711)'\n"
	"\n"
	"A row for each client, then one for each handle's part on a store.  Clients of other users\n"
	"are shown to administrators; to others they are one line.  dsaioctl(1) explains the columns.\n"
	"\n" HELP_JSON HELP_SOCKET HELP_PRIVATE HELP_EXIT;

static void add_client(struct table *table, const Wire__Client *client)
{
	char text[UNITS_TEXT_BYTES];

	table_add(table, "%" PRIu32, client->client);
	table_add(table, "%s", client->name);
	table_add(table, "%" PRIu32, client->pid);
	table_add(table, "%" PRIu32, client->uid);
	table_add(table, "%s", units_format_size(text, client->pool_bytes));
	table_add(table, "%" PRIu32, client->slabs);
	table_add(table, "%" PRIu32, client->files);
	table_add(table, "%zu", client->n_handles);
	table_add(table, "%s", units_format_size(text, client->device_bytes));
}

static void add_handle(struct table *table, const Wire__StatusReply *status,
		       const Wire__Client *client, const Wire__Handle *handle,
		       const Wire__Channel *channel)
{
	const Wire__Store *store = channel ? show_find_store(status, channel->store) : NULL;
	char class[SHOW_ENUM_BYTES];

	show_handle(table, client, handle);
	table_add(table, "%s", client->name);
	table_add(table, "%s", store ? store->name : "-");
	table_add(table, "%s", show_enum(class, &wire__class__descriptor, (int)handle->io_class));
	table_add(table, "%" PRIu32, handle->weight);
	show_profile(table, handle->profile);
	if (channel)
		table_add(table, "%" PRIu32, channel->entries);
	else
		table_add(table, "-");
	table_add(table, "%s", !channel ? "-" : channel->has_rings ? "yes" : "no");
	show_counters(table, channel ? channel->counters : NULL);
}

static int print_tables(const struct ctl *ctl, const Wire__StatusReply *status)
{
	_cleanup_(table_deinit) struct table clients = {
		.columns = ">CLIENT|NAME|>PID|>UID|>POOL|>SLABS|>FILES|>HANDLES|>GPU"
	};
	_cleanup_(table_deinit) struct table handles = {
		.columns =
			">HANDLE|NAME|STORE|CLASS|>WEIGHT|PROFILE|>ENTRIES|RINGS|" SHOW_COUNTER_COLUMNS
	};

	for (size_t i = 0; i < status->n_clients; i++) {
		const Wire__Client *client = status->clients[i];

		add_client(&clients, client);
		for (size_t k = 0; k < client->n_handles; k++) {
			const Wire__Handle *handle = client->handles[k];

			for (size_t c = 0; c < handle->n_channels; c++)
				add_handle(&handles, status, client, handle, handle->channels[c]);
			if (handle->n_channels == 0)
				add_handle(&handles, status, client, handle, NULL);
		}
	}
	if (status->n_clients)
		table_print(&clients, stdout);
	show_others(status);
	if (handles.n_cells) {
		(void)putchar('\n');
		table_print(&handles, stdout);
	}
	return ctl_flush(ctl);
}

static int clients_run(struct ctl *ctl)
{
	return show_status(ctl, print_tables);
}

const struct command command_clients = COMMAND(
	"clients", clients_run, "who uses the daemon, and for what", help, .no_arguments = true);
