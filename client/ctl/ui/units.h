/*
 * Numbers for people.  Pure functions.
 */
#ifndef DSAIO_CLIENT_CTL_UI_UNITS_H
#define DSAIO_CLIENT_CTL_UI_UNITS_H

#include "proto/util/size.h"

#include <stddef.h>
#include <stdint.h>

#define UNITS_TEXT_BYTES SIZE_TEXT_BYTES /* room for any text made here */

/* Each writes into text, of UNITS_TEXT_BYTES, and returns it. */
const char *units_format_size(char *text, uint64_t bytes);		  /* "512 B", "1.50 GiB" */
const char *units_format_rate(char *text, uint64_t bytes, uint64_t nsec); /* "1.85 GiB/s" */
const char *units_format_nsec(char *text, uint64_t nsec);   /* "45.2 us", "1.30 s", "2 h 05 min" */
const char *units_format_count(char *text, uint64_t count); /* "999999", "1.25 M" */

/* "10ms", "500us", "1.5s"; without a unit, seconds.  Returns 0 or -EINVAL. */
int units_parse_nsec(const char *text, uint64_t *ret_nsec);

/* "####......": width characters of text, which has room for one more.  share: 0 to 1. */
const char *units_format_bar(char *text, size_t width, double share);

/* As Python prints a float: the shortest digits that read back as the same value. */
const char *units_format_float(char *text, double value);

#endif
