/*
 * The log: lines on stderr with sd-daemon priorities ("<6>...") when the journal reads them,
 * else with a time.  Object first ("store nvme0: lane 2: "), errno text last; nothing per op.
 *
 * A line is one write(2) that never blocks.  If stderr's reader is too slow, lines are dropped, and a
 * later line reports their number.  Any thread.
 */
#ifndef DSAIO_DAEMON_BASE_LOG_H
#define DSAIO_DAEMON_BASE_LOG_H

#include <stddef.h>
#include <sys/types.h>

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
 * each limit; the others are counted.  limit: used by one thread, zeroed at first.
 */
#define LOG_LIMIT_LINES 10u
struct log_limit {
	long second;
	unsigned n_lines, n_left_out; /* in that second */
};
void log_client(struct log_limit *limit, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
