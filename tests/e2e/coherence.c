/*
 * Ragged ranges by the raw protocol: any offset, length and address gives what pread(2) and
 * pwrite(2) would, by rings and by Submit; and neighbours who write next to each other in one
 * file, half through the page cache and half past it, while others read the same pages, disturb
 * each other in no byte and in no fsync.
 */
#include "tests/stores.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct daemon *start_on(enum store_kind kind)
{
	struct store store;

	store_make(&store, kind, 0);
	return daemon_start_with(&(struct daemon_options){ .store_dir = store.path });
}

/* ---- clients ---- */

struct kit {
	struct raw raw;
	struct raw_slab slab;
	struct raw_file file;
	struct raw_channel channel;
};

static void add_buffered(struct raw *raw, uint32_t file, const char *path)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_RDWR | O_CLOEXEC));
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__FileBuffered buffered = WIRE__FILE_BUFFERED__INIT;
	Wire__Request request = RAW_REQUEST(FILE_BUFFERED, file_buffered, &buffered);

	buffered.file = file;
	raw_call_ok(raw, &request, &fd, 1, &answer);
}

static void kit_open(struct kit *kit, const struct daemon *daemon, const char *path,
		     size_t slab_bytes, bool rings, bool buffered)
{
	*kit = (struct kit){ .raw = RAW_NONE };
	raw_open(&kit->raw, daemon);
	raw_slab(&kit->raw, slab_bytes, &kit->slab);
	raw_file(&kit->raw, path, O_RDWR, &kit->file);
	if (buffered)
		add_buffered(&kit->raw, kit->file.id, path);
	raw_channel(&kit->raw, raw_handle(&kit->raw), kit->file.store, 64, rings, &kit->channel);
}

static void kit_close(struct kit *kit)
{
	raw_slab_unmap(&kit->slab);
	raw_channel_unmap(&kit->channel);
	raw_close(&kit->raw);
}

static struct ring_entry kit_entry(const struct kit *kit, uint8_t opcode, uint64_t off,
				   uint64_t len, uint64_t slab_off)
{
	return (struct ring_entry){ .opcode = opcode,
				    .file = kit->file.id,
				    .slab = opcode == RING_OP_FSYNC ? 0 : kit->slab.id,
				    .off = off,
				    .len = len,
				    .slab_off = slab_off };
}

/* ---- no buffered description ---- */

static const struct {
	const char *what;
	bool rings;
	uint64_t off, len, slab_off;
} ragged[] = {
	{ "odd offset, by ring", true, 1, 4096, 0 },
	{ "odd length, by ring", true, 0, 100001, 0 },
	{ "odd address, by Submit", false, 0, 4096, 1 },
	{ "odd address of a large range, by Submit", false, 4096, 131072, 1 },
};

TEST_TABLE(no_buffered, ragged, "unaligned writes need a buffered description, reads do not")
{
	struct daemon *daemon = daemon_start(NULL);
	const char *path = daemon_path(daemon, "f");
	uint64_t off = ragged[row].off, len = ragged[row].len, slab_off = ragged[row].slab_off;
	int64_t r;
	struct kit kit;

	file_make_pattern(path, MIB, 1);
	kit_open(&kit, daemon, path, MIB, ragged[row].rings, false);
	memset(kit.slab.memory, 0x55, MIB);
	r = raw_run_one(&kit.channel, kit_entry(&kit, RING_OP_WRITE, off, len, slab_off));
	CHECK_EQ(ring_result_errno(r), EOPNOTSUPP);
	CHECK_EQ(ring_result_done(r), 0);
	file_check_pattern(path, 0, MIB, 1, 0);
	CHECK_EQ(raw_run_one(&kit.channel, kit_entry(&kit, RING_OP_READ, off, len, slab_off)), len);
	pattern_check(kit.slab.memory + slab_off, len, 1, off, "what was read");
	CHECK(!slab_off || kit.slab.memory[slab_off - 1] == 0x55);
	CHECK_EQ(kit.slab.memory[slab_off + len], 0x55);

	add_buffered(&kit.raw, kit.file.id, path);
	pattern_fill(kit.slab.memory + slab_off, len, 2, off);
	CHECK_EQ(raw_run_one(&kit.channel, kit_entry(&kit, RING_OP_WRITE, off, len, slab_off)),
		 len);
	file_check_pattern(path, 0, off, 1, 0);
	file_check_pattern(path, off, len, 2, off);
	file_check_pattern(path, off + len, MIB - off - len, 1, off + len);
	kit_close(&kit);
}

/* ---- against a model ---- */

#define FILE_MAX (2 * MIB)
#define PLACE_BYTES (512 * KIB) /* of the slab, for one op */
#define BATCH 16u

static const struct {
	const char *what;
	enum store_kind kind;
	bool rings;
} models[] = {
	{ "ext4, by ring", STORE_EXT4, true },
	{ "ext4, by Submit", STORE_EXT4, false },
	{ "XFS of 4 KiB sectors, by ring", STORE_XFS, true },
	{ "XFS of 4 KiB sectors, by Submit", STORE_XFS, false },
};

static uint64_t random_len(uint64_t *state)
{
	static const uint64_t most[] = { 16, 5000, 70000, 400 * KIB };

	return 1 + test_random(state) % most[test_random(state) % ARRAY_SIZE(most)];
}

struct model {
	uint8_t *bytes; /* FILE_MAX */
	uint64_t size;
};

/* The effect that pwrite(2) would have. */
static void model_write(struct model *model, uint64_t off, const uint8_t *from, uint64_t len)
{
	memcpy(model->bytes + off, from, len); /* a hole before it reads as zeroes */
	if (off + len > model->size)
		model->size = off + len;
}

static uint64_t model_read(const struct model *model, uint64_t off, uint64_t len)
{
	if (off >= model->size)
		return 0;
	return model->size - off < len ? model->size - off : len;
}

/* A direct read beyond the end: the kernel may leave zeroes behind what it says that it read. */
static bool may_change(const struct ring_entry *entry, int64_t done, uint64_t at)
{
	return entry->opcode == RING_OP_READ && entry->len > 60 * KIB &&
	       at >= entry->slab_off + (uint64_t)done && at < entry->slab_off + entry->len;
}

/*
 * One batch: what conflicts in it goes in order, so the model does one after the other.  But where
 * the file ends is no byte that an op waits for: a batch that may move it reads before it alone.
 */
static void run_batch(struct kit *kit, struct model *model, uint64_t *state, uint8_t *expected)
{
	struct ring_entry entries[BATCH];
	int64_t results[BATCH], wanted[BATCH];
	unsigned n = 1 + (unsigned)(test_random(state) % BATCH);
	bool may_extend = test_random(state) % 3 == 0 || !model->size;
	uint64_t end = model->size;

	for (unsigned i = 0; i < n; i++) {
		uint64_t place = i * PLACE_BYTES, len = random_len(state);
		uint64_t off = test_random(state) % (FILE_MAX - len);
		uint64_t kind = test_random(state) % 16, slab_off;

		/* Congruent to the offset, aligned, or anywhere. */
		switch (test_random(state) % 3) {
		case 0:
			slab_off = place + 8192 + off % 4096;
			break;
		case 1:
			slab_off = place + 8192;
			off &= ~UINT64_C(4095);
			break;
		default:
			slab_off = place + 8192 + test_random(state) % 4096;
			break;
		}
		if (kind >= 9 && may_extend && off + len > end)
			kind = 1;
		if (kind && kind < 9 && !may_extend && off + len > end)
			kind = 9;
		memset(kit->slab.memory + place, 0xEE, PLACE_BYTES);
		memset(expected + place, 0xEE, PLACE_BYTES);
		if (kind == 0) {
			entries[i] = kit_entry(kit, RING_OP_FSYNC, 0, 0, 0);
			wanted[i] = 0;
		} else if (kind < 9) {
			entries[i] = kit_entry(kit, RING_OP_WRITE, off, len, slab_off);
			pattern_fill(kit->slab.memory + slab_off, len, test_random(state), off);
			memcpy(expected + slab_off, kit->slab.memory + slab_off, len);
			model_write(model, off, expected + slab_off, len);
			wanted[i] = (int64_t)len;
		} else {
			entries[i] = kit_entry(kit, RING_OP_READ, off, len, slab_off);
			wanted[i] = (int64_t)model_read(model, off, len);
			memcpy(expected + slab_off, model->bytes + off, (size_t)wanted[i]);
		}
	}
	raw_run(&kit->channel, entries, n, results);
	for (unsigned i = 0; i < n; i++) {
		CHECK_MSG(results[i] == wanted[i],
			  "op %u of %u: opcode %u, %" PRIu64 " bytes at %" PRIu64
			  ", memory at %" PRIu64 ": %" PRId64 " (errno %d), not %" PRId64,
			  i, n, entries[i].opcode, entries[i].len, entries[i].off,
			  entries[i].slab_off, results[i], ring_result_errno(results[i]),
			  wanted[i]);
		for (size_t b = i * PLACE_BYTES; b < (i + 1) * PLACE_BYTES; b++)
			CHECK_MSG(kit->slab.memory[b] == expected[b] ||
					  may_change(&entries[i], results[i], b),
				  "op %u of %u: opcode %u, %" PRIu64 " bytes at %" PRIu64
				  ", memory at %" PRIu64 ": byte %zu is wrong",
				  i, n, entries[i].opcode, entries[i].len, entries[i].off,
				  entries[i].slab_off, b - i * PLACE_BYTES);
	}
}

TEST_TABLE(model, models, "random unaligned ranges are as in memory")
{
	struct daemon *daemon = start_on(models[row].kind);
	const char *path = daemon_path(daemon, "f");
	uint64_t state = test_seed() + (uint64_t)row;
	_cleanup_(freep) uint8_t *bytes = calloc(1, FILE_MAX);
	_cleanup_(freep) uint8_t *expected = malloc(BATCH * PLACE_BYTES);
	_cleanup_(freep) uint8_t *left = malloc(FILE_MAX);
	_cleanup_(closep) int fd = -1;
	struct model model = { .bytes = bytes };
	int64_t until = now_usec() + 3000000;
	unsigned n_rounds = 0;
	struct kit kit;

	file_make_sparse(path, 0);
	fd = (int)CHECK_SYS(open(path, O_RDONLY | O_CLOEXEC));
	kit_open(&kit, daemon, path, BATCH * PLACE_BYTES, models[row].rings, true);
	while (n_rounds < 20 || (n_rounds < 300 && now_usec() < until)) {
		run_batch(&kit, &model, &state, expected);
		CHECK_EQ(file_size(path), model.size);
		n_rounds++;
	}
	CHECK_EQ(pread(fd, left, FILE_MAX, 0), model.size);
	CHECK(!memcmp(left, bytes, model.size));
	CHECK_SYS(fsync(fd)); /* opened before: it would tell of any error since */
	test_note("%u rounds", n_rounds);
	kit_close(&kit);
}

/* ---- neighbours ---- */

#define CLIENTS_MAX 4u
#define LOT 40u
#define RECORDS_MAX 120u /* a client's are every n-th */

struct record {
	uint64_t off, len;
	size_t slab_off;
};

static struct {
	struct daemon *daemon;
	const char *path;
	uint64_t file_bytes;
	struct record records[RECORDS_MAX];
	unsigned n_records;
	unsigned n_clients;
	size_t slab_bytes[CLIENTS_MAX];
	unsigned n_rounds;
	int64_t until_usec;
	_Atomic bool must_stop;
	_Atomic uint64_t n_passes, n_done;
} shop;

/* Ragged records, one after the other, without a gap. */
static void records_make(void)
{
	static const uint64_t most[] = { 300, 5000, 200 * KIB, 1 * MIB };
	uint64_t state = test_seed();

	for (unsigned i = 0; i < shop.n_records; i++) {
		struct record *record = &shop.records[i];
		size_t *used = &shop.slab_bytes[i % shop.n_clients];

		record->off = shop.file_bytes;
		record->len = 1 + test_random(&state) % most[test_random(&state) % 4];
		if (shop.n_records < RECORDS_MAX)
			record->len += 2 * MIB;
		/* Congruent, so that the middle goes direct; some are not. */
		*used = (*used + 4095) & ~(size_t)4095;
		record->slab_off = *used + (i % 7 ? record->off % 4096 : 1);
		*used = record->slab_off + record->len;
		shop.file_bytes += record->len;
	}
}

static uint64_t record_seed(unsigned record, unsigned round)
{
	return ((uint64_t)record << 32) + round;
}

/* All of the client's, many at a time; a sync behind each lot of writes. */
static void records_run(struct kit *kit, unsigned client, uint8_t opcode)
{
	struct ring_entry entries[LOT + 1];
	int64_t results[LOT + 1];

	for (unsigned record = client; record < shop.n_records;) {
		unsigned n = 0;

		for (; record < shop.n_records && n < LOT; record += shop.n_clients) {
			const struct record *r = &shop.records[record];

			entries[n++] = kit_entry(kit, opcode, r->off, r->len, r->slab_off);
		}
		if (opcode == RING_OP_WRITE)
			entries[n++] = kit_entry(kit, RING_OP_FSYNC, 0, 0, 0);
		raw_run(&kit->channel, entries, n, results);
		for (unsigned i = 0; i < n; i++)
			CHECK_MSG(results[i] == (int64_t)entries[i].len,
				  "client %u: opcode %u of %" PRIu64 " at %" PRIu64 ": %" PRId64
				  " (errno %d)",
				  client, entries[i].opcode, entries[i].len, entries[i].off,
				  results[i], ring_result_errno(results[i]));
	}
}

/* Writes its own records and reads them back, round by round. */
static void *neighbour(void *arg)
{
	unsigned client = (unsigned)(uintptr_t)arg, n_done = 0;
	struct kit kit;

	kit_open(&kit, shop.daemon, shop.path, shop.slab_bytes[client], client % 2, true);
	for (unsigned round = 1; round <= shop.n_rounds; round++) {
		bool is_last = round == shop.n_rounds;

		if (!is_last && round > 3 && now_usec() > shop.until_usec)
			continue; /* to the last round, which is in the file at the end */
		for (unsigned i = client; i < shop.n_records; i += shop.n_clients)
			pattern_fill(kit.slab.memory + shop.records[i].slab_off,
				     shop.records[i].len, record_seed(i, round), 0);
		n_done++;
		records_run(&kit, client, RING_OP_WRITE);
		memset(kit.slab.memory, 0, shop.slab_bytes[client]);
		records_run(&kit, client, RING_OP_READ);
		for (unsigned i = client; i < shop.n_records; i += shop.n_clients)
			pattern_check(
				kit.slab.memory + shop.records[i].slab_off, shop.records[i].len,
				record_seed(i, round), 0,
				test_text("client %u, round %u, record %u", client, round, i));
	}
	atomic_store(&shop.n_done, n_done);
	kit_close(&kit);
	return NULL;
}

/*
 * Brings the same pages into the cache, with readahead, again and again.  Dropped before, or pages
 * of unaligned ends stay there as the small folios that they were written in: in a large one they are
 * together with pages of a neighbour's direct middle.
 */
static void *reader(void *arg)
{
	bool at_ends = arg;
	_cleanup_(freep) uint8_t *buf = malloc(MIB);
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(shop.path, O_RDONLY | O_CLOEXEC));
	uint64_t state = (uintptr_t)arg;

	CHECK_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL), 0);
	while (!atomic_load(&shop.must_stop)) {
		uint64_t off = 0, end = shop.file_bytes;

		if (at_ends) { /* of records */
			off = shop.records[test_random(&state) % shop.n_records].off;
			end = off + 64 * KIB;
			off = off > 64 * KIB ? off - 64 * KIB : 0;
		}
		CHECK_EQ(posix_fadvise(fd, (off_t)off, (off_t)(end - off), POSIX_FADV_DONTNEED), 0);
		for (; off < end; off += MIB)
			CHECK_SYS(pread(fd, buf, end - off < MIB ? end - off : MIB, (off_t)off));
		(void)atomic_fetch_add(&shop.n_passes, 1);
	}
	return NULL;
}

static const struct {
	const char *what;
	enum store_kind kind;
	unsigned n_clients, n_records;
} places[] = {
	{ "many records, ext4", STORE_EXT4, 4, RECORDS_MAX },
	{ "many records, XFS of 4 KiB sectors", STORE_XFS, 4, RECORDS_MAX },
	{ "large ones of one client, ext4", STORE_EXT4, 1, 12 },
	{ "large ones of one client, XFS of 4 KiB sectors", STORE_XFS, 1, 12 },
};

TEST_TABLE(neighbours, places, "neighbours in one file, and a buffered reader")
{
	pthread_t clients[CLIENTS_MAX], readers[3];
	_cleanup_(closep) int fd = -1;

	shop.daemon = start_on(places[row].kind);
	shop.path = daemon_path(shop.daemon, "f");
	shop.n_clients = places[row].n_clients;
	shop.n_records = places[row].n_records;
	shop.n_rounds = 10000;
	shop.until_usec = now_usec() + 6000000;
	records_make();
	file_make_sparse(shop.path, shop.file_bytes);
	fd = (int)CHECK_SYS(open(shop.path, O_RDWR | O_CLOEXEC));

	for (unsigned i = 0; i < ARRAY_SIZE(readers); i++)
		CHECK_EQ(pthread_create(&readers[i], NULL, reader, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < shop.n_clients; i++)
		CHECK_EQ(pthread_create(&clients[i], NULL, neighbour, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < shop.n_clients; i++)
		CHECK_EQ(pthread_join(clients[i], NULL), 0);
	atomic_store(&shop.must_stop, true);
	for (unsigned i = 0; i < ARRAY_SIZE(readers); i++)
		CHECK_EQ(pthread_join(readers[i], NULL), 0);

	/* Content of the file, through the cache and past it; and no error was kept back for
	   a description that was open all the time. */
	for (unsigned i = 0; i < shop.n_records; i++)
		file_check_pattern(shop.path, shop.records[i].off, shop.records[i].len,
				   record_seed(i, shop.n_rounds), 0);
	CHECK_SYS(fsync(fd));
	CHECK_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	for (unsigned i = 0; i < shop.n_records; i++)
		file_check_pattern(shop.path, shop.records[i].off, shop.records[i].len,
				   record_seed(i, shop.n_rounds), 0);
	CHECK_EQ(file_size(shop.path), shop.file_bytes);
	test_note("%" PRIu64 " bytes, %u rounds, read %" PRIu64 " times beside", shop.file_bytes,
		  (unsigned)shop.n_done, (uint64_t)atomic_load(&shop.n_passes));
}

/* ---- a program without the daemon ---- */

/* Its bytes lie at the start of every STEP-th part of the file.  Ops of the daemon's client end before them, or begin
   behind.  Ops this long take long enough that the program often writes meanwhile. */
#define STEP MIB
#define N_STEPS 16u
#define PLAIN_OFF 1024
#define PLAIN_LEN 512u

/* Writes through the page cache until stop_fd is readable.  Then its fsync reports any error since the open. */
static void plain_writer(int fd, int stop_fd)
{
	char bytes[PLAIN_LEN] = { 0 };

	for (unsigned i = 0; !wait_readable(stop_fd, 100); i++)
		CHECK_EQ(pwrite(fd, bytes, sizeof(bytes), (off_t)(i % N_STEPS * STEP) + PLAIN_OFF),
			 PLAIN_LEN);
	CHECK_SYS(fsync(fd));
}

static const struct {
	const char *what;
	struct range range;
} sectors[] = {
	{ "the head", { .len = STEP - 1536, .off = 1536, .misalign = 1536, .is_pinned = true } },
	{ "the tail", { .len = STEP - 3072, .off = 4096, .is_pinned = true, .is_async = true } },
	{ "both, of private memory", { .len = STEP - 512, .off = 1536 } },
};

TEST_TABLE(plain_fsync, sectors, "a plain program's fsync succeeds beside writes of whole sectors")
{
	struct range range = sectors[row].range;
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(guarded_free) struct guarded g = { 0 };
	_cleanup_(closep) int fd = -1;
	struct dsaio_file *file;
	const char *path;
	int stop[2];
	pid_t pid;

	CHECK_SYS(pipe2(stop, O_CLOEXEC));
	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, (N_STEPS + 1) * STEP, 2);
	fd = (int)CHECK_SYS(open(path, O_RDWR | O_CLOEXEC));
	CHECK_SYS(fsync(fd)); /* allocates the blocks of the file */
	/* Large folios would have pages of both: see mode_lock.h. */
	CHECK_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	pid = (pid_t)CHECK_SYS(fork());
	if (!pid) {
		plain_writer(fd, stop[0]);
		_exit(0);
	}
	file = rig_file(&rig, "f", O_RDWR);
	guarded_new(&g, range.is_pinned ? rig.client : NULL, range.len, range.misalign);
	for (unsigned i = 0; i < 20 * N_STEPS; i++) {
		range.off = sectors[row].range.off + i % N_STEPS * STEP;
		pattern_fill(g.memory, range.len, 1, range.off);
		CHECK_EQ(range_write(&rig, file, g.memory, &range), range.len);
	}
	CHECK_EQ(write(stop[1], "", 1), 1);
	child_wait_ok(pid);
	for (unsigned i = 0; i < N_STEPS; i++) {
		range.off = sectors[row].range.off + i * STEP;
		file_check_pattern(path, range.off, range.len, 1, range.off);
	}
}

TEST_MAIN
