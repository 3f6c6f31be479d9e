/*
 * Numbers for people, and back.  Pure functions.
 *
 * Sizes are read with K, M, G, T (powers of 1024, as ds_io reads them) and written as KiB, MiB, ...
 */
#ifndef DSAIO_CTL_UNITS_H
#define DSAIO_CTL_UNITS_H

#include <stddef.h>
#include <stdint.h>

#define UNITS_TEXT_BYTES 32 /* room for any text made here */

/* "400M" -> 419430400.  Returns 0, -EINVAL (no number, or something behind it) or -ERANGE. */
int units_parse_size(const char *text, uint64_t *ret_bytes);

/* Each writes into text, of UNITS_TEXT_BYTES, and returns it. */
const char *units_format_size(char *text, uint64_t bytes);		  /* "512 B", "1.50 GiB" */
const char *units_format_rate(char *text, uint64_t bytes, uint64_t nsec); /* "1.85 GiB/s" */
const char *units_format_nsec(char *text, uint64_t nsec);   /* "45.2 us", "1.30 s", "2 h 05 min" */
const char *units_format_count(char *text, uint64_t count); /* "999999", "1.25 M" */

/* "####......": width characters of text, which has room for one more.  share: 0 to 1. */
const char *units_format_bar(char *text, size_t width, double share);

/* As Python prints a float: the shortest digits that read back as the same value. */
const char *units_format_float(char *text, double value);

#endif
