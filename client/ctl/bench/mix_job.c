#include "client/ctl/bench/mix_job.h"

#include "client/ctl/ui/units.h"
#include "client/lib/dsaio.h"
#include "proto/util/clock.h"
#include "proto/util/parser.h"
#include "proto/util/size.h"

#include <errno.h>
#include <string.h>

#define RUNTIME_NSEC_MAX (3600 * NSEC_PER_SEC) /* a guess: more is a mistake */

enum { RW_READ, RW_WRITE, RW_MIXED, RW_RANDOM }; /* random ones are RW_RANDOM more */
static const char *const rw_names[] = { "read",	     "write",  "rw", "randread",
					"randwrite", "randrw", NULL };
static const char *const class_names[] = { [DSAIO_CLASS_NORMAL] = "normal",
					   [DSAIO_CLASS_DEMAND] = "demand",
					   [DSAIO_CLASS_BACKGROUND] = "background",
					   NULL };

#define AT(field) offsetof(struct mix_client, field)
static const struct key {
	const char *name;
	size_t at; /* of a uint64_t in struct mix_client */
	uint64_t min, max;
	const char *const *names; /* the value is one of these; NULL: a size or count, or runtime */
} keys[] = {
	{ "rw", AT(rw), 0, UINT64_MAX, rw_names },
	{ "class", AT(io_class), 0, UINT64_MAX, class_names },
	{ "bs", AT(block_size), 512, MIX_BUFFER_MAX, NULL },
	{ "rwmixread", AT(read_percent), 0, 100, NULL },
	{ "iodepth", AT(depth), 1, MIX_DEPTH_MAX, NULL },
	{ "size", AT(size), 4096, UINT64_C(1) << 40, NULL },
	{ "rate", AT(rate), 0, UINT64_C(1) << 40, NULL },
	{ "rate_iops", AT(rate_iops), 0, 10000000, NULL },
	{ "runtime", AT(runtime_nsec), 1, RUNTIME_NSEC_MAX, NULL },
};

int mix_is_random(const struct mix_client *client)
{
	return client->rw >= RW_RANDOM;
}

uint64_t mix_interval_nsec(const struct mix_client *client)
{
	uint64_t by_ops = client->rate_iops ? NSEC_PER_SEC / client->rate_iops : 0;
	uint64_t by_bytes = client->rate ? client->block_size * NSEC_PER_SEC / client->rate : 0;

	return by_ops > by_bytes ? by_ops : by_bytes;
}

static int key_set(struct mix_client *section, const struct parser *parser, char *text, size_t size)
{
	const struct key *key = keys, *const end = keys + sizeof(keys) / sizeof(keys[0]);
	uint64_t value = 0;
	int r;

	while (key < end && strcmp(key->name, parser->name) != 0)
		key++;
	if (key == end) {
		(void)snprintf(text, size, "%s: there is no such key", parser->name);
		return -EINVAL;
	}
	if (key->names) {
		while (key->names[value] && strcmp(key->names[value], parser->value) != 0)
			value++;
		r = key->names[value] ? 0 : -EINVAL;
	} else if (key->at == AT(runtime_nsec)) {
		r = units_parse_nsec(parser->value, &value);
	} else {
		r = size_parse(parser->value, &value);
	}
	if (r < 0 || value < key->min || value > key->max) {
		(void)snprintf(text, size, "%s=%s: is no value of that key, or out of range",
			       parser->name, parser->value);
		return -EINVAL;
	}
	memcpy((char *)section + key->at, &value, sizeof(value));
	return 0;
}

/* The section is complete: adds its client. */
static int section_end(struct mix_job *job, struct mix_client *section, char *text, size_t size)
{
	const char *wrong = NULL;

	if (section->block_size % 512 || section->size < section->block_size)
		wrong = "bs must be a multiple of 512, and at most size";
	else if (section->block_size * section->depth > MIX_BUFFER_MAX)
		wrong = "bs * iodepth must be at most 1 GiB";
	else if (job->n == MIX_CLIENTS_MAX)
		wrong = "there may be at most 64 clients";
	if (wrong) {
		(void)snprintf(text, size, "[%s]: %s", section->name, wrong);
		return -EINVAL;
	}
	if (section->rw % RW_RANDOM != RW_MIXED)
		section->read_percent = section->rw % RW_RANDOM == RW_READ ? 100 : 0;
	job->clients[job->n++] = *section;
	return 0;
}

int mix_job_read(FILE *file, struct mix_job *ret_job, char *text, size_t size)
{
	struct mix_client global = { .block_size = 4096,
				     .size = 64u << 20,
				     .depth = 1,
				     .read_percent = 50,
				     .runtime_nsec = 5 * NSEC_PER_SEC,
				     .name = "global" };
	struct mix_client section = global;
	struct parser parser = { .file = file };
	char why[PARSER_LINE_BYTES + 100] = "there is no client: begin one with a line [NAME]";
	int item, r = 0;

	ret_job->n = 0;
	do {
		item = parser_next(&parser, why, sizeof(why));
		if (item == PARSER_KEY)
			r = key_set(&section, &parser, why, sizeof(why));
		else if (item < 0)
			r = item;
		else if (strcmp(section.name, "global") == 0)
			global = section;
		else
			r = section_end(ret_job, &section, why, sizeof(why));
		if (r == 0 && item == PARSER_SECTION) {
			section = global;
			(void)snprintf(section.name, sizeof(section.name), "%s",
				       parser.name); /* cut is fine */
		}
	} while (r == 0 && item != PARSER_END);
	if (r == 0 && !ret_job->n)
		r = -EINVAL;
	(void)snprintf(text, size, "line %u: %s", parser.line, why);
	return r;
}
