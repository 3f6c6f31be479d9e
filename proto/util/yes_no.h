/*
 * The words for yes and no in dsaiod.conf, dsaioctl and the environment.
 */
#ifndef DSAIO_PROTO_UTIL_YES_NO_H
#define DSAIO_PROTO_UTIL_YES_NO_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <strings.h>

/* Upper and lower case are the same.  Returns 0 or -EINVAL. */
static inline int yes_no_parse(const char *text, bool *ret_is_yes)
{
	static const char *const words[2][4] = { { "no", "off", "false", "0" },
						 { "yes", "on", "true", "1" } };

	for (unsigned value = 0; value < 2; value++)
		for (size_t i = 0; i < 4; i++)
			if (strcasecmp(text, words[value][i]) == 0) {
				*ret_is_yes = value;
				return 0;
			}
	return -EINVAL;
}

#endif
