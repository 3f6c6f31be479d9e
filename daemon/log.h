/*
 * The log: lines on stderr with sd-daemon priorities ("<6>...") when the journal reads them,
 * else with a time.  Object first ("store nvme0: lane 2: "), errno text last; nothing per op.
 *
 * Any thread; a line is one write(2).
 */
#ifndef DSAIO_DAEMON_LOG_H
#define DSAIO_DAEMON_LOG_H

void log_init(void); /* looks at $JOURNAL_STREAM once */

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
