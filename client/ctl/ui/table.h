/*
 * A table on the terminal: cells are added row by row, printed with each column as wide as its
 * widest cell.
 *
 * Cells may come from other programs (a client chooses its name): control characters are
 * printed as '?', so that no other user draws on the reader's terminal.
 */
#ifndef DSAIO_CLIENT_CTL_UI_TABLE_H
#define DSAIO_CLIENT_CTL_UI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct table {
	/* Borrowed: the titles, with a '|' between them.  A '>' before one aligns its column to the right: numbers. */
	const char *columns;
	char **cells; /* row after row */
	size_t n_cells;
};
void table_deinit(struct table *table);

/* Adds the next cell of the row, or the first of the next one. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints titles and rows; an unfinished last row too.  The caller asks ferror(3). */
void table_print(const struct table *table, FILE *out);

#endif
