/*
 * dsaioctl wear: the bytes that stores, users and clients have written.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"

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
	"see themselves.  BANDWIDTH, IOPS and WEIGHT are those of dsaioctl limit.\n"
	"\n" HELP_JSON HELP_SOCKET HELP_PRIVATE HELP_EXIT;

static int print_table(const struct ctl *ctl, const Wire__StatusReply *status)
{
	const time_t since = (time_t)status->wear_since_sec;
	char date[32] = "?";
	struct tm tm;

	if (localtime_r(&since, &tm))
		(void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &tm);
	(void)printf("written by stores and users since %s, by clients since they connected\n",
		     date);
	show_others(status);
	return show_limits(ctl, status, false);
}

static int wear_run(struct ctl *ctl)
{
	return show_status(ctl, print_table);
}

const struct command command_wear = COMMAND(
	"wear", wear_run, "bytes written by stores, users and clients", help, .no_arguments = true);
