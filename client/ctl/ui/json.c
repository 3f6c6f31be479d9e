#include "client/ctl/ui/json.h"

#include "client/ctl/ui/units.h"

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

const char *json_pretty(struct json_object *object)
{
	return json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY |
							      JSON_C_TO_STRING_SPACED |
							      JSON_C_TO_STRING_NOSLASHESCAPE);
}

struct json_object *json_float(double value)
{
	char text[UNITS_TEXT_BYTES];

	return json_object_new_double_s(value, units_format_float(text, value));
}

struct json_object *json_profile(const struct profile *profile)
{
	struct json_object *object = json_object_new_object();

	json_add_bool(object, "single_submit", profile->single_submit);
	json_add_bool(object, "overlap_events", profile->overlap_events);
	json_add_number(object, "intra_op_parallelism", profile->intra_op_parallelism);
	json_add_number(object, "queue_depth", profile->queue_depth);
	json_add_number(object, "block_size", profile->block_size);
	return object;
}
