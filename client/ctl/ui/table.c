#include "client/ctl/ui/table.h"

#include "proto/util/cleanup.h"
#include "proto/util/escape.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GAP "  "

void table_init(struct table *table, const struct table_column *columns, size_t n_columns)
{
	*table = (struct table){ .columns = columns, .n_columns = n_columns };
}

void table_deinit(struct table *table)
{
	for (size_t i = 0; i < table->n_cells; i++)
		free(table->cells[i]);
	free(table->cells);
	table->cells = NULL;
	table->n_cells = 0;
}

/* Columns on the terminal: bytes that do not continue a UTF-8 character. */
static size_t text_width(const char *text)
{
	size_t width = 0;

	for (; *text != '\0'; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

void table_add(struct table *table, const char *format, ...)
{
	_cleanup_(freep) char *raw = NULL;
	char *cell;
	va_list args;
	int r;

	if (table->is_out_of_memory)
		return;
	if (table->n_cells == table->size) {
		size_t size = table->size ? 2 * table->size : 64;
		char **cells = reallocarray(table->cells, size, sizeof(*cells));

		if (!cells) {
			table->is_out_of_memory = true;
			return;
		}
		table->cells = cells;
		table->size = size;
	}
	va_start(args, format);
	r = vasprintf(&raw, format, args);
	va_end(args);
	if (r < 0)
		raw = NULL;
	cell = raw ? escape_new(raw) : NULL;
	if (!cell) {
		table->is_out_of_memory = true;
		return;
	}
	table->cells[table->n_cells++] = cell;
}

static void print_cell(FILE *out, const char *text, size_t width, bool is_right, bool is_last)
{
	int pad = (int)(width - text_width(text));

	if (is_right)
		(void)fprintf(out, "%*s%s", pad, "", text); /* ferror() is asked at the end */
	else
		(void)fprintf(out, "%s%*s", text, is_last ? 0 : pad, "");
	(void)fputs(is_last ? "\n" : GAP, out);
}

int table_print(const struct table *table, FILE *out)
{
	size_t n = table->n_columns;
	size_t *widths;

	if (table->is_out_of_memory)
		return -ENOMEM;
	widths = calloc(n, sizeof(*widths));
	if (!widths)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		widths[i] = text_width(table->columns[i].title);
	for (size_t i = 0; i < table->n_cells; i++)
		if (text_width(table->cells[i]) > widths[i % n])
			widths[i % n] = text_width(table->cells[i]);

	for (size_t i = 0; i < n; i++)
		print_cell(out, table->columns[i].title, widths[i], table->columns[i].is_right,
			   i == n - 1);
	for (size_t i = 0; i < table->n_cells; i++)
		print_cell(out, table->cells[i], widths[i % n], table->columns[i % n].is_right,
			   i % n == n - 1 || i == table->n_cells - 1);
	free(widths);
	return ferror(out) ? -EIO : 0;
}
