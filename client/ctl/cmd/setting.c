#include "client/ctl/cmd/setting.h"

#include "client/ctl/ui/flags.h"
#include "proto/util/size.h"
#include "proto/util/yes_no.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct setting {
	const char *key;
	size_t offset; /* in struct profile */
	enum profile_field field;
} settings[] = {
	{ "block_size", offsetof(struct profile, block_size), PROFILE_BLOCK_SIZE },
	{ "queue_depth", offsetof(struct profile, queue_depth), PROFILE_QUEUE_DEPTH },
	{ "single_submit", offsetof(struct profile, single_submit), PROFILE_SINGLE_SUBMIT },
	{ "overlap_events", offsetof(struct profile, overlap_events), PROFILE_OVERLAP_EVENTS },
	{ "intra_op_parallelism", offsetof(struct profile, intra_op_parallelism),
	  PROFILE_PARALLELISM },
};
#define N_SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* Returns NULL, or what is wrong with the value. */
static const char *take_number(const char *value, enum profile_field field, uint32_t *ret_number)
{
	uint64_t number;
	int r = size_parse(value, &number);

	if (r == -EINVAL)
		return field == PROFILE_BLOCK_SIZE
			       ? "is no number: write for example 65536, 64K or 1M"
			       : "is no number: write for example 8";
	if (r < 0 || number > UINT32_MAX)
		return "is too large";
	*ret_number = (uint32_t)number;
	return NULL;
}

int setting_parse(const char *setting, struct partial_profile *profile, char *text, size_t size)
{
	const size_t len = strcspn(setting, "=");
	const char *value = setting + len + 1, *problem;
	const struct setting *found = settings;
	void *place = NULL;

	while (found < settings + N_SETTINGS && !flags_same_name(found->key, setting, len))
		found++;
	if (found < settings + N_SETTINGS)
		place = (char *)&profile->profile + found->offset;
	if (!setting[len])
		problem = "write KEY=VALUE, for example block_size=1M";
	else if (found == settings + N_SETTINGS)
		problem = "a profile has block_size, queue_depth, single_submit, overlap_events "
			  "and intra_op_parallelism";
	else if (profile->given & found->field)
		problem = "is given already: give it once";
	else if (found->field & (PROFILE_SINGLE_SUBMIT | PROFILE_OVERLAP_EVENTS))
		problem = yes_no_parse(value, place) < 0 ? "must be yes or no" : NULL;
	else
		problem = take_number(value, found->field, place);
	if (problem) {
		(void)snprintf(text, size, "%s: %s", setting, problem);
		return -EINVAL;
	}
	profile->given |= found->field;
	return 0;
}
