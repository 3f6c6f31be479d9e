/*
 * Faults on purpose: which request gets one, and what becomes of it.  fault/faults.c has the ends of ops.
 */
#include "daemon/engine/fault.h"

#include "tests/unit/suite.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define N 4
#define HIT 2 /* the block that gets the fault */
#define BYTES 4096

static struct fault_plan *plan;
static struct engine *engine;
static struct block blocks[N];
static struct target target = {
	.is_tmpfs = true, .offset_align = 1, .memory_align = 1, .about.file = "f"
};
static struct region region;
static char memory[N * BYTES];

static void plan_set(enum fault_kind kind, bool at_completion)
{
	plan->kind = (uint32_t)kind;
	plan->error = EIO;
	plan->operations = 1u << BLOCK_READ;
	plan->engines = 1u << ENGINE_LIBAIO;
	plan->at_completion = at_completion;
	plan->skip = HIT;
	plan->n = 1;
	plan->delay_usec = 10000;
	atomic_fetch_add(&plan->serial, 1);
}

static void setup(void)
{
	char path[] = "/var/tmp/dsaio-fault.XXXXXX";
	const int fd = mkostemp(path, O_CLOEXEC);
	struct error error;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(*plan)), 0);
	plan = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(plan, MAP_FAILED);
	ck_assert_ptr_null(fault_ops(ENGINE_LIBAIO));
	ck_assert_int_eq(engines_make_fail(path, true, &error), 0);
	(void)unlink(path);
	(void)close(fd);
	ck_assert_ptr_eq(engine_ops_get(ENGINE_LIBAIO), fault_ops(ENGINE_LIBAIO));
	ck_assert_int_eq(
		fault_ops(ENGINE_LIBAIO)
			->open(&(struct engine_config){ .depth = N, .room = N }, &engine, &error),
		0);
	target.fd = memfd_create("dsaio-fault", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(target.fd, sizeof(memory)), 0);
	region.base = memory;
}

static void teardown(void)
{
	engine->ops->close(engine);
	(void)close(target.fd);
	(void)munmap(plan, sizeof(*plan));
}

static int submit(void)
{
	struct block *list[N];

	for (int i = 0; i < N; i++) {
		blocks[i] = (struct block){ .operation = BLOCK_READ,
					    .target = &target,
					    .region = &region,
					    .off = (uint64_t)i * BYTES,
					    .region_off = (uint64_t)i * BYTES,
					    .len = BYTES,
					    .bytes = BYTES };
		list[i] = &blocks[i];
	}
	return engine->ops->submit(engine, list, N);
}

/* Takes all that is there; each digit is the number of a block. */
static const char *reap(void)
{
	static char order[N + 1];
	struct block *done[N];
	const int n = engine->ops->reap(engine, done, N);

	for (int i = 0; i < n; i++)
		order[i] = (char)('0' + (done[i] - blocks));
	order[n] = '\0';
	return order;
}

static const struct {
	const char *what;
	enum fault_kind kind;
	bool at_completion;
	const char *first; /* reaped at once */
	int64_t result; /* of the block with the fault: on tmpfs a call that is short is followed by the rest */
} faults[] = {
	{ "none", FAULT_NONE, false, "0123", BYTES },
	{ "error, submission", FAULT_ERROR, false, "2013", -EIO },
	{ "error, completion", FAULT_ERROR, true, "0123", -EIO },
	{ "short, submission", FAULT_SHORT, false, "0123", 1 },
	{ "short, completion", FAULT_SHORT, true, "0123", BYTES - 1 },
	{ "scant, submission", FAULT_SCANT, false, "0123", BYTES - 1 },
	{ "scant, completion", FAULT_SCANT, true, "0123", 1 },
	{ "delay, submission", FAULT_DELAY, false, "013", BYTES },
	{ "delay, completion", FAULT_DELAY, true, "013", BYTES },
	{ "never, submission", FAULT_NEVER, false, "013", BYTES },
	{ "never, completion", FAULT_NEVER, true, "013", BYTES },
	{ "order, submission", FAULT_REORDER, false, "013", BYTES },
	{ "order, completion", FAULT_REORDER, true, "013", BYTES },
};

TEST_TABLE(one_request_gets_the_fault, faults)
{
	const bool waits = strlen(faults[_i].first) < N;

	plan_set(faults[_i].kind, faults[_i].at_completion);
	ck_assert_int_eq(submit(), N);
	ck_assert_uint_eq(engine->n_in_flight, N);
	ck_assert_str_eq(reap(), faults[_i].first);
	ck_assert_uint_eq(engine->n_in_flight, waits);
	if (faults[_i].kind == FAULT_DELAY) {
		struct pollfd pollfd = { .fd = engine->event_fd, .events = POLLIN };

		ck_assert_int_eq(poll(&pollfd, 1, 10000), 1);
	}
	if (faults[_i].kind == FAULT_NEVER) {
		ck_assert(!engine->ops->is_ready(engine));
		ck_assert_str_eq(reap(), "");
		plan_set(FAULT_NONE, false);
	}
	if (waits) {
		ck_assert(engine->ops->is_ready(engine));
		ck_assert_str_eq(reap(), "2");
	}
	ck_assert(!engine->ops->is_ready(engine));
	ck_assert_uint_eq(engine->n_in_flight, 0);
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(blocks[i].result, i == HIT ? faults[_i].result : BYTES);
	/* The plan is used up. */
	ck_assert_int_eq(submit(), N);
	ck_assert_str_eq(reap(), "0123");
}

FIXTURE(setup, teardown)
TEST_MAIN
