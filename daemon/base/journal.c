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

/* Written once, before any other thread. */
static int fd = -1;
static struct sockaddr_un address = { .sun_family = AF_UNIX };

void journal_init(const char *path)
{
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path); /* fits */
}

static void add_text(char *record, size_t *n, const char *key, const char *value)
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

static void add_number(char *record, size_t *n, const char *key, int64_t value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRId64, value);
	add_text(record, n, key, text);
}

size_t journal_record(char record[JOURNAL_RECORD_BYTES], int priority, const char *text,
		      const struct log_fields *fields)
{
	size_t n = 0;

	add_text(record, &n, "MESSAGE", text);
	add_number(record, &n, "PRIORITY", priority);
	add_text(record, &n, "SYSLOG_IDENTIFIER", "dsaiod");
	if (!fields)
		return n;
	add_text(record, &n, "DSAIO_EVENT", fields->event);
	add_text(record, &n, "DSAIO_STORE", fields->store);
	add_text(record, &n, "DSAIO_OP", fields->op);
	if (fields->error)
		add_number(record, &n, "ERRNO", fields->error);
	if (!fields->who)
		return n;
	add_number(record, &n, "DSAIO_CLIENT_UID", fields->who->uid);
	if (fields->who->pid)
		add_number(record, &n, "DSAIO_CLIENT_PID", fields->who->pid);
	if (fields->who->client)
		add_number(record, &n, "DSAIO_CLIENT", fields->who->client);
	return n;
}

bool journal_send(const char *record, size_t n)
{
	return sendto(fd, record, n, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address,
		      sizeof(address)) == (ssize_t)n;
}
