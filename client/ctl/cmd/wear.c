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
	"Those of stores and users are counted since the time that the first line says.  The daemon\n"
	"saves them once a minute and when it stops: if it is killed, at most a minute is lost.  Those\n"
	"of a client are counted since it connected.  Only writes through the daemon count, and a\n"
	"device may write more than it was given.  Users are shown to administrators; others see\n"
	"themselves.\n"
	"\n"
	"    --json         all numbers, in bytes, with the counters of status\n"
	"    --socket PATH  the daemon's socket\n"
	"    --private      a daemon for this command alone\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers\n";

static int print_table(const struct ctl *ctl, const Wire__StatusReply *status)
{
	static const struct table_column columns[] = { { "OF", false },
						       { "WHICH", false },
						       { "WRITTEN", true } };
	const time_t since = (time_t)status->wear_since_sec;
	char text[UNITS_TEXT_BYTES], user[SHOW_USER_BYTES], date[32] = "?";
	_cleanup_(table_deinit) struct table table;
	struct tm tm;

	if (localtime_r(&since, &tm))
		(void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &tm);
	(void)printf("written by stores and users since %s, by clients since they connected\n\n",
		     date);
	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];

		table_add(&table, "store");
		table_add(&table, "%s (%s)", store->name, store->path);
		table_add(&table, "%s", units_format_size(text, store->written_bytes));
	}
	for (size_t i = 0; i < status->n_users; i++) {
		table_add(&table, "user");
		table_add(&table, "%s", show_user(user, status->users[i]));
		table_add(&table, "%s", units_format_size(text, status->users[i]->written_bytes));
	}
	for (size_t i = 0; i < status->n_clients; i++) {
		const Wire__Client *client = status->clients[i];

		table_add(&table, "client");
		table_add(&table, "%" PRIu32 " (pid %" PRIu32 ", %s)", client->client, client->pid,
			  client->name);
		table_add(&table, "%s", units_format_size(text, client->written_bytes));
	}
	if (table_print(&table, stdout) == -ENOMEM)
		return ctl_fail(ctl, "out of memory");
	show_others(status);
	return ctl_flush(ctl);
}

static int wear_run(struct ctl *ctl)
{
	static const char *const names[] = { "wear_since_sec", "stores", "users", "clients", NULL };

	return show_status(ctl, print_table, names);
}

const struct command command_wear = {
	"wear", wear_run, "bytes written by stores, users and clients", help, { NULL, 0 }, NULL
};
