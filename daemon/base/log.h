/*
 * The log: lines on stderr with a time, or records for the journal if it reads stderr; where a record cannot be
 * sent, a line with its priority ("<6>...").  Object first ("store nvme0: lane 2: "), errno text last; nothing
 * per op.
 *
 * A line is one write(2) or sendto(2) that never blocks.  If the reader is too slow, lines are dropped, and a
 * later line reports their number.  Any thread.
 */
#ifndef DSAIO_DAEMON_BASE_LOG_H
#define DSAIO_DAEMON_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct hung_who;

void log_init(void); /* looks at $JOURNAL_STREAM and stderr once, before a change of uid */
/*
 * The prefix of journalctl in a message for that user: "sudo " or "".  The journal shows a service's
 * lines to root, and those of a user's own daemon to that user.
 */
const char *log_sudo(uid_t reader);
/* Where that user can read the lines, for a message: a path, a command, or whose standard error. */
const char *log_place(uid_t reader);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A mistake in options or configuration: an error in the journal, without a time elsewhere. */
void log_mistake(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The last line, from the handler of a signal; without the lock, which this thread may hold. */
void log_crash(const char *line, size_t n);

/* Makes a client's text fit for a line: what is not printable ASCII becomes '?'. */
void log_clean(char *text);
/*
 * A line that a client or a failing device caused.  At most LOG_LIMIT_LINES a second are written for
 * each limit; the others are counted.  limit: zeroed at first.
 */
#define LOG_LIMIT_LINES 10u
struct log_limit {
	long second;
	unsigned n_lines, n_left_out; /* in that second */
};
#define log_client(limit, ...) log_event(limit, LOG_FIELDS(.event = NULL), __VA_ARGS__)

/*
 * A line about an event that a program may look for in the journal, by its fields; what is not known is NULL
 * or 0.  limit: as above; NULL: none.
 */
struct log_fields {
	const char *event;	    /* DSAIO_EVENT: a word of dsaiod(8) */
	const char *store;	    /* DSAIO_STORE: its name */
	const char *op;		    /* DSAIO_OP */
	const struct hung_who *who; /* DSAIO_CLIENT_UID, DSAIO_CLIENT_PID, DSAIO_CLIENT */
	int error;		    /* ERRNO */
	bool is_warning;	    /* else a notice */
};
#define LOG_FIELDS(...) (&(const struct log_fields){ __VA_ARGS__ })
void log_event(struct log_limit *limit, const struct log_fields *fields, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
