/*
 * Memory of a command.  Where there is none, the process ends at once, with a message and the status of a failure: what
 * it leaves is what a killed one leaves.
 */
#ifndef DSAIO_CLIENT_CTL_UI_MEMORY_H
#define DSAIO_CLIENT_CTL_UI_MEMORY_H

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

/* Returns memory, which was just allocated, if there is some: need_memory(strdup(path)). */
void *need_memory(void *memory);

/* An array of zeros, with room for at least one. */
#define NEW_ARRAY(type, n) ((type *)need_memory(calloc((n) + 1, sizeof(type))))

/* The text, as of printf(3), for free(). */
char *text_new(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *text_vnew(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

#endif
