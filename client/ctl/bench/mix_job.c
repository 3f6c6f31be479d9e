#include "client/ctl/bench/mix_job.h"

#include "client/ctl/ui/flags.h"
#include "client/lib/dsaio.h"
#include "proto/util/parser.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NSEC_PER_SEC UINT64_C(1000000000)
#define RUNTIME_SEC_MAX 3600 /* a guess: more is a mistake */

enum { RW_READ, RW_WRITE, RW_MIXED, RW_RANDOM }; /* random ones are RW_RANDOM more */
const char *const mix_rw_names[] = {
	"read", "write", "rw", "randread", "randwrite", "randrw", NULL
};
const char *const mix_class_names[] = { [DSAIO_CLASS_NORMAL] = "normal",
					[DSAIO_CLASS_DEMAND] = "demand",
					[DSAIO_CLASS_BACKGROUND] = "background",
					NULL };

/* The keys set it. */
static struct mix_client section;
static const char *rw, *io_class, *runtime; /* of the line that is read; NULL: it has another key */

static const struct flag keys[] = {
	{ "rw", FLAG_STRING, &rw, 0, 0 },
	{ "bs", FLAG_SIZE, &section.block_size, 512, MIX_BUFFER_MAX },
	{ "rwmixread", FLAG_COUNT, &section.read_percent, 0, 100 },
	{ "iodepth", FLAG_COUNT, &section.depth, 1, MIX_DEPTH_MAX },
	{ "size", FLAG_SIZE, &section.size, 4096, UINT64_C(1) << 40 },
	{ "rate", FLAG_SIZE, &section.rate, 0, UINT64_C(1) << 40 },
	{ "rate_iops", FLAG_COUNT, &section.rate_iops, 0, 10000000 },
	{ "runtime", FLAG_STRING, &runtime, 0, 0 },
	{ "class", FLAG_STRING, &io_class, 0, 0 },
	{ "numjobs", FLAG_COUNT, &section.n_jobs, 1, MIX_CLIENTS_MAX },
};
static const struct flag_table table = FLAG_TABLE(keys);

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

/* value: NULL is fine. */
static int choose(const char *value, const char *const *names, unsigned *ret_i)
{
	for (unsigned i = 0; value && names[i]; i++)
		if (strcmp(names[i], value) == 0) {
			*ret_i = i;
			return 0;
		}
	return value ? -EINVAL : 0;
}

static int set_runtime(void)
{
	char *end;
	const double sec = strtod(runtime, &end);

	if (*end || !(sec >= 0.001 && sec <= RUNTIME_SEC_MAX))
		return -EINVAL;
	section.runtime_nsec = (uint64_t)(sec * (double)NSEC_PER_SEC);
	return 0;
}

static int key_set(const struct parser *parser, char *text, size_t size)
{
	char option[PARSER_LINE_BYTES + 4], *argv[] = { NULL, option };
	int n_args, r;

	rw = io_class = runtime = NULL;
	(void)snprintf(option, sizeof(option), "--%s=%s", parser->name, parser->value);
	r = flags_parse(&table, 1, 2, argv, &n_args, text, size);
	if (r < 0)
		return r;
	r = choose(rw, mix_rw_names, &section.rw);
	if (r == 0)
		r = choose(io_class, mix_class_names, &section.io_class);
	if (r == 0 && runtime)
		r = set_runtime();
	if (r < 0)
		(void)snprintf(text, size, "%s: is no value of that key", option);
	return r;
}

/* The section is complete: adds its clients. */
static int section_end(struct mix_job *job, char *text, size_t size)
{
	if (section.block_size % 512 || section.size < section.block_size ||
	    section.block_size * section.depth > MIX_BUFFER_MAX) {
		(void)snprintf(text, size,
			       "[%s]: bs must be a multiple of 512, at most size, and bs * iodepth "
			       "at most %u",
			       section.name, MIX_BUFFER_MAX);
		return -EINVAL;
	}
	if (section.n_jobs > MIX_CLIENTS_MAX - job->n) {
		(void)snprintf(text, size, "[%s]: there may be at most %u clients", section.name,
			       MIX_CLIENTS_MAX);
		return -EINVAL;
	}
	if (section.rw % RW_RANDOM != RW_MIXED)
		section.read_percent = section.rw % RW_RANDOM == RW_READ ? 100 : 0;
	for (unsigned i = 0; i < section.n_jobs; i++) {
		struct mix_client *client = &job->clients[job->n++];

		*client = section;
		if (section.n_jobs > 1)
			(void)snprintf(client->name, sizeof(client->name), "%.40s.%u", section.name,
				       i + 1);
	}
	return 0;
}

int mix_job_read(FILE *file, struct mix_job *ret_job, char *text, size_t size)
{
	struct mix_client global = { .block_size = 4096,
				     .size = 64u << 20,
				     .depth = 1,
				     .read_percent = 50,
				     .runtime_nsec = 5 * NSEC_PER_SEC,
				     .n_jobs = 1,
				     .name = "global" };
	struct parser parser = { .file = file };
	char why[PARSER_LINE_BYTES + 100] = "";
	int item, r = 0;

	ret_job->n = 0;
	section = global;
	do {
		item = parser_next(&parser, why, sizeof(why));
		if (item == PARSER_KEY)
			r = key_set(&parser, why, sizeof(why));
		else if (item < 0)
			r = item;
		else if (strcmp(section.name, "global") == 0)
			global = section;
		else
			r = section_end(ret_job, why, sizeof(why));
		if (r == 0 && item == PARSER_SECTION) {
			section = global;
			(void)snprintf(section.name, sizeof(section.name), "%s",
				       parser.name); /* cut is fine */
		}
	} while (r == 0 && item != PARSER_END);
	if (r == 0 && !ret_job->n) {
		(void)snprintf(why, sizeof(why),
			       "there is no client: begin one with a line [NAME]");
		r = -EINVAL;
	}
	(void)snprintf(text, size, "line %u: %s", parser.line, why + strspn(why, "-"));
	return r;
}
