/* escape: what a terminal would obey. */
#include "proto/util/escape.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"

static const struct {
	const char *from, *to;
} texts[] = {
	{ "", "" },
	{ "plain", "plain" },
	{ "\033[31mred\033[0m", "\\x1b[31mred\\x1b[0m" },
	{ "a\nb\tc\177", "a\\x0ab\\x09c\\x7f" },
	{ "\xc2\x9b"
	  "2J",
	  "\\xc2\\x9b2J" },
	{ "\xc3\xa4 \xc2\xa0 \xe2\x82\xac", "\xc3\xa4 \xc2\xa0 \xe2\x82\xac" },
	{ "a\xc2", "a\xc2" },
};

TEST_TABLE(control_characters_are_escaped_and_others_stay, texts)
{
	char to[64], *made = escape_new(texts[_i].from);

	ck_assert_str_eq(escape_text(to, sizeof(to), texts[_i].from), texts[_i].to);
	ck_assert_str_eq(made, texts[_i].to);
	free(made);
}

TEST(what_does_not_fit_is_cut_and_no_escape_is_halved)
{
	char to[8];

	ck_assert_str_eq(escape_text(to, sizeof(to), "abcdefghij"), "abcdefg");
	ck_assert_str_eq(escape_text(to, sizeof(to), "abc\033d"), "abc\\x1b");
	ck_assert_str_eq(escape_text(to, sizeof(to), "abcd\033e"), "abcd");
	ck_assert_str_eq(escape_text(to, 1, "a"), "");
}

TEST_MAIN
