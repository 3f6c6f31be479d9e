#include "client/ctl/cmd/overview.h"

#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/units.h"
#include "proto/util/plural.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_WIDTH 23 /* a store's; a client's number, process and user */
#define USER_WIDTH 8
#define LIMIT_WIDTH 5
#define CELL_BYTES 16u

/* ---- cells ---- */

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

/* Up to max the number itself, else of so many digits: 1.85G, 1.9G, 150G.  Three of them have 5 columns, two 4. */
static char *short_number(char *text, double value, double base, double max, int digits)
{
	static const char suffixes[] = " KMGTPE";
	int decimals;
	size_t i = 0;

	if (value < max) {
		(void)snprintf(text, CELL_BYTES, "%.0f", value);
		return text;
	}
	for (; value >= 999.5 && i < sizeof(suffixes) - 2; i++)
		value /= base;
	decimals = size_decimals(value) - (3 - digits);
	(void)snprintf(text, CELL_BYTES, "%.*f%c", decimals > 0 ? decimals : 0, value, suffixes[i]);
	return text;
}

static const char *short_bytes(char *text, double bytes)
{
	return short_number(text, bytes, 1024, 1000, 3);
}

static const char *short_count(char *text, uint64_t count)
{
	return short_number(text, (double)count, 1000, 9999.5, 2);
}

/* "45.2us" */
static const char *short_nsec(char *text, uint64_t nsec)
{
	char spaced[UNITS_TEXT_BYTES];
	size_t n = 0;

	if (!nsec)
		return strcpy(text, "-");
	for (const char *c = units_format_nsec(spaced, nsec); *c && n < CELL_BYTES - 1; c++)
		if (*c != ' ')
			text[n++] = *c;
	text[n] = '\0';
	return fit(text, 6);
}

/* A dash where there was no earlier reply. */
static void rate_cells(char *text, size_t size, const struct rates *rates, uint64_t hung)
{
	char cells[7][CELL_BYTES] = { "-", "-", "-" };

	if (rates->nsec) {
		(void)short_bytes(cells[0], rates_per_sec(rates, rates->read_bytes));
		(void)short_bytes(cells[1], rates_per_sec(rates, rates->write_bytes));
		(void)short_number(cells[2], rates_per_sec(rates, rates->ops), 1000, 99999.5, 3);
	}
	(void)short_nsec(cells[3], rates->p99_nsec);
	(void)short_count(cells[4], rates->open_ops);
	(void)short_count(cells[5], rates->all_errors);
	(void)short_count(cells[6], hung);
	(void)snprintf(text, size, "%6s %7s %5s %6s %4s %4s %4s", cells[0], cells[1], cells[2],
		       cells[3], cells[4], cells[5], cells[6]);
}

#define RATE_TITLES "READ/s WRITE/s  IOPS    P99 OPEN  ERR HUNG"

/* "100M", "500/s", "w4"; '+': there is more. */
static const char *short_limit(char *text, const Wire__Limit *limit, uint32_t weight)
{
	const uint64_t bytes = limit ? limit->bytes_per_sec : 0;
	const uint64_t ops = limit ? limit->ops_per_sec : 0;

	(void)strcpy(text, "-");
	if (bytes)
		(void)short_number(text, (double)bytes, 1024, 1000, 2);
	else if (weight)
		(void)snprintf(text, CELL_BYTES, "w%" PRIu32, weight);
	else if (ops)
		(void)strcat(short_number(text, (double)ops, 1000, 999.5, 2), "/s");
	if (!!bytes + !!ops + !!weight > 1)
		(void)strcat(text, "+");
	return text;
}

const char *overview_limits(char *line, const Wire__Limit *limit, uint32_t weight)
{
	char size[UNITS_TEXT_BYTES];
	size_t n = 0;

	line[0] = '\0';
	if (weight)
		n = (size_t)snprintf(line, OVERVIEW_LINE_BYTES, "weight %" PRIu32, weight);
	if (limit && limit->bytes_per_sec)
		n += (size_t)snprintf(line + n, OVERVIEW_LINE_BYTES - n, "%slimit %s/s",
				      n ? ", " : "", units_format_size(size, limit->bytes_per_sec));
	if (limit && limit->ops_per_sec)
		(void)snprintf(line + n, OVERVIEW_LINE_BYTES - n, "%slimit %" PRIu64 " IOPS",
			       n ? ", " : "", limit->ops_per_sec);
	return line;
}

const char *overview_text(char *line, size_t width, const char *text)
{
	(void)snprintf(line, OVERVIEW_LINE_BYTES, "%s", text);
	return fit(line, width);
}

const char *overview_user(char *line, uint32_t uid)
{
	const struct passwd *user = getpwuid(uid);

	if (user)
		(void)snprintf(line, OVERVIEW_LINE_BYTES, "%s", user->pw_name);
	else
		(void)snprintf(line, OVERVIEW_LINE_BYTES, "%" PRIu32, uid);
	return fit(line, OVERVIEW_LINE_BYTES);
}

/* ---- lines ---- */

static const char *line_format(char *line, size_t width, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static const char *line_format(char *line, size_t width, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(line, OVERVIEW_LINE_BYTES, format, args);
	va_end(args);
	return fit(line, width);
}

const char *overview_store_line(char *line, size_t width, const Wire__Store *store,
				const struct rates *rates)
{
	char cells[128], name[OVERVIEW_LINE_BYTES], limits[OVERVIEW_LINE_BYTES];

	if (!store)
		return line_format(line, width, "%-*s " RATE_TITLES " LIMIT", NAME_WIDTH, "STORE");
	(void)snprintf(name, sizeof(name), "%s", store->name);
	rate_cells(cells, sizeof(cells), rates, store->hung);
	(void)overview_limits(limits, store->limit, 0);
	return line_format(line, width, "%-*s %s %s", NAME_WIDTH, fit(name, NAME_WIDTH), cells,
			   limits[0] ? limits + strlen("limit ") : "-");
}

const char *overview_client_line(char *line, size_t width, bool has_limits,
				 const struct overview_client *row)
{
	char cells[128], limit[CELL_BYTES] = "", user[OVERVIEW_LINE_BYTES];
	const Wire__Client *client;

	if (!row)
		return line_format(line, width, "%6s %7s %-*s " RATE_TITLES " %sCOMMAND", "CLIENT",
				   "PID", USER_WIDTH, "USER", has_limits ? "LIMIT " : "");
	client = row->client;
	rate_cells(cells, sizeof(cells), &row->rates, client->hung);
	if (has_limits)
		(void)short_limit(limit, client->limit, client->weight);
	(void)overview_user(user, client->uid);
	return line_format(line, width, "%6" PRIu32 " %7" PRIu32 " %-*s %s %*s%s%s", client->client,
			   client->pid, USER_WIDTH, fit(user, USER_WIDTH), cells,
			   has_limits ? LIMIT_WIDTH : 0, limit, has_limits ? " " : "",
			   client->name);
}

bool overview_has_limits(const Wire__StatusReply *status)
{
	for (size_t i = 0; i < status->n_clients; i++)
		if (status->clients[i]->limit || status->clients[i]->weight)
			return true;
	return false;
}

/* ---- clients ---- */

static uint64_t key_of(const struct overview_client *row, enum overview_key key)
{
	const struct rates *rates = &row->rates;

	switch (key) {
	case OVERVIEW_IOPS:
		return rates->nsec ? rates->ops : 0;
	case OVERVIEW_P99:
		return rates->p99_nsec;
	case OVERVIEW_ERRORS:
		return rates->all_errors;
	default:
		return rates->nsec ? rates->read_bytes + rates->write_bytes : 0;
	}
}

static int compare(const void *a, const void *b, void *arg)
{
	const struct overview_client *first = a, *second = b;
	const enum overview_key *key = arg;
	const uint64_t x = key_of(first, *key), y = key_of(second, *key);

	if (x != y)
		return x < y ? 1 : -1;
	return first->client->client < second->client->client ? -1 : 1;
}

void overview_clients(const Wire__StatusReply *before, const Wire__StatusReply *now,
		      enum overview_key key, struct overview_client *ret_clients)
{
	for (size_t i = 0; i < now->n_clients; i++)
		ret_clients[i] = (struct overview_client){ .client = now->clients[i],
							   .rates = rates_of_client(
								   before, now, now->clients[i]) };
	qsort_r(ret_clients, now->n_clients, sizeof(*ret_clients), compare, &key);
}

static bool uses_store(const Wire__StatusReply *now, const Wire__Client *client, const char *text)
{
	for (size_t i = 0; i < client->n_handles; i++)
		for (size_t k = 0; k < client->handles[i]->n_channels; k++) {
			const Wire__Store *store = show_find_store(
				now, client->handles[i]->channels[k]->store);

			if (store && strstr(store->name, text))
				return true;
		}
	return false;
}

size_t overview_filter(const Wire__StatusReply *now, const char *text,
		       struct overview_client *clients, size_t n)
{
	char user[OVERVIEW_LINE_BYTES];
	size_t n_left = 0;

	for (size_t i = 0; i < n; i++)
		if (strstr(clients[i].client->name, text) ||
		    strstr(overview_user(user, clients[i].client->uid), text) ||
		    uses_store(now, clients[i].client, text))
			clients[n_left++] = clients[i];
	return n_left;
}

/* ---- health ---- */

static void add_problem(struct json_object *problems, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void add_problem(struct json_object *problems, const char *format, ...)
{
	char text[OVERVIEW_LINE_BYTES];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	(void)json_object_array_add(problems, json_object_new_string(text));
}

static void add_store_problems(struct json_object *problems, const Wire__StatusReply *before,
			       const Wire__StatusReply *now, const Wire__Store *store)
{
	const struct rates rates = rates_of_store(before, now, store);
	char time[UNITS_TEXT_BYTES];

	if (rates.nsec && rates.errors)
		add_problem(problems, "store %s: %" PRIu64 " op%s failed in the last %s",
			    store->name, rates.errors, plural(rates.errors),
			    units_format_nsec(time, rates.nsec));
	if (store->is_drained)
		add_problem(problems, "store %s is drained", store->name);
}

struct json_object *overview_problems(const Wire__StatusReply *before, const Wire__StatusReply *now)
{
	struct json_object *problems = json_object_new_array();
	const Wire__Gpus *gpus = now->gpus;

	if (now->n_hung)
		add_problem(problems, "%zu call%s hung", now->n_hung,
			    now->n_hung == 1 ? " is" : "s are");
	for (size_t i = 0; i < now->n_stores; i++)
		add_store_problems(problems, before, now, now->stores[i]);
	if (now->pool && !now->pool->is_locked)
		add_problem(problems, "the pool cannot all be locked");
	if (now->is_replaced)
		add_problem(problems, "the daemon's program was replaced after its start");
	if (gpus && gpus->problem[0])
		add_problem(problems, "GPUs cannot be used");
	else if (gpus && gpus->call[0])
		add_problem(problems, "the GPU driver has not answered yet");
	return problems;
}

const char *overview_verdict(char *line, struct json_object *problems)
{
	const size_t n = json_object_array_length(problems);
	size_t used = 0;

	if (!n)
		return strcpy(line, "healthy");
	for (size_t i = 0; i < n && used < OVERVIEW_LINE_BYTES; i++)
		used += (size_t)snprintf(
			line + used, OVERVIEW_LINE_BYTES - used, "%s%s", i ? "; " : "NOT HEALTHY: ",
			json_object_get_string(json_object_array_get_idx(problems, i)));
	return fit(line, OVERVIEW_LINE_BYTES);
}
