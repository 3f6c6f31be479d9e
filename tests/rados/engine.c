/*
 * The engine and the keeper of the plug-in on a real cluster: CEPH_CONF, pool dsaio, user dsaio.
 */
#include "daemon/rados/store.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MB (1u << 20)
#define N_MAX 16
#define CHECK(claim)                                                       \
	do {                                                               \
		if (!(claim)) {                                            \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #claim); \
			exit(1);                                           \
		}                                                          \
	} while (0)

static struct rados_store *store;
static struct engine *engine;
static char *memory;
static struct region region;
static struct target target = { .kind = TARGET_RADOS,
				.rados = { .object_bytes = 4 * MB, .is_writable = true } };
static char state_dir[] = "/tmp/dsaio-rados-XXXXXX";

static char user[] = "dsaio", no_conf[] = "/dev/null";
static struct rados_settings settings = {
	.store = "engine",
	.path = "rados://dsaio/engine",
	.keys = { .user = user,
		  .object_bytes = 4 * MB,
		  .op_timeout_sec = 20,
		  .inflight_max = 64 * MB,
		  .connections = 1,
		  .trash_after_sec = 600 },
};

static void start(void)
{
	struct engine_config config = { .depth = N_MAX };
	struct error error;

	CHECK(keeper_open(&settings, &store, &error) == 0);
	config.rados_store = store;
	CHECK(engine_rados.open(&config, &engine, &error) == 0);
}

static void stop(void)
{
	engine_rados.close(engine);
	keeper_close(store);
}

/* Waits for one block. */
static struct block *reap(void)
{
	struct block *block;

	while (engine_rados.reap(engine, &block, 1) == 0) {
		struct pollfd fd = { .fd = engine->event_fd, .events = POLLIN };

		(void)poll(&fd, 1, 1000);
	}
	return block;
}

static int64_t move(enum block_operation operation, uint64_t off, uint32_t len)
{
	struct block block = { .target = &target,
			       .region = &region,
			       .operation = (uint8_t)operation,
			       .off = off,
			       .len = len };
	struct block *one = &block;

	CHECK(engine_rados.submit(engine, &one, 1) == 1);
	CHECK(reap() == &block && engine->n_in_flight == 0);
	CHECK(!block.is_unknown);
	return block.result;
}

static void test_ranges(void)
{
	const uint64_t off = 4 * MB + 1234;

	for (uint32_t i = 0; i < 100001; i++)
		memory[i] = (char)(i * 7 + 1);
	CHECK(move(BLOCK_READ, off, 1000) == 0); /* without a size there is no end */
	CHECK(move(BLOCK_WRITE, off, 100001) == 100001);
	CHECK(move(BLOCK_FSYNC, 0, 0) == 0);
	memset(memory, 0, MB);
	CHECK(move(BLOCK_READ, off, 100001) == 100001);
	for (uint32_t i = 0; i < 100001; i++)
		CHECK(memory[i] == (char)(i * 7 + 1));
	CHECK(move(BLOCK_WRITE, 8 * MB - 10, 30) == 10); /* up to the object's end */
	printf("ok ranges\n");
}

static void test_holes(void)
{
	target.rados.size = 12 * MB;
	memset(memory, 1, MB);
	CHECK(move(BLOCK_READ, 4 * MB, 1234) == 1234);
	CHECK(!memory[0] && !memory[1233] && memory[1234] == 1);
	CHECK(move(BLOCK_READ, 0, 100) == 100 && !memory[99]);
	CHECK(move(BLOCK_READ, 12 * MB - 5, 100) == 5);
	CHECK(move(BLOCK_READ, 12 * MB, 100) == 0);
	CHECK(move(BLOCK_WRITE, 12 * MB - 5, 6) == -EFBIG);
	CHECK(move(BLOCK_WRITE, UINT64_MAX, 6) == -EFBIG);
	target.rados.is_writable = false;
	CHECK(move(BLOCK_WRITE, 0, 6) == -EBADF);
	CHECK(move(BLOCK_READ, 0, 100) == -ESTALE);
	CHECK(move(BLOCK_READ, 8 * MB, 10) == -ESTALE); /* its object was cut */
	target.rados.is_sparse = true;
	CHECK(move(BLOCK_READ, 0, 100) == 100);
	target.rados.is_writable = true;
	printf("ok holes\n");
}

static void test_memory_that_is_gone(void)
{
	region.base = (char *)16;
	CHECK(move(BLOCK_WRITE, 0, 100) == -EFAULT);
	CHECK(move(BLOCK_READ, 0, 100) == -EFAULT);
	region.base = memory;
	printf("ok memory that is gone\n");
}

/* Another connection with the addresses in the state file, as if the daemon was killed. */
static void test_blocklisted_by_hand_heals(void)
{
	struct rados_store *old = store;
	struct engine *old_engine = engine;

	CHECK(move(BLOCK_WRITE, 0, 100) == 100);
	start();
	CHECK(move(BLOCK_WRITE, 0, 100) == 100); /* online: the first one is fenced */
	stop();
	store = old;
	engine = old_engine;
	CHECK(move(BLOCK_WRITE, 0, 100) == 100); /* -ESHUTDOWN, a new connection, again */
	printf("ok the fenced one heals\n");
}

static void test_offline(void)
{
	struct rados_state state;

	settings.keys.conf = no_conf;
	settings.keys.op_timeout_sec = 2;
	start();
	CHECK(move(BLOCK_WRITE, 0, 100) == -EHOSTDOWN);
	keeper_state(store, &state);
	CHECK(!state.is_online && state.text[0]);
	stop();
	printf("ok offline: %s\n", state.text);
}

static void rate(enum block_operation operation, uint32_t len, int depth)
{
	struct block blocks[N_MAX], *one;
	uint64_t since = clock_nsec(), n = 0, next = 0;

	for (int i = 0; i < depth; i++) {
		blocks[i] = (struct block){ .target = &target,
					    .region = &region,
					    .operation = (uint8_t)operation,
					    .region_off = (uint64_t)i * len,
					    .len = len };
	}
	for (int i = 0; i < depth; i++) {
		one = &blocks[i];
		one->off = next++ * 4 * MB;
		CHECK(engine_rados.submit(engine, &one, 1) == 1);
	}
	while (engine->n_in_flight) {
		one = reap();
		CHECK(one->result == len);
		n++;
		one->off = next++ % 64 * 4 * MB;
		if (clock_nsec() - since < 3 * NSEC_PER_SEC)
			CHECK(engine_rados.submit(engine, &one, 1) == 1);
	}
	printf("%s %u x %d: %.0f/s\n", operation == BLOCK_READ ? "read" : "write", len, depth,
	       (double)n * 1e9 / (double)(clock_nsec() - since));
}

int main(int argc, char **argv)
{
	CHECK(mkdtemp(state_dir));
	settings.state_dir = state_dir;
	CHECK((memory = malloc(64 * MB)));
	memset(memory, 1, 64 * MB);
	region = (struct region){ .kind = REGION_HOST, .base = memory };
	target.rados.id = ((uint64_t)getpid() << 32) + (uint64_t)time(NULL);
	start();
	if (argc > 1 && !strcmp(argv[1], "rate")) {
		target.rados.size = UINT64_C(1) << 30;
		rate(BLOCK_WRITE, 4 * MB, 8);
		rate(BLOCK_READ, 4 * MB, 8);
		rate(BLOCK_WRITE, 4096, 16);
		rate(BLOCK_READ, 4096, 16);
		stop();
	} else {
		test_ranges();
		test_holes();
		test_memory_that_is_gone();
		test_blocklisted_by_hand_heals();
		stop();
		test_offline();
	}
	(void)snprintf(memory, MB, "%s/rados-engine", state_dir);
	CHECK(unlink(memory) == 0 && rmdir(state_dir) == 0);
	return 0;
}
