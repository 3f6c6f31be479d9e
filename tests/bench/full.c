/*
 * bench full: our client beside fio, in-process libaio and DeepNVMe's way to use it, over sizes,
 * directions, depths, numbers of processes and places.
 *
 * Each point is a row.  All its sides are opened (or, where the memory is short, each only for its
 * slices), then run in rounds, a slice each, in an order that is drawn anew each time; a device's
 * speed changes by the minute, so only what stands in one round is compared.  Before the first
 * round each side that runs in our processes has a slice that does not count.
 *
 * A file just written is hot in the host's cache and an old one may be 20 times slower: files are
 * written anew for each group of points that share them, and when they have become old, and a row
 * whose speed fell or rose by half from its first to its last round is measured once more on
 * fresh files, then printed with a note.
 *
 * A signal ends it after the slice: what is there is printed.
 *
 * It is over 600 lines because all sides of a point are opened, run and compared by one loop.
 */
#include "tests/bench/full.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/clock.h"
#include "tests/bench/device.h"
#include "tests/bench/files.h"
#include "tests/bench/grid.h"
#include "tests/bench/matrix.h"
#include "tests/bench/tune.h"

#define ROUNDS_DEFAULT 5
#define SLICE_MSEC_DEFAULT 150
#define SLICE_MSEC_MAX 60000
/* Files whose last writing is longer ago are written anew before a row of reads; a guess. */
#define FILES_AGE_NSEC INT64_C(60000000000)
/* Share of the available memory for all sides that are open at the same time. */
#define MEMORY_SHARE 0.5

enum { PLACE_DISK, PLACE_SHM, N_PLACES };
static const char *const place_names[] = { "disk", "shm", NULL };
static const char *const op_names[] = { "read", "write", NULL };

/* The best profile of deepnvme for one size and direction at one place. */
struct tuned {
	const char *dir;
	uint64_t op_bytes;
	unsigned n_processes;
	bool is_write;
	int error; /* it could not be tuned */
	struct dsaio_profile profile;
	char why[512];
};

struct full {
	struct matrix matrix;
	struct list sides; /* indices into side_kinds */
	unsigned n_rounds, n_candidates;
	const char *json;
	char *dirs[N_PLACES];
	struct device devices[N_PLACES];

	struct grid_row *rows; /* n_rows of n_points */
	unsigned n_rows, n_points;
	struct tuned *tuned;
	unsigned n_tuned;
	int64_t start_nsec;

	/* The files of the group; none if n_files is 0. */
	struct point files;
	unsigned n_files;
	int64_t files_nsec; /* when they were written */
	uint64_t seed;
};

static volatile sig_atomic_t is_interrupted;

static void on_signal(int number)
{
	is_interrupted = number;
}

/* ---- progress ---- */

static void progress(const struct full *f, const char *what)
{
	char left[32] = "";
	const double done = (double)(now_nsec() - f->start_nsec) / 1e9;

	if (!isatty(STDERR_FILENO))
		return;
	if (!what) {
		fprintf(stderr, "\r\033[K");
		return;
	}
	if (f->n_rows > 0) {
		const double seconds = done / f->n_rows * (f->n_points - f->n_rows);

		(void)snprintf(left, sizeof(left), ", about %.0f min left", seconds / 60 + 0.5);
	}
	fprintf(stderr, "\r\033[Kpoint %u of %u%s: %s", f->n_rows + 1, f->n_points, left, what);
}

/* ---- files and memory ---- */

static void files_drop(struct full *f)
{
	if (f->n_files > 0)
		files_remove(f->files.dir, f->n_files);
	f->n_files = 0;
}

/* The point's files are there, and young enough. */
static int files_ready(struct full *f, const struct point *point, bool is_new)
{
	const bool is_same = f->n_files > 0 && point_is_same_group(&f->files, point);
	const uint64_t needed = point->file_bytes * point->n_processes;
	struct statvfs fs;
	int r;

	if (is_same && !is_new &&
	    (point->is_write || now_nsec() - f->files_nsec < FILES_AGE_NSEC)) {
		if (point->is_write)
			f->files_nsec = now_nsec();
		return 0;
	}
	if (!is_same) {
		files_drop(f);
		if (statvfs(point->dir, &fs) < 0)
			return -errno;
		if (needed > fs.f_bavail * (uint64_t)fs.f_frsize / 10 * 9)
			return -ENOSPC;
	}
	progress(f, "writing files");
	r = files_make(point->dir, point->n_processes, point->file_bytes);
	f->files = *point;
	f->n_files = point->n_processes;
	f->files_nsec = now_nsec();
	return r;
}

static uint64_t memory_available(void)
{
	_cleanup_(fclosep) FILE *in = fopen("/proc/meminfo", "re");
	char line[256];
	uint64_t kib;

	while (in && fgets(line, sizeof(line), in))
		if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
			return kib * 1024;
	return UINT64_MAX; /* nobody knows */
}

/* ---- a row ---- */

/* A side of the row that is measured, and whether it is open. */
struct running {
	struct side side;
	struct cell *cell;
	bool is_open, is_out;
};

static void out(struct running *s, const char *why)
{
	(void)snprintf(s->cell->skipped, sizeof(s->cell->skipped), "%.200s",
		       *why ? why : "it failed");
	s->is_out = true;
}

static bool side_ready(struct running *s, const struct point *point)
{
	struct point p = *point;
	struct result warm_up;
	int r;

	if (s->is_open || s->is_out)
		return s->is_open;
	p.profile = s->cell->profile;
	r = side_open(&s->side, s->cell->kind, &p);
	if (r == 0 && !s->cell->kind->command)
		r = side_run(&s->side, &warm_up);
	if (r < 0) {
		out(s, s->side.why);
		side_close(&s->side);
		return false;
	}
	s->is_open = true;
	return true;
}

static void side_done(struct running *s)
{
	if (s->is_open)
		side_close(&s->side);
	s->is_open = false;
}

/* Adds the device's counters to the result, if there are any. */
static void device_look(const struct device_counters *before, const struct device_counters *after,
			struct result *result)
{
	const uint64_t n = after->requests - before->requests;

	result->block_bytes = n > 0 ? (unsigned)((after->bytes - before->bytes) / n) : 0;
	result->depth = n > 0 ? (double)(after->waited_msec - before->waited_msec) / 1e3 /
					result->seconds
			      : 0;
}

static void slice(struct full *f, struct running *s, unsigned place, unsigned round)
{
	struct device_counters before, after;
	struct result result;

	device_count(&f->devices[place], &before);
	if (side_run(&s->side, &result) < 0) {
		out(s, s->side.why);
		side_done(s);
		return;
	}
	device_count(&f->devices[place], &after);
	device_look(&before, &after, &result);
	s->cell->results[round] = result;
	s->cell->n_rounds = round + 1;
}

static void shuffle(unsigned *order, unsigned n, uint64_t *seed)
{
	for (unsigned i = n; i > 1; i--) {
		const unsigned j = (unsigned)(random_next(seed) % i), other = order[i - 1];

		order[i - 1] = order[j];
		order[j] = other;
	}
}

static int rounds_run(struct full *f, struct running *sides, const struct grid_row *row,
		      unsigned place, bool is_lean)
{
	unsigned order[GRID_SIDES_MAX];
	char what[64];

	for (unsigned i = 0; i < row->n_cells; i++)
		order[i] = i;
	for (unsigned round = 0; round < f->n_rounds; round++) {
		(void)snprintf(what, sizeof(what), "round %u of %u", round + 1, f->n_rounds);
		progress(f, what);
		shuffle(order, row->n_cells, &f->seed);
		for (unsigned i = 0; i < row->n_cells; i++) {
			struct running *s = &sides[order[i]];

			if (is_interrupted)
				return -EINTR;
			if (side_ready(s, &row->point))
				slice(f, s, place, round);
			if (is_lean)
				side_done(s);
		}
	}
	return 0;
}

static int sides_run(struct full *f, struct grid_row *row, unsigned place)
{
	const uint64_t one = point_memory_bytes(&row->point) * row->point.n_processes;
	const double available = (double)memory_available() * MEMORY_SHARE;
	const bool is_lean = (double)one * row->n_cells > available;
	struct running sides[GRID_SIDES_MAX] = { 0 };
	int r;

	for (unsigned i = 0; i < row->n_cells; i++) {
		sides[i].cell = &row->cells[i];
		sides[i].is_out = row->cells[i].skipped[0] != '\0';
		if (!sides[i].is_out && (double)one > available)
			out(&sides[i], "there is not enough memory");
	}
	/* All are open before the first slice, so that no start lies between slices. */
	for (unsigned i = 0; !is_lean && i < row->n_cells && !is_interrupted; i++)
		(void)side_ready(&sides[i], &row->point); /* the cell says it */
	r = rounds_run(f, sides, row, place, is_lean);
	for (unsigned i = 0; i < row->n_cells; i++)
		side_done(&sides[i]);
	return r;
}

static const struct tuned *tune(struct full *f, const struct point *point)
{
	struct tuned *t;

	for (unsigned i = 0; i < f->n_tuned; i++) {
		t = &f->tuned[i];
		if (t->dir == point->dir && t->op_bytes == point->op_bytes &&
		    t->is_write == point->is_write && t->n_processes == point->n_processes)
			return t;
	}
	progress(f, "tuning deepnvme");
	t = &f->tuned[f->n_tuned++];
	*t = (struct tuned){ .dir = point->dir,
			     .op_bytes = point->op_bytes,
			     .n_processes = point->n_processes,
			     .is_write = point->is_write };
	t->error = tune_deepnvme(point, f->n_candidates, &is_interrupted, &t->profile, t->why);
	return t;
}

/* The cells, without rounds. */
static void row_begin(struct full *f, struct grid_row *row, const struct point *point,
		      unsigned place)
{
	*row = (struct grid_row){ .place = place_names[place], .point = *point };
	for (unsigned i = 0; i < f->sides.n; i++) {
		struct cell *cell = &row->cells[row->n_cells++];

		cell->kind = &side_kinds[f->sides.values[i]];
		cell->profile = point->profile;
		if (f->n_candidates > 0 && strcmp(cell->kind->name, "deepnvme") == 0) {
			const struct tuned *t = tune(f, point);

			if (t->error < 0)
				(void)snprintf(cell->skipped, sizeof(cell->skipped), "%.200s",
					       *t->why ? t->why : "it cannot be tuned");
			else
				cell->profile = t->profile;
		}
	}
}

static int row_measure(struct full *f, unsigned i)
{
	struct grid_row *row = &f->rows[f->n_rows];
	struct point point;
	unsigned place;
	int r;

	matrix_point(&f->matrix, i, &point, &place);
	for (unsigned attempt = 0; attempt < 2; attempt++) {
		r = files_ready(f, &point, attempt > 0);
		if (r < 0) {
			fprintf(stderr, "bench: the files of point %u cannot be made: %s\n", i + 1,
				strerror(-r));
			return r;
		}
		row_begin(f, row, &point, place);
		r = sides_run(f, row, place);
		row->is_cold = f->devices[place].path[0] && !point.is_write && row_got_cold(row);
		if (r < 0 || !row->is_cold)
			break;
	}
	progress(f, NULL);
	/* Only the whole rounds of an interrupted row count. */
	if (r == 0 || row->cells[0].n_rounds > 0) {
		grid_print_row(stdout, row);
		f->n_rows++;
	}
	return r;
}

/* ---- the command line ---- */

static const char *const list_help =
	"  --sizes LIST      bytes of an op (4K,64K,1M,8M,400M)\n"
	"  --ops LIST        read,write\n"
	"  --depths LIST     what is in flight in each process: ops, or blocks of 1M of larger ops\n"
	"                    (1,8,32,128)\n"
	"  --procs LIST      processes (1,2,4,8,16)\n"
	"  --places LIST     disk: $BENCH_DIR, or /var/tmp; shm: /dev/shm, where no device is the\n"
	"                    limit (disk,shm)\n"
	"  --rounds N        slices of each side (5; at most 31)\n"
	"  --slice MSEC      of each slice (150); ops of 64M and more: one in each process\n"
	"  --tune N          candidates of DeepNVMe's 64 that are tried for each size: 64, 4, or 0:\n"
	"                    blocks of 1M, our depth, one thread (64)\n"
	"  --file SIZE       of each process's file, for ops below 64M (256M)\n"
	"  --json FILE       all rounds, too\n";

static void help(FILE *out_to)
{
	fprintf(out_to,
		"usage: bench full [OPTION]...\n"
		"Measures our client beside others, point by point; all of it takes hours.\n"
		"  --sides LIST      what is compared, with the first:\n");
	for (const struct side_kind *k = side_kinds; k->name; k++)
		fprintf(out_to, "                      %-15s %s\n", k->name, k->what);
	fprintf(out_to, "%s", list_help);
	fprintf(out_to,
		"Ops below 256K are at random offsets, others in a row.  Columns: MB/s and GB count\n"
		"10^6 and 10^9 bytes; ours/it: the median of the rounds' ratios, and its quartiles;\n"
		"s/GB, s/Mops: CPU seconds, user and system, of all processes of the side (ours: with\n"
		"its daemon); block, queue: the mean request and how many of them, as the device saw\n"
		"them; uring/ours: what fio's io_uring reaches.  JSON has fio's command lines.\n"
		"An interrupted run prints what it has.\n");
}

enum {
	OPT_SIZES = 256,
	OPT_OPS,
	OPT_DEPTHS,
	OPT_PROCS,
	OPT_PLACES,
	OPT_SIDES,
	OPT_ROUNDS,
	OPT_SLICE,
	OPT_TUNE,
	OPT_FILE,
	OPT_JSON,
	OPT_HELP
};

static const struct option long_options[] = {
	{ "sizes", required_argument, NULL, OPT_SIZES },
	{ "ops", required_argument, NULL, OPT_OPS },
	{ "depths", required_argument, NULL, OPT_DEPTHS },
	{ "procs", required_argument, NULL, OPT_PROCS },
	{ "places", required_argument, NULL, OPT_PLACES },
	{ "sides", required_argument, NULL, OPT_SIDES },
	{ "rounds", required_argument, NULL, OPT_ROUNDS },
	{ "slice", required_argument, NULL, OPT_SLICE },
	{ "tune", required_argument, NULL, OPT_TUNE },
	{ "file", required_argument, NULL, OPT_FILE },
	{ "json", required_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 },
};

static int sides_parse(const char *text, struct list *ret_list)
{
	const char *names[GRID_SIDES_MAX + 1] = { NULL };

	for (unsigned i = 0; i < GRID_SIDES_MAX && side_kinds[i].name; i++)
		names[i] = side_kinds[i].name;
	return list_parse_names(text, names, ret_list);
}

/* All numbers of a list lie in that range. */
static bool list_within(const struct list *list, uint64_t min, uint64_t max)
{
	for (unsigned i = 0; i < list->n; i++)
		if (list->values[i] < min || list->values[i] > max)
			return false;
	return true;
}

static int list_option(const char *text, uint64_t min, uint64_t max, struct list *ret_list)
{
	struct list list;
	int r = list_parse(text, &list);

	if (r == 0 && !list_within(&list, min, max))
		r = -ERANGE;
	if (r == 0)
		*ret_list = list;
	return r;
}

static int number_option(const char *text, unsigned min, unsigned max, unsigned *ret_number)
{
	char *end;
	const unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end != '\0' || n < min || n > max)
		return -ERANGE;
	*ret_number = (unsigned)n;
	return 0;
}

static int option(struct full *f, int which, const char *text)
{
	struct matrix *m = &f->matrix;
	struct list size;
	unsigned msec;
	int r;

	switch (which) {
	case OPT_SIZES:
		r = list_option(text, 4096, UINT64_C(1) << 30, &m->sizes);
		for (unsigned i = 0; r == 0 && i < m->sizes.n; i++)
			r = m->sizes.values[i] % 4096 == 0 ? 0 : -EINVAL;
		return r;
	case OPT_OPS:
		return list_parse_names(text, op_names, &m->writes);
	case OPT_DEPTHS:
		return list_option(text, 1, 128, &m->depths);
	case OPT_PROCS:
		return list_option(text, 1, 64, &m->processes);
	case OPT_PLACES:
		return list_parse_names(text, place_names, &m->places);
	case OPT_SIDES:
		return sides_parse(text, &f->sides);
	case OPT_ROUNDS:
		return number_option(text, 1, GRID_ROUNDS_MAX, &f->n_rounds);
	case OPT_SLICE:
		r = number_option(text, 1, SLICE_MSEC_MAX, &msec);
		if (r == 0)
			m->slice_usec = (int64_t)msec * 1000;
		return r;
	case OPT_TUNE:
		return number_option(text, 0, TUNE_CANDIDATES, &f->n_candidates);
	case OPT_FILE:
		r = list_option(text, 4096, UINT64_C(1) << 40, &size);
		if (r == 0 && (size.n > 1 || size.values[0] % 4096 != 0))
			r = -EINVAL;
		if (r == 0)
			m->file_bytes = size.values[0];
		return r;
	case OPT_JSON:
		f->json = text;
		return 0;
	default:
		return -EINVAL;
	}
}

static void defaults(struct full *f)
{
	struct matrix *m = &f->matrix;

	*f = (struct full){ .n_rounds = ROUNDS_DEFAULT,
			    .n_candidates = TUNE_CANDIDATES,
			    .seed = random_seed() };
	m->slice_usec = SLICE_MSEC_DEFAULT * 1000;
	m->file_bytes = MATRIX_FILE_BYTES;
	(void)list_parse("4K,64K,1M,8M,400M", &m->sizes); /* none of these can fail */
	(void)list_parse("1,8,32,128", &m->depths);
	(void)list_parse("1,2,4,8,16", &m->processes);
	(void)list_parse_names("read,write", op_names, &m->writes);
	(void)list_parse_names("disk,shm", place_names, &m->places);
	for (unsigned i = 0; side_kinds[i].name; i++)
		if (!side_kinds[i].is_on_request)
			f->sides.values[f->sides.n++] = i;
}

/* ---- all of it ---- */

static int dir_make(struct full *f, unsigned place)
{
	const char *bench_dir = getenv("BENCH_DIR");
	const char *parent = place == PLACE_SHM	       ? "/dev/shm"
			     : bench_dir && *bench_dir ? bench_dir
						       : "/var/tmp";
	char *whole = realpath(parent, NULL);
	int r = 0;

	if (!whole || asprintf(&f->dirs[place], "%s/dsaio-bench-XXXXXX", whole) < 0 ||
	    !mkdtemp(f->dirs[place])) {
		r = -errno;
		fprintf(stderr, "bench: cannot make a directory in %s: %s\n", parent, strerror(-r));
		free(f->dirs[place]);
		f->dirs[place] = NULL;
	} else {
		device_find(f->dirs[place], &f->devices[place]);
		f->matrix.dirs[place] = f->dirs[place];
	}
	free(whole);
	return r;
}

/* fio's command lines once, with words for what differs from row to row. */
static void commands_print(const struct full *f)
{
	for (unsigned i = 0; i < f->sides.n; i++) {
		const struct side_kind *kind = &side_kinds[f->sides.values[i]];
		char command[6000];
		struct point point;
		unsigned place;

		matrix_point(&f->matrix, 0, &point, &place);
		if (kind->command && kind->command(&point, command, sizeof(command)) == 0)
			printf("# the first row's %s: %s\n", kind->name, command);
	}
}

static int measure(struct full *f)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < f->matrix.places.n; i++)
		r = dir_make(f, (unsigned)f->matrix.places.values[i]);
	if (r < 0)
		return r;
	f->start_nsec = now_nsec();
	commands_print(f);
	grid_print_head(stdout);
	for (unsigned i = 0; r == 0 && i < f->n_points; i++)
		r = is_interrupted ? -EINTR : row_measure(f, i);
	progress(f, NULL);
	return r;
}

static int parse(struct full *f, int argc, char **argv)
{
	int c, at;

	while ((c = getopt_long(argc, argv, "", long_options, &at)) >= 0) {
		if (c == OPT_HELP) {
			help(stdout);
			return 1;
		}
		if (c == '?')
			return -EINVAL; /* it has said why */
		if (option(f, c, optarg) < 0) {
			fprintf(stderr, "bench: --%s cannot be \"%s\"; see bench full --help\n",
				long_options[at].name, optarg);
			return -EINVAL;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "bench: what is \"%s\"?  See bench full --help\n", argv[optind]);
		return -EINVAL;
	}
	return 0;
}

static int prepare(struct full *f)
{
	const char *build = getenv("BUILD");
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/dsaiod", build && *build ? build : "build");
	side_daemon_program = realpath(path, NULL); /* for good: the program ends with it */
	if (!side_daemon_program) {
		fprintf(stderr, "bench: no daemon at %s (%s); run: make\n", path, strerror(errno));
		return -ENOENT;
	}
	f->n_points = matrix_count(&f->matrix);
	f->rows = calloc(f->n_points, sizeof(*f->rows));
	f->tuned = calloc(f->n_points, sizeof(*f->tuned));
	return f->rows && f->tuned ? 0 : -ENOMEM;
}

int full_main(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = on_signal };
	struct full f;
	int r;

	defaults(&f);
	r = parse(&f, argc, argv);
	if (r != 0)
		return r < 0 ? 2 : 0;
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	(void)setvbuf(stdout, NULL, _IOLBF, 0);

	r = prepare(&f);
	if (r == 0)
		r = measure(&f);
	files_drop(&f);
	for (unsigned i = 0; i < N_PLACES; i++)
		if (f.dirs[i])
			dir_remove(f.dirs[i]);
	if (is_interrupted)
		fprintf(stderr, "bench: interrupted after %u of %u rows\n", f.n_rows, f.n_points);
	if (f.json && f.rows &&
	    grid_write_json(f.json, f.rows, f.n_rows, f.n_rows == f.n_points && r == 0) < 0)
		r = -EIO;
	for (unsigned i = 0; i < N_PLACES; i++)
		free(f.dirs[i]); /* the rows' points name them */
	free(f.rows);
	free(f.tuned);
	return r < 0;
}
