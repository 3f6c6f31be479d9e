#include "client/ctl/bench/runs.h"

#include "client/ctl/bench/guest.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/table.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <signal.h>
#include <string.h>

int bench_runs_start(struct bench_runs *runs, const char *dir, const uint64_t *file_bytes,
		     unsigned n)
{
	struct bench_crew_options options = { .n_processes = n,
					      .shared_bytes = sizeof(struct bench_totals) };
	_cleanup_(freep) struct bench_place *places = NEW_ARRAY(struct bench_place, n);
	struct bench_guest guest;
	char text[BENCH_TEXT_BYTES];
	int r;

	if (stop_catch(SA_RESTART) < 0)
		return ctl_fail(runs->ctl, "signals: %s", strerror(errno));
	for (unsigned i = 0; i < n; i++) {
		if (bench_place_find(dir, &places[i], text, sizeof(text)) < 0)
			return ctl_fail(runs->ctl, "%s", text);
		places[i].file_bytes = file_bytes[i];
	}
	r = bench_guest_start(runs->ctl, &dir, places, 1, &guest);
	if (r != CTL_OK)
		return r;
	r = bench_files_make(runs->ctl, places, n, false, true, 0, false, &runs->files);
	if (r != CTL_OK)
		return r;
	options.socket_path = runs->ctl->socket_path;
	options.files = runs->files;
	return bench_crew_start(runs->ctl, &options, &runs->crew);
}

int bench_runs_call(struct bench_runs *runs, bench_crew_fn *fn, const void *arg, size_t arg_bytes)
{
	char text[BENCH_TEXT_BYTES];
	const int r = bench_crew_call(runs->crew, fn, arg, arg_bytes, text);

	return bench_crew_status(runs->ctl, r, text);
}

void bench_runs_deinit(struct bench_runs *runs)
{
	bench_crew_free(runs->crew);
	bench_files_free(runs->files);
}

void bench_totals_add(struct bench_totals *totals, const struct bench_totals *other)
{
	uint64_t nsec, n;
	size_t at = 0;

	while ((n = bench_histogram_next(&other->latencies, &at, &nsec)))
		while (n--)
			bench_histogram_record(&totals->latencies, nsec);
	totals->bytes += other->bytes;
	if (other->nsec > totals->nsec)
		totals->nsec = other->nsec;
}

/* ---- the comparison ---- */

static const struct {
	double share;
	const char *key;
} percentiles[] = { { 0.5, "p50_nsec" }, { 0.99, "p99_nsec" }, { 0.999, "p999_nsec" } };
#define N_PERCENTILES (sizeof(percentiles) / sizeof(percentiles[0]))

static double per_sec(uint64_t n, const struct bench_totals *totals)
{
	return totals->nsec ? (double)n * 1e9 / (double)totals->nsec : 0;
}

static void add_row(struct table *table, const struct bench_totals *totals)
{
	char text[UNITS_TEXT_BYTES];

	table_add(table, "%s", units_format_rate(text, totals->bytes, totals->nsec));
	table_add(table, "%s",
		  units_format_count(text, (uint64_t)per_sec(totals->latencies.n, totals)));
	for (size_t k = 0; k < N_PERCENTILES; k++) {
		const uint64_t nsec = bench_histogram_known(&totals->latencies,
							    percentiles[k].share);

		table_add(table, "%s", nsec ? units_format_nsec(text, nsec) : "-");
	}
	table_add(table, "%s", units_format_nsec(text, totals->nsec));
}

int bench_pairs_print(const struct ctl *ctl, const struct bench_pair *pairs, unsigned n,
		      const char *const names[2])
{
	_cleanup_(table_deinit) struct table table = {
		.columns = "CLIENT|RUN|>BANDWIDTH|>IOPS|>P50|>P99|>P99.9|>TOOK"
	};

	for (unsigned i = 0; i < 2 * n; i++) {
		table_add(&table, "%s", i % 2 ? "" : pairs[i / 2].name);
		table_add(&table, "%s", names[i % 2]);
		add_row(&table, &pairs[i / 2].runs[i % 2]);
	}
	table_print(&table, stdout);
	return ctl_flush(ctl);
}

void bench_pair_json(struct json_object *object, const struct bench_pair *pair,
		     const char *const names[2])
{
	for (unsigned i = 0; i < 2; i++) {
		const struct bench_totals *totals = &pair->runs[i];
		struct json_object *run = json_object_new_object();

		json_add_number(run, "ops", totals->latencies.n);
		json_add_number(run, "bytes", totals->bytes);
		json_add_number(run, "took_nsec", totals->nsec);
		json_add_float(run, "bytes_per_sec", per_sec(totals->bytes, totals));
		json_add_float(run, "iops", per_sec(totals->latencies.n, totals));
		for (size_t k = 0; k < N_PERCENTILES; k++) {
			const uint64_t nsec = bench_histogram_known(&totals->latencies,
								    percentiles[k].share);

			json_object_object_add(run, percentiles[k].key,
					       nsec ? json_object_new_uint64(nsec) : NULL);
		}
		json_object_object_add(object, names[i], run);
	}
}
