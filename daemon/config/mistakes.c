/*
 * The mistakes of a configuration, and the places of its keys.
 */
#include "daemon/config/config.h"
#include "daemon/config/keys.h"

#include <stdarg.h>
#include <stdio.h>

void config_mistake(struct config *config, const char *format, ...)
{
	char *text = NULL;
	va_list args;

	if (config->n_mistakes == CONFIG_MISTAKES_MAX)
		return;
	if (config->n_mistakes == CONFIG_MISTAKES_MAX - 1)
		format = "there are more mistakes than these: correct these first";
	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	config->mistakes[config->n_mistakes++] = text; /* NULL: without memory there is one, too */
}

struct config_place config_key_place(const struct config *config, const char *name)
{
	return config->key_places[key_index(key_of_daemon(name))];
}
