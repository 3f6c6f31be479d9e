/*
 * The library's op table of a channel, under a daemon that completes ops, writes anything to its rings and board, and
 * is followed by the next one again and again.
 *
 * Each op that was put into a ring ends once, whatever the daemon does, and the next daemon's ring has those that
 * are open, in the order of their submission.
 *
 * Input: steps of a byte for what and one for which.
 */
#include "tests/fuzz/fuzz_unit.h"

#include "client/lib/io/file.h"
#include "tests/unit/client_channel.h"

#include <errno.h>
#include <sys/mman.h>

#define N_OPS 16u
#define STEPS_MAX 1000u

static struct dsaio_file file;
static int sync_fd = -1; /* asked before a write with DSAIO_DSYNC is repeated */
static struct slab_name slabs[2];
static struct dsaio_op ops[N_OPS];
static bool is_open[N_OPS];
static uint64_t numbers[N_OPS], n_put; /* of the submission of each */
static bool is_away;

static void put_op(uint32_t i, bool is_batched)
{
	struct dsaio_op *op = &ops[i];
	int r;

	if (is_open[i])
		return;
	memset(op, 0, sizeof(*op));
	op_change_state(op, OP_PREPARED);
	op->file = &file;
	op->channel = &channel;
	op->timeout_msec = i == 3;
	op->is_dsync = i == 4;
	op_set_io(op, RING_OP_WRITE, i * 4096u, 4096,
		  &(struct buffer_place){ .slab = i < 2 ? &slabs[i] : NULL });
	r = channel_put(op, is_batched);
	ck_assert_int_le(r, 0);
	is_open[i] = r == 0;
	numbers[i] = n_put++;
}

static void end_ops(const struct op_list *list)
{
	for (struct dsaio_op *op = list->first, *next; op; op = next) {
		next = op_next(op);
		ck_assert(op >= ops && op < ops + N_OPS);
		ck_assert(is_open[op - ops]);
		is_open[op - ops] = false;
		free(op->text);
	}
}

/* A daemon's way to be wrong. */
static void scribble(uint8_t which, uint32_t value)
{
	struct ring_shared *shared = channel.ring.shared;
	struct lane_board *b = (struct lane_board *)board;

	switch (which % 8) {
	case 0:
		atomic_store(&shared->cq_tail, value);
		break;
	case 1:
		atomic_store(&shared->cq_tail, lane.cq_tail + value % (ENTRIES + 2));
		break;
	case 2: /* an id, right or not */
		channel.ring.cq[value % ENTRIES].id = value >> 8;
		break;
	case 3:
		channel.ring.cq[value % ENTRIES].id = rows[value / ENTRIES % ENTRIES].id;
		break;
	case 4:
		channel.ring.cq[value % ENTRIES].result = (int64_t)(int32_t)value;
		break;
	case 5:
		atomic_store(&b->lane_state, value);
		break;
	case 6:
		atomic_store(&shared->sq_park, value);
		break;
	default: /* what the library alone writes, it does not read */
		atomic_store(&shared->sq_tail, value);
		memset(channel.ring.sq, (int)value, ENTRIES * sizeof(*channel.ring.sq));
		break;
	}
}

/* The lane takes an entry, if it is one, and ends it. */
static void serve(uint8_t which)
{
	struct ring_entry entry;

	if (lane.cq_tail != lane.taken || ring_lane_ready(&lane) <= 0)
		return;
	ring_lane_take(&lane, &entry);
	complete(entry.id, which < 128 ? 4096 : ring_result_failed(which - 127, which));
}

static void go_away(bool is_crash)
{
	struct op_list list = { NULL, NULL };

	channel_go_away(&channel, is_crash, &list);
	end_ops(&list);
	is_away = true;
}

/* The next one of those that are open, in their order; N_OPS: none. */
static uint32_t next_open(uint64_t *number)
{
	uint32_t first = N_OPS;

	for (uint32_t i = 0; i < N_OPS; i++)
		if (is_open[i] && numbers[i] >= *number &&
		    (first == N_OPS || numbers[i] < numbers[first]))
			first = i;
	if (first < N_OPS)
		*number = numbers[first] + 1;
	return first;
}

/* As channel_reopen(), unless the next daemon refuses. */
static void come_back(uint8_t which)
{
	struct op_list list = { NULL, NULL };
	uint64_t number = 0;
	uint32_t n;

	if (!is_away)
		return;
	is_away = false;
	channel.error = which == 255 ? -EACCES : 0;
	if (!channel.error) {
		memset(map, 0, sizeof(map));
		ring_lane_init(&lane, map, ENTRIES);
		channel.ring.tail = 0;
		channel.ring.rung = channel.ring.park_rung = 0;
		channel.ring.wait_count = channel.ring.nsec = 0;
		atomic_store(&channel.ring.head, 0);
	}
	n = channel_come_back(&channel, which & 1 ? RING_FEATURE_DSYNC : 0, &list);
	end_ops(&list);
	for (uint32_t k = 0; k < n; k++) {
		const uint32_t i = next_open(&number);

		ck_assert_uint_lt(i, N_OPS);
		ck_assert_uint_eq(channel.ring.sq[k].id, atomic_load(&ops[i].ring_id));
		ck_assert_uint_eq(channel.ring.sq[k].off, i * 4096u);
	}
	ck_assert_uint_eq(next_open(&number), N_OPS);
	if (n)
		ck_assert_int_eq(ring_lane_ready(&lane), (int)n);
}

static void step(uint8_t what, uint8_t which, uint32_t value)
{
	struct op_list list = { NULL, NULL };

	switch (what % 12) {
	case 0:
	case 1:
	case 2:
		put_op(which % N_OPS, which & 128);
		break;
	case 3:
		channel_publish(&channel);
		ck_assert_uint_le(channel_room(&channel), ENTRIES);
		break;
	case 4:
	case 5:
		serve(which);
		break;
	case 6:
		channel_consume(&channel, &list);
		break;
	case 7:
		go_away(which & 1);
		break;
	case 8:
		come_back(which);
		break;
	case 9: /* a client's thread cancels */
		atomic_store(&ops[which % N_OPS].is_cancelled, is_open[which % N_OPS]);
		channel_look_away(&channel, &list);
		break;
	case 10:
		if (which < 16)
			atomic_store(&file.session.error, which % 2 ? -EIO : 0);
		else if (which < 32)
			atomic_store(&slabs[which % 2].error, which % 4 / 2 ? -EIO : 0);
		else if (which < 36)
			channel_end_ops(&channel, -ECONNRESET, &list);
		break;
	default:
		scribble(which, value);
		break;
	}
	end_ops(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct op_list list = { NULL, NULL };

	channel_setup();
	memset(is_open, 0, sizeof(is_open));
	memset(slabs, 0, sizeof(slabs));
	memset(&file, 0, sizeof(file));
	file.name = (char *)(uintptr_t) "file";
	file.client = &client;
	file.n_opens = client.files.n_fds = client.files.n_fds_wanted = 1;
	if (sync_fd < 0)
		sync_fd = memfd_create("file", MFD_CLOEXEC);
	ck_assert_int_ge(sync_fd, 0);
	file.fds = (struct file_fds){ sync_fd, sync_fd };
	slabs[1].is_gpu = true;
	n_put = 0;
	is_away = false;
	atomic_store(&((struct lane_board *)board)->lane_state, 0);
	for (unsigned n = 0; size && n < STEPS_MAX; n++) {
		uint8_t what[2];

		take_bytes(&data, &size, what, sizeof(what));
		step(what[0], what[1], what[0] % 12 == 11 ? take_u32(&data, &size) : 0);
	}
	channel_end_ops(&channel, -ECONNRESET, &list);
	end_ops(&list);
	for (uint32_t i = 0; i < N_OPS; i++)
		ck_assert(!is_open[i]);
	channel_teardown();
	return 0;
}
