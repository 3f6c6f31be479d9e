/* units: numbers for people, and back. */
#include "client/ctl/ui/units.h"
#include "tests/unit/suite.h"

#include <errno.h>

static const struct {
	uint64_t bytes;
	const char *text;
} shown_sizes[] = {
	{ 0, "0 B" },
	{ 1, "1 B" },
	{ 1023, "1023 B" },
	{ 1024, "1 KiB" },
	{ 1536, "1.50 KiB" },
	{ 1048575, "1.00 MiB" },
	{ 419430400, "400 MiB" },
	{ 12345678901, "11.5 GiB" },
	{ (uint64_t)5 << 40, "5 TiB" },
	{ UINT64_MAX, "16777216 TiB" },
};

TEST_TABLE(sizes_are_shown_with_three_digits, shown_sizes)
{
	char text[UNITS_TEXT_BYTES];

	ck_assert_str_eq(units_format_size(text, shown_sizes[_i].bytes), shown_sizes[_i].text);
}

static const struct {
	uint64_t nsec;
	const char *text;
} times[] = {
	{ 0, "0 ns" },
	{ 999, "999 ns" },
	{ 45200, "45.2 us" },
	{ 999499, "999 us" },
	{ 999500, "1.00 ms" },
	{ 1300000000, "1.30 s" },
	{ 90000000000, "90.0 s" },
	{ 180000000000, "3 min" },
	{ 7500000000000, "2 h 05 min" },
	{ 360000000000000, "4 d 4 h" },
};

TEST_TABLE(times_are_shown_in_their_own_unit, times)
{
	char text[UNITS_TEXT_BYTES];

	ck_assert_str_eq(units_format_nsec(text, times[_i].nsec), times[_i].text);
}

TEST(a_rate_without_time_is_a_dash)
{
	char text[UNITS_TEXT_BYTES];

	ck_assert_str_eq(units_format_rate(text, 100, 0), "-");
	ck_assert_str_eq(units_format_rate(text, 1048576, 500000000), "2 MiB/s");
}

TEST(counts_stay_whole_up_to_a_million)
{
	char text[UNITS_TEXT_BYTES];

	ck_assert_str_eq(units_format_count(text, 999999), "999999");
	ck_assert_str_eq(units_format_count(text, 1250000), "1.25 M");
	ck_assert_str_eq(units_format_count(text, 3100000000), "3.10 G");
}

static const struct {
	double value;
	const char *text; /* Python's repr() */
} floats[] = {
	{ 0.0, "0.0" },
	{ 1.0, "1.0" },
	{ 100.0, "100.0" },
	{ 12.0, "12.0" },
	{ 0.1, "0.1" },
	{ 0.031647682189941406, "0.031647682189941406" },
	{ 12.342926020792527, "12.342926020792527" },
	{ 0.0001, "0.0001" },
	{ 0.00001, "1e-05" },
	{ 1.5e300, "1.5e+300" },
	{ 1234567890123456.0, "1234567890123456.0" },
	{ 2.0 / 3, "0.6666666666666666" },
};

TEST_TABLE(floats_are_printed_as_python_does, floats)
{
	char text[UNITS_TEXT_BYTES];

	ck_assert_str_eq(units_format_float(text, floats[_i].value), floats[_i].text);
	ck_assert(strtod(text, NULL) == floats[_i].value);
}

static const struct {
	double share;
	const char *bar;
} bars[] = {
	{ 0, "........" },   { -1, "........" },    { 0.1, "........" }, { 0.125, "#......." },
	{ 0.5, "####...." }, { 0.999, "#######." }, { 1, "########" },	 { 7, "########" },
};

TEST_TABLE(a_bar_is_full_at_all_and_no_earlier, bars)
{
	char text[9];

	ck_assert_str_eq(units_format_bar(text, 8, bars[_i].share), bars[_i].bar);
}

TEST_MAIN
