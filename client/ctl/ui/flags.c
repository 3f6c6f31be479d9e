#include "client/ctl/ui/flags.h"

#include "client/ctl/ui/memory.h"
#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool flags_is_option(const char *arg)
{
	return arg[0] == '-' && arg[1] != '\0';
}

bool flags_same_name(const char *name, const char *given, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (name[i] == '\0' ||
		    (name[i] == '-' ? '_' : name[i]) != (given[i] == '-' ? '_' : given[i]))
			return false;
	return name[len] == '\0';
}

const struct flag *flags_find(const struct flag_table *tables, size_t n_tables, const char *arg,
			      size_t len)
{
	const size_t dashes = len == 2 ? 1 : 2;

	if (len < 2 || strncmp(arg, "--", dashes) != 0)
		return NULL;
	for (size_t t = 0; t < n_tables; t++)
		for (size_t i = 0; i < tables[t].n_flags; i++)
			if (flags_same_name(tables[t].flags[i].name, arg + dashes, len - dashes))
				return &tables[t].flags[i];
	return NULL;
}

/* The message is "--NAME", and the rest from format on. */
__attribute__((format(printf, 4, 5))) static int refuse(const struct flag *flag, char *text,
							size_t size, const char *format, ...)
{
	const int n = snprintf(text, size, "%s%s", flag->name[1] ? "--" : "-", flag->name);
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text + n, size - (size_t)n, format, args); /* names are short */
	va_end(args);
	return -EINVAL;
}

const char *flags_gpu_number(const char *arg)
{
	static const char torch[] = "cuda:";

	return strncmp(arg, torch, sizeof(torch) - 1) == 0 ? arg + sizeof(torch) - 1 : arg;
}

static int parse_number(const struct flag *flag, const char *arg, char *text, size_t size)
{
	const char *sign = flag->kind == FLAG_OPTIONAL ? "=" : " ";
	uint64_t number = 0;
	int r = size_parse(flag->kind == FLAG_OPTIONAL ? flags_gpu_number(arg) : arg, &number);

	if (r == -EINVAL)
		return refuse(flag, text, size, "%s%s: is no number: write for example %s", sign,
			      arg,
			      flag->kind == FLAG_SIZE	    ? "4096, 64K, 1MiB, 2G or 1T"
			      : flag->kind == FLAG_OPTIONAL ? "0"
							    : "8");
	if ((r < 0 || number < flag->min || number > flag->max) && flag->kind == FLAG_SIZE)
		return refuse(flag, text, size, " %s: out of range: must be from %s to %s", arg,
			      SIZE_TEXT(flag->min), SIZE_TEXT(flag->max));
	if (r < 0 || number < flag->min || number > flag->max)
		return refuse(flag, text, size,
			      "%s%s: out of range: must be from %" PRIu64 " to %" PRIu64, sign, arg,
			      flag->min, flag->max);
	if (flag->kind == FLAG_SIZE)
		*(uint64_t *)flag->value = number;
	else if (flag->kind == FLAG_OPTIONAL)
		*(struct flag_optional *)flag->value = (struct flag_optional){ true, true,
									       (uint32_t)number };
	else
		*(uint32_t *)flag->value = (uint32_t)number;
	return 0;
}

static void list_add(struct flag_list *list, char *item)
{
	list->items = need_memory(
		reallocarray(list->items, list->n_items + 1, sizeof(*list->items)));
	list->items[list->n_items++] = item;
}

/* Stores an option's argument, or all arguments of a list, and moves *i to the last one taken. */
static int take_value(const struct flag *flag, char *value, int argc, char **argv, int *i,
		      char *text, size_t size)
{
	if (!value) {
		if (*i + 1 >= argc ||
		    (flags_is_option(argv[*i + 1]) && strncmp(argv[*i + 1], "--", 2) == 0))
			return refuse(flag, text, size, ": needs a value behind it");
		value = argv[++*i];
	}
	switch (flag->kind) {
	case FLAG_STRING:
		if (!value[0])
			return refuse(flag, text, size, ": its value is empty");
		*(const char **)flag->value = value;
		return 0;
	case FLAG_LIST:
		list_add(flag->value, value);
		while (*i + 1 < argc && !flags_is_option(argv[*i + 1]))
			list_add(flag->value, argv[++*i]);
		return 0;
	default:
		return parse_number(flag, value, text, size);
	}
}

int flags_parse(const struct flag_table *tables, size_t n_tables, int argc, char **argv,
		int *ret_n_args, char *text, size_t size)
{
	bool is_rest = false; /* after "--" */
	int n_args = 0, r;

	for (int i = 1; i < argc; i++) {
		const struct flag *flag;
		char *arg = argv[i], *equals;
		size_t len;

		if (is_rest || !flags_is_option(arg)) {
			argv[n_args++] = arg;
			continue;
		}
		if (strcmp(arg, "--") == 0) {
			is_rest = true;
			continue;
		}
		equals = strchr(arg, '=');
		len = equals ? (size_t)(equals - arg) : strlen(arg);
		flag = flags_find(tables, n_tables, arg, len);
		if (!flag) {
			(void)snprintf(text, size, "%.*s: unknown option", (int)len, arg);
			return -EINVAL;
		}
		if (flag->kind == FLAG_OPTIONAL && !equals) {
			((struct flag_optional *)flag->value)->is_given = true;
			continue;
		}
		if (flag->kind == FLAG_BOOL) {
			if (equals)
				return refuse(flag, text, size, ": takes no value");
			*(bool *)flag->value = true;
			continue;
		}
		r = take_value(flag, equals ? equals + 1 : NULL, argc, argv, &i, text, size);
		if (r < 0)
			return r;
	}
	*ret_n_args = n_args;
	return 0;
}
