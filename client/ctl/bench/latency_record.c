#include "client/ctl/bench/latency_record.h"

#include "client/ctl/bench/row.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/util/clock.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>

/* The bandwidth of a transfer that takes so long. */
static double mb_per_sec_of(uint64_t size, uint64_t nsec)
{
	return (double)size * 1e3 / (double)(nsec ? nsec : 1);
}

void latency_record_add(struct latency_record *record, uint64_t size, uint32_t n_iterations,
			uint64_t at_nsec, uint64_t nsec)
{
	const uint32_t n = (uint32_t)record->histogram.n;
	const size_t slice = (size_t)((uint64_t)n * LATENCY_SLICES / n_iterations);
	const double speed = mb_per_sec_of(size, nsec);

	bench_histogram_record(&record->histogram, nsec);
	record->slices[slice].sum_nsec += (double)nsec;
	if (!record->slices[slice].n++)
		record->slices[slice].at_nsec = at_nsec;
	record->speed_sum += speed;
	record->speed_squares += speed * speed;
	record->bytes += size;
}

static double usable_sqrt(double value)
{
	return value > 0 ? sqrt(value) : 0;
}

double latency_record_rate(const struct latency_record *record)
{
	const uint64_t n = record->histogram.n;

	return n > 1 && record->starting_nsec
		       ? (double)(n - 1) * (double)NSEC_PER_SEC / (double)record->starting_nsec
		       : 0;
}

static void print_line(FILE *out, const char *name, double nsec, double mb_per_sec)
{
	char latency[UNITS_TEXT_BYTES], speed[UNITS_TEXT_BYTES];

	(void)fprintf(out, "  %-22s %14s %16s\n", name,
		      units_format_nsec(latency, (uint64_t)llround(nsec)),
		      units_format_rate(speed, (uint64_t)(mb_per_sec * 1e6), NSEC_PER_SEC));
}

void latency_record_print(const struct latency_record *record, enum bench_op op, uint64_t size,
			  uint32_t rate, FILE *out)
{
	static const double shares[] = { 0.5, 0.9, 0.99, 0.999 };
	const struct bench_histogram *h = &record->histogram;
	const double n = (double)h->n, mean = record->speed_sum / n;
	const double sd = h->n > 1
				  ? usable_sqrt((record->speed_squares - n * mean * mean) / (n - 1))
				  : 0;
	const double half = h->n > 1 ? bench_histogram_mean_half(h) : 0;
	const double speed_half = bench_histogram_deviation(h) > 0
					  ? half * sd / bench_histogram_deviation(h)
					  : 0;
	const uint64_t median = bench_histogram_quantile(h, 0.5);
	char text[UNITS_TEXT_BYTES];

	(void)fprintf(out, "%s of %s, %" PRIu64 " transfers\n",
		      op == BENCH_READ ? "Reads" : "Writes", units_format_size(text, size), h->n);
	(void)fprintf(out, "  %-22s %14s %16s\n", "", "latency", "bandwidth");
	print_line(out, "mean", h->mean_nsec, mean);
	print_line(out, "median", (double)median, mb_per_sec_of(size, median));
	print_line(out, "standard deviation", bench_histogram_deviation(h), sd);
	if (h->n > 1) {
		print_line(out, "95% interval, from", bench_histogram_mean_low(h),
			   fmax(mean - speed_half, 0));
		print_line(out, "95% interval, to", h->mean_nsec + half, mean + speed_half);
	} else {
		(void)fprintf(out, "  %-22s %14s %16s  (needs 2 transfers)\n", "95% interval", "-",
			      "-");
	}
	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
		const double share = shares[i];
		char name[UNITS_TEXT_BYTES];

		(void)snprintf(name, sizeof(name), "percentile %g", share * 100);
		if (h->n < bench_histogram_needed(share))
			(void)fprintf(out, "  %-22s %14s %16s  (needs %" PRIu64 " transfers)\n",
				      name, "-", "-", bench_histogram_needed(share));
		else
			print_line(out, name, (double)bench_histogram_quantile(h, share),
				   mb_per_sec_of(size, bench_histogram_quantile(h, 1 - share)));
	}
	if (rate)
		(void)fprintf(out, "  %-22s %14.1f of %" PRIu32 "\n", "begun a second",
			      latency_record_rate(record), rate);
	print_line(out, "max", (double)h->max_nsec, mb_per_sec_of(size, h->min_nsec));
	(void)fputc('\n', out);
}

/* The steps that have values: the largest latency of each, and how many transfers it has. */
static struct json_object *histogram_json(const struct bench_histogram *h)
{
	struct json_object *steps = json_object_new_array();
	size_t at = 0;
	uint64_t nsec, n;

	while ((n = bench_histogram_next(h, &at, &nsec))) {
		struct json_object *step = json_object_new_object();

		json_add_number(step, "nsec", nsec);
		json_add_number(step, "count", n);
		(void)json_object_array_add(steps, step);
	}
	return steps;
}

static struct json_object *pair_json(double x, double y)
{
	struct json_object *pair = json_object_new_array();

	(void)json_object_array_add(pair, json_float(x));
	(void)json_object_array_add(pair, json_float(y));
	return pair;
}

static struct json_object *series_json(const struct latency_record *record)
{
	struct json_object *points = json_object_new_array();

	for (size_t i = 0; i < LATENCY_SLICES; i++)
		if (record->slices[i].n)
			(void)json_object_array_add(
				points, pair_json((double)record->slices[i].at_nsec / 1e9,
						  record->slices[i].sum_nsec /
							  (double)record->slices[i].n));
	return points;
}

struct json_object *latency_record_json(const struct latency_record *record, enum bench_op op,
					uint64_t size, uint32_t rate)
{
	static const struct {
		const char *key;
		double share;
	} quantiles[] = { { "p50_nsec", 0.5 },
			  { "p90_nsec", 0.9 },
			  { "p99_nsec", 0.99 },
			  { "p999_nsec", 0.999 } };
	const struct bench_histogram *h = &record->histogram;
	const double half = bench_histogram_mean_half(h);
	struct json_object *o = json_object_new_object();

	json_add_text(o, "op", bench_op_name(op));
	json_add_number(o, "size", size);
	json_add_number(o, "n", h->n);
	json_object_object_add(o, "rate", rate ? json_object_new_uint64(rate) : NULL);
	json_object_object_add(o, "rate_achieved",
			       rate && latency_record_rate(record) > 0
				       ? json_float(latency_record_rate(record))
				       : NULL);
	json_add_float(o, "mean_nsec", h->mean_nsec);
	json_add_float(o, "sd_nsec", bench_histogram_deviation(h));
	json_object_object_add(o, "mean_low_nsec",
			       h->n > 1 ? json_float(bench_histogram_mean_low(h)) : NULL);
	json_object_object_add(o, "mean_high_nsec",
			       h->n > 1 ? json_float(h->mean_nsec + half) : NULL);
	json_add_number(o, "min_nsec", h->min_nsec);
	for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
		const uint64_t nsec = bench_histogram_known(h, quantiles[i].share);

		json_object_object_add(o, quantiles[i].key,
				       nsec ? json_object_new_uint64(nsec) : NULL);
	}
	json_add_number(o, "max_nsec", h->max_nsec);
	json_add_float(o, "mean_mb_per_sec", record->speed_sum / (double)h->n);
	json_object_object_add(o, "histogram", histogram_json(h));
	json_object_object_add(o, "series", series_json(record));
	return o;
}
