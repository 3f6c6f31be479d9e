#include "daemon/engine/rados.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *what, *name;
	bool is_good;
} names[] = {
	{ "letters", "step-1000/MANIFEST", true },
	{ "one byte", "a", true },
	{ "two bytes a character", "\xc3\xa9", true },
	{ "three bytes a character", "\xe2\x82\xac", true },
	{ "four bytes a character", "\xf0\x9f\x98\x80", true },
	{ "the last character", "\xf4\x8f\xbf\xbf", true },
	{ "dots inside a part", "a..b/...", true },
	{ "the first that is no control character", "\xc2\xa0", true },
	{ "the last before the surrogates", "\xed\x9f\xbf", true },
	{ "empty", "", false },
	{ "a slash in front", "/a", false },
	{ "a slash at the end", "a/", false },
	{ "an empty part", "a//b", false },
	{ "a dot", ".", false },
	{ "a dot inside", "a/./b", false },
	{ "the parent", "..", false },
	{ "the parent in front", "../a", false },
	{ "the parent inside", "a/../b", false },
	{ "the parent at the end", "a/..", false },
	{ "a line's end", "a\nb", false },
	{ "a tab", "\t", false },
	{ "DEL", "a\x7f", false },
	{ "C1", "\xc2\x80", false },
	{ "the last of C1", "\xc2\x9f", false },
	{ "a byte that only continues", "\x80", false },
	{ "cut off", "a\xe2\x82", false },
	{ "cut off by a letter", "\xe2\x82z", false },
	{ "overlong slash", "\xc0\xaf", false },
	{ "overlong of three", "\xe0\x9f\xbf", false },
	{ "overlong of four", "\xf0\x8f\xbf\xbf", false },
	{ "a surrogate", "\xed\xa0\x80", false },
	{ "the last surrogate", "\xed\xbf\xbf", false },
	{ "behind the last", "\xf4\x90\x80\x80", false },
	{ "five bytes", "\xf8\x88\x80\x80\x80", false },
	{ "FF", "\xff", false },
};

TEST_TABLE(a_name_is_strict_utf8_without_control_characters_and_odd_parts, names)
{
	struct error error;

	ck_assert_msg(rados_name_check(names[_i].name, &error) == (names[_i].is_good ? 0 : -EINVAL),
		      "%s", names[_i].what);
}

TEST(a_name_has_at_most_255_bytes)
{
	char name[RADOS_NAME_MAX + 2] = { 0 };
	struct error error;

	memset(name, 'x', RADOS_NAME_MAX);
	ck_assert_int_eq(rados_name_check(name, &error), 0);
	name[RADOS_NAME_MAX] = 'x';
	ck_assert_int_eq(rados_name_check(name, &error), -EINVAL);
	ck_assert_str_eq(error.text, "the file's name has 256 bytes; it must have 1 to 255");
}

TEST_MAIN
