/*
 * Users of the disks, and their health, in lines of a fixed layout: for dsaioctl status and top.
 *
 * Numbers have a column's width; a text that is too long ends with '+'.  The lines go through overview_text(), after
 * which they are printable ASCII, whatever clients and users are called.  Pure functions, except for users' names.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_OVERVIEW_H
#define DSAIO_CLIENT_CTL_CMD_OVERVIEW_H

#include "client/ctl/cmd/rates.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

#define OVERVIEW_LINE_BYTES 512u

/* The order of clients. */
enum overview_key { OVERVIEW_BANDWIDTH, OVERVIEW_IOPS, OVERVIEW_P99, OVERVIEW_ERRORS };

struct overview_client {
	const Wire__Client *client; /* of the reply */
	struct rates rates;
	uint64_t order; /* its key */
};

/* The clients of a reply whose user or command has the text, the highest first, then by number.  There is room
   for all.  Returns how many these are. */
size_t overview_clients(const Wire__StatusReply *before, const Wire__StatusReply *now,
			enum overview_key key, const char *text,
			struct overview_client *ret_clients);

#define OVERVIEW_RATE_TITLES "READ/s WRITE/s  IOPS     P99 OPEN  ERR HUNG"
#define OVERVIEW_STORE_TITLES "STORE                   " OVERVIEW_RATE_TITLES
#define OVERVIEW_CLIENT_TITLES "CLIENT     PID USER     " OVERVIEW_RATE_TITLES " COMMAND"

/* Lines of OVERVIEW_LINE_BYTES, below these titles. */
const char *overview_store_line(char *line, const Wire__Store *store, const struct rates *rates);
const char *overview_client_line(char *line, const struct overview_client *row);

/* Any text as a line of printable ASCII, of at most width columns. */
const char *overview_text(char *line, size_t width, const char *text);

/* An array of strings: all that is wrong.  A pool that is not locked is not: it only costs time. */
struct json_object *overview_problems(const Wire__StatusReply *now);
/* "healthy", or "NOT HEALTHY: ..." with the problems.  Returns whether it is. */
bool overview_verdict(char *line, const Wire__StatusReply *now);

#endif
