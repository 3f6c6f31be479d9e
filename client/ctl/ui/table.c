#include "client/ctl/ui/table.h"

#include "client/ctl/ui/memory.h"
#include "proto/util/cleanup.h"
#include "proto/util/escape.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GAP "  "

struct column {
	const char *title;
	size_t width;
	bool is_right;
};

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

static void print_cell(FILE *out, const char *text, const struct column *column, bool is_last)
{
	int pad = (int)(column->width - text_width(text));

	if (column->is_right)
		(void)fprintf(out, "%*s%s", pad, "", text); /* ferror() is asked at the end */
	else
		(void)fprintf(out, "%s%*s", text, is_last ? 0 : pad, "");
	(void)fputs(is_last ? "\n" : GAP, out);
}

void table_print(const struct table *table, FILE *out)
{
	_cleanup_(freep) char *titles = text_new("%s", table->columns);
	_cleanup_(freep) struct column *columns = NEW_ARRAY(struct column, strlen(titles) + 1);
	char *rest = titles, *title;
	size_t n = 0;

	while ((title = strsep(&rest, "|"))) {
		const bool is_right = *title == '>';

		title += is_right;
		columns[n++] = (struct column){ title, text_width(title), is_right };
	}
	for (size_t i = 0; i < table->n_cells; i++)
		if (text_width(table->cells[i]) > columns[i % n].width)
			columns[i % n].width = text_width(table->cells[i]);

	for (size_t i = 0; i < n; i++)
		print_cell(out, columns[i].title, &columns[i], i == n - 1);
	for (size_t i = 0; i < table->n_cells; i++)
		print_cell(out, table->cells[i], &columns[i % n],
			   i % n == n - 1 || i == table->n_cells - 1);
}
