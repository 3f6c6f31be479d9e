#include "tests/bench/report.h"

#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <string.h>

#include "proto/util/cleanup.h"
#include "tests/bench/statistics.h"

enum column { OURS, REFERENCE, RATIO };

/*
 * A reference that is so much slower in one round than in another met a file that a cache below us
 * had let go (20 times was seen), or a device that others use: its row is worth little.
 */
#define UNSTEADY 5.0

/* The printed figures of a row. */
struct summary {
	double ours, reference; /* medians */
	double range;		/* of the reference: its largest value to its smallest */
	double ratio, q1, q3;	/* median and quartiles of the rounds' ratios */
	bool holds;		/* the median meets the bar, without tolerance */
};

static void sort_column(const struct row *row, enum column column, double *ret_sorted)
{
	for (unsigned i = 0; i < row->n_rounds; i++) {
		const struct round *r = &row->rounds[i];

		ret_sorted[i] = column == OURS	      ? r->ours
				: column == REFERENCE ? r->reference
						      : r->ours / r->reference;
	}
	sort_values(ret_sorted, row->n_rounds);
}

static struct summary row_summary(const struct row *row)
{
	double sorted[ROUNDS_MAX];
	struct summary s;

	sort_column(row, OURS, sorted);
	s.ours = quantile(sorted, row->n_rounds, 0.5);
	sort_column(row, REFERENCE, sorted);
	s.reference = quantile(sorted, row->n_rounds, 0.5);
	s.range = sorted[row->n_rounds - 1] / sorted[0];
	sort_column(row, RATIO, sorted);
	s.ratio = quantile(sorted, row->n_rounds, 0.5);
	s.q1 = quantile(sorted, row->n_rounds, 0.25);
	s.q3 = quantile(sorted, row->n_rounds, 0.75);
	s.holds = row->is_higher_better ? s.ratio >= row->bar : s.ratio <= row->bar;
	return s;
}

void row_add(struct row *row, double ours, double reference)
{
	assert(row->n_rounds < ROUNDS_MAX);
	row->rounds[row->n_rounds++] = (struct round){ ours, reference };
}

void report_print(FILE *f, const struct row *rows, unsigned n)
{
	unsigned n_holds = 0, n_measured = 0;

	fprintf(f, "%-46s %-6s %10s %10s %7s %13s %8s %6s %5s\n", "measure", "unit", "ours",
		"reference", "ratio", "quartiles", "bar", "rounds", "holds");
	for (unsigned i = 0; i < n; i++) {
		const struct row *row = &rows[i];
		char reference[32] = "-", ratio[32] = "-", spread[32] = "-", bar[32] = "-";
		struct summary s;

		if (row->n_rounds == 0)
			continue;
		s = row_summary(row);
		if (!row->is_absolute) {
			(void)snprintf(reference, sizeof(reference), "%.*f", row->decimals,
				       s.reference);
			(void)snprintf(ratio, sizeof(ratio), "%.3f", s.ratio);
			(void)snprintf(spread, sizeof(spread), "%.3f-%.3f", s.q1, s.q3);
		} else if (row->n_rounds > 1)
			(void)snprintf(spread, sizeof(spread), "%.*f-%.*f", row->decimals, s.q1,
				       row->decimals, s.q3);
		if (!row->has_no_bar)
			(void)snprintf(bar, sizeof(bar), "%s %.*f",
				       row->is_higher_better ? ">=" : "<=",
				       row->is_absolute ? 0 : 2, row->bar);
		fprintf(f, "%-46s %-6s %10.*f %10s %7s %13s %8s %6u %5s%s%s\n", row->name,
			row->unit, row->decimals, s.ours, reference, ratio, spread, bar,
			row->n_rounds,
			row->has_no_bar ? "-"
			: s.holds	? "yes"
					: "NO",
			row->beside ? " beside " : "", row->beside ? row->beside : "");
		if (!row->is_absolute && s.range > UNSTEADY)
			fprintf(f, "  unsteady: the reference's values differ %.0f times; again?\n",
				s.range);
		n_measured += !row->has_no_bar;
		n_holds += !row->has_no_bar && s.holds;
	}
	fprintf(f, "bench: %u of %u bars hold\n", n_holds, n_measured);
}

static struct json_object *row_json(const struct row *row)
{
	const struct summary s = row_summary(row);
	struct json_object *rounds = json_object_new_array();
	struct json_object *o = json_object_new_object();

	for (unsigned i = 0; i < row->n_rounds; i++) {
		struct json_object *pair = json_object_new_array();

		json_object_array_add(pair, json_object_new_double(row->rounds[i].ours));
		json_object_array_add(pair, json_object_new_double(row->rounds[i].reference));
		json_object_array_add(rounds, pair);
	}
	json_object_object_add(o, "name", json_object_new_string(row->name));
	json_object_object_add(o, "unit", json_object_new_string(row->unit));
	if (row->beside)
		json_object_object_add(o, "beside", json_object_new_string(row->beside));
	json_object_object_add(o, "better",
			       json_object_new_string(row->is_higher_better ? "higher" : "lower"));
	json_object_object_add(o, "rounds", rounds);
	json_object_object_add(o, "ratio", json_object_new_double(s.ratio));
	json_object_object_add(o, "spread", json_object_new_double(s.q3 - s.q1));
	if (!row->has_no_bar) {
		json_object_object_add(o, "bar", json_object_new_double(row->bar));
		json_object_object_add(o, "holds", json_object_new_boolean(s.holds));
	}
	return o;
}

int report_write_json(const char *path, const struct row *rows, unsigned n)
{
	struct json_object *all = json_object_new_object();
	struct json_object *list = json_object_new_array();
	int r = 0;

	for (unsigned i = 0; i < n; i++)
		if (rows[i].n_rounds > 0)
			json_object_array_add(list, row_json(&rows[i]));
	json_object_object_add(all, "rows", list);

	errno = 0;
	if (json_object_to_file_ext(path, all, JSON_C_TO_STRING_PRETTY) < 0) {
		r = errno ? -errno : -EIO;
		fprintf(stderr, "bench: cannot write %s: %s\n", path, strerror(-r));
	}
	(void)json_object_put(all);
	return r;
}
