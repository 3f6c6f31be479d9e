#include "daemon/base/journal.h"

#include "daemon/base/hung.h"
#include "daemon/base/log.h"
#include "proto/util/escape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define VALUE_BYTES 1024
#define NUMBER_BYTES 16

/* Written once, before any other thread. */
static int fd = -1;
static struct sockaddr_un address = { .sun_family = AF_UNIX };

void journal_init(const char *path)
{
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path); /* fits */
}

/* value: NULL: there is none. */
static void add(char *record, size_t *n, const char *key, const char *value)
{
	char text[VALUE_BYTES];
	const size_t room = JOURNAL_RECORD_BYTES - *n;
	int size;

	if (!value)
		return;
	size = snprintf(record + *n, room, "%s=%s\n", key, escape_text(text, sizeof(text), value));
	if ((size_t)size < room)
		*n += (size_t)size;
}

static const char *number(char text[NUMBER_BYTES], uint32_t value)
{
	(void)snprintf(text, NUMBER_BYTES, "%" PRIu32, value);
	return text;
}

size_t journal_record(char record[JOURNAL_RECORD_BYTES], int priority, const char *text,
		      const struct log_fields *fields)
{
	const struct hung_who *who = fields->who;
	char value[NUMBER_BYTES];
	size_t n = 0;

	add(record, &n, "MESSAGE", text);
	add(record, &n, "PRIORITY", number(value, (uint32_t)priority));
	add(record, &n, "SYSLOG_IDENTIFIER", "dsaiod");
	add(record, &n, "DSAIO_EVENT", fields->event);
	add(record, &n, "DSAIO_STORE", fields->store);
	add(record, &n, "DSAIO_OP", fields->op);
	add(record, &n, "ERRNO", fields->error ? number(value, (uint32_t)fields->error) : NULL);
	add(record, &n, "DSAIO_CLIENT_UID", who ? number(value, who->uid) : NULL);
	add(record, &n, "DSAIO_CLIENT_PID",
	    who && who->pid ? number(value, (uint32_t)who->pid) : NULL);
	add(record, &n, "DSAIO_CLIENT", who && who->client ? number(value, who->client) : NULL);
	return n;
}

bool journal_send(const char *record, size_t n)
{
	return sendto(fd, record, n, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address,
		      sizeof(address)) == (ssize_t)n;
}
