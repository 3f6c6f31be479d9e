/*
 * Conflicting ops of one handle take effect in the order of submission: a model of the file in
 * memory is changed at submission, and what is read, and what is left at the end, must be the
 * model's.  Whatever file object, name or alignment an op goes by.
 */
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES (256 * KIB)
#define OP_BYTES_MAX (64 * KIB)
#define DEPTH 96
#define ROUNDS 12

struct pending {
	struct dsaio_op *op;
	bool is_read;
	size_t len;
	uint64_t off;
	uint8_t *memory;   /* the op's buffer */
	uint8_t *expected; /* of a read: the model when it was submitted */
};

struct mixture {
	const char *what;
	bool reads, writes, syncs;
	unsigned align; /* of offsets and lengths */
	enum { PINNED, PRIVATE, BOTH } memory;
	unsigned n_blocks; /* of 4096 that the ops crowd on; 0: the whole file */
};

static const struct mixture mixtures[] = {
	{ "write after write, aligned", false, true, false, 4096, PINNED, 0 },
	{ "write after write on one block", false, true, false, 4096, PINNED, 1 },
	{ "write after write, any bytes", false, true, false, 1, PINNED, 0 },
	{ "write after write, any bytes of one block", false, true, false, 1, PINNED, 1 },
	{ "reads and writes, aligned", true, true, false, 4096, PINNED, 0 },
	{ "reads and writes on two blocks", true, true, false, 4096, PINNED, 2 },
	{ "reads and writes, 512 bytes apart", true, true, false, 512, PINNED, 4 },
	{ "reads and writes, any bytes", true, true, false, 1, PINNED, 0 },
	{ "reads and writes, any bytes, private memory", true, true, false, 1, PRIVATE, 0 },
	{ "reads and writes, aligned, private memory", true, true, false, 4096, PRIVATE, 0 },
	{ "reads, writes and syncs", true, true, true, 4096, PINNED, 8 },
	{ "reads, writes and syncs, any bytes", true, true, true, 1, PINNED, 8 },
	{ "reads, writes and syncs, private memory", true, true, true, 1, PRIVATE, 8 },
	{ "aligned, private and pinned memory", true, true, false, 4096, BOTH, 0 },
	{ "aligned, private and pinned memory, on two blocks", true, true, false, 4096, BOTH, 2 },
	{ "any bytes, private and pinned memory, syncs", true, true, true, 1, BOTH, 8 },
};

static void pending_end(struct pending *p)
{
	if (!p->op)
		return;
	CHECK_EQ(op_wait(p->op, -1), p->len);
	if (p->is_read)
		for (size_t i = 0; i < p->len; i++)
			if (p->memory[i] != p->expected[i])
				test_fail("a read of %zu bytes at %" PRIu64 ": byte %zu is 0x%02x, "
					  "in order it was 0x%02x",
					  p->len, p->off, i, p->memory[i], p->expected[i]);
	dsaio_op_free(p->op);
	p->op = NULL;
}

static void submit_one(struct rig *rig, const struct mixture *m, struct pending *p, uint8_t *model,
		       uint64_t *random)
{
	uint64_t space = m->n_blocks ? m->n_blocks * 4096 : FILE_BYTES;
	uint64_t max = space < OP_BYTES_MAX ? space : OP_BYTES_MAX;
	struct dsaio_file *file = rig->files[test_random(random) % rig->n_files];
	unsigned kind = (unsigned)(test_random(random) % 16);

	p->len = test_random(random) % max / m->align * m->align + m->align;
	if (p->len > max)
		p->len = max;
	p->off = test_random(random) % (space - p->len + 1) / m->align * m->align;
	p->is_read = m->reads && (!m->writes || kind % 2);
	if (m->syncs && kind == 0) {
		p->is_read = false;
		p->len = 0;
		CHECK_CALL(dsaio_fsync_async(rig->handle, file, DSAIO_DATASYNC, &p->op));
	} else if (p->is_read) {
		memcpy(p->expected, model + p->off, p->len);
		memset(p->memory, 0xee, p->len);
		CHECK_CALL(dsaio_pread_async(rig->handle, file, p->memory, p->len, p->off, &p->op));
	} else {
		pattern_fill(p->memory, p->len, test_random(random), 0);
		memcpy(model + p->off, p->memory, p->len);
		CHECK_CALL(
			dsaio_pwrite_async(rig->handle, file, p->memory, p->len, p->off, &p->op));
	}
}

static void check_mixture(struct rig *rig, const struct mixture *m, const char *path, uint64_t seed)
{
	struct pending pending[DEPTH] = { 0 };
	_cleanup_(freep) uint8_t *model = malloc(FILE_BYTES);
	_cleanup_(freep) uint8_t *expected = malloc(DEPTH * OP_BYTES_MAX);
	_cleanup_(freep) uint8_t *private = NULL;
	void *memory = NULL;
	uint64_t random = seed << 32;

	CHECK(model && expected);
	CHECK((private = malloc(DEPTH * OP_BYTES_MAX)));
	if (m->memory != PRIVATE)
		CHECK_CALL(dsaio_alloc(rig->client, DEPTH * OP_BYTES_MAX, NULL, &memory));
	pattern_fill(model, FILE_BYTES, 1, 0);
	for (unsigned i = 0; i < DEPTH; i++) {
		pending[i].memory = (m->memory == PRIVATE || (m->memory == BOTH && i % 3 == 0)
					     ? private
					     : (uint8_t *)memory) +
				    i * OP_BYTES_MAX;
		pending[i].expected = expected + i * OP_BYTES_MAX;
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < DEPTH; i++) {
			pending_end(&pending[i]);
			submit_one(rig, m, &pending[i], model, &random);
		}
	}
	for (unsigned i = 0; i < DEPTH; i++)
		pending_end(&pending[i]);
	CHECK_EQ(handle_wait(rig->handle, -1), DEPTH * ROUNDS);

	{
		_cleanup_(closep) int fd = open_direct(path, O_RDONLY);
		uint8_t *left = expected; /* page aligned memory is not promised: copy */
		void *aligned;

		CHECK(!posix_memalign(&aligned, 4096, FILE_BYTES));
		CHECK_EQ(pread(fd, aligned, FILE_BYTES, 0), FILE_BYTES);
		memcpy(left, aligned, FILE_BYTES);
		free(aligned);
		for (size_t i = 0; i < FILE_BYTES; i++)
			CHECK_MSG(left[i] == model[i], "byte %zu of the file is 0x%02x, not 0x%02x",
				  i, left[i], model[i]);
	}
	CHECK_CALL(dsaio_free(rig->client, memory)); /* NULL is fine */
}

static void check_with_profile(const struct mixture *m, const struct dsaio_profile *profile,
			       unsigned n_times)
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *path, *link_path;

	rig_open(&rig, profile);
	path = daemon_path(rig.daemon, "f");
	link_path = daemon_path(rig.daemon, "hard link");
	file_make_pattern(path, FILE_BYTES, 1);
	CHECK_SYS(link(path, link_path));
	/* One inode: opened once, opened again, by another name, and by fd. */
	rig_file(&rig, "f", O_RDWR);
	rig_file(&rig, "f", O_RDWR);
	rig_file(&rig, "hard link", O_RDWR);
	{
		_cleanup_(closep) int fd = open_direct(path, O_RDWR);

		CHECK_CALL(dsaio_file_from_fd(rig.client, fd, &rig.files[rig.n_files++]));
	}
	for (unsigned i = 0; i < n_times; i++) {
		file_make_pattern(path, FILE_BYTES, 1);
		check_mixture(&rig, m, path, test_seed() + i);
	}
}

TEST_TABLE(order, mixtures, "order")
{
	check_with_profile(&mixtures[row], NULL, 2);
}

TEST_TABLE(order_parts, mixtures, "order in small blocks and 3 parts")
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;

	profile.block_size = 8u << 10;
	profile.queue_depth = 5;
	profile.intra_op_parallelism = 3;
	check_with_profile(&mixtures[row], &profile, 1);
}

/* ---- syncs ---- */

TEST(sync_last, "a sync ends after all writes of its file that were submitted before it")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_op *writes[32], *sync;
	struct dsaio_file *file, *again;
	void *memory;

	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	again = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 32 * MIB, NULL, &memory));
	for (unsigned round = 0; round < 10; round++) {
		for (unsigned i = 0; i < 32; i++)
			CHECK_CALL(dsaio_pwrite_async(rig.handle, file, (char *)memory + i * MIB,
						      MIB, i * MIB, &writes[i]));
		/* By another file object of the same inode. */
		CHECK_CALL(round % 2 ? dsaio_fsync_async(rig.handle, again, 0, &sync)
				     : dsaio_fsync_async(rig.handle, again, DSAIO_DATASYNC, &sync));
		CHECK_EQ(op_wait(sync, -1), 0);
		for (unsigned i = 0; i < 32; i++) {
			CHECK_EQ(op_is_done(writes[i]), 1);
			CHECK_EQ(dsaio_op_result(writes[i]), MIB);
			dsaio_op_free(writes[i]);
		}
		dsaio_op_free(sync);
	}
}

TEST(sync_other, "syncs: blocking, of an empty file, of a file without writes, read-only")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file, *read_only;

	file = rig_file(&rig, "empty", O_RDWR | O_CREAT);
	read_only = rig_file(&rig, "empty", O_RDONLY);
	CHECK_EQ(dsaio_fsync(rig.handle, file, 0), 0);
	CHECK_EQ(dsaio_fsync(rig.handle, file, DSAIO_DATASYNC), 0);
	CHECK_EQ(dsaio_fsync(rig.handle, read_only, 0), 0); /* as fsync(2) */
	CHECK_EQ(handle_wait(rig.handle, -1), 0);
}

#define LARGE_BYTES (16 * MIB)

static void start_sync(const struct rig *rig, void *memory, struct dsaio_op **ret_op)
{
	CHECK_EQ(dsaio_pwrite(rig->handle, rig->files[0], memory, LARGE_BYTES, 0), LARGE_BYTES);
	CHECK_CALL(dsaio_fsync_async(rig->handle, rig->files[0], 0, ret_op));
}

static void start_write(const struct rig *rig, void *memory, struct dsaio_op **ret_op)
{
	CHECK_CALL(dsaio_pwrite_async(rig->handle, rig->files[0], memory, LARGE_BYTES, 0, ret_op));
}

static const struct {
	const char *what;
	void (*start)(const struct rig *rig, void *memory, struct dsaio_op **ret_op);
	unsigned file; /* that is read meanwhile, */
	uint64_t off;  /* and where */
} pairs[] = {
	{ "a read behind a sync of another file", start_sync, 1, 0 },
	{ "a read behind a write of another file", start_write, 1, 0 },
	{ "a read behind a write of another range", start_write, 0, LARGE_BYTES },
};

/* In how many rounds of the same handle the small read, submitted later, ends before the large op
   depends on the device.  If it waited for it, that would be none. */
TEST_TABLE(independent, pairs, "ops that do not conflict do not wait for each other")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_op *large, *small;
	bool is_first = false;
	unsigned n = 0;
	uint8_t *memory;

	file_make_pattern(daemon_path(rig.daemon, "f"), 2 * LARGE_BYTES, 1);
	file_make_pattern(daemon_path(rig.daemon, "g"), MIB, 2);
	rig_file(&rig, "f", O_RDWR);
	rig_file(&rig, "g", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, LARGE_BYTES + 4096, NULL, (void **)&memory));
	for (; !is_first; n++) { /* at most the test's time */
		pairs[row].start(&rig, memory, &large);
		CHECK_CALL(dsaio_pread_async(rig.handle, rig.files[pairs[row].file],
					     memory + LARGE_BYTES, 4096, pairs[row].off, &small));
		CHECK_EQ(op_wait(small, -1), 4096);
		is_first = op_is_done(large) == 0;
		CHECK(op_wait(large, -1) >= 0);
		dsaio_op_free(small);
		dsaio_op_free(large);
	}
	test_note("%s: it was first in round %u", pairs[row].what, n);
}

/* ---- the end of the file ---- */

static const struct {
	const char *what;
	bool is_private;
} memories[] = { { "pinned memory", false }, { "private memory", true } };

TEST_TABLE(cut_by_others, memories,
	   "a read behind an extending write reads its bytes, though others have cut the file")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t *from, *to, *private = malloc(8 * MIB);
	struct dsaio_op *write, *read;
	struct dsaio_file *file;
	const char *path;

	CHECK(private);
	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "f");
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(rig.client, 8 * MIB, NULL, (void **)&from));
	to = memories[row].is_private ? private : from + 4 * MIB;
	for (unsigned round = 0; round < 5; round++) {
		pattern_fill(from, 4 * MIB, round, 0);
		CHECK_EQ(dsaio_pwrite(rig.handle, file, from, 4 * MIB, 0), 4 * MIB);
		CHECK_SYS(truncate(path, 0));
		usleep(10000); /* what the library saw of the size is old then */
		CHECK_CALL(dsaio_pwrite_async(rig.handle, file, from, 4 * MIB - 77, 0, &write));
		CHECK_CALL(dsaio_pread_async(rig.handle, file, to, 2 * MIB, 3 * MIB, &read));
		CHECK_EQ(op_wait(read, -1), MIB - 77);
		pattern_check(to, MIB - 77, round, 3 * MIB, "what the write wrote");
		CHECK_EQ(op_wait(write, -1), 4 * MIB - 77);
		dsaio_op_free(read);
		dsaio_op_free(write);
	}
	free(private);
}

/* So that this process can open nothing more.  Returns how many were added to fds. */
static int take_descriptors(int *fds)
{
	int n = 0;

	while ((fds[n] = fcntl(0, F_DUPFD_CLOEXEC, 3)) >= 0)
		n++;
	CHECK_EQ(errno, EMFILE);
	return n;
}

TEST(cut_without_descriptors,
     "a read behind an extending write reads its bytes, though no descriptor can be had")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	int fds[256], n;
	struct dsaio_op *write, *read;
	struct dsaio_file *file, *other;
	struct rlimit limit;
	uint8_t *memory;

	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(rig.client, 8 * MIB, NULL, (void **)&memory));
	pattern_fill(memory, 4 * MIB, 1, 0);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 4096, 0), 4096);
	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 128;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	n = take_descriptors(fds);
	/* The file's own descriptor makes room for this one's, and is then taken, too. */
	(void)dsaio_open(rig.client, daemon_path(rig.daemon, "g"), O_RDWR | O_CREAT, NULL, &other);
	n += take_descriptors(fds + n);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory, 4 * MIB, 0, &write));
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory + 4 * MIB, MIB, 3 * MIB, &read));
	CHECK_EQ(op_wait(read, -1), MIB);
	pattern_check(memory + 4 * MIB, MIB, 1, 3 * MIB, "what the write wrote");
	CHECK_EQ(op_wait(write, -1), 4 * MIB);
	while (n)
		close(fds[--n]);
	limit.rlim_cur = limit.rlim_max;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	dsaio_op_free(read);
	dsaio_op_free(write);
}

TEST_MAIN
