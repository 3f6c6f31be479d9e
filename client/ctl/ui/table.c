#include "client/ctl/ui/table.h"

#include "client/ctl/ui/memory.h"
#include "proto/util/cleanup.h"
#include "proto/util/escape.h"

#include <stdarg.h>
#include <stdlib.h>

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
	va_list args;

	table->cells = need_memory(
		reallocarray(table->cells, table->n_cells + 1, sizeof(*table->cells)));
	va_start(args, format);
	raw = text_vnew(format, args);
	va_end(args);
	table->cells[table->n_cells++] = need_memory(escape_new(raw));
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

void table_print(const struct table *table, FILE *out)
{
	const size_t n = table->n_columns;
	_cleanup_(freep) size_t *widths = NEW_ARRAY(size_t, n);

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
}
