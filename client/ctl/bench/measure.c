#include "client/ctl/bench/measure.h"

#include "client/ctl/ui/units.h"

#define GB (1024.0 * 1024 * 1024)

void measure_sum(const struct measure_part *parts, size_t n_parts, struct measure *ret_measure)
{
	struct measure m = { 0 };

	for (size_t i = 0; i < n_parts; i++) {
		m.bytes += parts[i].bytes;
		if (parts[i].task_sec > m.task_sec)
			m.task_sec = parts[i].task_sec;
		if (parts[i].e2e_sec > m.e2e_sec)
			m.e2e_sec = parts[i].e2e_sec;
	}
	if (m.task_sec > 0)
		m.task_speed = (double)m.bytes / m.task_sec / GB;
	if (m.e2e_sec > 0)
		m.e2e_speed = (double)m.bytes / m.e2e_sec / GB;
	*ret_measure = m;
}

void measure_print(const struct measure *measure, bool is_read, FILE *out)
{
	const char *what = is_read ? "Read" : "Write";
	char text[UNITS_TEXT_BYTES];

	/* The caller asks ferror(). */
	(void)fprintf(out, "Task %s Latency = %s sec\n", what,
		      units_format_float(text, measure->task_sec));
	(void)fprintf(out, "Task %s Speed = %s GB/sec\n", what,
		      units_format_float(text, measure->task_speed));
	(void)fprintf(out, "E2E %s Latency = %s sec\n", what,
		      units_format_float(text, measure->e2e_sec));
	(void)fprintf(out, "E2E %s Speed = %s GB/sec\n", what,
		      units_format_float(text, measure->e2e_speed));
}
