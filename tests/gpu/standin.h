/*
 * Shared by both stand-ins: the environment variable STANDIN says how calls go.
 *
 *     STANDIN="gpus=2 cuInit=100 cuFileDriverOpen=hang cuDeviceGetName=crash nvfs=2.24"
 *
 * CALL=NUMBER: the call fails with that error.  CALL=hang: it never returns.  CALL=crash, CALL=exit: the
 * process ends in it.
 */
#ifndef DSAIO_TESTS_GPU_STANDIN_H
#define DSAIO_TESTS_GPU_STANDIN_H

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The value of a word, which ends at the next blank; NULL: the word is not there. */
static inline const char *standin_word(const char *name)
{
	const char *at = getenv("STANDIN");
	size_t len = strlen(name);

	for (; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
		if (strncmp(at, name, len) == 0 && at[len] == '=')
			return at + len + 1;
	return NULL;
}

static inline int standin_number(const char *name, int usual)
{
	const char *value = standin_word(name);

	return value ? atoi(value) : usual;
}

/* At the start of each call: 0, or the error that it returns. */
static inline int standin_call(const char *name)
{
	const char *value = standin_word(name);

	if (!value || isdigit((unsigned char)*value))
		return value ? atoi(value) : 0;
	if (strncmp(value, "crash", 5) == 0)
		(void)raise(SIGKILL); /* as a crash, without the report of a sanitizer */
	if (strncmp(value, "exit", 4) == 0)
		_exit(3);
	for (;;)
		(void)pause();
}

#endif
