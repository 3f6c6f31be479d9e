/*
 * dsaioctl status: who uses the disks, and are they healthy.
 *
 * Two replies to Status, some time apart, give the rates.  The commands stores and clients show what does not fit here.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/overview.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/plural.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define WIDTH 80u
#define INTERVAL_MAX_MSEC 60000u

static const char help[] =
	"dsaioctl status - who uses the disks, and are they healthy\n"
	"\n"
	"    dsaioctl status\n"
	"    dsaioctl status --interval 5000               rates over five seconds\n"
	"    dsaioctl status --json | jq '.problems[]'\n"
	"    dsaioctl status --json | jq '.stores[].rates.read_bytes_per_sec'\n"
	"\n"
	"The first line is the verdict: healthy, or what is wrong.  READ/s, WRITE/s (bytes, K is\n"
	"1024) and IOPS are of the interval.  P99 is the time that 99% of the ops did not pass: a\n"
	"store's in the interval, a client's so far, on its slowest store.  OPEN are ops taken and\n"
	"not ended, ERR those that ended with an error so far, HUNG calls that have not returned.\n"
	"A '-' is not known.  Clients of other users are shown to administrators.\n"
	"\n"
	"    --interval N   milliseconds between the two looks that rates come from: 500; 0: one\n"
	"                   look, and no rates\n" HELP_JSON HELP_SOCKET HELP_PRIVATE HELP_EXIT;

static uint32_t interval_msec = 500;
static const struct flag flags[] = {
	{ "interval", FLAG_COUNT, &interval_msec, 0, INTERVAL_MAX_MSEC },
};

/* An upgrade leaves the daemon running.  A program that was linked without a build id shows none. */
static void print_program(const struct ctl *ctl, const Wire__StatusReply *status)
{
	char up[UNITS_TEXT_BYTES];

	(void)printf("dsaiod %s", status->daemon_version);
	if (status->daemon_build[0])
		(void)printf(" (build %s)", status->daemon_build);
	(void)printf(", pid %" PRIu32 ", up %s\n", status->pid,
		     units_format_nsec(up, status->uptime_usec * 1000));
	if (status->crashes)
		(void)printf("daemons before it crashed %" PRIu64
			     " time%s: dsaioctl trace --last-crash shows the last ops\n",
			     status->crashes, plural(status->crashes));
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

/* NULL: a daemon without one. */
static void print_pool(const Wire__Pool *pool)
{
	char used[UNITS_TEXT_BYTES], size[UNITS_TEXT_BYTES], left[UNITS_TEXT_BYTES];

	if (pool)
		(void)printf("pool: %s of %s used, %s%s%s\n",
			     units_format_size(used, pool->used_bytes),
			     units_format_size(size, pool->size_bytes),
			     pool->is_locked ? "locked" : "cannot all be locked",
			     pool->why_unlocked[0] ? ": " : "", pool->why_unlocked);
	if (pool &&
	    (pool->views || pool->view_left_bytes || pool->view_saved_bytes || pool->view_refusals))
		(void)printf(
			"views: %s, used %.1f times on average, %s saved since the start, %s still "
			"mapped by others, %" PRIu64 " pieces refused\n",
			units_format_size(used, pool->view_bytes),
			pool->views ? (double)pool->view_uses / pool->views : 0,
			units_format_size(size, pool->view_saved_bytes),
			units_format_size(left, pool->view_left_bytes), pool->view_refusals);
}

static void print_row(const char *text)
{
	char line[OVERVIEW_LINE_BYTES];

	(void)puts(overview_text(line, WIDTH, text));
}

static int print_tables(const struct ctl *ctl, const Wire__StatusReply *before,
			const Wire__StatusReply *now)
{
	_cleanup_(freep) struct overview_client *clients = NEW_ARRAY(struct overview_client,
								     now->n_clients);
	char line[OVERVIEW_LINE_BYTES];

	(void)overview_verdict(line, now);
	(void)puts(line); /* ctl_flush() looks */
	print_program(ctl, now);
	print_pool(now->pool);
	(void)putchar('\n');
	show_hung(now, stdout);
	print_row(OVERVIEW_STORE_TITLES);
	for (size_t i = 0; i < now->n_stores; i++) {
		const struct rates rates = rates_of_store(before, now, now->stores[i]);

		print_row(overview_store_line(line, now->stores[i], &rates));
	}
	(void)putchar('\n');
	if (overview_clients(before, now, OVERVIEW_BANDWIDTH, "", clients))
		print_row(OVERVIEW_CLIENT_TITLES);
	for (size_t i = 0; i < now->n_clients; i++)
		print_row(overview_client_line(line, &clients[i]));
	show_others(now);
	return ctl_flush(ctl);
}

static void add_rates(struct json_object *array, size_t i, struct rates rates)
{
	json_object_object_add(json_object_array_get_idx(array, i), "rates", rates_json(&rates));
}

/* The fields of the reply, and: problems, and rates of each store and client. */
static struct json_object *status_json(const Wire__StatusReply *before,
				       const Wire__StatusReply *now)
{
	struct json_object *object = show_json(&now->base);
	struct json_object *stores = json_object_object_get(object, "stores");
	struct json_object *clients = json_object_object_get(object, "clients");

	for (size_t i = 0; i < now->n_stores; i++)
		add_rates(stores, i, rates_of_store(before, now, now->stores[i]));
	for (size_t i = 0; i < now->n_clients; i++)
		add_rates(clients, i, rates_of_client(before, now, now->clients[i]));
	json_object_object_add(object, "problems", overview_problems(now));
	return object;
}

static int status_run(struct ctl *ctl)
{
	const struct timespec interval = { .tv_sec = interval_msec / 1000,
					   .tv_nsec = interval_msec % 1000 * 1000000L };
	_cleanup_(wire_replyp) Wire__Reply *first = NULL, *second = NULL;
	const Wire__StatusReply *before = NULL, *now;
	int r;

	ctl->wants_histograms = true;
	r = ask_status(ctl, &first);
	if (r == CTL_OK && interval_msec) {
		(void)nanosleep(&interval, NULL); /* the replies say how long it was */
		before = first->status;
		r = ask_status(ctl, &second);
	}
	if (r != CTL_OK)
		return r;
	now = second ? second->status : first->status;
	return ctl->is_json ? ctl_print_json(ctl, status_json(before, now))
			    : print_tables(ctl, before, now);
}

const struct command command_status = COMMAND("status", status_run,
					      "who uses the disks, and are they healthy", help,
					      .flags = FLAG_TABLE(flags), .no_arguments = true);
