#include "tests/mixed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_MAX (2 * MIB)
#define N_OPS 10u
#define LEN_MAX (160 * KIB)
#define STRIDE (LEN_MAX + 8 * KIB) /* of the memory of two ops of a batch */
#define MEMORY_BYTES (N_OPS * STRIDE)

/* The effect of a write or a truncation on its range: the pattern of seed, or zeros where that is 0. */
struct change {
	_Atomic bool is_uncertain;
	uint64_t off, len, seed;
};

/* A slot's shadow; shared, so that it outlives its clients. */
struct slot {
	uint8_t sure[FILE_MAX]; /* the bytes, except for uncertain changes */
	uint64_t size_min, size_max;
	struct change changes[N_OPS + 1]; /* one for each op of a batch, and a truncation */
	_Atomic uint64_t n_batches, n_ops, n_failed, n_uncertain;
};

static struct {
	struct slot *slots;
	_Atomic bool *must_stop; /* shared */
	pid_t pids[MIXED_MAX], last_pids[MIXED_MAX];
	unsigned lives[MIXED_MAX], n, flags;
	struct daemon *daemon;
} mixed;

/* ---- a client ---- */

enum memory_kind { PINNED, PRIVATE, REGISTERED, N_MEMORY_KINDS };

struct op {
	struct dsaio_op *op;
	uint8_t *at;
	uint64_t off, len, seed;
	bool is_write, is_cancelled;
	int64_t result;
};

struct worker {
	unsigned index, life;
	uint64_t random, n_seeds;
	struct slot *slot;
	const char *path;
	struct rig rig;
	struct dsaio_file *file;
	int memfd;
	uint8_t *memory[N_MEMORY_KINDS];
	struct op ops[N_OPS];
	unsigned n;
	uint64_t size_before; /* of the file, before the batch */
};

__attribute__((format(printf, 2, 3))) _Noreturn static void fail(const struct worker *w,
								 const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	test_fail("TEST_SEED=%u, client %u, life %u, batch %" PRIu64 ": %s", test_seed(), w->index,
		  w->life, atomic_load(&w->slot->n_batches), text);
}

static uint64_t below(struct worker *w, uint64_t n)
{
	return test_random(&w->random) % n;
}

/* A call that no kill and no restart may disturb. */
static void must(const struct worker *w, int64_t result, const char *what)
{
	if (result < 0)
		fail(w, "%s: %s (%s)", what, strerror((int)-result), dsaio_error());
}
#define MUST(w, call) must(w, (int64_t)(call), #call)

static uint8_t changed(const struct change *change, uint64_t pos)
{
	uint8_t byte = 0;

	if (change->seed)
		pattern_fill(&byte, 1, change->seed, pos);
	return byte;
}

static bool may_be(const struct slot *slot, uint8_t byte, uint64_t pos)
{
	for (unsigned i = 0; i <= N_OPS; i++) {
		const struct change *change = &slot->changes[i];

		if (atomic_load(&change->is_uncertain) && pos - change->off < change->len &&
		    changed(change, pos) == byte)
			return true;
	}
	return slot->sure[pos] == byte;
}

/* Each byte is one that it may be. */
static void check_bytes(const struct worker *w, const uint8_t *bytes, uint64_t off, uint64_t len,
			const char *what)
{
	const struct slot *slot = w->slot;

	if (memcmp(bytes, slot->sure + off, len) == 0)
		return;
	for (uint64_t i = 0; i < len; i++)
		if (bytes[i] != slot->sure[off + i] && !may_be(slot, bytes[i], off + i))
			fail(w,
			     "%s from byte %" PRIu64 ": byte %" PRIu64 " of %" PRIu64
			     " is 0x%02x, not 0x%02x",
			     what, off, i, len, bytes[i], slot->sure[off + i]);
}

/* The file's bytes are sure now: nothing changes them any more.  A kill in between only leaves it uncertain. */
static void settle(struct worker *w)
{
	_cleanup_(closep) int fd = open(w->path, O_RDONLY | O_CLOEXEC);
	struct slot *slot = w->slot;
	static uint8_t bytes[FILE_MAX];
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || (n = pread(fd, bytes, FILE_MAX, 0)) != st.st_size)
		fail(w, "%s cannot be read: %s", w->path, strerror(errno));
	if ((uint64_t)n < slot->size_min || (uint64_t)n > slot->size_max)
		fail(w, "the file has %zd bytes, not %" PRIu64 " to %" PRIu64, n, slot->size_min,
		     slot->size_max);
	check_bytes(w, bytes, 0, (uint64_t)n, "the file");
	memcpy(slot->sure, bytes, (size_t)n);
	memset(slot->sure + n, 0, FILE_MAX - (size_t)n);
	slot->size_min = slot->size_max = (uint64_t)n;
	for (unsigned i = 0; i <= N_OPS; i++)
		atomic_store(&slot->changes[i].is_uncertain, false);
}

static void change_begin(struct worker *w, unsigned i, uint64_t off, uint64_t len, uint64_t seed)
{
	struct change *change = &w->slot->changes[i];

	change->off = off;
	change->len = len;
	change->seed = seed;
	atomic_store(&change->is_uncertain, true);
	if (seed && off + len > w->slot->size_max)
		w->slot->size_max = off + len;
}

static void change_done(struct worker *w, unsigned i)
{
	struct change *change = &w->slot->changes[i];

	if (change->seed)
		pattern_fill(w->slot->sure + change->off, change->len, change->seed, change->off);
	else
		memset(w->slot->sure + change->off, 0, change->len);
	if (change->seed && change->off + change->len > w->slot->size_min)
		w->slot->size_min = change->off + change->len;
	atomic_store(&change->is_uncertain, false);
}

static bool may_fail(const struct op *op, int64_t result, const char *why)
{
	return (op && op->is_cancelled && result == -ECANCELED) ||
	       (result == -ECONNRESET && strstr(why, "two crashes")) ||
	       (mixed.flags & MIXED_FAULTS);
}

static void op_choose(struct worker *w, struct op *op, unsigned i)
{
	const uint64_t kind = below(w, N_MEMORY_KINDS), size = below(w, 4),
		       room = FILE_MAX - LEN_MAX;
	uint64_t skew;

	*op = (struct op){ .is_write = below(w, 5) < 3 };
	op->len = size == 0   ? 1 + below(w, 700)
		  : size == 1 ? 1 + below(w, LEN_MAX)
			      : 4096 * (1 + below(w, LEN_MAX / 4096));
	op->off = below(w, 4) ? below(w, room / 4096) * 4096 : below(w, room);
	if (below(w, 4) == 0) /* at the end of the file, which grows */
		op->off = w->slot->size_min < room ? w->slot->size_min : room;
	if (i && below(w, 4) == 0) /* overlaps the one before */
		op->off = w->ops[i - 1].off + below(w, 3) * 512;
	if (op->off > room)
		op->off = room;
	skew = below(w, 4) ? 0 : below(w, 4096);
	op->at = w->memory[kind] + i * STRIDE + skew;
	op->seed = ((uint64_t)w->life << 40) + ++w->n_seeds;
}

static void batch_start(struct worker *w)
{
	w->n = 1 + (unsigned)below(w, N_OPS);
	w->size_before = w->slot->size_min;
	for (unsigned i = 0; i < w->n; i++) {
		struct op *op = &w->ops[i];

		op_choose(w, op, i);
		if (op->is_write) {
			pattern_fill(op->at, op->len, op->seed, op->off);
			change_begin(w, i, op->off, op->len, op->seed);
			MUST(w, dsaio_pwrite_async(w->rig.handle, w->file, op->at, op->len, op->off,
						   &op->op));
		} else {
			memset(op->at, 0xee, op->len);
			MUST(w, dsaio_pread_async(w->rig.handle, w->file, op->at, op->len, op->off,
						  &op->op));
		}
	}
	if (below(w, 20) == 0) {
		struct op *op = &w->ops[below(w, w->n)];

		op->is_cancelled = true;
		(void)dsaio_op_cancel(op->op); /* it may have ended */
	}
}

/* How far a read has to get: to where the file ended before the batch, or an earlier write that overlaps does. */
static uint64_t read_end_min(const struct worker *w, unsigned i)
{
	const struct op *read = &w->ops[i];
	const uint64_t limit = read->off + read->len;
	uint64_t end = w->size_before;

	for (const struct op *op = w->ops; op < read; op++)
		if (op->is_write && op->result == (int64_t)op->len && op->off < limit &&
		    read->off < op->off + op->len && op->off + op->len > end)
			end = op->off + op->len;
	if (end <= read->off)
		return 0;
	return end < limit ? end : limit;
}

/* The effects, in the order of the ops: what overlaps is ordered by the library's promise. */
static void op_judge(struct worker *w, unsigned i)
{
	const struct op *op = &w->ops[i];

	if (op->result < 0 || (op->is_write && op->result != (int64_t)op->len)) {
		if (!may_fail(op, op->result, op->result < 0 ? dsaio_op_error(op->op) : ""))
			fail(w,
			     "op %u of %u: %s of %" PRIu64 " bytes at %" PRIu64 ": %" PRId64 ": %s",
			     i, w->n, op->is_write ? "write" : "read", op->len, op->off, op->result,
			     op->result < 0 ? dsaio_op_error(op->op) : "");
		atomic_fetch_add(&w->slot->n_failed, 1);
	} else if (op->is_write) {
		change_done(w, i);
	} else {
		if (op->result > (int64_t)op->len ||
		    (!(mixed.flags & MIXED_FAULTS) &&
		     op->off + (uint64_t)op->result < read_end_min(w, i)))
			fail(w,
			     "op %u: a read of %" PRIu64 " bytes at %" PRIu64 " of %" PRIu64
			     " has %" PRId64,
			     i, op->len, op->off, w->slot->size_min, op->result);
		check_bytes(w, op->at, op->off, (uint64_t)op->result, "a read");
	}
}

static void batch_end(struct worker *w)
{
	bool has_failed = false;

	for (unsigned i = 0; i < w->n; i++)
		w->ops[i].result = op_wait(w->ops[i].op, -1);
	for (unsigned i = 0; i < w->n; i++) {
		op_judge(w, i);
		has_failed |= w->ops[i].is_write && atomic_load(&w->slot->changes[i].is_uncertain);
		dsaio_op_free(w->ops[i].op);
	}
	(void)handle_wait(w->rig.handle, -1);
	if (has_failed) {
		for (unsigned i = 0; i < w->n; i++)
			if (atomic_load(&w->slot->changes[i].is_uncertain))
				atomic_fetch_add(&w->slot->n_uncertain, 1);
		settle(w);
	}
	atomic_fetch_add(&w->slot->n_ops, w->n);
	atomic_fetch_add(&w->slot->n_batches, 1);
}

/* A program that finds no daemon tries again: one is restarted. */
static void connect_it(struct worker *w)
{
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;
	int r;

	options.socket_path = mixed.daemon->socket_path;
	while ((r = dsaio_connect(&options, &w->rig.client)) == -ECONNREFUSED || r == -ENOENT)
		(void)poll(NULL, 0, 5);
	must(w, r, "dsaio_connect");
}

static void handle_new(struct worker *w)
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;

	profile.block_size = (uint32_t)(4096u << below(w, 6));
	profile.queue_depth = 1 + (uint32_t)below(w, 32);
	profile.single_submit = below(w, 2) ? DSAIO_YES : DSAIO_NO;
	profile.overlap_events = below(w, 2) ? DSAIO_YES : DSAIO_NO;
	profile.intra_op_parallelism = 1 + (uint32_t)below(w, 3);
	MUST(w, profile_open(w->rig.client, &profile, &w->rig.handle));
}

static void file_new(struct worker *w)
{
	MUST(w, dsaio_open(w->rig.client, w->path, O_RDWR, NULL, &w->file));
}

static void pinned_new(struct worker *w)
{
	MUST(w, dsaio_alloc(w->rig.client, MEMORY_BYTES, NULL, (void **)&w->memory[PINNED]));
}

static void truncate_it(struct worker *w)
{
	struct slot *slot = w->slot;
	const uint64_t size = below(w, slot->size_min + 1);

	slot->size_min = size;
	change_begin(w, N_OPS, size, FILE_MAX - size, 0);
	MUST(w, dsaio_file_truncate(w->file, size));
	change_done(w, N_OPS);
	slot->size_max = size;
}

/* No op is open. */
static void objects_change(struct worker *w)
{
	int r;

	switch (below(w, 32)) {
	case 0:
		MUST(w, dsaio_handle_close(w->rig.handle, -1));
		handle_new(w);
		break;
	case 1:
		dsaio_file_close(w->file);
		file_new(w);
		break;
	case 2:
		MUST(w, dsaio_free(w->rig.client, w->memory[PINNED]));
		pinned_new(w);
		break;
	case 3:
		MUST(w, dsaio_memory_unregister(w->rig.client, w->memory[REGISTERED]));
		MUST(w,
		     fd_register(w->rig.client, w->memfd, 0, MEMORY_BYTES, w->memory[REGISTERED]));
		break;
	case 4:
		truncate_it(w);
		break;
	case 5:
	case 6:
		r = (int)dsaio_fsync(w->rig.handle, w->file, below(w, 2) ? DSAIO_DATASYNC : 0);
		if (r < 0 && !may_fail(NULL, r, dsaio_error()))
			must(w, r, "dsaio_fsync");
		break;
	default:
		break;
	}
}

static void client_main(unsigned index)
{
	struct slot *slot = &mixed.slots[index];
	static struct worker worker;
	struct worker *w = &worker;

	*w = (struct worker){ .index = index, .life = mixed.lives[index], .slot = slot };
	w->random = ((uint64_t)test_seed() << 40) + ((uint64_t)index << 36) +
		    ((uint64_t)w->life << 20);
	w->path = daemon_path(mixed.daemon, test_text("mixed-%u", index));
	if (w->life > 1) {
		for (unsigned i = 0; i <= N_OPS; i++)
			if (atomic_load(&slot->changes[i].is_uncertain))
				atomic_fetch_add(&slot->n_uncertain, 1);
		settle(w);
	}
	connect_it(w);
	handle_new(w);
	file_new(w);
	pinned_new(w);
	w->memory[PRIVATE] = malloc(MEMORY_BYTES);
	w->memfd = (int)CHECK_SYS(memfd_create("mixed", MFD_CLOEXEC));
	CHECK_SYS(ftruncate(w->memfd, MEMORY_BYTES));
	w->memory[REGISTERED] = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
				     w->memfd, 0);
	CHECK(w->memory[PRIVATE] && w->memory[REGISTERED] != MAP_FAILED);
	MUST(w, fd_register(w->rig.client, w->memfd, 0, MEMORY_BYTES, w->memory[REGISTERED]));
	while (!atomic_load(mixed.must_stop)) {
		batch_start(w);
		batch_end(w);
		objects_change(w);
	}
	settle(w);
	MUST(w, dsaio_handle_close(w->rig.handle, -1));
	dsaio_file_close(w->file);
	MUST(w, dsaio_disconnect(w->rig.client));
	free(w->memory[PRIVATE]);
}

/* ---- all of them ---- */

static void client_start(unsigned index)
{
	mixed.lives[index]++;
	(void)fflush(NULL); /* or the child prints it again */
	mixed.pids[index] = (pid_t)CHECK_SYS(fork());
	if (mixed.pids[index] == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		client_main(index);
		_exit(0);
	}
}

void mixed_start(struct daemon *daemon, unsigned n, unsigned flags)
{
	const size_t bytes = MIXED_MAX * sizeof(struct slot);
	void *memory = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			    -1, 0);

	CHECK(memory != MAP_FAILED && n <= MIXED_MAX);
	if (mixed.slots)
		(void)munmap(mixed.slots, bytes + 4096);
	mixed.slots = memory;
	mixed.must_stop = (_Atomic bool *)((char *)memory + bytes);
	mixed.daemon = daemon;
	mixed.n = n;
	mixed.flags = flags;
	for (unsigned i = 0; i < n; i++) {
		mixed.lives[i] = 0;
		file_make_sparse(daemon_path(daemon, test_text("mixed-%u", i)), 0);
		client_start(i);
	}
}

void mixed_kill(unsigned slot)
{
	int status;

	CHECK_SYS(kill(mixed.pids[slot], SIGKILL));
	CHECK_EQ(waitpid(mixed.pids[slot], &status, 0), mixed.pids[slot]);
	CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		  "client %u ended by itself (status 0x%x)", slot, status);
	mixed.last_pids[slot] = mixed.pids[slot];
	mixed.pids[slot] = 0;
}

static bool has_client(const struct daemon *daemon, pid_t pid)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	const Wire__StatusReply *status;

	daemon_status(daemon, &answer);
	status = answer.reply->status;
	for (size_t i = 0; i < status->n_clients; i++)
		if (status->clients[i]->pid == (uint32_t)pid)
			return true;
	return false;
}

void mixed_replace(unsigned slot)
{
	const int64_t deadline = now_usec() + (int64_t)(120000000 * test_time_factor());

	while (has_client(mixed.daemon, mixed.last_pids[slot])) {
		CHECK_MSG(now_usec() < deadline, "the daemon keeps client %u", slot);
		(void)poll(NULL, 0, 2); /* nobody reports it */
	}
	client_start(slot);
}

void mixed_look(void)
{
	for (unsigned i = 0; i < mixed.n; i++)
		if (mixed.pids[i])
			CHECK_MSG(waitpid(mixed.pids[i], NULL, WNOHANG) == 0, "client %u has ended",
				  i);
}

void mixed_go_on(uint64_t n)
{
	for (unsigned i = 0; i < mixed.n; i++) {
		const uint64_t since = atomic_load(&mixed.slots[i].n_batches);
		const int64_t deadline = now_usec() + (int64_t)(120000000 * test_time_factor());

		while (atomic_load(&mixed.slots[i].n_batches) < since + n) {
			mixed_look();
			CHECK_MSG(now_usec() < deadline, "TEST_SEED=%u: client %u, life %u, hangs",
				  test_seed(), i, mixed.lives[i]);
			(void)poll(NULL, 0, 5); /* nobody reports a batch */
		}
	}
}

void mixed_end(void)
{
	atomic_store(mixed.must_stop, true);
	for (unsigned i = 0; i < mixed.n; i++)
		child_wait_ok(mixed.pids[i]);
}

struct mixed_sums mixed_sums(void)
{
	struct mixed_sums sums = { 0 };

	for (unsigned i = 0; i < mixed.n; i++) {
		sums.n_batches += atomic_load(&mixed.slots[i].n_batches);
		sums.n_ops += atomic_load(&mixed.slots[i].n_ops);
		sums.n_failed += atomic_load(&mixed.slots[i].n_failed);
		sums.n_uncertain += atomic_load(&mixed.slots[i].n_uncertain);
	}
	return sums;
}

/* The session that asked last may still be ending. */
static void status_alone(const struct daemon *daemon, struct answer *ret_answer)
{
	for (;;) {
		daemon_status(daemon, ret_answer);
		if (ret_answer->reply->status->n_clients == 1)
			return;
		answer_free(ret_answer);
		(void)poll(NULL, 0, 10); /* the test's time is the limit */
	}
}

void mixed_daemon_is_empty(const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	const Wire__StatusReply *status;

	CHECK(daemon_wait_clients(daemon, 0, 0));
	status_alone(daemon, &answer);
	status = answer.reply->status;
	CHECK_EQ(status->clients[0]->slabs, 0);
	CHECK_EQ(status->clients[0]->files, 0);
	CHECK_EQ(status->clients[0]->n_handles, 0);
	CHECK(!status->others && status->n_hung == 0);
	for (size_t i = 0; i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];

		CHECK_MSG(store->clients == 0 && store->counters->open_ops == 0 &&
				  store->counters->blocks_in_flight == 0 &&
				  store->counters->bytes_in_flight == 0,
			  "store %s: %u clients, %" PRIu64 " open ops, %" PRIu64
			  " blocks and %" PRIu64 " bytes in flight",
			  store->name, store->clients, store->counters->open_ops,
			  store->counters->blocks_in_flight, store->counters->bytes_in_flight);
	}
}
