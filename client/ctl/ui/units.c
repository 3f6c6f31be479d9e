#include "client/ctl/ui/units.h"

#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void format_scaled(char *text, double value, const char *unit)
{
	(void)snprintf(text, UNITS_TEXT_BYTES, "%.*f %s", size_decimals(value), value, unit);
}

const char *units_format_size(char *text, uint64_t bytes)
{
	return size_format(text, (double)bytes, "");
}

const char *units_format_rate(char *text, uint64_t bytes, uint64_t nsec)
{
	if (nsec)
		return size_format(text, (double)bytes * 1e9 / (double)nsec, "/s");
	(void)snprintf(text, UNITS_TEXT_BYTES, "-");
	return text;
}

const char *units_format_nsec(char *text, uint64_t nsec)
{
	uint64_t minutes = (nsec + 30000000000u) / 60000000000u;

	if (nsec < 1000)
		(void)snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " ns", nsec);
	else if (nsec < 999500)
		format_scaled(text, (double)nsec / 1e3, "us");
	else if (nsec < 999500000)
		format_scaled(text, (double)nsec / 1e6, "ms");
	else if (nsec < 119500000000)
		format_scaled(text, (double)nsec / 1e9, "s");
	else if (minutes < 60)
		(void)snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " min", minutes);
	else if (minutes < 2880)
		(void)snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " h %02" PRIu64 " min",
			       minutes / 60, minutes % 60);
	else
		(void)snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " d %" PRIu64 " h",
			       minutes / 1440, minutes % 1440 / 60);
	return text;
}

const char *units_format_count(char *text, uint64_t count)
{
	if (count < 1000000)
		(void)snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64, count);
	else if (count < 999500000)
		format_scaled(text, (double)count / 1e6, "M");
	else
		format_scaled(text, (double)count / 1e9, "G");
	return text;
}

int units_parse_nsec(const char *text, uint64_t *ret_nsec)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	char *end;
	double nsec = strtod(text, &end);

	for (size_t i = 0; end > text && i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(*end ? end : "s", units[i]) == 0 && nsec >= 0 && nsec < 1e18) {
			*ret_nsec = (uint64_t)llround(nsec);
			return 0;
		}
		nsec *= 1000;
	}
	return -EINVAL;
}

const char *units_format_bar(char *text, size_t width, double share)
{
	size_t filled = share > 0 ? (size_t)(share * (double)width) : 0;

	memset(text, '.', width);
	memset(text, '#', filled < width ? filled : width);
	text[width] = '\0';
	return text;
}

const char *units_format_float(char *text, double value)
{
	char digits[UNITS_TEXT_BYTES];
	int precision = 0, exponent, decimals;

	do
		(void)snprintf(digits, sizeof(digits), "%.*e", precision, value);
	while (precision++ < 16 && strtod(digits, NULL) != value);
	precision--;

	exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
	if (exponent < -4 || exponent >= 16) {
		(void)snprintf(text, UNITS_TEXT_BYTES, "%s", digits);
	} else {
		decimals = precision > exponent ? precision - exponent : 1;
		(void)snprintf(text, UNITS_TEXT_BYTES, "%.*f", decimals, value);
	}
	return text;
}
