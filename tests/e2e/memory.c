/*
 * Memory: options of dsaio_alloc, registration by a description, and what kind a range is.
 */
#include "tests/harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEED 9

static int alloc_with(struct rig *rig, size_t bytes, uint32_t flags, int64_t wait_usec, void **ret)
{
	struct dsaio_alloc_options options = DSAIO_ALLOC_OPTIONS_INIT;

	options.flags = flags;
	options.wait_usec = wait_usec;
	return dsaio_alloc(rig->client, bytes, &options, ret);
}

TEST(zeroes, "memory that was used is zeroed, unless DSAIO_ALLOC_NO_ZERO says not to")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	uint8_t *memory;
	void *start, *again;

	for (unsigned round = 0; round < 4; round++) {
		bool is_zeroed = round % 2;

		CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &start));
		memset(start, 0xee, MIB);
		CHECK_CALL(dsaio_free(rig.client, start));
		CHECK_CALL(alloc_with(&rig, MIB, is_zeroed ? 0 : DSAIO_ALLOC_NO_ZERO, 0, &again));
		CHECK(again == start); /* else this test says nothing */
		memory = again;
		for (size_t i = 0; i < MIB; i += 511)
			CHECK_EQ(memory[i], is_zeroed ? 0 : 0xee);
		CHECK_CALL(dsaio_free(rig.client, again));
	}
	CHECK_FAILS(alloc_with(&rig, MIB, 1u << 20, 0, &again), -E2BIG, "0x100000;" DSAIO_VERSION);
	CHECK_FAILS(alloc_with(&rig, MIB, 0, -2, &again), -EINVAL, "-2");
	CHECK_FAILS(alloc_with(&rig, 0, 0, 0, &again), -EINVAL, "0 bytes");
}

struct freer {
	struct rig *rig;
	void *memory;
};

static void *freer_run(void *arg)
{
	struct freer *f = arg;

	(void)usleep(
		100000); /* the other thread is to find no room at first; it may also find some */
	CHECK_CALL(dsaio_free(f->rig->client, f->memory));
	return NULL;
}

TEST(room, "dsaio_alloc waits for room in the pool")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct freer freer = { .rig = &rig };
	pthread_t thread;
	const char *path;
	int64_t start;
	void *second;
	FILE *file;

	path = test_text("%s/conf", test_dir());
	file = fopen(path, "we");
	CHECK(file && fputs("[daemon]\npool_size = 64M\nclient_pool_max = 64M\n", file) >= 0);
	CHECK_EQ(fclose(file), 0);
	rig.daemon = daemon_start(DAEMON_ARGS("--config", path));
	rig_open(&rig, NULL);
	CHECK_EQ(dsaio_client_pool_max(rig.client), 64 * MIB);
	CHECK_EQ(dsaio_client_pool_max(NULL), -EINVAL);
	CHECK_CALL(dsaio_alloc(rig.client, 48 * MIB, NULL, &freer.memory));
	CHECK_EQ(dsaio_client_is_locked(rig.client), 1);
	CHECK_EQ(dsaio_alloc(rig.client, 32 * MIB, NULL, &second), -ENOMEM);
	start = now_usec();
	CHECK_EQ(alloc_with(&rig, 32 * MIB, 0, 50000, &second), -ENOMEM);
	CHECK(now_usec() - start >= 50000);
	CHECK_EQ(pthread_create(&thread, NULL, freer_run, &freer), 0);
	CHECK_CALL(alloc_with(&rig, 32 * MIB, 0, -1, &second));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	memset(second, 1, 32 * MIB);
	/* No wait for memory that the daemon never has. */
	CHECK_EQ(alloc_with(&rig, (size_t)1 << 45, 0, -1, &second), -ENOMEM);
}

TEST(registered, "registered memory is read into without a copy, and has its kind")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_memory description = DSAIO_MEMORY_INIT;
	struct dsaio_file *file;
	uint8_t private[4096], *shared;
	void *pool;
	int fd;

	file_make_pattern(daemon_path(rig.daemon, "f"), MIB, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC));
	CHECK_SYS(ftruncate(fd, MIB));
	shared = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(shared != MAP_FAILED);
	CHECK_EQ(dsaio_memory_kind(rig.client, shared, MIB), DSAIO_MEMORY_NONE);
	description.kind = DSAIO_MEMORY_FD;
	description.fd = fd;
	description.start = shared;
	description.bytes = MIB;
	CHECK_CALL(dsaio_memory_register(rig.client, &description));
	CHECK_EQ(dsaio_memory_register(rig.client, &description), -EEXIST);
	close(fd);
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &pool));
	CHECK_EQ(dsaio_memory_kind(rig.client, shared, MIB), DSAIO_MEMORY_FD);
	CHECK_EQ(dsaio_memory_kind(rig.client, shared + 5, 100), DSAIO_MEMORY_FD);
	CHECK_EQ(dsaio_memory_kind(rig.client, shared + MIB - 1, 2), DSAIO_MEMORY_NONE);
	CHECK_EQ(dsaio_memory_kind(rig.client, pool, MIB), DSAIO_MEMORY_POOL);
	CHECK_EQ(dsaio_memory_kind(rig.client, private, sizeof(private)), DSAIO_MEMORY_NONE);
	CHECK_EQ(dsaio_memory_kind(rig.client, NULL, 1), DSAIO_MEMORY_NONE);
	CHECK_EQ(dsaio_memory_kind(NULL, shared, 1), -EINVAL);
	CHECK_EQ(dsaio_pread(rig.handle, file, shared, MIB, 0), MIB);
	pattern_check(shared, MIB, SEED, 0, "registered");
	CHECK_CALL(dsaio_memory_unregister(rig.client, shared));
	CHECK_EQ(dsaio_memory_unregister(rig.client, shared), -EINVAL);
	CHECK_EQ(dsaio_memory_kind(rig.client, shared, MIB), DSAIO_MEMORY_NONE);
}

TEST(twice,
     "memory that is registered twice is -EEXIST, also at the pool's bound; and again after unregister")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *conf = test_text("%s/conf", test_dir());
	FILE *file = fopen(conf, "we");
	const size_t bytes = 40 * MIB;
	uint8_t *shared;
	int fd;

	CHECK(file && fprintf(file, "[daemon]\nclient_pool_max = 64M\n") > 0 && !fclose(file));
	rig.daemon = daemon_start(DAEMON_ARGS("--config", conf));
	rig_open(&rig, NULL);
	fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC));
	CHECK_SYS(ftruncate(fd, (off_t)bytes));
	shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(shared != MAP_FAILED);
	for (unsigned i = 0; i < 3; i++) {
		CHECK_CALL(fd_register(rig.client, fd, 0, bytes, shared));
		CHECK_FAILS(fd_register(rig.client, fd, 0, bytes, shared), -EEXIST, "already");
		CHECK_EQ(fd_register(rig.client, fd, 0, 4096, shared), -EEXIST);
		CHECK_CALL(dsaio_memory_unregister(rig.client, shared));
	}
	close(fd);
}

static const struct {
	const char *what;
	uint32_t kind;
	int error;
	const char *words;
} kinds[] = {
	{ "none", DSAIO_MEMORY_NONE, -EINVAL, "DSAIO_MEMORY_FD" },
	{ "of the pool", DSAIO_MEMORY_POOL, -EINVAL, "DSAIO_MEMORY_FD" },
	{ "private", DSAIO_MEMORY_PRIVATE, -EOPNOTSUPP, "dsaio_alloc()" },
	{ "a view", DSAIO_MEMORY_VIEW, -EOPNOTSUPP, "DSAIO_MEMORY_FD" },
	{ "of a later version", DSAIO_MEMORY_VIEW + 1, -EINVAL, "DSAIO_MEMORY_FD" },
};

TEST_TABLE(refused, kinds, "dsaio_memory_register refuses the kind")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_memory description = DSAIO_MEMORY_INIT;
	char memory[64];

	description.kind = kinds[row].kind;
	description.start = memory;
	description.bytes = sizeof(memory);
	CHECK_FAILS(dsaio_memory_register(rig.client, &description), kinds[row].error,
		    test_text("kind %u;%s", kinds[row].kind, kinds[row].words));
	CHECK_FAILS(dsaio_memory_register(rig.client, NULL), -EINVAL, "description");
}

TEST(aligned, "a slab is mapped where the kernel can use huge pages")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	void *memory;

	for (size_t i = 1; i <= 3; i++) { /* larger than a shared slab has room for */
		CHECK_CALL(dsaio_alloc(rig.client, i * 30 * MIB, NULL, &memory));
		CHECK_EQ((uintptr_t)memory % (2 * MIB), 0);
	}
}

TEST_MAIN
