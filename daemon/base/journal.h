/*
 * A line of the log for the journal, with fields: a record of its native protocol, which is one datagram.
 *
 * Not by sd_journal_send(3): that waits while the journal does not read, and no thread of the daemon may.
 *
 * Any thread, except journal_init().
 */
#ifndef DSAIO_DAEMON_BASE_JOURNAL_H
#define DSAIO_DAEMON_BASE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>

struct log_fields;

#define JOURNAL_PATH "/run/systemd/journal/socket"
/* The line and all fields, escaped. */
#define JOURNAL_RECORD_BYTES 4096

/* path: of the journal's socket.  Without a socket nothing can be sent. */
void journal_init(const char *path);

/*
 * Writes the record and returns its length.  text: without control characters.  Values are escaped; what does not
 * fit is left out.
 */
size_t journal_record(char record[JOURNAL_RECORD_BYTES], int priority, const char *text,
		      const struct log_fields *fields);

/* False: it was not sent, because the journal does not read, or is not there. */
bool journal_send(const char *record, size_t n);

#endif
