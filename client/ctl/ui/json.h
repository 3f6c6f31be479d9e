/*
 * JSON as commands write it: what json-c leaves to be said again and again.
 */
#ifndef DSAIO_CLIENT_CTL_UI_JSON_H
#define DSAIO_CLIENT_CTL_UI_JSON_H

#include "proto/profile.h"

#include <json-c/json.h>

static inline void json_putp(struct json_object **object)
{
	(void)json_object_put(*object);
}

/* "": null. */
void json_add_text(struct json_object *object, const char *key, const char *text);

/* A number of a file that anybody may have written: 0 for what is none, and for 1e999. */
double json_finite(struct json_object *value);

/* The five values, in the order of DeepSpeed's configuration. */
struct json_object *json_profile(const struct profile *profile);

#endif
