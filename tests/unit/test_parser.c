#include "proto/util/parser.h"

#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

static struct parser parser;
static char why[480];
static FILE *file;

static void parse(const char *text, size_t len)
{
	file = fmemopen((void *)(uintptr_t)text, len, "r");
	ck_assert_ptr_nonnull(file);
	parser = (struct parser){ .file = file };
}

static void teardown(void)
{
	fclosep(&file);
}

static const struct {
	const char *text;
	const char *key, *value;
} lines[] = {
	{ "a=b", "a", "b" },
	{ "  a\t =  b  \r\n", "a", "b" },
	{ "a = b ; a comment\n", "a", "b" },
	{ "a = b;c\n", "a", "b;c" },
	{ "a = ; a comment\n", "a", "" },
	{ "a = b # c\n", "a", "b # c" },
	{ "a = \"b\" \\n\n", "a", "\"b\" \\n" },
	{ "a = b = c\n", "a", "b = c" },
	{ "a : b\n", "a", "b" },
	{ "a = [b]\n", "a", "[b]" },
	{ " = b\n", "", "b" },
	{ "a =\n", "a", "" },
	{ "\xef\xbb\xbf"
	  "a = b\n",
	  "a", "b" },
	{ "# x = y\n;z\n\n  # w\na = b", "a", "b" },
};

TEST_TABLE(a_line_is_cut_into_key_and_value, lines)
{
	parse(lines[_i].text, strlen(lines[_i].text));
	ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), PARSER_KEY);
	ck_assert_str_eq(parser.name, lines[_i].key);
	ck_assert_str_eq(parser.value, lines[_i].value);
	ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), PARSER_END);
	ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), PARSER_END);
}

TEST(sections_keys_and_mistakes_come_with_their_lines)
{
	static const char text[] =
		"[a]\n\nb = c\n# d\n[ e f ] ; g\n[a] b = c\n[a]]\nhello\n[h\ni = j";
	static const struct {
		int item;
		unsigned line;
		const char *name;
	} want[] = {
		{ PARSER_SECTION, 1, "a" },
		{ PARSER_KEY, 3, "b" },
		{ PARSER_SECTION, 5, " e f " },
		{ -EINVAL, 6, "[a]b = c: text after" },
		{ -EINVAL, 7, "[a]]: text after" },
		{ -EINVAL, 8, "hello: " },
		{ -EINVAL, 9, "[h: " },
		{ PARSER_KEY, 10, "i" },
		{ PARSER_END, 10, NULL },
	};

	parse(text, strlen(text));
	for (int i = 0; i < N_ROWS(want); i++) {
		ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), want[i].item);
		ck_assert_uint_eq(parser.line, want[i].line);
		if (want[i].item > 0)
			ck_assert_str_eq(parser.name, want[i].name);
		else if (want[i].name)
			ck_assert_msg(strncmp(why, want[i].name, strlen(want[i].name)) == 0, "%s",
				      why);
	}
}

TEST(a_line_has_at_most_so_many_bytes)
{
	char text[PARSER_LINE_BYTES + 10];

	for (size_t len = PARSER_LINE_BYTES; len <= PARSER_LINE_BYTES + 1; len++) {
		memset(text, 'x', len);
		text[1] = '=';
		(void)strcpy(text + len, "\na=b");
		parse(text, len + 4);
		if (len == PARSER_LINE_BYTES) {
			ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), PARSER_KEY);
			ck_assert_uint_eq(strlen(parser.value), len - 2);
		} else {
			ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), -EINVAL);
			ck_assert_msg(strstr(why, "more than 1000 bytes"), "%s", why);
		}
		/* It is not cut in two. */
		ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), PARSER_KEY);
		ck_assert_uint_eq(parser.line, 2);
		ck_assert_str_eq(parser.name, "a");
		fclosep(&file);
	}
	file = NULL;
}

TEST(a_zero_byte_is_a_mistake_in_its_own_line_alone)
{
	static const char text[] = "a\0b = c\nd = e\n";

	parse(text, sizeof(text) - 1);
	ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), -EINVAL);
	ck_assert_uint_eq(parser.line, 1);
	ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), PARSER_KEY);
	ck_assert_uint_eq(parser.line, 2);
	ck_assert_str_eq(parser.name, "d");
}

TEST(a_file_without_line_ends_is_not_read_for_ever)
{
	file = fopen("/dev/zero", "re");
	ck_assert_ptr_nonnull(file);
	parser = (struct parser){ .file = file };
	ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), PARSER_END);
}

TEST(a_file_that_cannot_be_read_is_an_error)
{
	file = fopen("/", "re");
	ck_assert_ptr_nonnull(file);
	parser = (struct parser){ .file = file };
	ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), -EIO);
	ck_assert_int_eq(parser_next(&parser, why, sizeof(why)), PARSER_END);
}

FIXTURE(NULL, teardown)
TEST_MAIN
