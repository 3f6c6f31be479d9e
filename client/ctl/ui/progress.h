/*
 * One line on standard error that shows the progress of a long command.
 *
 * For bytes: bar, percent, rate, time left.  It is shown only on a terminal, and only when the
 * command takes over two seconds, so short commands and logs stay quiet.
 *
 * For points that are measured: point k of n, the last result, time left.  Without a terminal, it
 * is a plain line for the first point and for each tenth of all.
 */
#ifndef DSAIO_CLIENT_CTL_UI_PROGRESS_H
#define DSAIO_CLIENT_CTL_UI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	const char *label; /* borrowed */
	uint64_t total_bytes;
	uint64_t start_nsec, drawn_nsec; /* CLOCK_MONOTONIC; the last drawing, 0: none yet */
	bool is_terminal;
};

/*
 * Writes the line, without its end, into text.  width: columns of the terminal.
 * total_bytes: UINT64_MAX: not known; then there is no bar.
 */
void progress_format(char *text, size_t size, const char *label, uint64_t done_bytes,
		     uint64_t total_bytes, uint64_t elapsed_nsec, unsigned width);

/* Will a command that did done_bytes in this time take over two seconds? */
bool progress_is_long(uint64_t done_bytes, uint64_t total_bytes, uint64_t elapsed_nsec);

void progress_start(struct progress *progress, const char *label, uint64_t total_bytes);
void progress_update(struct progress *progress, uint64_t done_bytes);

/* Erases the line, before something else is printed. */
void progress_stop(struct progress *progress);

/* ---- points ---- */

#define PROGRESS_TEXT_BYTES 160u

struct progress_points {
	const char *label;	      /* borrowed */
	size_t n_left, n_all, n_done; /* n_done: here */
	uint64_t nsec;		      /* of those done here */
	uint64_t begun_nsec, drawn_nsec;
	uint64_t given_nsec, given_left_nsec; /* the caller's estimate, and when; 0: none */
	char text[PROGRESS_TEXT_BYTES];	      /* the last point's numbers */
	unsigned next_tenths;		      /* of all points, when the next plain line is due */
	bool prints_all;		      /* a plain line for each point */
	bool is_terminal;
};

/*
 * The time that the points that are left take: the mean for each, less what the running point has
 * taken.  UINT64_MAX: not known yet.
 */
uint64_t progress_points_left_nsec(const struct progress_points *points, uint64_t now_nsec);

/* Writes the line, without its end, into text.  The last point's text ends it, since a narrow terminal cuts it. */
void progress_points_format(char *text, size_t size, const struct progress_points *points,
			    uint64_t now_nsec);

/* Without a terminal, after each point: is a line due? */
bool progress_points_is_due(struct progress_points *points);

/* n_done: points of an earlier run, which only count. */
void progress_points_start(struct progress_points *points, const char *label, size_t n_done,
			   size_t n_left, bool prints_all);
void progress_points_begin(struct progress_points *points);
/* Sets how many points are left and how long they take, where points differ too much for a mean. */
void progress_points_estimate(struct progress_points *points, size_t n_left, uint64_t left_nsec);
void progress_points_tick(struct progress_points *points); /* draws anew, on a terminal */
void progress_points_end(struct progress_points *points, const char *text);
/* Erases the line until the next tick, before something else is printed. */
void progress_points_clear(struct progress_points *points);
void progress_points_stop(struct progress_points *points); /* erases the line */

#endif
