/*
 * Public structs that may grow: they begin with their size, a size_t that the program sets, or are the
 * elements of an array whose size the program tells.
 *
 * Later versions add fields at the end, for which zero means the default.  Program and library can be
 * of different versions, so a size other than the library's is no error:
 *
 *     smaller  the program is older: the fields that it lacks have their defaults.  Smaller than in
 *              the first version is -EINVAL: no program has such a struct.
 *     larger   the program is newer: if the fields that the library does not know are zero, it needs
 *              none of them; else -E2BIG.
 */
#ifndef DSAIO_CLIENT_LIB_API_SIZED_H
#define DSAIO_CLIENT_LIB_API_SIZED_H

#include <stddef.h>
#include <stdint.h>

struct sized {
	const char *name;   /* for messages: "struct dsaio_profile" */
	size_t size_bytes;  /* in this version */
	size_t first_bytes; /* in the first version */
};

extern const struct sized SIZED_PROFILE, SIZED_HANDLE_OPTIONS, SIZED_CONNECT_OPTIONS,
	SIZED_OPEN_OPTIONS, SIZED_CREATE_OPTIONS, SIZED_STAT, SIZED_MEMORY, SIZED_ALLOC_OPTIONS,
	SIZED_GRANTED, SIZED_IO, SIZED_COMPLETION;

/*
 * Reads a struct of the program's.  *ret has this version's layout and all defaults before; its size
 * is set to this version's.  Returns 0, -EINVAL or -E2BIG, with a message.
 */
int sized_read(const char *function, const struct sized *kind, const void *given, void *ret);

/*
 * Fills in a struct of the program's, which has set its size, from one of this version.  Fields that
 * the library does not know become zero.  Returns 0 or -EINVAL, with a message.
 */
int sized_write(const char *function, const struct sized *kind, const void *ours, void *ret_given);

/* Elements of arrays, whose size the caller tells apart: sized_check() of that, then each as above. */
int sized_check(const char *function, const struct sized *kind, size_t bytes);
int element_read(const char *function, const struct sized *kind, const void *given, size_t bytes,
		 void *ret);
void element_write(const struct sized *kind, const void *ours, void *ret_given, size_t bytes);

/* These bits of an argument or field are of a later version: sets the message and returns -E2BIG. */
int fail_unknown(const char *function, const char *field, uint64_t bits);

#endif
