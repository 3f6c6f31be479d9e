/*
 * fio, run anew for each slice; the figures are its own, so that its start counts nowhere.
 *
 * Its jobs are processes as our clients are; --group_reporting adds them up.  Its CPU time is
 * usr_cpu and sys_cpu, shares of job_runtime, which is the sum of the jobs' times.  That counts
 * what its own threads use, not the workers that io_uring starts for what would block (on tmpfs
 * they do nearly all, copying).  So where the whole of what fio and its children used, less what
 * a run costs that does next to nothing, is much more than its own figure, it is taken instead.
 *
 * Only the time of an op from submission to result is taken (disable_clat, disable_slat), as on
 * the other sides: fewer calls of the clock are for its good.
 */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/files.h"
#include "tests/bench/kinds.h"
#include "tests/bench/process.h"

#define LINE_BYTES 6000

/* Below it, and below half of its own figure, the difference may be the start's spread. */
#define WORKERS_SECONDS 0.02

struct fio {
	const char *engine;   /* its options, a word each, without the dashes */
	double start_seconds; /* CPU time of a run that does next to nothing */
};

#define LIBAIO "ioengine=libaio"
#define URING "ioengine=io_uring fixedbufs=1 registerfiles=1"
#define HUGE " mem=mmaphuge" /* anonymous memory in reserved huge pages (MAP_HUGETLB) */

/* An array of words that ends with NULL, cut out of line. */
static int words(char *line, char **ret_words, unsigned n_max)
{
	unsigned n = 0;
	char *at;

	for (char *w = strtok_r(line, " ", &at); w; w = strtok_r(NULL, " ", &at)) {
		if (n + 1 == n_max)
			return -E2BIG;
		ret_words[n++] = w;
	}
	ret_words[n] = NULL;
	return 0;
}

/* The options that differ from engine to engine, with dashes. */
static void engine_text(const char *engine, char *ret_text, size_t size)
{
	size_t len = 0;

	for (const char *c = engine; *c && len + 4 < size; c++) {
		if (c == engine || c[-1] == ' ')
			len += (size_t)snprintf(ret_text + len, size - len, "--");
		ret_text[len++] = *c;
	}
	ret_text[len] = '\0';
}

static int command(const char *engine, const struct point *p, char *ret_text, size_t size)
{
	char options[256], end[64];
	int n;

	if (strpbrk(p->dir, ": "))
		return -EINVAL; /* fio would take it for more than one */
	engine_text(engine, options, sizeof(options));
	if (p->slice_ops > 0)
		(void)snprintf(end, sizeof(end), "--io_size=%" PRIu64, p->slice_ops * p->op_bytes);
	else
		(void)snprintf(end, sizeof(end), "--time_based=1 --runtime=%" PRId64 "ms",
			       p->slice_usec / 1000);
	n = snprintf(ret_text, size,
		     "fio --name=" FILES_NAME " --directory=%s --filename_format=$jobname.%s "
		     "--rw=%s%s --bs=%" PRIu64 " --iodepth=%u %s --direct=1 --size=%" PRIu64
		     " --numjobs=%u %s --norandommap=1 --randrepeat=0 --disable_clat=1 "
		     "--disable_slat=1 --lat_percentiles=1 --clat_percentiles=0 "
		     "--percentile_list=50:99 --group_reporting=1 --output-format=json",
		     p->dir, p->is_one_file ? "0" : "$jobnum", p->is_random ? "rand" : "",
		     p->is_write ? "write" : "read", point_block_bytes(p), p->depth, options,
		     p->file_bytes, p->n_processes, end);
	return n < 0 || (size_t)n >= size ? -E2BIG : 0;
}

int fio_libaio_command(const struct point *point, char *ret_text, size_t size)
{
	return command(LIBAIO, point, ret_text, size);
}

int fio_uring_command(const struct point *point, char *ret_text, size_t size)
{
	return command(URING, point, ret_text, size);
}

int fio_libaio_huge_command(const struct point *point, char *ret_text, size_t size)
{
	return command(LIBAIO HUGE, point, ret_text, size);
}

int fio_uring_huge_command(const struct point *point, char *ret_text, size_t size)
{
	return command(URING HUGE, point, ret_text, size);
}

static double children_cpu_seconds(void)
{
	struct rusage u;

	(void)getrusage(RUSAGE_CHILDREN, &u); /* cannot fail */
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* The CPU time of fio and all its children, from start to end. */
static int fio_time(const char *engine, const struct point *p, char **ret_output,
		    double *ret_cpu_seconds)
{
	const double before = children_cpu_seconds();
	char line[LINE_BYTES], *argv[40];
	int r = command(engine, p, line, sizeof(line));

	if (r == 0)
		r = words(line, argv, sizeof(argv) / sizeof(argv[0]));
	if (r == 0)
		r = fio_output(argv, ret_output);
	if (r == 0)
		*ret_cpu_seconds = children_cpu_seconds() - before;
	return r;
}

static int fio_open(struct side *side, const char *engine)
{
	_cleanup_(freep) char *output = NULL;
	char *argv[] = { (char[]){ "fio" }, (char[]){ "--version" }, NULL };
	char line[LINE_BYTES];
	struct point least = side->point;
	struct fio *fio;
	int r = fio_output(argv, &output);

	if (r < 0) {
		(void)snprintf(side->why, sizeof(side->why), "%s",
			       r == -ENOENT ? "fio is not installed" : "fio does not run");
		return r;
	}
	r = command(engine, &side->point, line, sizeof(line));
	if (r < 0) {
		(void)snprintf(side->why, sizeof(side->why),
			       "fio cannot use the path %s; choose another", side->point.dir);
		return r;
	}
	fio = calloc(1, sizeof(*fio));
	if (!fio)
		return -ENOMEM;
	fio->engine = engine;
	side->state = fio;
	/* As fio counts everything of libaio's itself, it need not be known there. */
	if (strncmp(engine, URING, strlen(URING)) != 0)
		return 0;
	free(TAKE_PTR(output));
	least.slice_ops = 1;
	least.op_bytes = point_block_bytes(&least);
	r = fio_time(engine, &least, &output, &fio->start_seconds);
	if (r < 0)
		(void)snprintf(side->why, sizeof(side->why), "fio has no io_uring here%s",
			       strstr(engine, HUGE) ? ", or no huge pages (vm.nr_hugepages)" : "");
	return r;
}

int fio_libaio_open(struct side *side)
{
	return fio_open(side, LIBAIO);
}

int fio_uring_open(struct side *side)
{
	return fio_open(side, URING);
}

int fio_libaio_huge_open(struct side *side)
{
	return fio_open(side, LIBAIO HUGE);
}

int fio_uring_huge_open(struct side *side)
{
	return fio_open(side, URING HUGE);
}

void fio_side_close(struct side *side)
{
	free(side->state);
	side->state = NULL;
}

static void json_putp(struct json_object **o)
{
	(void)json_object_put(*o); /* NULL is fine */
}

static double number_at(struct json_object *o, const char *a, const char *b, const char *c)
{
	const char *path[] = { a, b, c, NULL };
	struct json_object *value = json_at(o, path);

	return value ? json_object_get_double(value) : 0;
}

static int fio_parse(const char *output, bool is_write, struct result *ret_result)
{
	const char *way = is_write ? "write" : "read";
	const char *json = strchr(output, '{'); /* it may say something before */
	_cleanup_(json_putp) struct json_object *all = json ? json_tokener_parse(json) : NULL;
	struct json_object *job = json_at(all, (const char *const[]){ "jobs", "[0]", NULL });
	struct json_object *latency;
	struct result r = { 0 };

	if (!job || number_at(job, "error", NULL, NULL) != 0)
		return -EBADMSG;
	r.bytes = (uint64_t)number_at(job, way, "io_bytes", NULL);
	r.ops = (uint64_t)number_at(job, way, "total_ios", NULL);
	r.seconds = number_at(job, way, "runtime", NULL) / 1e3;
	r.cpu_seconds = number_at(job, "job_runtime", NULL, NULL) / 1e3 *
			(number_at(job, "usr_cpu", NULL, NULL) +
			 number_at(job, "sys_cpu", NULL, NULL)) /
			100;
	latency = json_at(job, (const char *const[]){ way, "lat_ns", "percentile", NULL });
	r.p50_usec = number_at(latency, "50.000000", NULL, NULL) / 1e3;
	r.p99_usec = number_at(latency, "99.000000", NULL, NULL) / 1e3;
	if (r.bytes == 0 || r.ops == 0 || r.seconds <= 0)
		return -EBADMSG;
	*ret_result = r;
	return 0;
}

int fio_side_run(struct side *side, struct result *ret_result)
{
	const struct fio *fio = side->state;
	const struct point *p = &side->point;
	_cleanup_(freep) char *output = NULL;
	double cpu_seconds = 0;
	struct result result;
	int r = fio_time(fio->engine, p, &output, &cpu_seconds);

	if (r == 0)
		r = fio_parse(output, p->is_write, &result);
	if (r < 0) {
		(void)snprintf(side->why, sizeof(side->why), "fio failed; it said: %.300s",
			       output ? output : "nothing");
		return r;
	}
	cpu_seconds -= fio->start_seconds;
	if (fio->start_seconds > 0 && cpu_seconds > 1.5 * result.cpu_seconds + WORKERS_SECONDS)
		result.cpu_seconds = cpu_seconds;
	result.block_bytes = (unsigned)point_block_bytes(p);
	result.depth = p->depth;
	/* Its request is a block; a row counts whole ops, and their time is not known then. */
	if (p->op_bytes > result.block_bytes) {
		result.ops = result.bytes / p->op_bytes;
		result.p50_usec = result.p99_usec = 0;
	}
	*ret_result = result;
	return 0;
}
