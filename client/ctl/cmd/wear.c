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

static int print_stores(const Wire__StatusReply *status)
{
	static const struct table_column columns[] = { { "STORE", false },
						       { "PATH", false },
						       { "WRITTEN", true } };
	_cleanup_(table_deinit) struct table table;
	char text[UNITS_TEXT_BYTES];

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < status->n_stores; i++) {
		table_add(&table, "%s", status->stores[i]->name);
		table_add(&table, "%s", status->stores[i]->path);
		table_add(&table, "%s", units_format_size(text, status->stores[i]->written_bytes));
	}
	return table_print(&table, stdout);
}

static int print_users(const Wire__StatusReply *status)
{
	static const struct table_column columns[] = { { "USER", false }, { "WRITTEN", true } };
	_cleanup_(table_deinit) struct table table;
	char text[UNITS_TEXT_BYTES], user[SHOW_USER_BYTES];

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < status->n_users; i++) {
		table_add(&table, "%s", show_user(user, status->users[i]));
		table_add(&table, "%s", units_format_size(text, status->users[i]->written_bytes));
	}
	return table_print(&table, stdout);
}

static int print_clients(const Wire__StatusReply *status)
{
	static const struct table_column columns[] = {
		{ "CLIENT", true }, { "NAME", false },	   { "PID", true },
		{ "UID", true },    { "CONNECTED", true }, { "WRITTEN", true },
	};
	_cleanup_(table_deinit) struct table table;
	char text[UNITS_TEXT_BYTES];

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < status->n_clients; i++) {
		const Wire__Client *client = status->clients[i];

		table_add(&table, "%" PRIu32, client->client);
		table_add(&table, "%s", client->name);
		table_add(&table, "%" PRIu32, client->pid);
		table_add(&table, "%" PRIu32, client->uid);
		table_add(&table, "%s", units_format_nsec(text, client->connected_usec * 1000));
		table_add(&table, "%s", units_format_size(text, client->written_bytes));
	}
	return status->n_clients ? table_print(&table, stdout) : 0;
}

static int print_tables(const struct ctl *ctl, const Wire__StatusReply *status)
{
	const time_t since = (time_t)status->wear_since_sec;
	char text[32] = "?";
	struct tm tm;
	int r;

	if (localtime_r(&since, &tm))
		(void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &tm);
	(void)printf("written since %s\n\n", text);
	r = print_stores(status);
	(void)putchar('\n');
	if (r == 0)
		r = print_users(status);
	(void)putchar('\n');
	if (r == 0)
		r = print_clients(status);
	show_others(status);
	return r == -ENOMEM ? ctl_fail(ctl, "out of memory") : ctl_flush(ctl);
}

static int wear_run(struct ctl *ctl)
{
	static const char *const names[] = { "wear_since_sec", "stores", "users", "clients", NULL };

	return show_status(ctl, print_tables, names);
}

const struct command command_wear = {
	"wear", wear_run, "bytes written by stores, users and clients", help, { NULL, 0 }, NULL
};
