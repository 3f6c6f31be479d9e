/*
 * Where the memory of dsaio_alloc() is: on huge pages or not, and on a NUMA node.  The kernel says
 * it in smaps and numa_maps of this process.
 */
#include "tests/harness.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#define BYTES (6 * MIB)

static int alloc(struct rig *rig, uint32_t flags, uint32_t node, size_t bytes, void **ret_memory)
{
	struct dsaio_alloc_options options = DSAIO_ALLOC_OPTIONS_INIT;
	int r;

	options.flags = flags;
	options.numa_node = node;
	r = dsaio_alloc(rig->client, bytes, &options, ret_memory);
	if (r == 0)
		memset(*ret_memory, 7, bytes); /* maps all of it here */
	return r;
}

/* A number of the mapping at that address. */
static uint64_t smaps_kib(const void *memory, const char *key)
{
	_cleanup_(fclosep) FILE *file = fopen("/proc/self/smaps", "re");
	bool is_it = false;
	uint64_t kib;
	char line[512];

	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		unsigned long start, end;
		char flags[8];

		if (sscanf(line, "%lx-%lx %7s", &start, &end, flags) == 3)
			is_it = start == (uintptr_t)memory;
		else if (is_it && !strncmp(line, key, strlen(key)) &&
			 sscanf(line + strlen(key), ": %" SCNu64, &kib) == 1)
			return kib;
	}
	test_fail("smaps has no %s of %p", key, memory);
}

static struct daemon *daemon_of(const char *config)
{
	const char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");

	CHECK(file && fprintf(file, "[daemon]\n%s\n", config) > 0 && !fflush(file));
	return daemon_start(DAEMON_ARGS("--config", path));
}

TEST(small, "memory that is not to be on huge pages is not, nor that of the next of its kind")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	void *memory, *next, *other;

	CHECK_CALL(alloc(&rig, DSAIO_ALLOC_SMALL, 0, MIB, &memory));
	CHECK_CALL(alloc(&rig, 0, 0, MIB, &other));
	CHECK_CALL(alloc(&rig, DSAIO_ALLOC_SMALL, 0, MIB, &next));
	CHECK_EQ(smaps_kib(memory, "ShmemPmdMapped"), 0);
	CHECK_EQ(smaps_kib(memory, "KernelPageSize"), 4);
	CHECK((uint8_t *)next == (uint8_t *)memory + MIB); /* of the same slab */
	CHECK(dsaio_memory_kind(rig.client, other, MIB) == DSAIO_MEMORY_POOL);
	CHECK_CALL(dsaio_free(rig.client, other));
	CHECK_CALL(dsaio_free(rig.client, memory));
	CHECK_CALL(dsaio_free(rig.client, next));
}

TEST(huge, "memory that has to be on huge pages is, as a whole, also where it is used")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	void *memory;
	int r;

	r = alloc(&rig, DSAIO_ALLOC_HUGE, 0, BYTES, &memory);
	if (r < 0) {
		CHECK_EQ(r, -ENOMEM);
		CHECK_MSG(strstr(dsaio_error(), "vm.nr_hugepages"), "%s", dsaio_error());
		test_skip("the host has no huge pages now");
	}
	if (smaps_kib(memory, "KernelPageSize") == 4)
		CHECK(smaps_kib(memory, "ShmemPmdMapped") >= BYTES / KIB);
	file_make_pattern(daemon_path(rig.daemon, "f"), BYTES, 3);
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDONLY), memory, BYTES, 0), BYTES);
	pattern_check(memory, BYTES, 3, 0, "read");
}

static void without_huge_pages(void)
{
	CHECK_SYS(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
}

TEST(no_huge, "a host without huge pages says how to get some; other memory is served")
{
	_cleanup_(
		rig_close) struct rig rig = { .daemon = daemon_start_with(&(struct daemon_options){
						      .before_exec = without_huge_pages }) };
	void *memory;

	rig_open(&rig, NULL);
	CHECK_FAILS(alloc(&rig, DSAIO_ALLOC_HUGE, 0, BYTES, &memory), -ENOMEM,
		    "huge pages;vm.nr_hugepages;huge_pages = reserved");
	CHECK_CALL(alloc(&rig, 0, 0, BYTES, &memory));
	CHECK_EQ(smaps_kib(memory, "ShmemPmdMapped"), 0);
}

TEST(huge_forbidden, "huge_pages = no: memory that has to be on huge pages is refused")
{
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon_of("huge_pages = no") };
	void *memory;

	rig_open(&rig, NULL);
	CHECK_FAILS(alloc(&rig, DSAIO_ALLOC_HUGE, 0, BYTES, &memory), -EOPNOTSUPP,
		    "huge_pages = no");
	CHECK_CALL(alloc(&rig, DSAIO_ALLOC_SMALL, 0, BYTES, &memory));
}

TEST(node, "memory is taken from the node that was named")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	_cleanup_(fclosep) FILE *maps = fopen("/proc/self/numa_maps", "re");
	char line[1024], *end;
	void *memory;

	CHECK_CALL(alloc(&rig, DSAIO_ALLOC_NODE | DSAIO_ALLOC_SMALL, 0, BYTES, &memory));
	CHECK_FAILS(alloc(&rig, DSAIO_ALLOC_NODE, 77, BYTES, &memory), -EINVAL,
		    "node 77;has_memory");
	CHECK_FAILS(alloc(&rig, DSAIO_ALLOC_NODE, UINT32_MAX, BYTES, &memory), -EINVAL,
		    "node 4294967295");
	if (!maps)
		test_skip("this kernel knows no NUMA");
	CHECK_CALL(alloc(&rig, DSAIO_ALLOC_NODE, 0, BYTES, &memory));
	while (fgets(line, sizeof(line), maps))
		if (strtoul(line, &end, 16) == (uintptr_t)memory) {
			CHECK_MSG(strstr(end, " prefer") && strstr(end, ":0") &&
					  strstr(end, " N0="),
				  "%s", line);
			return;
		}
	test_fail("numa_maps has no line of %p", memory);
}

TEST(wrong_flags, "flags that exclude one another, a node without its flag, unknown flags")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	void *memory;

	CHECK_FAILS(alloc(&rig, DSAIO_ALLOC_HUGE | DSAIO_ALLOC_SMALL, 0, 1, &memory), -EINVAL,
		    "DSAIO_ALLOC_HUGE;DSAIO_ALLOC_SMALL");
	CHECK_FAILS(alloc(&rig, 0, 1, 1, &memory), -EINVAL, "numa_node is 1;DSAIO_ALLOC_NODE");
	CHECK_FAILS(alloc(&rig, 1u << 20, 0, 1, &memory), -E2BIG, "0x100000");
}

TEST(released, "memory of a kind goes back to the pool with its last buffer")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	void *memory;

	CHECK_CALL(alloc(&rig, DSAIO_ALLOC_SMALL, 0, 1, &memory));
	CHECK_CALL(dsaio_free(rig.client, memory));
	daemon_status(rig.daemon, &answer);
	CHECK_EQ(answer.reply->status->pool->used_bytes, 0);
}

TEST_MAIN
