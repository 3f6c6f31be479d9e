/*
 * dsaio_disconnect: what the program has not closed or freed before, it may close and free after.
 */
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEED 11
#define LEN (8 * MIB)

struct kit {
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	struct dsaio_op *op;
	void *memory, *imported;
};

static void kit_open(struct kit *kit, const struct daemon *daemon)
{
	const char *path = daemon_path(daemon, "f");
	static uint8_t private[65536];
	struct dsaio_file *again;
	int fd;

	kit->client = client_open(daemon);
	CHECK_CALL(dsaio_handle_open(kit->client, NULL, &kit->handle));
	CHECK_CALL(dsaio_open(kit->client, path, O_RDWR, NULL, &kit->file));
	CHECK_CALL(dsaio_open(kit->client, path, O_RDWR, NULL, &again));
	CHECK(again == kit->file); /* open twice */
	CHECK_CALL(dsaio_alloc(kit->client, LEN, NULL, &kit->memory));
	fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC));
	CHECK_SYS(ftruncate(fd, LEN));
	kit->imported = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(kit->imported != MAP_FAILED);
	CHECK_CALL(fd_register(kit->client, fd, 0, LEN, kit->imported));
	CHECK_SYS(close(fd));
	/* The library's thread, and an op that is done or not when the session ends. */
	CHECK_CALL(dsaio_pread_async(kit->handle, kit->file, private, sizeof(private), 0, NULL));
	CHECK_CALL(dsaio_pread_async(kit->handle, kit->file, kit->memory, LEN, 0, &kit->op));
}

/* Lets go of one thing. */
static void kit_free(struct kit *kit, char what)
{
	switch (what) {
	case 'h':
		(void)dsaio_handle_close(kit->handle, -1);
		break;
	case 'f':
		dsaio_file_close(kit->file);
		break;
	case 'o':
		dsaio_op_free(kit->op);
		break;
	case 'm':
		CHECK_EQ(dsaio_free(kit->client, kit->memory), 0);
		break;
	case 'i':
		CHECK_EQ(dsaio_memory_unregister(kit->client, kit->imported), 0);
		break;
	case 'd':
		(void)dsaio_disconnect(kit->client);
		break;
	default:
		test_fail("%c", what);
	}
}

static bool maps_have(const char *text)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool has = false;

	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		has |= strstr(line, text) != NULL;
	(void)fclose(maps);
	return has;
}

/* f twice: there are two opens. */
static const struct {
	const char *what;
} orders[] = {
	{ "dhffomi" }, { "domihff" }, { "dmiohff" }, { "dffmohi" }, { "dfohfim" },
	{ "hdomffi" }, { "hodffim" }, { "fdhofmi" }, { "mdhoffi" }, { "dimffho" },
};

TEST_TABLE(after, orders, "things are closed and freed in this order, d being the disconnect")
{
	struct daemon *daemon = daemon_start(NULL);
	bool is_disconnected = false, has_op_ended = false;
	struct kit kit;

	file_make_pattern(daemon_path(daemon, "f"), LEN, SEED);
	for (unsigned round = 0; round < 20; round++) {
		kit_open(&kit, daemon);
		is_disconnected = false;
		for (const char *what = orders[row].what; *what; what++) {
			if (*what == 'm' && !is_disconnected) /* its op uses it */
				CHECK_EQ(op_wait(kit.op, -1), LEN);
			kit_free(&kit, *what);
			if (*what == 'd') {
				is_disconnected = true;
				CHECK(daemon_wait_clients(daemon, 0, 0));
				if (strchr(what, 'm'))
					memset(kit.memory, 1, LEN); /* it is there */
				has_op_ended |= strchr(what, 'o') && dsaio_op_bytes(kit.op) == LEN;
			}
		}
		CHECK_SYS(munmap(kit.imported, LEN));
		CHECK(!maps_have("dsaio-slab"));
	}
	test_note("ops that had ended: %s", has_op_ended ? "some" : "none");
}

struct freer {
	struct kit *kit;
	const char *what;
	pthread_barrier_t *barrier;
	pthread_t thread;
};

static void *freer_run(void *arg)
{
	struct freer *f = arg;

	(void)pthread_barrier_wait(f->barrier);
	for (const char *what = f->what; *what; what++)
		kit_free(f->kit, *what);
	return NULL;
}

TEST(threads, "after the disconnect several threads close and free at once")
{
	struct daemon *daemon = daemon_start(NULL);
	static const char *const whats[] = { "h", "f", "fo", "m", "i" };
	struct freer freers[ARRAY_SIZE(whats)];
	pthread_barrier_t barrier;
	struct kit kit;

	file_make_pattern(daemon_path(daemon, "f"), LEN, SEED);
	CHECK_EQ(pthread_barrier_init(&barrier, NULL, ARRAY_SIZE(whats)), 0);
	for (unsigned round = 0; round < 50; round++) {
		kit_open(&kit, daemon);
		(void)dsaio_disconnect(kit.client);
		for (size_t i = 0; i < ARRAY_SIZE(whats); i++) {
			freers[i] = (struct freer){ .kit = &kit,
						    .what = whats[i],
						    .barrier = &barrier };
			CHECK_EQ(pthread_create(&freers[i].thread, NULL, freer_run, &freers[i]), 0);
		}
		for (size_t i = 0; i < ARRAY_SIZE(whats); i++)
			CHECK_EQ(pthread_join(freers[i].thread, NULL), 0);
		CHECK_SYS(munmap(kit.imported, LEN));
	}
	CHECK(!maps_have("dsaio-slab"));
}

/* An idle file was freed and stayed in its bucket, which the removal of an open one then walked. */
TEST(idle, "open files and idle ones share the buckets of the cache when the client disconnects")
{
	struct daemon *daemon = daemon_start(NULL);
	struct dsaio_client *client = client_open(daemon);
	struct dsaio_file *files[64];

	for (unsigned i = 0; i < ARRAY_SIZE(files); i++) {
		const char *path = daemon_path(daemon, test_text("%u", i));

		CHECK_CALL(dsaio_open(client, path, O_RDWR | O_CREAT, NULL, &files[i]));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(files); i += 2)
		dsaio_file_close(files[i]);
	(void)dsaio_disconnect(client);
	for (unsigned i = 1; i < ARRAY_SIZE(files); i += 2)
		dsaio_file_close(files[i]);
	CHECK(daemon_wait_clients(daemon, 0, 0));
}

TEST(killed, "the daemon is killed, then the client disconnects, then it frees")
{
	struct daemon *daemon = daemon_start(NULL);
	struct kit kit;

	file_make_pattern(daemon_path(daemon, "f"), LEN, SEED);
	kit_open(&kit, daemon);
	daemon_kill(daemon);
	for (const char *what = "dhffomi"; *what; what++)
		kit_free(&kit, *what);
	CHECK(!maps_have("dsaio-slab"));
}

TEST(never, "what is never freed holds nothing of the daemon")
{
	struct daemon *daemon = daemon_start(NULL);
	struct usage before;
	struct kit kit;

	file_make_pattern(daemon_path(daemon, "f"), LEN, SEED);
	for (unsigned round = 0; round < 50; round++) {
		kit_open(&kit, daemon);
		(void)dsaio_disconnect(kit.client);
		if (round == 0) /* lanes are there from now on */
			before = daemon_usage_settled(daemon);
	}
	CHECK(daemon_wait_clients(daemon, 0, 0));
	daemon_usage_back(daemon, &before);
}

TEST_MAIN
