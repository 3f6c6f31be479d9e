/*
 * JSON functions that json-c lacks.
 */
#ifndef DSAIO_CLIENT_CTL_UI_JSON_H
#define DSAIO_CLIENT_CTL_UI_JSON_H

#include "proto/profile.h"

#include <json-c/json.h>

static inline void json_putp(struct json_object **object)
{
	(void)json_object_put(*object);
}

/* The object as indented text, which is valid as long as it. */
const char *json_pretty(struct json_object *object);

/* Adds the text; "" becomes null. */
void json_add_text(struct json_object *object, const char *key, const char *text);

/* A number with the fewest digits that read back as the same value. */
struct json_object *json_float(double value);

static inline void json_add_number(struct json_object *object, const char *key, uint64_t value)
{
	json_object_object_add(object, key, json_object_new_uint64(value));
}

static inline void json_add_bool(struct json_object *object, const char *key, bool value)
{
	json_object_object_add(object, key, json_object_new_boolean(value));
}

static inline void json_add_float(struct json_object *object, const char *key, double value)
{
	json_object_object_add(object, key, json_float(value));
}

/* The string of that key; "": there is none.  object: NULL is fine. */
const char *json_text(struct json_object *object, const char *key);

/*
 * The number; 0 for infinite ones and for what is no number: any program may have written the file.
 */
double json_finite(struct json_object *value);

/* The five values, in the order of DeepSpeed's configuration. */
struct json_object *json_profile(const struct profile *profile);

#endif
