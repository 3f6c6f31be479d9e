#include "client/ctl/cmd/overview.h"

#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/plural.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_WIDTH 23 /* a store's; a client's number, process and user */
#define USER_WIDTH 8
#define CELL_BYTES UNITS_TEXT_BYTES

/* ---- lines ---- */

/* Cuts the text to width columns, and replaces what a terminal might execute. */
static char *fit(char *text, size_t width)
{
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	if (strlen(text) > width) {
		text[width] = '\0';
		if (width)
			text[width - 1] = '+';
	}
	return text;
}

const char *overview_text(char *line, size_t width, const char *text)
{
	(void)snprintf(line, OVERVIEW_LINE_BYTES, "%s", text);
	return fit(line, width);
}

/* "999", and of so many digits at most "1.85G" or "1.8G". */
static const char *short_number(char *text, double value, double base, int digits)
{
	static const char *const suffixes[] = { "", "K", "M", "G", "T", "P", "E" };
	size_t i = 0;
	int decimals;

	for (; value >= 999.5 && i + 1 < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		value /= base;
	decimals = size_decimals(value) - (3 - digits);
	(void)snprintf(text, CELL_BYTES, "%.*f%s", i && decimals > 0 ? decimals : 0, value,
		       suffixes[i]);
	return text;
}

/* A dash where there was no earlier reply. */
static const char *rate_cells(char *text, const struct rates *rates, uint64_t hung)
{
	char cells[6][CELL_BYTES] = { "-", "-", "-", "-" };

	if (rates->nsec) {
		(void)short_number(cells[0], rates_per_sec(rates, rates->read_bytes), 1024, 3);
		(void)short_number(cells[1], rates_per_sec(rates, rates->write_bytes), 1024, 3);
		(void)short_number(cells[2], rates_per_sec(rates, rates->ops), 1000, 3);
	}
	if (rates->p99_nsec)
		(void)units_format_nsec(cells[3], rates->p99_nsec);
	(void)short_number(cells[4], (double)rates->open_ops, 1000, 2);
	(void)short_number(cells[5], (double)rates->all_errors, 1000, 2);
	(void)snprintf(text, OVERVIEW_LINE_BYTES, "%6s %7s %5s %7s %4s %4s %4" PRIu64, cells[0],
		       cells[1], cells[2], fit(cells[3], 7), cells[4], cells[5], hung);
	return text;
}

const char *overview_store_line(char *line, const Wire__Store *store, const struct rates *rates)
{
	char cells[OVERVIEW_LINE_BYTES], name[OVERVIEW_LINE_BYTES];

	(void)snprintf(line, OVERVIEW_LINE_BYTES, "%-*.*s %s", NAME_WIDTH, NAME_WIDTH,
		       overview_text(name, NAME_WIDTH, store->name),
		       rate_cells(cells, rates, store->hung));
	return line;
}

const char *overview_client_line(char *line, const struct overview_client *row)
{
	char cells[OVERVIEW_LINE_BYTES], user[SHOW_USER_BYTES];
	const Wire__Client *client = row->client;

	(void)snprintf(line, OVERVIEW_LINE_BYTES, "%6" PRIu32 " %7" PRIu32 " %-*s %s %s",
		       client->client, client->pid, USER_WIDTH,
		       fit(show_uid(user, client->uid), USER_WIDTH),
		       rate_cells(cells, &row->rates, client->hung), client->name);
	return line;
}

/* ---- clients ---- */

static int compare(const void *a, const void *b)
{
	const struct overview_client *first = a, *second = b;

	if (first->order != second->order)
		return first->order < second->order ? 1 : -1;
	return first->client->client < second->client->client ? -1 : 1;
}

size_t overview_clients(const Wire__StatusReply *before, const Wire__StatusReply *now,
			enum overview_key key, const char *text,
			struct overview_client *ret_clients)
{
	char user[SHOW_USER_BYTES];
	size_t n = 0;

	for (size_t i = 0; i < now->n_clients; i++) {
		const Wire__Client *client = now->clients[i];
		const struct rates rates = rates_of_client(before, now, client);
		const uint64_t orders[] = {
			[OVERVIEW_BANDWIDTH] = rates.nsec ? rates.read_bytes + rates.write_bytes
							  : 0,
			[OVERVIEW_IOPS] = rates.nsec ? rates.ops : 0,
			[OVERVIEW_P99] = rates.p99_nsec,
			[OVERVIEW_ERRORS] = rates.all_errors,
		};

		if (strstr(client->name, text) || strstr(show_uid(user, client->uid), text))
			ret_clients[n++] = (struct overview_client){ client, rates, orders[key] };
	}
	qsort(ret_clients, n, sizeof(*ret_clients), compare);
	return n;
}

/* ---- health ---- */

__attribute__((format(printf, 2, 3))) static void add_problem(struct json_object *problems,
							      const char *format, ...)
{
	char text[OVERVIEW_LINE_BYTES];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	(void)json_object_array_add(problems, json_object_new_string(text));
}

struct json_object *overview_problems(const Wire__StatusReply *now)
{
	struct json_object *problems = json_object_new_array();
	const Wire__Gpus *gpus = now->gpus;

	if (now->n_hung)
		add_problem(problems, "%zu call%s hung", now->n_hung,
			    now->n_hung == 1 ? " is" : "s are");
	for (size_t i = 0; i < now->n_stores; i++) {
		const Wire__Store *store = now->stores[i];
		const uint64_t errors = store->counters ? store->counters->errors : 0;
		char pause[UNITS_TEXT_BYTES];

		if (errors)
			add_problem(problems,
				    "store %s: %" PRIu64 " op%s failed since the daemon's start",
				    store->name, errors, plural(errors));
		if (store->is_drained)
			add_problem(problems, "store %s is drained", store->name);
		if (store->is_offline)
			add_problem(problems, "store %s is OFFLINE: %s", store->name,
				    store->offline_text);
		else if (store->pause_usec)
			add_problem(problems, "store %s: no request has ended for %s", store->name,
				    units_format_nsec(pause, store->pause_usec * 1000));
	}
	if (now->is_replaced)
		add_problem(problems, "the daemon's program was replaced after its start");
	if (gpus && gpus->problem[0])
		add_problem(problems, "GPUs cannot be used: %s", gpus->problem);
	else if (gpus && gpus->call[0])
		add_problem(problems, "the GPU driver has not answered yet: %s", gpus->call);
	return problems;
}

bool overview_verdict(char *line, const Wire__StatusReply *now)
{
	_cleanup_(json_putp) struct json_object *problems = overview_problems(now);
	const size_t n = json_object_array_length(problems);
	size_t used = 0;

	(void)strcpy(line, "healthy");
	for (size_t i = 0; i < n && used < OVERVIEW_LINE_BYTES; i++)
		used += (size_t)snprintf(
			line + used, OVERVIEW_LINE_BYTES - used, "%s%s", i ? "; " : "NOT HEALTHY: ",
			json_object_get_string(json_object_array_get_idx(problems, i)));
	(void)fit(line, OVERVIEW_LINE_BYTES);
	return !n;
}
