/*
 * Two daemons replace one file 200 times each, while readers of both look at it: each sees one version, whole.  In the
 * end the cluster has the bytes of one.
 */
#include "tests/rados/ceph.h"

#include <pthread.h>

enum { N_REPLACED = 200, OBJECT = 64 << 10, SIZE = 3 * OBJECT + 777 };

static struct rig rigs[2];
static _Atomic bool is_over;
static _Atomic unsigned n_read, n_away;

/* All bytes of a version are of one pattern, whose number is at its start. */
static void fill(uint8_t *buf, uint64_t version)
{
	pattern_fill(buf, SIZE, version, 0);
	memcpy(buf, &version, sizeof(version));
}

static void *replace(void *arg)
{
	const uint64_t which = (uint64_t)(uintptr_t)arg;
	struct rig *rig = &rigs[which];
	uint8_t *buf = malloc(SIZE);

	CHECK(buf);
	for (uint64_t i = 0; i < N_REPLACED; i++) {
		struct dsaio_file *file = ceph_create(rig->client, "one", SIZE, 0);

		fill(buf, which << 32 | i);
		CHECK_EQ(dsaio_pwrite(rig->handle, file, buf, SIZE, 0), SIZE);
		CHECK_CALL(dsaio_file_commit(file, 0));
		dsaio_file_close(file);
	}
	free(buf);
	return NULL;
}

static void *look(void *arg)
{
	struct rig *rig = &rigs[(uintptr_t)arg];
	uint8_t *buf = malloc(SIZE), *wanted = malloc(SIZE);
	uint64_t version;

	CHECK(buf && wanted);
	while (!is_over) {
		struct dsaio_file *file;
		int64_t n = ceph_open(rig->client, "one", &file);

		CHECK_CALL(n);
		CHECK_EQ(dsaio_file_size(file), SIZE);
		n = dsaio_pread(rig->handle, file, buf, SIZE, 0);
		dsaio_file_close(file);
		if (n == -ESTALE) { /* replaced so long ago that its bytes are gone */
			n_away++;
			continue;
		}
		CHECK_EQ(n, SIZE);
		memcpy(&version, buf, sizeof(version));
		fill(wanted, version);
		CHECK_MSG(memcmp(buf, wanted, SIZE) == 0, "version %" PRIx64 " is torn", version);
		n_read++;
	}
	free(buf);
	free(wanted);
	return NULL;
}

static unsigned objects(void)
{
	return (unsigned)atoi(ceph_run(
		test_text("timeout 20 rados --id dsaio -p dsaio -N %s ls | grep -c '^d\\.' || :",
			  ceph_namespace())));
}

TEST(replaced, "2 x 200 replacements leave one version, and no reader sees two")
{
	static const char keys[] = "object_size = 64K\ntrash_after = 3\n";
	pthread_t writers[2], readers[2];
	int64_t until;

	for (unsigned i = 0; i < 2; i++) {
		rigs[i].daemon = ceph_daemon(i, keys);
		rig_open(&rigs[i], NULL);
	}
	{
		struct dsaio_file *file = ceph_create(rigs[0].client, "one", SIZE, 0);
		uint8_t *buf = malloc(SIZE);

		CHECK(buf);
		fill(buf, 0);
		CHECK_EQ(dsaio_pwrite(rigs[0].handle, file, buf, SIZE, 0), SIZE);
		CHECK_CALL(dsaio_file_commit(file, 0));
		dsaio_file_close(file);
		free(buf);
	}
	for (uintptr_t i = 0; i < 2; i++) {
		CHECK(pthread_create(&writers[i], NULL, replace, (void *)i) == 0);
		CHECK(pthread_create(&readers[i], NULL, look, (void *)i) == 0);
	}
	for (unsigned i = 0; i < 2; i++)
		CHECK(pthread_join(writers[i], NULL) == 0);
	is_over = true;
	for (unsigned i = 0; i < 2; i++)
		CHECK(pthread_join(readers[i], NULL) == 0);
	test_note("%u whole reads, %u of bytes that were gone", n_read, n_away);
	CHECK(n_read);
	until = now_usec() + 30 * USEC_PER_SEC;
	while (objects() != (SIZE + OBJECT - 1) / OBJECT && now_usec() < until)
		(void)usleep(200000);
	CHECK_EQ(objects(), (SIZE + OBJECT - 1) / OBJECT);
	for (unsigned i = 0; i < 2; i++)
		rig_close(&rigs[i]);
}

TEST_MAIN
