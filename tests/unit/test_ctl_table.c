/* table: columns fit their cells, and no cell draws on the terminal. */
#include "client/ctl/ui/table.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <string.h>

#define COLUMNS "NAME|>N|X"

/* Prints the table into *ret_text, to be freed. */
static void print(struct table *table, char **ret_text)
{
	size_t size;
	FILE *out = open_memstream(ret_text, &size);

	ck_assert_ptr_nonnull(out);
	table_print(table, out);
	ck_assert_int_eq(fclose(out), 0);
}

TEST(columns_are_as_wide_as_their_widest_cell)
{
	_cleanup_(freep) char *text = NULL;
	_cleanup_(table_deinit) struct table table = { .columns = COLUMNS };

	table_add(&table, "a");
	table_add(&table, "%d", 12345);
	table_add(&table, "x");
	table_add(&table, "longer");
	table_add(&table, "%d", 7);
	table_add(&table, "yz");
	print(&table, &text);
	ck_assert_str_eq(text, "NAME        N  X\n"
			       "a       12345  x\n"
			       "longer      7  yz\n");
}

TEST(control_characters_of_a_client_do_not_reach_the_terminal)
{
	_cleanup_(freep) char *text = NULL;
	_cleanup_(table_deinit) struct table table = { .columns = COLUMNS };

	table_add(&table, "a\033[2Jb\n\x7f");
	print(&table, &text);
	ck_assert_ptr_nonnull(strstr(text, "a\\x1b[2Jb\\x0a\\x7f"));
	ck_assert_ptr_null(strchr(text, '\033'));
}

TEST(letters_of_several_bytes_count_as_one_column)
{
	_cleanup_(freep) char *text = NULL;
	_cleanup_(table_deinit) struct table table = { .columns = COLUMNS };

	table_add(&table, "\xc3\xa4\xc3\xb6");
	table_add(&table, "1");
	table_add(&table, "x");
	print(&table, &text);
	ck_assert_str_eq(text, "NAME  N  X\n\xc3\xa4\xc3\xb6    1  x\n");
}

TEST(a_table_without_rows_is_its_titles)
{
	_cleanup_(freep) char *text = NULL;
	_cleanup_(table_deinit) struct table table = { .columns = COLUMNS };

	print(&table, &text);
	ck_assert_str_eq(text, "NAME  N  X\n");
}

TEST_MAIN
