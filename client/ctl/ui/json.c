#include "client/ctl/ui/json.h"

#include <math.h>

void json_add_text(struct json_object *object, const char *key, const char *text)
{
	json_object_object_add(object, key, text[0] ? json_object_new_string(text) : NULL);
}

const char *json_text(struct json_object *object, const char *key)
{
	struct json_object *value = json_object_object_get(object, key);

	return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
}

double json_finite(struct json_object *value)
{
	const double number = json_object_get_double(value);

	return isfinite(number) ? number : 0;
}

struct json_object *json_profile(const struct profile *profile)
{
	struct json_object *object = json_object_new_object();

	json_object_object_add(object, "single_submit",
			       json_object_new_boolean(profile->single_submit));
	json_object_object_add(object, "overlap_events",
			       json_object_new_boolean(profile->overlap_events));
	json_object_object_add(object, "intra_op_parallelism",
			       json_object_new_uint64(profile->intra_op_parallelism));
	json_object_object_add(object, "queue_depth", json_object_new_uint64(profile->queue_depth));
	json_object_object_add(object, "block_size", json_object_new_uint64(profile->block_size));
	return object;
}
