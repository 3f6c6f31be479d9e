/*
 * A profile's values by name: "block_size=1M".  Pure functions.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_SETTING_H
#define DSAIO_CLIENT_CTL_CMD_SETTING_H

#include "proto/profile.h"

/*
 * Gives the profile the value that "key=value" names; '-' and '_' in key are the same.
 * Returns 0, or -EINVAL and in text (of size bytes) a message that names what is possible.
 * Ranges are profile_check()'s.
 */
int setting_parse(const char *setting, struct partial_profile *profile, char *text, size_t size);

#endif
