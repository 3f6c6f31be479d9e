#include "client/ctl/cmd/setting.h"

#include "proto/util/size.h"
#include "proto/util/yes_no.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum setting_kind { SETTING_SIZE, SETTING_COUNT, SETTING_BOOL };

static const struct setting {
	const char *key;
	enum setting_kind kind;
	size_t offset; /* in struct profile */
	enum profile_field field;
} settings[] = {
	{ "block_size", SETTING_SIZE, offsetof(struct profile, block_size), PROFILE_BLOCK_SIZE },
	{ "queue_depth", SETTING_COUNT, offsetof(struct profile, queue_depth),
	  PROFILE_QUEUE_DEPTH },
	{ "single_submit", SETTING_BOOL, offsetof(struct profile, single_submit),
	  PROFILE_SINGLE_SUBMIT },
	{ "overlap_events", SETTING_BOOL, offsetof(struct profile, overlap_events),
	  PROFILE_OVERLAP_EVENTS },
	{ "intra_op_parallelism", SETTING_COUNT, offsetof(struct profile, intra_op_parallelism),
	  PROFILE_PARALLELISM },
};
#define N_SETTINGS (sizeof(settings) / sizeof(settings[0]))

static bool same_key(const char *key, const char *given, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (key[i] == '\0' || key[i] != (given[i] == '-' ? '_' : given[i]))
			return false;
	return key[len] == '\0';
}

int setting_parse(const char *setting, struct partial_profile *profile, char *text, size_t size)
{
	const struct setting *found = NULL;
	const char *equals = strchr(setting, '='), *value;
	uint64_t number;
	char *place;
	int r;

	if (!equals) {
		(void)snprintf(text, size, "%s: write KEY=VALUE, for example block_size=1M",
			       setting);
		return -EINVAL;
	}
	for (size_t i = 0; i < N_SETTINGS && !found; i++)
		if (same_key(settings[i].key, setting, (size_t)(equals - setting)))
			found = &settings[i];
	if (!found) {
		(void)snprintf(text, size,
			       "%s: a profile has block_size, queue_depth, single_submit, "
			       "overlap_events and intra_op_parallelism",
			       setting);
		return -EINVAL;
	}
	if (profile->given & found->field) {
		(void)snprintf(text, size, "%s: %s is given already: give it once", setting,
			       found->key);
		return -EINVAL;
	}
	value = equals + 1;
	place = (char *)&profile->profile + found->offset;
	if (found->kind == SETTING_BOOL) {
		if (yes_no_parse(value, (bool *)place) == 0) {
			profile->given |= found->field;
			return 0;
		}
		(void)snprintf(text, size, "%s: must be yes or no", setting);
		return -EINVAL;
	}
	r = size_parse(value, &number);
	if (r == -EINVAL) {
		(void)snprintf(text, size, "%s: is no number: write %s", setting,
			       found->kind == SETTING_SIZE ? "for example 65536, 64K or 1M"
							   : "for example 8");
		return -EINVAL;
	}
	if (r < 0 || number > UINT32_MAX) {
		(void)snprintf(text, size, "%s: is too large", setting);
		return -EINVAL;
	}
	*(uint32_t *)(void *)place = (uint32_t)number;
	profile->given |= found->field;
	return 0;
}
