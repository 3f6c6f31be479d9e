/*
 * Shared by both stand-ins: the environment variable STANDIN says how calls go.
 *
 *     STANDIN="gpus=2 cuInit=100 cuFileDriverOpen=hang cuDeviceGetName=crash nvfs=2.24"
 *
 * CALL=NUMBER: the call fails with that error.  CALL=NUMBERms: it takes that time.  CALL=hang: it never
 * returns.  CALL=crash, CALL=exit: the process ends in it.  CALL=hold: it goes on when the word is no
 * longer there.
 *
 * file=PATH: a file with further words, which each call reads anew.  While a call is held, there is a
 * file PATH.CALL.
 */
#ifndef DSAIO_TESTS_GPU_STANDIN_H
#define DSAIO_TESTS_GPU_STANDIN_H

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The value of a word of the text, which ends at the next blank; NULL: the word is not there. */
static inline const char *standin_word_of(const char *text, const char *name)
{
	size_t len = strlen(name);

	for (; text && *text; text += strcspn(text, " \n"), text += strspn(text, " \n"))
		if (strncmp(text, name, len) == 0 && text[len] == '=')
			return text + len + 1;
	return NULL;
}

/* The path of the file with further words, with a suffix; false: there is none. */
static inline bool standin_file(const char *suffix, char path[PATH_MAX])
{
	const char *file = standin_word_of(getenv("STANDIN"), "file");

	return file &&
	       snprintf(path, PATH_MAX, "%.*s%s", (int)strcspn(file, " "), file, suffix) > 0;
}

/* Valid until the thread's next call. */
static inline const char *standin_word(const char *name)
{
	static _Thread_local char words[1024];
	const char *value = standin_word_of(getenv("STANDIN"), name);
	char path[PATH_MAX];
	ssize_t n;
	int fd;

	if (value || !standin_file("", path))
		return value;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, words, sizeof(words) - 1);
	words[n > 0 ? n : 0] = 0;
	if (fd >= 0)
		(void)close(fd);
	return standin_word_of(words, name);
}

static inline int standin_number(const char *name, int usual)
{
	const char *value = standin_word(name);

	return value ? atoi(value) : usual;
}

static inline bool standin_holds(const char *name)
{
	const char *value = standin_word(name);

	return value && strncmp(value, "hold", 4) == 0;
}

static inline void standin_hold(const char *name)
{
	char suffix[64], path[PATH_MAX];
	bool has_file;
	int fd;

	(void)snprintf(suffix, sizeof(suffix), ".%s", name);
	has_file = standin_file(suffix, path);
	fd = has_file ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
	while (standin_holds(name))
		(void)usleep(1000);
	if (fd >= 0) {
		(void)close(fd);
		(void)unlink(path);
	}
}

/* At the start of each call: 0, or the error that it returns. */
static inline int standin_call(const char *name)
{
	const char *value;

	if (standin_holds(name))
		standin_hold(name);
	value = standin_word(name);
	if (!value || isdigit((unsigned char)*value)) {
		if (!value || strncmp(value + strspn(value, "0123456789"), "ms", 2) != 0)
			return value ? atoi(value) : 0;
		(void)usleep((unsigned)atoi(value) * 1000);
		return 0;
	}
	if (strncmp(value, "crash", 5) == 0)
		(void)raise(SIGKILL); /* as a crash, without the report of a sanitizer */
	if (strncmp(value, "exit", 4) == 0)
		_exit(3);
	while (strncmp(value, "hang", 4) == 0)
		(void)pause();
	return 0;
}

/* The caller breaks a rule of the documentation that no error reports. */
__attribute__((noreturn)) static inline void standin_misused(const char *what)
{
	(void)fprintf(stderr, "stand-in: %s\n", what);
	abort();
}

#endif
