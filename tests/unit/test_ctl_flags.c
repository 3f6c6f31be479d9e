/* flags: command lines as tables; and each command's help names its options. */
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/flags.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_read;
static const char *folder;
static uint64_t io_size;
static uint32_t depth;
static struct flag_list mapping;
static struct flag_optional gpu;

static const struct flag flags[] = {
	{ "read", FLAG_BOOL, &is_read, 0, 0 },
	{ "folder", FLAG_STRING, &folder, 0, 0 },
	{ "io_size", FLAG_SIZE, &io_size, 1, 1u << 30 },
	{ "queue_depth", FLAG_COUNT, &depth, 1, 4096 },
	{ "folder_to_device_mapping", FLAG_LIST, &mapping, 0, 0 },
	{ "gpu", FLAG_OPTIONAL, &gpu, 0, 7 },
};
static const struct flag_table table = FLAG_TABLE(flags);

static char text[256];
static char *args[32];

static void reset(void)
{
	is_read = false;
	folder = NULL;
	io_size = 0;
	depth = 0;
	gpu = (struct flag_optional){ .is_given = false };
	free(mapping.items);
	mapping = (struct flag_list){ NULL, 0 };
	text[0] = '\0';
}

/* Parses a command line that is given as one text.  Returns how many arguments are no options. */
static int parse(const char *line)
{
	static char words[256];
	int argc = 1, n_args = 0, r;

	(void)snprintf(words, sizeof(words), "%s", line);
	args[0] = (char *)"dsaioctl";
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		args[argc++] = word;
	r = flags_parse(&table, 1, argc, args, &n_args, text, sizeof(text));
	return r < 0 ? r : n_args;
}

TEST(options_may_stand_anywhere)
{
	ck_assert_int_eq(parse("--read bench --io_size 4M io --folder=/nvme"), 2);
	ck_assert_str_eq(args[0], "bench");
	ck_assert_str_eq(args[1], "io");
	ck_assert(is_read);
	ck_assert_uint_eq(io_size, 4u << 20);
	ck_assert_str_eq(folder, "/nvme");
}

TEST(hyphens_and_underscores_are_the_same)
{
	ck_assert_int_eq(parse("--io-size 512 --queue-depth=7"), 0);
	ck_assert_uint_eq(io_size, 512);
	ck_assert_uint_eq(depth, 7);
}

TEST(a_list_goes_up_to_the_next_option_and_may_come_again)
{
	ck_assert_int_eq(parse("--folder_to_device_mapping /a:0 /b:1 --read "
			       "--folder_to_device_mapping /c:2"),
			 0);
	ck_assert_uint_eq(mapping.n_items, 3);
	ck_assert_str_eq(mapping.items[1], "/b:1");
	ck_assert_str_eq(mapping.items[2], "/c:2");
}

TEST(a_number_may_follow_an_option_that_needs_none)
{
	ck_assert_int_eq(parse("--gpu 3"), 1);
	ck_assert(gpu.is_given && !gpu.has_number);
	ck_assert_int_eq(parse("--gpu=3 --read"), 0);
	ck_assert(gpu.is_given && gpu.has_number && is_read);
	ck_assert_uint_eq(gpu.number, 3);
	ck_assert_int_eq(parse("--gpu=cuda:2"), 0);
	ck_assert(gpu.has_number && gpu.number == 2);
}

TEST(behind_two_dashes_nothing_is_an_option)
{
	ck_assert_int_eq(parse("cp -- --read -x"), 3);
	ck_assert_str_eq(args[1], "--read");
	ck_assert(!is_read);
}

static const struct {
	const char *line, *text;
} mistakes[] = {
	{ "--reed", "--reed: unknown option" },
	{ "-x", "-x: unknown option" },
	{ "--rea", "--rea: unknown option" },
	{ "--reads=1", "--reads: unknown option" },
	{ "--read=1", "--read: takes no value" },
	{ "--folder", "--folder: needs a value behind it" },
	{ "--folder --read", "--folder: needs a value behind it" },
	{ "--folder=", "--folder: its value is empty" },
	{ "--io_size 12Q",
	  "--io_size 12Q: is no number: write for example 4096, 64K, 1MiB, 2G or 1T" },
	{ "--io_size 0", "--io_size 0: out of range: must be from 1 B to 1 GiB" },
	{ "--queue_depth 5000", "--queue_depth 5000: out of range: must be from 1 to 4096" },
	{ "--gpu=8", "--gpu=8: out of range: must be from 0 to 7" },
	{ "--gpu=x", "--gpu=x: is no number: write for example 0" },
	{ "--gpu=cuda:8", "--gpu=cuda:8: out of range: must be from 0 to 7" },
	{ "--gpu=cuda:", "--gpu=cuda:: is no number: write for example 0" },
	{ "--gpu=", "--gpu=: is no number: write for example 0" },
	{ "--queue_depth -1", "--queue_depth -1: is no number: write for example 8" },
};

TEST_TABLE(a_mistake_names_the_option_and_what_it_takes, mistakes)
{
	ck_assert_int_eq(parse(mistakes[_i].line), -EINVAL);
	ck_assert_str_eq(text, mistakes[_i].text);
}

/* Man page and help show exactly the options that the parser knows. */
TEST(each_option_of_a_command_is_in_its_help)
{
	const struct command *commands[] = { &command_status, &command_cp, &command_bench };

	for (size_t i = 0; i < 3; i++)
		for (size_t k = 0; k < commands[i]->flags.n_flags; k++)
			ck_assert_msg(strstr(commands[i]->help, commands[i]->flags.flags[k].name),
				      "%s --help lacks --%s", commands[i]->name,
				      commands[i]->flags.flags[k].name);
}

FIXTURE(reset, reset)
TEST_MAIN
