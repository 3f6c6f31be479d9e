/* The kernel's lists of NUMA nodes. */
#include "daemon/object/numa.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static const struct {
	const char *list;
	uint32_t node;
	bool has;
} rows[] = {
	{ "0\n", 0, true },	    { "0\n", 1, false },
	{ "0-1\n", 1, true },	    { "0-1\n", 2, false },
	{ "0,2", 1, false },	    { "0,2", 2, true },
	{ "0-1,4-7,9\n", 5, true }, { "0-1,4-7,9\n", 8, false },
	{ "0-1,4-7,9\n", 9, true }, { "0-1,4-7,9\n", 10, false },
	{ "", 0, false },	    { "\n", 0, false },
	{ "none", 0, false },	    { "0,", 1, false },
	{ "0", UINT32_MAX, false },
};

TEST_TABLE(a_node_is_in_the_list_or_not, rows)
{
	ck_assert_msg(numa_list_has(rows[_i].list, rows[_i].node) == rows[_i].has, "%s: %u",
		      rows[_i].list, rows[_i].node);
}

static const uint32_t missing[] = { 999, 1024, UINT32_MAX };

TEST_TABLE(a_node_that_is_not_there_is_refused_with_those_that_are, missing)
{
	struct error error;
	char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_int_eq(numa_prefer(memory, 4096, missing[_i], &error), -EINVAL);
	ck_assert_msg(strstr(error.text, "memory on: 0"), "%s", error.text);
	(void)munmap(memory, 4096);
}

TEST_MAIN
