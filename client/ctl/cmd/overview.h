/*
 * Users of the disks, and their health, in lines of a fixed layout: for dsaioctl status and top.
 *
 *     STORE                   READ/s WRITE/s  IOPS    P99 OPEN  ERR HUNG LIMIT
 *     CLIENT     PID USER     READ/s WRITE/s  IOPS    P99 OPEN  ERR HUNG COMMAND
 *
 * Numbers have a column's width; a text that is too long ends with '+'.  The lines are printable ASCII, whatever
 * clients and users are called, and one byte is one column.  Pure functions, except for the names of users.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_OVERVIEW_H
#define DSAIO_CLIENT_CTL_CMD_OVERVIEW_H

#include "client/ctl/cmd/rates.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

#define OVERVIEW_LINE_BYTES 512u /* of a line: at most one column less */

/* The order of clients. */
enum overview_key { OVERVIEW_BANDWIDTH, OVERVIEW_IOPS, OVERVIEW_P99, OVERVIEW_ERRORS };

struct overview_client {
	const Wire__Client *client; /* of the reply */
	struct rates rates;
};

/* The clients of a reply, in an array of as many, the highest first, then by number. */
void overview_clients(const Wire__StatusReply *before, const Wire__StatusReply *now,
		      enum overview_key key, struct overview_client *ret_clients);
/* Removes those of which neither the user, nor the command, nor a store has the text.  Returns how many are left. */
size_t overview_filter(const Wire__StatusReply *now, const char *text,
		       struct overview_client *clients, size_t n);

/* Lines of at most width columns.  NULL: the titles.  has_limits: of the clients; one more column. */
const char *overview_store_line(char *line, size_t width, const Wire__Store *store,
				const struct rates *rates);
const char *overview_client_line(char *line, size_t width, bool has_limits,
				 const struct overview_client *row);
bool overview_has_limits(const Wire__StatusReply *status);

/* Any text as such a line. */
const char *overview_text(char *line, size_t width, const char *text);

/* "weight 4, limit 1 GiB/s, 500 IOPS"; "": neither. */
const char *overview_limits(char *line, const Wire__Limit *limit, uint32_t weight);
/* The name, or the number of a user without one. */
const char *overview_user(char *line, uint32_t uid);

/* An array of strings: all that is wrong.  Errors are those of the time between both replies. */
struct json_object *overview_problems(const Wire__StatusReply *before,
				      const Wire__StatusReply *now);
/* "healthy", or "NOT HEALTHY: ..." with the problems. */
const char *overview_verdict(char *line, struct json_object *problems);

#endif
