#include "client/ctl/ui/progress.h"

#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/escape.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LONG_NSEC 2000000000u	  /* shorter commands need no bar */
#define TRUSTED_NSEC 500000000u	  /* an estimate before this is too rough: a guess */
#define ESTIMATE_NSEC 1000000000u /* an estimate is no more precise than that */
#define REDRAW_NSEC 100000000u	  /* faster is not seen */
#define WIDTH_DEFAULT 80u
#define BAR_MAX 40u
#define POINT_BYTES 48u /* two numbers */

static uint64_t time_left_nsec(uint64_t done_bytes, uint64_t total_bytes, uint64_t elapsed_nsec)
{
	return (uint64_t)((double)elapsed_nsec * (double)(total_bytes - done_bytes) /
			  (double)done_bytes);
}

bool progress_is_long(uint64_t done_bytes, uint64_t total_bytes, uint64_t elapsed_nsec)
{
	if (elapsed_nsec >= LONG_NSEC)
		return true;
	if (elapsed_nsec < TRUSTED_NSEC || done_bytes == 0 || done_bytes >= total_bytes ||
	    total_bytes == UINT64_MAX)
		return false;
	return elapsed_nsec + time_left_nsec(done_bytes, total_bytes, elapsed_nsec) > LONG_NSEC;
}

static void format_left(char *text, uint64_t left_nsec)
{
	if (left_nsec == UINT64_MAX)
		(void)snprintf(text, UNITS_TEXT_BYTES, "?");
	else if (left_nsec < ESTIMATE_NSEC)
		(void)snprintf(text, UNITS_TEXT_BYTES, "under 1 s");
	else
		(void)units_format_nsec(text, left_nsec);
}

static unsigned terminal_width(void)
{
	struct winsize size;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 ? WIDTH_DEFAULT
									       : size.ws_col;
}

/* Draws the line over the last one; "" erases it.  Failures cannot be reported. */
static void draw(const char *line)
{
	(void)fprintf(stderr, "\r%s\033[K", line);
	(void)fflush(stderr);
}

void progress_format(char *text, size_t size, const char *label, uint64_t done_bytes,
		     uint64_t total_bytes, uint64_t elapsed_nsec, unsigned width)
{
	char done[UNITS_TEXT_BYTES], total[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES];
	char left[UNITS_TEXT_BYTES], numbers[4 * UNITS_TEXT_BYTES + 32], bar[BAR_MAX + 1];
	size_t taken, bar_width;
	double share;

	(void)units_format_size(done, done_bytes);
	(void)units_format_rate(rate, done_bytes, elapsed_nsec);
	if (total_bytes == UINT64_MAX) {
		(void)snprintf(text, size, "%s  %s  %s  %s", label, done, rate,
			       units_format_nsec(left, elapsed_nsec));
		return;
	}
	if (done_bytes > total_bytes) /* a file that grew */
		total_bytes = done_bytes;
	share = total_bytes ? (double)done_bytes / (double)total_bytes : 1;
	format_left(left, done_bytes ? time_left_nsec(done_bytes, total_bytes, elapsed_nsec)
				     : UINT64_MAX);
	(void)snprintf(numbers, sizeof(numbers), " %3.0f%%  %s of %s  %s  ETA %s", 100 * share,
		       done, units_format_size(total, total_bytes), rate, left);

	taken = strlen(label) + strlen(numbers) + strlen(" []");
	bar_width = width > taken + 1 ? width - taken - 1 : 0; /* a full last column would wrap */
	if (bar_width > BAR_MAX)
		bar_width = BAR_MAX;
	if (bar_width < 4) {
		(void)snprintf(text, size, "%s%s", label, numbers);
		return;
	}
	(void)snprintf(text, size, "%s [%s]%s", label, units_format_bar(bar, bar_width, share),
		       numbers);
}

void progress_start(struct progress *progress, const char *label, uint64_t total_bytes)
{
	*progress = (struct progress){ .label = label,
				       .total_bytes = total_bytes,
				       .start_nsec = clock_nsec(),
				       .is_terminal = isatty(STDERR_FILENO) };
}

void progress_update(struct progress *progress, uint64_t done_bytes)
{
	uint64_t now = clock_nsec(), elapsed = now - progress->start_nsec;
	char line[256];

	if (!progress->is_terminal || now - progress->drawn_nsec < REDRAW_NSEC)
		return;
	if (!progress->drawn_nsec && !progress_is_long(done_bytes, progress->total_bytes, elapsed))
		return;
	progress_format(line, sizeof(line), progress->label, done_bytes, progress->total_bytes,
			elapsed, terminal_width());
	draw(line);
	progress->drawn_nsec = now;
}

void progress_stop(struct progress *progress)
{
	if (progress->drawn_nsec)
		draw("");
	progress->drawn_nsec = 0;
	progress->is_terminal = false;
}

/* ---- points ---- */

uint64_t progress_points_left_nsec(const struct progress_points *points, uint64_t now_nsec)
{
	uint64_t mean, left, running = points->begun_nsec ? now_nsec - points->begun_nsec : 0;

	if (points->given_nsec) {
		const uint64_t since = now_nsec - points->given_nsec;

		return points->given_left_nsec > since ? points->given_left_nsec - since : 0;
	}
	if (points->n_done == 0)
		return UINT64_MAX;
	mean = points->nsec / points->n_done;
	left = mean * points->n_left;
	/* At most the mean: a point that runs longer has not ended yet. */
	running = running < mean ? running : mean;
	return left > running ? left - running : 0;
}

static size_t points_done(const struct progress_points *points)
{
	return points->n_all - points->n_left;
}

/* "3 of 32", or "3" while their number is not known. */
static void format_point(char *text, size_t size, const struct progress_points *points, size_t n)
{
	if (n > points->n_all)
		(void)snprintf(text, size, "%zu", n);
	else
		(void)snprintf(text, size, "%zu of %zu", n, points->n_all);
}

void progress_points_format(char *text, size_t size, const struct progress_points *points,
			    uint64_t now_nsec)
{
	const size_t n = points_done(points) + (points->begun_nsec ? 1 : 0);
	char left[UNITS_TEXT_BYTES], point[POINT_BYTES];

	format_left(left, progress_points_left_nsec(points, now_nsec));
	format_point(point, sizeof(point), points, n);
	(void)snprintf(text, size, "%s: point %s  ETA %s  %s", points->label, point, left,
		       points->text);
}

void progress_points_start(struct progress_points *points, const char *label, size_t n_done,
			   size_t n_left, bool prints_all)
{
	*points = (struct progress_points){ .label = label,
					    .n_left = n_left,
					    .n_all = n_done + n_left,
					    .prints_all = prints_all,
					    .is_terminal = isatty(STDERR_FILENO) };
}

void progress_points_tick(struct progress_points *points)
{
	const unsigned width = terminal_width();
	const uint64_t now = clock_nsec();
	char line[PROGRESS_TEXT_BYTES + 160];

	if (!points->is_terminal)
		return;
	progress_points_format(line, sizeof(line), points, now);
	/* A line that wraps could not be drawn over. */
	if (strlen(line) >= width)
		line[width - 1] = '\0';
	draw(line);
	points->drawn_nsec = now;
}

void progress_points_begin(struct progress_points *points)
{
	points->begun_nsec = clock_nsec();
	progress_points_tick(points);
}

void progress_points_estimate(struct progress_points *points, size_t n_left, uint64_t left_nsec)
{
	points->n_all = points_done(points) + n_left;
	points->n_left = n_left;
	points->given_nsec = clock_nsec();
	points->given_left_nsec = left_nsec;
}

bool progress_points_is_due(struct progress_points *points)
{
	const size_t n = points_done(points);
	const unsigned tenths = points->n_all ? (unsigned)(10 * n / points->n_all) : 0;

	if (tenths < points->next_tenths && !points->prints_all)
		return false;
	points->next_tenths = tenths + 1;
	return true;
}

void progress_points_end(struct progress_points *points, const char *text)
{
	_cleanup_(freep) char *escaped = NULL;
	uint64_t now = clock_nsec();
	char left[UNITS_TEXT_BYTES], point[POINT_BYTES];

	points->nsec += now - points->begun_nsec;
	points->n_done++;
	points->n_left -= points->n_left > 0;
	points->begun_nsec = 0;
	/* The text may be an error, with names that need escapes. */
	(void)escape_text(points->text, sizeof(points->text), text);
	if (points->is_terminal) {
		progress_points_tick(points);
		return;
	}
	if (!progress_points_is_due(points))
		return;
	format_left(left, progress_points_left_nsec(points, now));
	format_point(point, sizeof(point), points, points_done(points));
	escaped = escape_new(text);
	(void)fprintf(stderr, "%s: point %s: %s, %s left\n", points->label, point,
		      escaped ? escaped : points->text, left);
}

void progress_points_clear(struct progress_points *points)
{
	if (points->drawn_nsec)
		draw("");
	points->drawn_nsec = 0;
}

void progress_points_stop(struct progress_points *points)
{
	progress_points_clear(points);
	points->is_terminal = false;
}
