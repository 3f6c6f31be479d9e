/*
 * The order of a channel's ops, against the rule of proto/README.md "Submission, order, completion", and
 * how many steps it takes.
 */
#include <stdint.h>

static uint64_t n_steps;
#define ORDER_STEP() ((void)n_steps++)
#include "daemon/lane/order.c"

#include "proto/ring.h"
#include "tests/unit/suite.h"

#include <string.h>

#define N_OPS 4096u
#define PAGE UINT64_C(4096)
#define FILE_PAGES 4096u
#define R ORDER_READ
#define W ORDER_WRITE
#define S ORDER_SYNC

static struct order order;
static char files[64]; /* their addresses are the keys */
static bool is_ready[N_OPS];
static uint32_t n_ready, ready_ops[N_OPS];

static void setup(uint32_t n_ops)
{
	ck_assert_int_eq(order_init(&order, n_ops), 0);
	memset(is_ready, 0, sizeof(is_ready));
	n_ready = 0;
}

/* Nothing is left: each file is free again, and there are no ranges. */
static void teardown(void)
{
	uint32_t n_free = 0;

	for (uint16_t at = order.free_file; at; at = order.files[at].next) {
		ck_assert_uint_eq(order.files[at].lists[QUEUE].first, NONE);
		ck_assert_uint_eq(order.files[at].lists[WRITES].first, NONE);
		n_free++;
	}
	ck_assert_uint_eq(n_free, order.n_files);
	for (unsigned i = 0; i < 2 * KINDS; i++)
		ck_assert_uint_eq(order.ranges[i / KINDS][i % KINDS].n, 0);
	order_deinit(&order);
}

static void end_op(uint16_t op)
{
	uint16_t ready[ORDER_READY_MAX];
	const unsigned n = order_end(&order, op, ready);

	for (unsigned i = 0; i < n; i++) {
		if (is_ready[ready[i]])
			ck_abort_msg("op %u is ready twice", ready[i]);
		is_ready[ready[i]] = true;
		ready_ops[n_ready++] = ready[i];
	}
}

/* True: it may start. */
static bool add_to(uint16_t op, const char *file, enum order_kind kind, uint64_t off, uint64_t len)
{
	is_ready[op] = order_add(&order, op, file, kind, off, len);
	return is_ready[op];
}

static bool add(uint16_t op, enum order_kind kind, uint64_t off, uint64_t len)
{
	return add_to(op, files, kind, off, len);
}

static void end(uint16_t op)
{
	if (!is_ready[op])
		ck_abort_msg("op %u has not started", op);
	end_op(op);
}

static void end_all(uint16_t first, uint16_t n)
{
	for (uint16_t op = first; op < first + n; op++)
		end(op);
}

/* ---- by hand ---- */

static const struct {
	const char *what;
	enum order_kind first;
	uint64_t first_off, first_len;
	enum order_kind then;
	uint64_t then_off, then_len;
	bool waits;
} pairs[] = {
	{ "two reads", R, 0, 4096, R, 0, 4096, false },
	{ "a write after a write", W, 0, 4096, W, 0, 4096, true },
	{ "a read after a write", W, 0, 8192, R, 4096, 4096, true },
	{ "a write after a read", R, 4096, 4096, W, 0, 8192, true },
	{ "side by side", W, 0, 4096, W, 4096, 4096, false },
	{ "before it", W, 4096, 4096, W, 0, 4096, false },
	{ "the same page, other bytes", W, 0, 100, W, 200, 100, true },
	{ "neighbours that share a page", W, 0, 4097, R, 8191, 1, true },
	{ "a sync after a write", W, 1 << 20, 4096, S, 0, 0, true },
	{ "a sync after a write of nothing", W, 0, 0, S, 0, 0, true },
	{ "a sync after a read", R, 0, 4096, S, 0, 0, false },
	{ "a write after a sync", S, 0, 0, W, 0, 4096, false },
	{ "a sync after a sync", S, 0, 0, S, 0, 0, false },
	{ "nothing written", W, 0, 0, R, 0, 4096, false },
	{ "nothing read", W, 0, 4096, R, 0, 0, false },
	{ "at the end of the range", W, INT64_MAX - 4096, 4096, R, INT64_MAX - 1, 1, true },
	{ "all of it", R, 0, INT64_MAX, W, INT64_MAX - 1, 1, true },
};

TEST_TABLE(conflicting_ops_wait, pairs)
{
	setup(8);
	ck_assert(add(0, pairs[_i].first, pairs[_i].first_off, pairs[_i].first_len));
	ck_assert_msg(add(1, pairs[_i].then, pairs[_i].then_off, pairs[_i].then_len) !=
			      pairs[_i].waits,
		      "%s", pairs[_i].what);
	end(0);
	ck_assert_msg(n_ready == pairs[_i].waits, "%s: released", pairs[_i].what);
	end(1);
	teardown();
}

TEST(ops_of_other_files_do_not_wait)
{
	setup(N_OPS);
	for (uint16_t i = 0; i < N_ROWS(files); i++)
		ck_assert(add_to(i, &files[i], W, 0, PAGE));
	for (uint16_t i = 0; i < N_ROWS(files); i++)
		ck_assert(!add_to((uint16_t)(i + N_ROWS(files)), &files[i], i % 2 ? S : R, 0,
				  i % 2 ? 0 : PAGE));
	for (uint16_t i = 0; i < N_ROWS(files); i++) {
		end(i);
		ck_assert_uint_eq(n_ready, i + 1u);
		ck_assert_uint_eq(ready_ops[i], i + N_ROWS(files));
	}
	end_all(N_ROWS(files), N_ROWS(files));
	teardown();
}

TEST(released_ops_are_ready_in_the_order_of_their_submission)
{
	setup(64);
	(void)add(0, W, 0, 32 * PAGE);
	for (uint16_t i = 1; i <= ORDER_READY_MAX; i++)
		ck_assert(!add(i, W, (32u - i) * PAGE, PAGE));
	end(0);
	ck_assert_uint_eq(n_ready, ORDER_READY_MAX);
	for (uint16_t i = 0; i < ORDER_READY_MAX; i++)
		ck_assert_uint_eq(ready_ops[i], i + 1u);
	end_all(1, ORDER_READY_MAX);
	teardown();
}

/* It waits for all of these, and for no other.  _i: which of them ends last. */
TEST_LOOP(an_op_waits_for_all_that_it_conflicts_with, 9)
{
	setup(64);
	for (uint16_t i = 0; i < 9; i++)
		ck_assert(add(i, W, i * PAGE, PAGE));
	ck_assert(add(9, R, 100 * PAGE, PAGE));
	ck_assert(!add(10, W, 0, 9 * PAGE));
	ck_assert(!add(11, R, 0, 9 * PAGE));
	for (uint16_t i = 0; i < 9; i++)
		if (i != _i)
			end(i);
	ck_assert_uint_eq(n_ready, 0);
	end((uint16_t)_i);
	ck_assert_uint_eq(n_ready, 1);
	ck_assert(is_ready[10]);
	end(10);
	ck_assert(is_ready[11]);
	end(9);
	end(11);
	teardown();
}

TEST(a_write_waits_for_the_one_of_many_that_it_conflicts_with)
{
	const uint16_t n = 200, one = 100;
	const uint64_t step = 77; /* no common divisor with n: each page once */

	setup(N_OPS);
	for (uint16_t i = 0; i < n; i++)
		ck_assert(add(i, W, PAGE * i * step % (PAGE * n), PAGE));
	ck_assert(!add(n, W, PAGE * one * step % (PAGE * n), PAGE));
	end(one);
	ck_assert_uint_eq(n_ready, 1);
	for (uint16_t i = 0; i <= n; i++)
		if (i != one)
			end(i);
	teardown();
}

TEST(a_write_waits_for_the_last_of_many_reads)
{
	setup(N_OPS);
	for (uint16_t i = 0; i < 1000; i++)
		ck_assert(add(i, R, i * PAGE, PAGE));
	for (uint16_t i = 1000; i < 1020; i++)
		ck_assert(!add(i, W, 999 * PAGE, PAGE));
	end_all(0, 999);
	ck_assert_uint_eq(n_ready, 0);
	end(999);
	ck_assert_uint_eq(n_ready, 1);
	end_all(1000, 20);
	teardown();
}

/* They do not conflict with each other, so one must not wait for the end of another.  Some at a time start, so
   that no end takes long, and each of these starts as many. */
TEST(page_writes_behind_many_whole_reads_start_together)
{
	setup(N_OPS);
	for (uint16_t i = 0; i < 2000; i++)
		ck_assert(add(i, R, 0, FILE_PAGES * PAGE));
	for (uint16_t i = 2000; i < 4000; i++)
		ck_assert(!add(i, W, i * PAGE, PAGE));
	end_all(0, 1999);
	ck_assert_uint_eq(n_ready, 0);
	end(1999);
	for (uint32_t i = 0; i < 2000; i++) {
		ck_assert_uint_eq(n_ready,
				  i < 2000 / ORDER_READY_MAX ? (i + 1) * ORDER_READY_MAX : 2000);
		end((uint16_t)ready_ops[i]);
	}
	teardown();
}

/* A sync does not wait for later writes, nor these for it. */
TEST(a_sync_waits_for_the_writes_before_it)
{
	setup(64);
	(void)add(0, W, 0, PAGE);
	(void)add(1, R, PAGE, PAGE);
	(void)add(2, W, 8 * PAGE, PAGE);
	ck_assert(!add(3, S, 0, 0));
	ck_assert(add(4, W, 16 * PAGE, PAGE));
	ck_assert(!add(5, S, 0, 0));
	end(2);
	ck_assert_uint_eq(n_ready, 0);
	end(0);
	ck_assert(is_ready[3]);
	ck_assert(!is_ready[5]);
	end(4);
	ck_assert(is_ready[5]);
	end(5);
	end(3);
	end(1);
	teardown();
}

/* ---- cancelled while they wait ---- */

static const struct {
	const char *what;
	enum order_kind kind[4];
	uint16_t cancelled[2];
	uint16_t n_cancelled;
} cancels[] = {
	{ "W3 must not pass W1", { W, W, W, W }, { 1 }, 1 },
	{ "two of them, the earlier first", { W, W, W, W }, { 1, 2 }, 2 },
	{ "two of them, the later first", { W, W, W, W }, { 2, 1 }, 2 },
	{ "a write after a cancelled write of what is read", { R, W, W, W }, { 1 }, 1 },
	{ "a read after a cancelled write", { W, W, W, R }, { 2, 1 }, 2 },
	{ "a sync", { W, W, W, S }, { 1, 2 }, 2 },
};

/* _i: also whether they end before those that they waited for, or after. */
TEST_LOOP(an_op_does_not_pass_those_before_a_cancelled_one, 2 * N_ROWS(cancels))
{
	const int row = _i % N_ROWS(cancels);
	const bool is_late = _i >= N_ROWS(cancels);
	bool is_cancelled[4] = { false };
	uint16_t last = 0;

	setup(8);
	ck_assert(add(0, cancels[row].kind[0], 0, PAGE));
	for (uint16_t i = 1; i < 4; i++)
		ck_assert_msg(!add(i, cancels[row].kind[i], 0, PAGE), "%s", cancels[row].what);
	for (uint16_t i = 0; i < cancels[row].n_cancelled; i++) {
		order_cancel(&order, cancels[row].cancelled[i]);
		is_cancelled[cancels[row].cancelled[i]] = true;
	}
	for (uint16_t i = 1; !is_late && i < 4; i++)
		if (is_cancelled[i])
			end_op(i);
	for (uint16_t i = 1; i < 4; i++) {
		if (is_cancelled[i])
			continue;
		ck_assert_msg(!is_ready[i], "%s: it has to wait", cancels[row].what);
		end(last);
		for (uint16_t k = (uint16_t)(last + 1); is_late && k < i; k++)
			end_op(k);
		ck_assert_msg(is_ready[i], "%s: its turn", cancels[row].what);
		last = i;
	}
	end(last);
	for (uint16_t k = (uint16_t)(last + 1); is_late && k < 4; k++)
		end_op(k);
	teardown();
}

/* ---- at random, against the rule ---- */

struct model_op {
	bool is_open;
	uint64_t seq;
	enum order_kind kind;
	uint16_t file;
	uint64_t off, len;
};
static struct model_op model[N_OPS];
static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)((random_state >> 33) % n);
}

static uint8_t opcode(enum order_kind kind)
{
	return kind == ORDER_READ    ? RING_OP_READ
	       : kind == ORDER_WRITE ? RING_OP_WRITE
				     : RING_OP_FSYNC;
}

static bool must_wait_for(const struct model_op *op, const struct model_op *other)
{
	return other->is_open && other->seq < op->seq && other->file == op->file &&
	       ring_ops_conflict(opcode(other->kind), other->off, other->len, opcode(op->kind),
				 op->off, op->len);
}

static uint32_t n_to_wait_for(const struct model_op *op, uint32_t n_model)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_model; i++)
		n += must_wait_for(op, &model[i]);
	return n;
}

/* The op is the first that waits in its file, and conflicts with none before it. */
static bool waits_for_nothing(const struct model_op *op, uint32_t n_model)
{
	for (uint32_t i = 0; i < n_model; i++)
		if (model[i].is_open && !is_ready[i] && model[i].file == op->file &&
		    model[i].seq < op->seq)
			return false;
	return !n_to_wait_for(op, n_model);
}

static const struct mixture {
	const char *what;
	uint32_t n_ops; /* open at a time */
	uint32_t n_files;
	uint32_t n_pages; /* of a file */
	uint32_t len_max; /* pages */
	uint32_t percent_write, percent_sync, percent_cancel;
	bool is_small; /* fewer wait than ORDER_READY_MAX: each starts as early as it may */
} mixtures[] = {
	{ "reads and writes", 24, 1, 40, 3, 50, 0, 0, true },
	{ "with syncs", 24, 2, 40, 3, 60, 20, 0, true },
	{ "with cancels", 24, 1, 20, 4, 60, 10, 30, true },
	{ "many files", 64, 12, 20, 4, 60, 10, 20, true },
	{ "one page", 64, 1, 1, 1, 50, 5, 20, false },
	{ "large ones, deep", 300, 2, 200, 200, 30, 5, 10, false },
	{ "pages, deep", 400, 1, 100, 1, 30, 2, 10, false },
	{ "mostly writes, deep", 300, 1, 64, 8, 90, 5, 40, false },
};

static void random_add(const struct mixture *m, uint16_t i, uint64_t seq)
{
	struct model_op *op = &model[i];
	uint32_t kind = random_below(100);

	*op = (struct model_op){ .seq = seq, .file = (uint16_t)random_below(m->n_files) };
	op->kind = kind < m->percent_write		       ? ORDER_WRITE
		   : kind < m->percent_write + m->percent_sync ? ORDER_SYNC
							       : ORDER_READ;
	if (op->kind != ORDER_SYNC) {
		op->off = random_below(m->n_pages * 4096);
		op->len = random_below(20) ? random_below(m->len_max * 4096) + 1 : 0;
	}
	op->is_open = true;
	if (add_to(i, &files[op->file], op->kind, op->off, op->len))
		ready_ops[n_ready++] = i;
}

static void random_leave(const struct mixture *m, uint16_t i)
{
	if (!is_ready[i] && random_below(100) >= m->percent_cancel)
		return;
	model[i].is_open = false;
	if (!is_ready[i])
		order_cancel(&order, i);
	end_op(i);
}

TEST_TABLE(random_ops_follow_the_rule, mixtures)
{
	const struct mixture *m = &mixtures[_i];
	uint16_t slots[N_OPS];
	uint32_t n_open = 0, n_waited = 0;

	random_state = (uint64_t)_i + 1;
	memset(model, 0, sizeof(model));
	setup(m->n_ops);
	for (uint64_t round = 1; round <= rounds(40000); round++) {
		uint16_t i = (uint16_t)random_below(m->n_ops);

		/* Fills up and runs dry by turns. */
		if (model[i].is_open)
			random_leave(m, i);
		else if ((round >> 10) % 3 < 2)
			random_add(m, i, round);
		n_waited += n_ready;
		for (uint32_t k = 0; k < n_ready; k++)
			ck_assert_msg(!n_to_wait_for(&model[ready_ops[k]], m->n_ops),
				      "%s: round %d: op %u starts too early", m->what, (int)round,
				      ready_ops[k]);
		n_ready = 0;
		for (uint32_t k = 0; m->is_small && k < m->n_ops; k++)
			if (model[k].is_open && !is_ready[k] &&
			    waits_for_nothing(&model[k], m->n_ops))
				ck_abort_msg("%s: round %d: op %u waits for nothing", m->what,
					     (int)round, k);
	}
	ck_assert_uint_gt(n_waited, rounds(40000) / 400);

	/* All remaining ops can end: none waits forever. */
	for (uint32_t i = 0; i < m->n_ops; i++)
		if (model[i].is_open)
			slots[n_open++] = (uint16_t)i;
	for (uint32_t n_before = n_open + 1; n_open && n_open < n_before;) {
		uint32_t n = 0;

		n_before = n_open;
		for (uint32_t k = 0; k < n_open; k++) {
			if (is_ready[slots[k]])
				end(slots[k]);
			else
				slots[n++] = slots[k];
		}
		n_open = n;
	}
	ck_assert_uint_eq(n_open, 0);
	teardown();
}

/* ---- work ---- */

static struct range {
	enum order_kind kind;
	uint64_t page, n_pages;
} range_at(int pattern, uint32_t i)
{
	switch (pattern) {
	case 0: /* a chain */
		return (struct range){ W, 0, 1 };
	case 1: /* whole reads, page writes */
		return i < N_OPS / 2 ? (struct range){ R, 0, FILE_PAGES }
				     : (struct range){ W, i, 1 };
	case 2: /* page writes, whole writes */
		return i < N_OPS / 2 ? (struct range){ W, i, 1 }
				     : (struct range){ W, 0, FILE_PAGES };
	case 3: /* page reads and writes, each in the middle of a large write */
		return i % 2 ? (struct range){ i % 4 == 1 ? R : W, random_below(FILE_PAGES), 1 }
			     : (struct range){ W, random_below(FILE_PAGES / 2), FILE_PAGES / 2 };
	case 4: /* windows that slide over each other */
		return (struct range){ W, i, FILE_PAGES / 2 };
	case 5: /* windows that grow, so that each contains all before it */
		return (struct range){ i % 2 ? R : W, N_OPS - i, 2 * (uint64_t)i + 1 };
	case 6: /* reads, then a write in the middle of them, over and over */
		return i % 100 == 99 ? (struct range){ W, FILE_PAGES / 2, 1 }
				     : (struct range){ R, random_below(FILE_PAGES), 9 };
	case 7: /* at random */
		return (struct range){ i % 2, random_below(FILE_PAGES), 1 + random_below(16) };
	default: /* syncs between writes */
		return i % 2 ? (struct range){ S, 0, 0 } : (struct range){ W, i, 1 };
	}
}
#define N_PATTERNS 9

/* A search takes at most 13 steps.  An op that comes makes 8 to look for conflicts, and 2 to be added. */
#define SEARCH 13u
#define ADD_STEPS (10 * SEARCH)
/* One that goes makes 2, and for each that starts, or that may not yet, 4 to look and 4 to move it. */
#define END_STEPS ((2 + (ORDER_READY_MAX + 1) * 8) * SEARCH)
TEST_LOOP(work_is_bounded, N_PATTERNS)
{
	uint64_t n_all = 0, n_most = 0, n_end_most = 0;

	random_state = 1;
	setup(N_OPS);
	for (uint32_t round = 0; round < 3; round++) {
		uint32_t n_open = N_OPS;

		for (uint32_t i = 0; i < N_OPS; i++) {
			struct range range = range_at(_i, i);

			n_steps = 0;
			(void)add((uint16_t)i, range.kind, range.page * PAGE, range.n_pages * PAGE);
			n_all += n_steps;
			n_most = n_steps > n_most ? n_steps : n_most;
		}
		n_ready = 0;
		for (uint32_t i = 0; i < N_OPS; i++)
			if (is_ready[i])
				ready_ops[n_ready++] = i;
		for (uint32_t i = 0; n_open; i++, n_open--) {
			if (i == n_ready)
				ck_abort_msg("all wait");
			n_steps = 0;
			end((uint16_t)ready_ops[i]);
			n_all += n_steps;
			n_end_most = n_steps > n_end_most ? n_steps : n_end_most;
		}
	}
	ck_assert_uint_le(n_most, ADD_STEPS);
	ck_assert_uint_le(n_end_most, END_STEPS);
	ck_assert_uint_le(n_all / (3 * N_OPS), 2 * ADD_STEPS);
	teardown();
}

TEST_MAIN
