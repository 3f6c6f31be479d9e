/* NUMA nodes that are not there. */
#include "daemon/object/numa.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static const uint32_t missing[] = { 999, 1024, UINT32_MAX };

TEST_TABLE(a_node_that_is_not_there_is_refused, missing)
{
	struct error error;
	char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_int_eq(numa_prefer(memory, 4096, missing[_i], &error), -EINVAL);
	ck_assert_msg(strstr(error.text, "has_memory"), "%s", error.text);
	(void)munmap(memory, 4096);
}

TEST_MAIN
