/* bench_svg: ticks that people would choose, text that cannot break out. */
#include "client/ctl/bench/svg.h"
#include "proto/util/cleanup.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"

static const struct {
	const char *what;
	struct svg_axis axis;
	size_t max, n;
	double first, last;
} axes[] = {
	{ "GB/s from 0", { .max = 2.61 }, 8, 7, 0, 3 },
	{ "just beyond a step", { .max = 100.1 }, 8, 7, 0, 120 },
	{ "narrow, far from 0", { .min = 1000, .max = 1001 }, 8, 6, 1000, 1001 },
	{ "nothing", { .max = 0 }, 8, 6, 0, 1 },
	{ "one value", { .min = 5, .max = 5 }, 8, 6, 5, 10 },
	{ "two decades", { .is_log = true, .min = 1e3, .max = 1e5 }, 8, 7, 1e3, 1e5 },
	{ "within a decade", { .is_log = true, .min = 1.4e6, .max = 8e6 }, 8, 2, 2e6, 5e6 },
	{ "many decades", { .is_log = true, .min = 1, .max = 1e12 }, 8, 7, 1, 1e12 },
	{ "no positive value", { .is_log = true, .min = 0, .max = 0 }, 8, 4, 0.1, 1 },
};

START_TEST(ticks_are_round_and_few)
{
	double ticks[16], min, max;
	const size_t n = svg_ticks(&axes[_i].axis, axes[_i].max, ticks, &min, &max);

	ck_assert_msg(n == axes[_i].n, "%s: %zu ticks", axes[_i].what, n);
	ck_assert_msg(min <= axes[_i].axis.min + 0.2 && max >= axes[_i].axis.max, "%s: %g to %g",
		      axes[_i].what, min, max);
	ck_assert_double_eq_tol(ticks[0], axes[_i].first, axes[_i].first * 1e-9 + 1e-12);
	ck_assert_double_eq_tol(ticks[n - 1], axes[_i].last, axes[_i].last * 1e-9 + 1e-12);
}
END_TEST

START_TEST(text_stays_text)
{
	_cleanup_(freep) char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	svg_text(out, "<script>\"&\"</script>\x1b[1m\x7f \xc3\xa4");
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_str_eq(text, "&lt;script&gt;&quot;&amp;&quot;&lt;/script&gt;?[1m? \xc3\xa4");
}
END_TEST

START_TEST(numbers_are_as_long_as_they_need)
{
	static const struct {
		enum svg_unit unit;
		double value;
		const char *text;
	} rows[] = {
		{ SVG_GB_PER_SEC, 1.675, "1.68" }, { SVG_GB_PER_SEC, 12.34, "12.3" },
		{ SVG_GB_PER_SEC, 123.4, "123" },  { SVG_NSEC, 45200, "45.2 us" },
		{ SVG_SHARE, 0.999, "99.9%" },	   { SVG_SECONDS, 0.2, "0.2 s" },
	};
	char text[32];

	for (int i = 0; i < N_ROWS(rows); i++)
		ck_assert_str_eq(svg_format(text, rows[i].unit, rows[i].value), rows[i].text);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, ticks_are_round_and_few, 0, N_ROWS(axes));
	tcase_add_test(tcase, text_stays_text);
	tcase_add_test(tcase, numbers_are_as_long_as_they_need);
}

SUITE("ctl/bench_svg", add_tests)
