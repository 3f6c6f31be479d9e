/*
 * For unit tests: the log as records for the journal.  They go nowhere else.
 */
#ifndef DSAIO_TESTS_UNIT_JOURNAL_H
#define DSAIO_TESTS_UNIT_JOURNAL_H

#include "daemon/base/log.h"
#include "tests/unit/suite.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char journal_text[65536];

/* Instead of the C library's: takes the record. */
ssize_t sendto(int to_fd, const void *buf, size_t len, int flags, __CONST_SOCKADDR_ARG to,
	       socklen_t to_len)
{
	const size_t n = strlen(journal_text);

	(void)to_fd;
	(void)flags;
	(void)to;
	(void)to_len;
	(void)snprintf(journal_text + n, sizeof(journal_text) - n, "%.*s", (int)len,
		       (const char *)buf);
	return (ssize_t)len;
}

/* From here on the log is in journal_text. */
static inline void journal_take(void)
{
	const int journal_fd = memfd_create("log", MFD_CLOEXEC);
	char stream[64];
	struct stat st;

	ck_assert_int_eq(dup2(journal_fd, STDERR_FILENO), STDERR_FILENO);
	ck_assert_int_eq(fstat(journal_fd, &st), 0);
	(void)close(journal_fd);
	(void)snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev,
		       (uintmax_t)st.st_ino);
	ck_assert_int_eq(setenv("JOURNAL_STREAM", stream, 1), 0);
	log_init();
	*journal_text = '\0';
}

/* One of the records has these parts, and in this order. */
static inline bool journal_has(const char *priority, const char *fields)
{
	char text[512];

	(void)snprintf(text, sizeof(text),
		       "\nPRIORITY=%s\nSYSLOG_IDENTIFIER=dsaiod\nDSAIO_EVENT=%s", priority, fields);
	return strstr(journal_text, text);
}

#endif
