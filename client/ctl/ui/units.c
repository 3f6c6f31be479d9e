#include "client/ctl/ui/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Three digits that count: 1.23, 12.3, 123. */
static void format_scaled(char *text, double value, const char *unit)
{
	int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;

	(void)snprintf(text, UNITS_TEXT_BYTES, "%.*f %s", decimals, value, unit);
}

static void format_bytes(char *text, double bytes, const char *const names[5])
{
	unsigned i = 0;

	while (i < 4 && bytes >= 1023.5) {
		bytes /= 1024;
		i++;
	}
	if (bytes == (double)(uint64_t)bytes && bytes < 1024)
		(void)snprintf(text, UNITS_TEXT_BYTES, "%.0f %s", bytes, names[i]);
	else
		format_scaled(text, bytes, names[i]);
}

const char *units_format_size(char *text, uint64_t bytes)
{
	static const char *const names[5] = { "B", "KiB", "MiB", "GiB", "TiB" };

	format_bytes(text, (double)bytes, names);
	return text;
}

const char *units_format_rate(char *text, uint64_t bytes, uint64_t nsec)
{
	static const char *const names[5] = { "B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s" };

	if (nsec == 0)
		(void)snprintf(text, UNITS_TEXT_BYTES, "-");
	else
		format_bytes(text, (double)bytes * 1e9 / (double)nsec, names);
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
