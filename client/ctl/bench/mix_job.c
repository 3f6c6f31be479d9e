#include "client/ctl/bench/mix_job.h"

#include "client/lib/dsaio.h"
#include "proto/util/parser.h"
#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NSEC_PER_SEC UINT64_C(1000000000)
#define RUNTIME_NSEC_MAX (3600 * NSEC_PER_SEC) /* a guess: more is a mistake */
#define SHOWN_BYTES 100			       /* of a value that a message repeats */

const char *const mix_rw_names[N_MIX_RW + 1] = { "read",      "write", "randread",
						 "randwrite", "rw",    "randrw" };
const char *const mix_class_names[] = {
	[DSAIO_CLASS_NORMAL] = "normal",
	[DSAIO_CLASS_DEMAND] = "demand",
	[DSAIO_CLASS_BACKGROUND] = "background",
	[DSAIO_CLASS_BACKGROUND + 1] = NULL,
};

enum kind { KIND_NAME, KIND_NUMBER, KIND_SIZE, KIND_TIME };

static const struct key {
	const char *name;
	enum kind kind;
	size_t offset; /* in struct mix_client */
	uint64_t min, max;
	const char *const *names;
} keys[] = {
#define AT(field) offsetof(struct mix_client, field)
	{ "rw", KIND_NAME, AT(rw), 0, 0, mix_rw_names },
	{ "bs", KIND_SIZE, AT(block_size), 512, MIX_BUFFER_MAX, NULL },
	{ "rwmixread", KIND_NUMBER, AT(read_percent), 0, 100, NULL },
	{ "iodepth", KIND_NUMBER, AT(depth), 1, MIX_DEPTH_MAX, NULL },
	{ "size", KIND_SIZE, AT(size), 4096, UINT64_C(1) << 40, NULL },
	{ "rate", KIND_SIZE, AT(rate), 0, UINT64_C(1) << 40, NULL },
	{ "rate_iops", KIND_NUMBER, AT(rate_iops), 0, 10000000, NULL },
	{ "runtime", KIND_TIME, AT(runtime_nsec), 1, RUNTIME_NSEC_MAX, NULL },
	{ "class", KIND_NAME, AT(io_class), 0, 0, mix_class_names },
	{ "weight", KIND_NUMBER, AT(weight), 1, 16, NULL },
	{ "numjobs", KIND_NUMBER, AT(n_jobs), 1, MIX_CLIENTS_MAX, NULL },
#undef AT
};
#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

unsigned mix_read_percent(const struct mix_client *client)
{
	switch (client->rw) {
	case MIX_READ:
	case MIX_RANDREAD:
		return 100;
	case MIX_WRITE:
	case MIX_RANDWRITE:
		return 0;
	default:
		return (unsigned)client->read_percent;
	}
}

uint64_t mix_interval_nsec(const struct mix_client *client)
{
	uint64_t by_ops = client->rate_iops ? NSEC_PER_SEC / client->rate_iops : 0;
	uint64_t by_bytes = client->rate ? client->block_size * NSEC_PER_SEC / client->rate : 0;

	return by_ops > by_bytes ? by_ops : by_bytes;
}

/* ", a, b and c" of the names of keys, or of values. */
static void names_list(char *text, size_t size, const char *const *names)
{
	size_t n = 0;

	for (size_t i = 0; names ? names[i] != NULL : i < N_KEYS; i++)
		n += (size_t)snprintf(text + n, n < size ? size - n : 0, "%s%s", i ? ", " : "",
				      names ? names[i] : keys[i].name);
}

/* "5", "0.3s", "300ms", "2m" */
static int time_parse(const char *value, uint64_t *ret_nsec)
{
	char *end;
	double number = strtod(value, &end);

	if (end == value || !(number >= 0) || number > 1e9)
		return -EINVAL;
	if (strcmp(end, "ms") == 0)
		number /= 1000;
	else if (strcmp(end, "m") == 0)
		number *= 60;
	else if (*end && strcmp(end, "s") != 0)
		return -EINVAL;
	*ret_nsec = (uint64_t)(number * (double)NSEC_PER_SEC);
	return 0;
}

static int value_set(const struct key *key, const char *value, struct mix_client *client,
		     char *text, size_t size)
{
	uint64_t *place = (uint64_t *)(void *)((char *)client + key->offset);
	char list[200];
	uint64_t number = 0;
	int r;

	if (key->kind == KIND_NAME) {
		for (size_t i = 0; key->names[i]; i++)
			if (strcmp(key->names[i], value) == 0) {
				*place = i;
				return 0;
			}
		names_list(list, sizeof(list), key->names);
		(void)snprintf(text, size, "%s=%.*s: must be one of %s", key->name, SHOWN_BYTES,
			       value, list);
		return -EINVAL;
	}
	r = key->kind == KIND_TIME ? time_parse(value, &number) : size_parse(value, &number);
	if (r == -EINVAL)
		(void)snprintf(text, size, "%s=%.*s: is no %s: write for example %s", key->name,
			       SHOWN_BYTES, value, key->kind == KIND_TIME ? "time" : "number",
			       key->kind == KIND_TIME	? "5s or 300ms"
			       : key->kind == KIND_SIZE ? "4096, 64K or 1M"
							: "8");
	else if (r == 0 && number >= key->min && number <= key->max)
		*place = number;
	else if (key->kind == KIND_TIME)
		(void)snprintf(text, size, "%s=%.*s: must be more than 0, and at most an hour",
			       key->name, SHOWN_BYTES, value);
	else
		(void)snprintf(text, size, "%s=%.*s: must be from %" PRIu64 " to %" PRIu64,
			       key->name, SHOWN_BYTES, value, key->min, key->max);
	return r == 0 && *place == number ? 0 : -EINVAL;
}

static int key_set(const char *name, const char *value, struct mix_client *client, char *text,
		   size_t size)
{
	char list[200];

	for (size_t i = 0; i < N_KEYS; i++)
		if (strcmp(keys[i].name, name) == 0)
			return value_set(&keys[i], value, client, text, size);
	names_list(list, sizeof(list), NULL);
	(void)snprintf(text, size, "%.*s: no such key: a job has %s", SHOWN_BYTES, name, list);
	return -EINVAL;
}

/* The section is complete: adds its clients. */
static int section_end(struct mix_job *job, const struct mix_client *section, char *text,
		       size_t size)
{
	if (section->block_size % 512 || section->size < section->block_size ||
	    section->block_size * section->depth > MIX_BUFFER_MAX) {
		(void)snprintf(text, size,
			       "[%s]: bs must be a multiple of 512, at most size, and bs * iodepth "
			       "at most %u",
			       section->name, MIX_BUFFER_MAX);
		return -EINVAL;
	}
	if (section->n_jobs > MIX_CLIENTS_MAX - job->n) {
		(void)snprintf(text, size, "[%s]: there may be at most %u clients", section->name,
			       MIX_CLIENTS_MAX);
		return -EINVAL;
	}
	for (unsigned i = 0; i < section->n_jobs; i++) {
		struct mix_client *client = &job->clients[job->n++];
		const int room = (int)sizeof(client->name) - 8; /* for the number */

		*client = *section;
		if (section->n_jobs > 1)
			(void)snprintf(client->name, sizeof(client->name), "%.*s.%u", room,
				       section->name, i + 1);
	}
	return 0;
}

int mix_job_read(FILE *file, struct mix_job *ret_job, char *text, size_t size)
{
	struct mix_client global = { .rw = MIX_READ,
				     .block_size = 4096,
				     .size = 64u << 20,
				     .depth = 1,
				     .read_percent = 50,
				     .runtime_nsec = 5 * NSEC_PER_SEC,
				     .weight = 1,
				     .n_jobs = 1 };
	struct mix_client section;
	struct mix_client *now = NULL; /* what keys set; NULL: no section has begun */
	struct parser parser = { .file = file };
	char why[600] = "";
	int item, r = 0;

	ret_job->n = 0;
	do {
		item = parser_next(&parser, why, sizeof(why));
		if (item == PARSER_KEY && now)
			r = key_set(parser.name, parser.value, now, why, sizeof(why));
		else if (item == PARSER_KEY || item < 0)
			r = item < 0 ? item : -EINVAL;
		else if (now == &section)
			r = section_end(ret_job, &section, why, sizeof(why));
		if (item == PARSER_KEY && !now)
			(void)snprintf(why, sizeof(why), "%.*s: stands before the first [SECTION]",
				       SHOWN_BYTES, parser.name);
		if (r == 0 && item == PARSER_SECTION) {
			now = strcmp(parser.name, "global") == 0 ? &global : &section;
			section = global;
			(void)snprintf(section.name, sizeof(section.name), "%s",
				       parser.name); /* cut is fine */
		}
	} while (r == 0 && item != PARSER_END);
	if (r < 0) {
		(void)snprintf(text, size, "line %u: %s", parser.line, why);
	} else if (!ret_job->n) {
		(void)snprintf(text, size, "there is no client: begin one with a line [NAME]");
		r = -EINVAL;
	}
	return r;
}
