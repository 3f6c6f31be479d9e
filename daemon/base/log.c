#include "daemon/base/log.h"

#include "daemon/base/journal.h"
#include "proto/util/cleanup.h"
#include "proto/util/escape.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

/* Longer lines are cut.  An error's text with its prefix fits. */
#define LINE_BYTES 1024
/* Written once, before any other thread. */
static bool is_journal;
static uid_t owner;		     /* who started the daemon */
static char place[256], process[64]; /* place: "": no file; with the journal: for others */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what is written, and of: */
static unsigned n_lost;					 /* dropped lines */

/* Looked up once: after a change of uid the daemon may not read its own links in /proc. */
static void place_init(void)
{
	char link[sizeof(place)];
	ssize_t n = readlink("/proc/self/fd/2", link, sizeof(link));

	(void)snprintf(process, sizeof(process), "standard error of process %d", (int)getpid());
	if (is_journal) {
		(void)snprintf(place, sizeof(place), "sudo journalctl _PID=%d", (int)getpid());
	} else if (n > 0 && (size_t)n < sizeof(link) && *link == '/') { /* else a pipe, or cut */
		(void)snprintf(place, sizeof(place), "%.*s", (int)n, link);
	} else {
		*place = 0;
	}
}

void log_init(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uintmax_t dev, ino;
	struct stat st;

	/* After a redirection of stderr, the inherited variable names another stream. */
	is_journal = stream && sscanf(stream, "%ju:%ju", &dev, &ino) == 2 &&
		     fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
	owner = getuid();
	if (is_journal)
		journal_init(JOURNAL_PATH);
	place_init();
}

const char *log_sudo(uid_t reader)
{
	return reader == 0 || reader == owner ? "" : "sudo ";
}

const char *log_place(uid_t reader)
{
	struct stat st;

	if (is_journal)
		return *log_sudo(reader) ? place : place + strlen("sudo ");
	/* Nobody finds the lines in a terminal's or /dev/null's path, nor in that of a file that was removed
	   since. */
	if (!*place || fstat(STDERR_FILENO, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink == 0)
		return process;
	return place;
}

/* The prefix of a line: a priority for the journal, else the time (has_time). */
static int line_start(char *line, size_t size, int priority, bool has_time)
{
	struct timespec now;
	struct tm tm;
	size_t n;

	if (is_journal)
		return snprintf(line, size, "<%d>", priority); /* sd-daemon(3) */
	if (!has_time)
		return 0;
	(void)clock_gettime(CLOCK_REALTIME, &now); /* this clock is always there */
	if (!localtime_r(&now.tv_sec, &tm))
		return 0;
	n = strftime(line, size, "%F %T", &tm);
	return (int)n + snprintf(line + n, size - n, ".%03ld ", now.tv_nsec / 1000000);
}

/*
 * The reader of stderr may have stopped reading.  Neither the main thread nor a lane may wait for it.
 * A pipe that polls writable takes PIPE_BUF bytes, so O_NONBLOCK is not needed: other processes share
 * the file description.
 */
static bool is_writable(void)
{
	struct pollfd fd = { .fd = STDERR_FILENO, .events = POLLOUT };

	return poll(&fd, 1, 0) == 1 && (fd.revents & POLLOUT);
}

/* record: the same for the journal, or NULL.  The journal's stream has the lines that cannot be sent. */
static void line_write(const char *line, size_t n, const char *record, size_t n_record)
{
	char text[96];
	int n_text;

	LOCKED(&lock);
	if (record && !n_lost && journal_send(record, n_record))
		return;
	if (n_lost && is_writable()) {
		n_text = snprintf(text, sizeof(text),
				  "%sdsaiod: %u lines were lost: nobody read them\n",
				  is_journal ? "<4>" : "", n_lost);
		if (write(STDERR_FILENO, text, (size_t)n_text) > 0)
			n_lost = 0;
	}
	if (!is_writable() || write(STDERR_FILENO, line, n) < 0)
		n_lost++;
}

void log_crash(const char *line, size_t n)
{
	if (is_writable())
		(void)!write(STDERR_FILENO, line, n);
}

static void log_line(int priority, bool has_time, const struct log_fields *fields,
		     const char *format, va_list args)
{
	char line[LINE_BYTES], text[LINE_BYTES], record[JOURNAL_RECORD_BYTES];
	int start = line_start(line, sizeof(line), priority, has_time);
	size_t end, n_record = 0;

	if (vsnprintf(text, sizeof(text), format, args) < 0)
		return;
	/* Names come from clients: replaces control characters, which could end a line or control a
	   terminal. */
	(void)escape_text(line + start, sizeof(line) - 1 - (size_t)start, text);
	if (is_journal)
		n_record = journal_record(record, priority, line + start, fields);
	end = strlen(line);
	line[end] = '\n';
	line_write(line, end + 1, is_journal ? record : NULL, n_record);
}

#define LOG_FUNCTION(name, priority, has_time)                                               \
	void name(const char *format, ...)                                                   \
	{                                                                                    \
		va_list args;                                                                \
                                                                                             \
		va_start(args, format);                                                      \
		log_line(priority, has_time, &(const struct log_fields){ 0 }, format, args); \
		va_end(args);                                                                \
	}

LOG_FUNCTION(log_error, LOG_ERR, true)
LOG_FUNCTION(log_warning, LOG_WARNING, true)
LOG_FUNCTION(log_notice, LOG_NOTICE, true)
LOG_FUNCTION(log_mistake, LOG_ERR, false)

void log_clean(char *text)
{
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

/* Whether the limit has a line left in this second. */
static bool limit_take(struct log_limit *limit)
{
	static pthread_mutex_t limits = PTHREAD_MUTEX_INITIALIZER;
	struct timespec now;

	LOCKED(&limits);
	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* this clock is always there */
	if (now.tv_sec != limit->second) {
		if (limit->n_left_out)
			log_notice("dsaiod: %u more lines like the last are left out",
				   limit->n_left_out);
		*limit = (struct log_limit){ .second = now.tv_sec };
	}
	if (limit->n_lines >= LOG_LIMIT_LINES) {
		limit->n_left_out++;
		return false;
	}
	limit->n_lines++;
	return true;
}

void log_event(struct log_limit *limit, const struct log_fields *fields, const char *format, ...)
{
	va_list args;

	if (limit && !limit_take(limit))
		return;
	va_start(args, format);
	log_line(fields->is_warning ? LOG_WARNING : LOG_NOTICE, true, fields, format, args);
	va_end(args);
}
