/* yes_no: the words for yes and no, and nothing else. */
#include "proto/util/yes_no.h"
#include "tests/unit/suite.h"

static const struct {
	const char *text;
	int result;
	bool is_yes;
} words[] = {
	{ "yes", 0, true },	   { "true", 0, true },	   { "1", 0, true },
	{ "YES", 0, true },	   { "no", 0, false },	   { "false", 0, false },
	{ "0", 0, false },	   { "No", 0, false },	   { "", -EINVAL, true },
	{ "on", 0, true },	   { "OFF", 0, false },	   { "ye", -EINVAL, true },
	{ "yes ", -EINVAL, true }, { "2", -EINVAL, true },
};

TEST_TABLE(only_these_words_are_read, words)
{
	bool is_yes = true; /* a failure changes nothing */

	ck_assert_msg(yes_no_parse(words[_i].text, &is_yes) == words[_i].result &&
			      is_yes == words[_i].is_yes,
		      "\"%s\"", words[_i].text);
	is_yes = false;
	ck_assert_int_eq(yes_no_parse(words[_i].text, &is_yes), words[_i].result);
	ck_assert(is_yes == (words[_i].result == 0 && words[_i].is_yes));
}

TEST_MAIN
