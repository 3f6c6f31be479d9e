/*
 * Command line options as tables.
 *
 * An option is --name VALUE or --name=VALUE and may stand anywhere in argv.  '-' and '_' in names
 * are the same, so the spelling of ds_io works, too.  An option of one letter is written -x VALUE.
 * "--" ends the options.
 */
#ifndef DSAIO_CLIENT_CTL_UI_FLAGS_H
#define DSAIO_CLIENT_CTL_UI_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flag_kind {
	FLAG_BOOL,   /* value: bool *, set to true; takes no argument */
	FLAG_STRING, /* value: const char **, into argv; never empty */
	FLAG_SIZE,   /* value: uint64_t *, with K, M, G, T */
	FLAG_COUNT,  /* value: uint32_t * */
	/* value: struct flag_optional *: a GPU's number may follow "=", also as torch writes it: cuda:1 */
	FLAG_OPTIONAL,
	FLAG_LIST, /* value: struct flag_list *: all arguments up to the next option; may repeat */
};

struct flag_optional {
	bool is_given, has_number;
	uint32_t number;
};

struct flag_list {
	char **items; /* the owner frees it; the strings lie in argv */
	size_t n_items;
};

struct flag {
	const char *name; /* without its dashes */
	enum flag_kind kind;
	void *value;
	uint64_t min, max; /* of a size, count or number */
};

struct flag_table {
	const struct flag *flags;
	size_t n_flags;
};
#define FLAG_TABLE(array)                                   \
	{                                                   \
		(array), sizeof(array) / sizeof((array)[0]) \
	}

/* The rows of one option with two names. */
#define FLAG_NAMES(name, also, kind, value, min, max) \
	{ (name), (kind), (value), (min), (max) },    \
	{                                             \
		(also), (kind), (value), (min), (max) \
	}

/* Does the argument begin with a dash?  "-" alone does not count: it names a stream. */
bool flags_is_option(const char *arg);

/* Are the first len bytes of given that name?  '-' and '_' are the same. */
bool flags_same_name(const char *name, const char *given, size_t len);

/*
 * The flag that the first len bytes of an argument name (up to any '=', with its dashes); NULL:
 * none.
 */
const struct flag *flags_find(const struct flag_table *tables, size_t n_tables, const char *arg,
			      size_t len);

/* The number in "1" or "cuda:1", as text. */
const char *flags_gpu_number(const char *arg);

/*
 * Reads argv[1..argc-1] into the flags' values; what is no option is moved to the front of argv,
 * from argv[0] on, and *ret_n_args says how many these are.
 * Returns 0, or -EINVAL and in text (of size bytes) what is wrong with which option.
 */
int flags_parse(const struct flag_table *tables, size_t n_tables, int argc, char **argv,
		int *ret_n_args, char *text, size_t size);

#endif
