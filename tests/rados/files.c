/*
 * Files of a RADOS store, by the library: creation, commit, readers, names, sizes and offsets.
 */
#include "tests/rados/ceph.h"

#define OBJECT (64 * KIB)

static const char small_objects[] = "object_size = 64K\ntrash_after = 2\n";

static struct rig open_rig(void)
{
	struct rig rig = RIG_NONE;

	rig.daemon = ceph_daemon(0, small_objects);
	rig_open(&rig, NULL);
	return rig;
}

static void write_pattern(struct rig *rig, struct dsaio_file *file, uint8_t *buf, size_t len,
			  uint64_t seed)
{
	pattern_fill(buf, len, seed, 0);
	CHECK_EQ(dsaio_pwrite(rig->handle, file, buf, len, 0), len);
}

/* A committed file with a pattern. */
static void make(struct rig *rig, const char *name, size_t len, uint64_t seed)
{
	uint8_t *buf = malloc(len ? len : 1);
	struct dsaio_file *file = ceph_create(rig->client, name, len, 0);

	CHECK(buf);
	if (len)
		write_pattern(rig, file, buf, len, seed);
	CHECK_CALL(dsaio_file_commit(file, 0));
	dsaio_file_close(file);
	free(buf);
}

static void check_file(struct rig *rig, struct dsaio_file *file, size_t len, uint64_t seed)
{
	uint8_t *buf = malloc(len + 100);

	CHECK(buf);
	CHECK_EQ(dsaio_file_size(file), len);
	CHECK_EQ(dsaio_pread(rig->handle, file, buf, len + 100, 0), len);
	pattern_check(buf, len, seed, 0, "the file");
	free(buf);
}

static void check(struct rig *rig, const char *name, size_t len, uint64_t seed)
{
	struct dsaio_file *file;

	CHECK_CALL(ceph_open(rig->client, name, &file));
	check_file(rig, file, len, seed);
	dsaio_file_close(file);
}

TEST(commit, "a file is there from its commit on, and not before")
{
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct dsaio_stat stat = DSAIO_STAT_INIT;
	struct dsaio_file *file, *reader;
	uint8_t buf[1000];

	file = ceph_create(rig.client, "a", sizeof(buf), 0);
	write_pattern(&rig, file, buf, sizeof(buf), 1);
	CHECK_FAILS(ceph_open(rig.client, "a", &reader), -ENOENT, "a");
	CHECK_FAILS(dsaio_stat(rig.client, ceph_name("a"), &stat), -ENOENT, "a");
	CHECK_CALL(dsaio_fsync(rig.handle, file, 0));
	CHECK_CALL(dsaio_file_commit(file, 0));
	check(&rig, "a", sizeof(buf), 1);
	check_file(&rig, file, sizeof(buf), 1);
	CHECK_FAILS(dsaio_pwrite(rig.handle, file, buf, 1, 0), -EBADF, "a");
	CHECK_CALL(dsaio_stat(rig.client, ceph_name("a"), &stat));
	CHECK_EQ(stat.file_size, sizeof(buf));
	CHECK_EQ(stat.object_size, OBJECT);
	dsaio_file_close(file);
}

TEST(close_alone, "closing does not commit, and the token still names the file")
{
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct dsaio_create_options options = DSAIO_CREATE_OPTIONS_INIT;
	struct dsaio_file *file, *reader;
	uint8_t buf[1000];

	file = ceph_create(rig.client, "a", sizeof(buf), 0);
	write_pattern(&rig, file, buf, sizeof(buf), 2);
	options.token = dsaio_file_token(file);
	CHECK(options.token);
	dsaio_file_close(file);
	CHECK_FAILS(ceph_open(rig.client, "a", &reader), -ENOENT, "a");
	CHECK_FAILS(dsaio_create(rig.client, ceph_name("other"), &options, &file), -ESTALE,
		    "other");
	CHECK_CALL(dsaio_create(rig.client, ceph_name("a"), &options, &file));
	CHECK_CALL(dsaio_file_commit(file, 0));
	dsaio_file_close(file);
	check(&rig, "a", sizeof(buf), 2);
	CHECK_FAILS(dsaio_create(rig.client, ceph_name("a"), &options, &file), -ESTALE, "a");
}

TEST(two_daemons, "two hosts write the halves of one file, and one commits")
{
	enum { HALF = 3 * OBJECT / 2 + 100 };
	_cleanup_(rig_close) struct rig a = open_rig(), b = RIG_NONE;
	struct dsaio_create_options options = DSAIO_CREATE_OPTIONS_INIT;
	static uint8_t buf[2 * HALF];
	struct dsaio_file *of_a, *of_b;

	b.daemon = ceph_daemon(1, small_objects);
	rig_open(&b, NULL);
	of_a = ceph_create(a.client, "shared", sizeof(buf), 0);
	options.token = dsaio_file_token(of_a);
	CHECK_CALL(dsaio_create(b.client, ceph_name("shared"), &options, &of_b));
	pattern_fill(buf, sizeof(buf), 3, 0);
	CHECK_EQ(dsaio_pwrite(a.handle, of_a, buf, HALF, 0), HALF);
	CHECK_EQ(dsaio_pwrite(b.handle, of_b, buf + HALF, HALF, HALF), HALF);
	CHECK_CALL(dsaio_file_commit(of_b, 0));
	check(&a, "shared", sizeof(buf), 3);
	check(&b, "shared", sizeof(buf), 3);
	CHECK_CALL(dsaio_file_commit(of_a, 0)); /* it is the committed one already */
	dsaio_file_close(of_a);
	dsaio_file_close(of_b);
}

TEST(replaced, "a reader goes on with the file that it has opened when another takes its name")
{
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct dsaio_file *old;

	make(&rig, "a", 3 * OBJECT, 4);
	CHECK_CALL(ceph_open(rig.client, "a", &old));
	make(&rig, "a", 1000, 5);
	check_file(&rig, old, 3 * OBJECT, 4);
	check(&rig, "a", 1000, 5);
	CHECK_CALL(dsaio_remove(rig.client, ceph_name("a")));
	CHECK_FAILS(dsaio_remove(rig.client, ceph_name("a")), -ENOENT, "a");
	check_file(&rig, old, 3 * OBJECT, 4);
	dsaio_file_close(old);
}

TEST(abandoned, "an abandoned file can be neither committed nor opened by its token")
{
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct dsaio_create_options options = DSAIO_CREATE_OPTIONS_INIT;
	struct dsaio_file *file, *again;
	uint8_t buf[1000];

	file = ceph_create(rig.client, "a", sizeof(buf), 0);
	options.token = dsaio_file_token(file);
	write_pattern(&rig, file, buf, sizeof(buf), 6);
	CHECK_CALL(dsaio_file_abandon(file));
	CHECK_FAILS(dsaio_file_commit(file, 0), -ESTALE, "a");
	CHECK_FAILS(dsaio_create(rig.client, ceph_name("a"), &options, &again), -ESTALE, "a");
	dsaio_file_close(file);
}

TEST(busy, "a file with open ops is not committed")
{
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct dsaio_file *file = ceph_create(rig.client, "a", 64 * MIB, DSAIO_CREATE_SPARSE);
	struct dsaio_op *op;
	void *memory;
	int r;

	CHECK_CALL(dsaio_alloc(rig.client, 64 * MIB, NULL, &memory));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory, 64 * MIB, 0, &op));
	r = dsaio_file_commit(file, 0);
	CHECK(r == -EBUSY || dsaio_op_result(op) >= 0);
	CHECK_EQ(op_wait(op, -1), 64 * MIB);
	dsaio_op_free(op);
	if (r < 0)
		CHECK_CALL(dsaio_file_commit(file, 0));
	dsaio_file_close(file);
	CHECK_CALL(dsaio_free(rig.client, memory));
}

TEST(holes, "what nobody wrote reads as zeroes in a sparse file, and fails in another")
{
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct dsaio_file *file;
	uint8_t buf[100], zeroes[100] = { 0 };

	for (uint32_t flags = 0; flags <= DSAIO_CREATE_SPARSE; flags++) {
		file = ceph_create(rig.client, "a", 4 * OBJECT, flags);
		memset(buf, 1, sizeof(buf));
		CHECK_EQ(dsaio_pwrite(rig.handle, file, buf, 10, 3 * OBJECT + 5), 10);
		CHECK_CALL(dsaio_file_commit(file, 0));
		for (unsigned i = 0; i < 2; i++) {
			/* without objects, and in one that is there, but shorter */
			const uint64_t off = i ? 4 * OBJECT - 100 : OBJECT - 50;

			memset(buf, 1, sizeof(buf));
			if (flags) {
				CHECK_EQ(dsaio_pread(rig.handle, file, buf, sizeof(buf), off), 100);
				CHECK(memcmp(buf, zeroes, sizeof(buf)) == 0);
			} else {
				CHECK_FAILS(dsaio_pread(rig.handle, file, buf, sizeof(buf), off),
					    -ESTALE, "");
			}
		}
		dsaio_file_close(file);
	}
}

TEST(without_size, "a file without a size has that of its last byte, or the commit's")
{
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct dsaio_file *file = ceph_create(rig.client, "a", 0, 0);
	static uint8_t buf[OBJECT + 10];

	write_pattern(&rig, file, buf, sizeof(buf), 7);
	CHECK_EQ(dsaio_file_size(file), sizeof(buf));
	check_file(&rig, file, sizeof(buf), 7);
	CHECK_CALL(dsaio_file_commit(file, 0));
	dsaio_file_close(file);
	check(&rig, "a", sizeof(buf), 7);
	file = ceph_create(rig.client, "a", 0, 0);
	write_pattern(&rig, file, buf, 1000, 8);
	CHECK_CALL(dsaio_file_commit(file, 500));
	dsaio_file_close(file);
	check(&rig, "a", 500, 8);
	file = ceph_create(rig.client, "a", 100, 0);
	CHECK_FAILS(dsaio_pwrite(rig.handle, file, buf, 101, 0), -EFBIG, "a");
	CHECK_FAILS(dsaio_file_commit(file, 99), -EINVAL, "99;100");
	dsaio_file_close(file);
	file = ceph_create(rig.client, "empty", 0, 0);
	CHECK_CALL(dsaio_file_commit(file, 0));
	dsaio_file_close(file);
	check(&rig, "empty", 0, 0);
}

TEST(too_large, "a size that no file can have is refused, and the daemon goes on")
{
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct dsaio_create_options options = DSAIO_CREATE_OPTIONS_INIT;
	struct dsaio_file *file;

	options.file_size = (UINT64_C(1) << 20) * OBJECT + 1;
	for (int i = 0; i < 3; i++)
		CHECK_FAILS(dsaio_create(rig.client, ceph_name("a"), &options, &file), -EFBIG, "a");
	make(&rig, "a", 1000, 9);
	check(&rig, "a", 1000, 9);
}

enum memory { OF_POOL, PRIVATE, MISALIGNED };

/* Random ranges of a file, against a copy of it in memory. */
TEST(ranges, "ranges of any size at any offset from any memory hold their bytes")
{
	enum { SIZE = 5 * OBJECT + 123, N = 300 };
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct dsaio_file *file = ceph_create(rig.client, "a", SIZE, DSAIO_CREATE_SPARSE);
	static uint8_t copy[SIZE], private[SIZE + 1];
	uint64_t random = test_seed();
	void *pool;

	CHECK_CALL(dsaio_alloc(rig.client, SIZE + 1, NULL, &pool));
	for (unsigned i = 0; i < N; i++) {
		const uint64_t off = test_random(&random) % SIZE;
		const size_t room = SIZE - off;
		const size_t max = i % 3 ? 5000 : SIZE;
		const size_t len = test_random(&random) % ((room < max ? room : max) + 1);
		uint8_t *memory = i % 3 == OF_POOL   ? pool
				  : i % 3 == PRIVATE ? private
						     : (uint8_t *)pool + 1;

		if (i % 2) {
			pattern_fill(memory, len, i, 0);
			memcpy(copy + off, memory, len);
			CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, len, off), len);
		} else {
			memset(memory, 0xee, len);
			CHECK_EQ(dsaio_pread(rig.handle, file, memory, len, off), len);
			CHECK_MSG(memcmp(memory, copy + off, len) == 0, "%zu bytes at %" PRIu64,
				  len, off);
		}
	}
	CHECK_CALL(dsaio_file_commit(file, 0));
	dsaio_file_close(file);
	CHECK_CALL(ceph_open(rig.client, "a", &file));
	CHECK_EQ(dsaio_pread(rig.handle, file, private, SIZE, 0), SIZE);
	CHECK(memcmp(private, copy, SIZE) == 0);
	dsaio_file_close(file);
	CHECK_CALL(dsaio_free(rig.client, pool));
}

static const struct {
	const char *what, *name;
} bad_names[] = {
	{ "empty", "" },
	{ "dot", "." },
	{ "dots", "a/../b" },
	{ "dots at the end", "a/.." },
	{ "an empty part", "a//b" },
	{ "a slash at the end", "a/" },
	{ "a newline", "a%0Ab" },
	{ "an escape", "a%1Bb" },
	{ "a zero byte", "a%00b" },
	{ "no UTF-8", "a%FFb" },
	{ "an overlong form", "a%C0%AFb" },
	{ "a surrogate", "a%ED%A0%80b" },
	{ "a cut escape", "a%4" },
	{ "256 bytes",
	  "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
	  "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
	  "01234567890123456789012345678901234567890123456789012345" },
};

TEST_TABLE(names_refused, bad_names, "a name is refused")
{
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct dsaio_stat stat = DSAIO_STAT_INIT;
	const char *name = ceph_name(bad_names[row].name);
	struct dsaio_file *file;

	CHECK_FAILS(dsaio_create(rig.client, name, NULL, &file), -EINVAL, "");
	CHECK_FAILS(ceph_open(rig.client, bad_names[row].name, &file), -EINVAL, "");
	CHECK_FAILS(dsaio_stat(rig.client, name, &stat), -EINVAL, "");
	CHECK_FAILS(dsaio_remove(rig.client, name), -EINVAL, "");
}

TEST(names_of_others, "paths, other schemes and other stores are refused, and say what to do")
{
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct dsaio_open_options options = DSAIO_OPEN_OPTIONS_INIT;
	struct dsaio_file *file;

	options.flags = DSAIO_OPEN_URI;
	CHECK_FAILS(dsaio_create(rig.client, "/tmp/x", NULL, &file), -EINVAL, "/tmp/x");
	CHECK_FAILS(dsaio_create(rig.client, "rados://dsaio/nowhere/x", NULL, &file), -ENXIO,
		    "dsaiod-rados/dsaiod.sock;DSAIO_RADOS_SOCKET");
	CHECK_FAILS(dsaio_open(rig.client, ceph_name("x"), O_RDWR, &options, &file), -EINVAL,
		    "dsaio_create");
}

struct seen {
	unsigned n, n_odd;
	struct dsaio_client *client;
};

static int see(const struct dsaio_stat *stat, void *arg)
{
	struct seen *seen = arg;

	seen->n++;
	if (strncmp(stat->name, "odd/", 4) == 0) {
		struct dsaio_stat again = DSAIO_STAT_INIT;

		CHECK_CALL(dsaio_stat(seen->client, ceph_name(stat->name), &again));
		CHECK_EQ(again.id, stat->id);
	}
	seen->n_odd += strncmp(stat->name, "many/", 5) != 0 || stat->file_size != 10;
	return 0;
}

static int stop(const struct dsaio_stat *stat, void *arg)
{
	(void)stat;
	(void)arg;
	return -7;
}

TEST(listed, "a list has each file once, and only those that begin with the name")
{
	enum { N = 200 };
	_cleanup_(rig_close) struct rig rig = open_rig();
	struct seen seen = { 0, 0, rig.client };

	make(&rig, "one", 10, 1);
	make(&rig, "mini", 20, 1);
	for (unsigned i = 0; i < N; i++)
		make(&rig, test_text("many/%u \303\274", i), 10, i);
	make(&rig, "many/5 \303\274", 10, 5); /* replaces */
	CHECK_EQ(dsaio_list(rig.client, ceph_name("many/"), see, &seen), 0);
	CHECK_EQ(seen.n, N);
	CHECK_EQ(seen.n_odd, 0);
	CHECK_EQ(dsaio_list(rig.client, ceph_name(""), see, &seen), 0);
	CHECK_EQ(seen.n, 2 * N + 2);
	make(&rig, "odd/%2520%25", 10, 1); /* "%20%": what is listed can be asked for */
	seen.n = 0;
	CHECK_EQ(dsaio_list(rig.client, ceph_name("odd/"), see, &seen), 0);
	CHECK_EQ(seen.n, 1);
	CHECK_EQ(dsaio_list(rig.client, ceph_name(""), stop, NULL), -7);
	check(&rig, "many/7%20%C3%BC", 10, 7);
}

TEST_MAIN
