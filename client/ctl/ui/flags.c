#include "client/ctl/ui/flags.h"

#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool flags_is_option(const char *arg)
{
	return arg[0] == '-' && arg[1] != '\0';
}

static bool same_name(const char *name, const char *given, size_t len)
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
			if (same_name(tables[t].flags[i].name, arg + dashes, len - dashes))
				return &tables[t].flags[i];
	return NULL;
}

/* For messages: "--name" is dashes and name. */
static const char *dashes_of(const struct flag *flag)
{
	return flag->name[1] ? "--" : "-";
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

	if (r == -EINVAL && flag->kind == FLAG_OPTIONAL) {
		(void)snprintf(text, size,
			       "%s%s=%s: is no number: write for example %s%s=0, or %s%s alone",
			       dashes_of(flag), flag->name, arg, dashes_of(flag), flag->name,
			       dashes_of(flag), flag->name);
		return -EINVAL;
	}

	if (r == -EINVAL) {
		(void)snprintf(text, size, "%s%s %s: is no number: write %s", dashes_of(flag),
			       flag->name, arg,
			       flag->kind == FLAG_SIZE ? "for example 4096, 64K, 1MiB, 2G or 1T"
						       : "for example 8");
		return -EINVAL;
	}
	if (r < 0 || number < flag->min || number > flag->max) {
		size_t n = (size_t)snprintf(text, size, "%s%s%s%s: out of range: must be from ",
					    dashes_of(flag), flag->name, sign, arg);

		if (n >= size)
			return -EINVAL;
		if (flag->kind == FLAG_SIZE)
			(void)snprintf(text + n, size - n, "%s to %s", SIZE_TEXT(flag->min),
				       SIZE_TEXT(flag->max));
		else
			(void)snprintf(text + n, size - n, "%" PRIu64 " to %" PRIu64, flag->min,
				       flag->max);
		return -EINVAL;
	}
	if (flag->kind == FLAG_SIZE)
		*(uint64_t *)flag->value = number;
	else if (flag->kind == FLAG_OPTIONAL)
		*(struct flag_optional *)flag->value = (struct flag_optional){ true, true,
									       (uint32_t)number };
	else
		*(uint32_t *)flag->value = (uint32_t)number;
	return 0;
}

static int list_add(struct flag_list *list, char *item)
{
	char **items = reallocarray(list->items, list->n_items + 1, sizeof(*items));

	if (!items)
		return -ENOMEM;
	items[list->n_items++] = item;
	list->items = items;
	return 0;
}

/* Stores an option's argument, or all arguments of a list, and moves *i to the last one taken. */
static int take_value(const struct flag *flag, char *value, int argc, char **argv, int *i,
		      char *text, size_t size)
{
	if (!value) {
		if (*i + 1 >= argc ||
		    (flags_is_option(argv[*i + 1]) && strncmp(argv[*i + 1], "--", 2) == 0)) {
			(void)snprintf(text, size, "%s%s: needs a value behind it", dashes_of(flag),
				       flag->name);
			return -EINVAL;
		}
		value = argv[++*i];
	}
	switch (flag->kind) {
	case FLAG_STRING:
		if (!value[0]) {
			(void)snprintf(text, size, "%s%s: its value is empty", dashes_of(flag),
				       flag->name);
			return -EINVAL;
		}
		*(const char **)flag->value = value;
		return 0;
	case FLAG_LIST:
		if (list_add(flag->value, value) < 0)
			return -ENOMEM;
		while (*i + 1 < argc && !flags_is_option(argv[*i + 1]))
			if (list_add(flag->value, argv[++*i]) < 0)
				return -ENOMEM;
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
			if (equals) {
				(void)snprintf(text, size, "%s%s: takes no value", dashes_of(flag),
					       flag->name);
				return -EINVAL;
			}
			*(bool *)flag->value = true;
			continue;
		}
		r = take_value(flag, equals ? equals + 1 : NULL, argc, argv, &i, text, size);
		if (r == -ENOMEM)
			(void)snprintf(text, size, "%s%s: out of memory", dashes_of(flag),
				       flag->name);
		if (r < 0)
			return r;
	}
	*ret_n_args = n_args;
	return 0;
}
