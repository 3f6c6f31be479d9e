/*
 * dsaioctl wear: the bytes that stores, users and clients have written.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static const char help[] =
	"dsaioctl wear - bytes written by stores, users and clients\n"
	"\n"
	"    dsaioctl wear\n"
	"    dsaioctl wear --json | jq '.stores[] | {name, written_bytes}'\n"
	"\n"
	"Those of stores and users are counted since the time that the first line says, also over\n"
	"restarts (if the daemon is killed, at most a minute is lost); those of a client since it\n"
	"connected.  Only writes through the daemon count.  Users are shown to administrators; others\n"
	"see themselves.\n"
	"\n" HELP_JSON HELP_SOCKET HELP_PRIVATE HELP_EXIT;

static void add_row(struct table *table, const char *kind, const char *which, uint64_t bytes)
{
	char text[UNITS_TEXT_BYTES];

	table_add(table, "%s", kind);
	table_add(table, "%s", which);
	table_add(table, "%s", units_format_size(text, bytes));
}

static int print_table(const struct ctl *ctl, const Wire__StatusReply *status)
{
	static const struct table_column columns[] = { { "OF", false },
						       { "WHICH", false },
						       { "WRITTEN", true } };
	const time_t since = (time_t)status->wear_since_sec;
	char which[256], user[SHOW_USER_BYTES], date[32] = "?";
	_cleanup_(table_deinit) struct table table;
	struct tm tm;

	if (localtime_r(&since, &tm))
		(void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &tm);
	(void)printf("written by stores and users since %s, by clients since they connected\n\n",
		     date);
	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < status->n_stores; i++)
		add_row(&table, "store", status->stores[i]->name, status->stores[i]->written_bytes);
	for (size_t i = 0; i < status->n_users; i++)
		add_row(&table, "user", show_user(user, status->users[i]),
			status->users[i]->written_bytes);
	for (size_t i = 0; i < status->n_clients; i++) {
		(void)snprintf(which, sizeof(which), "%" PRIu32 " %s", status->clients[i]->client,
			       status->clients[i]->name);
		add_row(&table, "client", which, status->clients[i]->written_bytes);
	}
	if (table_print(&table, stdout) == -ENOMEM)
		return ctl_fail(ctl, "out of memory");
	show_others(status);
	return ctl_flush(ctl);
}

static int wear_run(struct ctl *ctl)
{
	return show_status(ctl, print_table);
}

const struct command command_wear = {
	"wear", wear_run, "bytes written by stores, users and clients", help, { NULL, 0 }, NULL
};
