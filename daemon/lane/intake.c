#include "daemon/lane/intake.h"

#include "daemon/lane/lane.h"
#include "daemon/lane/record.h"
#include "daemon/lane/transfer_end.h"
#include "daemon/object/file.h"
#include "daemon/object/unaligned.h"
#include "daemon/object/view.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>

/* Entries taken in a turn from the rings of all users, which share them, as do the clients of a user and the
   channels of a client: bounds the time that full rings cost others. */
#define TAKES_PER_TURN 64
/* The least of a client or channel, as far as its user has it left.  A user beside another has entries of at most two
   channels taken in a turn, so a turn wakes (publish.c) more threads than it gives cause to. */
#define TAKES_LEAST 16
#define TAKES_LEAST_USER 2

/* ---- channels awake and parked ---- */

static void awake_add(struct intake *intake, struct channel *channel)
{
	channel->is_awake = true;
	list_push_front(&intake->awake, &channel->awake_node);
	if (channel->client->takes.n_awake++ == 0 && channel->workers.user->takes.n_awake++ == 0)
		intake->n_awake_users++;
}

static void awake_remove(struct intake *intake, struct channel *channel)
{
	list_remove(&intake->awake, &channel->awake_node);
	channel->is_awake = false;
	if (--channel->client->takes.n_awake == 0 && --channel->workers.user->takes.n_awake == 0)
		intake->n_awake_users--;
}

void intake_wake(struct intake *intake, struct channel *channel)
{
	channel->quiet_nsec = intake->turn->now_nsec;
	if (channel->is_awake)
		return;
	if (ring_lane_is_parked(&channel->ring)) {
		ring_lane_unpark(&channel->ring);
		intake->n_parked--;
	}
	awake_add(intake, channel);
}

/* A channel with open ops is not parked, because turns check its deadlines and blocks.  Nor is a channel
   whose doorbell is not in epoll, because nothing would wake it. */
static bool may_park(const struct intake *intake, const struct channel *channel)
{
	return !channel->n_open && !channel->is_closing && !channel->is_broken &&
	       !channel->has_left_epoll &&
	       intake->turn->now_nsec - channel->quiet_nsec >= intake->park_nsec;
}

static void park_quiet(struct intake *intake)
{
	struct list parked = { 0 };

	intake->next_park_nsec = intake->turn->now_nsec + intake->park_nsec;
	LIST_EACH(struct channel, channel, &intake->awake, awake_node) {
		if (!may_park(intake, channel))
			continue;
		awake_remove(intake, channel);
		if (!channel->has_rings)
			continue; /* intake_submit() wakes it */
		ring_lane_park(&channel->ring);
		intake->n_parked++;
		list_push(&parked, &channel->awake_node);
	}
	if (!parked.first)
		return;
	RING_FENCE_PARK();
	LIST_EACH(struct channel, channel, &parked, awake_node)
		if (ring_lane_has_entries(&channel->ring))
			intake_wake(intake, channel);
}

void intake_park(struct intake *intake)
{
	if (intake->turn->now_nsec >= intake->next_park_nsec)
		park_quiet(intake);
}

/* ---- the check of an entry ---- */

static bool is_zero(const struct ring_entry *entry)
{
	return !(entry->zero0[0] | entry->zero0[1] | entry->zero1);
}

/*
 * The alignment of the offset and length of a direct transfer.  The kernel cannot invalidate a page that another
 * program has made dirty (mode_lock.h), so a direct write fills whole pages if the rest can go by a buffered
 * description.
 */
static uint32_t direct_align(const struct file *file, bool is_write)
{
	const struct target *target = &file->target;

	return is_write && !file->facts.is_tmpfs && target_buffered_fd(target) >= 0
		       ? unaligned_unit(target->offset_align)
		       : target->offset_align;
}

int intake_check_entry(const struct channel *channel, const struct ring_entry *entry, struct op *op)
{
	const bool is_sync = entry->opcode == RING_OP_FSYNC || entry->opcode == RING_OP_FDATASYNC;
	const bool is_write = entry->opcode == RING_OP_WRITE;
	uint64_t file_end, slab_end;
	struct slab *slab = NULL;
	struct file *file;

	if (!is_sync && !is_write && entry->opcode != RING_OP_READ)
		return EOPNOTSUPP;
	if (!is_zero(entry)) /* meant for a later version: do not guess */
		return EINVAL;

	if ((entry->grow_end && !is_write) ||
	    (entry->flags && (!is_write || entry->flags != RING_ENTRY_DSYNC)))
		return EINVAL;

	file = id_table_get(&channel->objects->files, entry->file);
	if (!file)
		return EBADF;
	if (file->store != channel->store)
		return EXDEV;
	if (!is_sync &&
	    lane_store_is_drained(channel->lane_store)) /* what was written may be synced */
		return ENOMEDIUM;
	if (is_write ? !file->facts.can_write : (!is_sync && !file->facts.can_read))
		return EBADF;

	if (is_sync) {
		if (entry->off | entry->len | entry->slab_off | entry->slab)
			return EINVAL;
	} else {
		if (entry->len > RING_LEN_MAX ||
		    __builtin_add_overflow(entry->off, entry->len, &file_end) ||
		    file_end > INT64_MAX || entry->grow_end > INT64_MAX)
			return EOVERFLOW;
		if (entry->grow_end && entry->grow_end < file_end)
			return EINVAL;
		slab = id_table_get(&channel->objects->slabs, entry->slab);
		if (!slab)
			return EBADF;
		if (__builtin_add_overflow(entry->slab_off, entry->len, &slab_end) ||
		    slab_end > slab->size_bytes)
			return ERANGE;
		/* The library copies it. */
		if (slab->region.kind == REGION_GPU && file->target.kind == TARGET_RADOS)
			return EOPNOTSUPP;
	}

	op->len = entry->len;
	op->head = op->tail = 0;
	op->is_misaligned = false;
	op->is_dsync = entry->flags & RING_ENTRY_DSYNC;
	if (slab && entry->len) {
		struct unaligned_cut cut = unaligned_cut(&(struct unaligned_range){
			.off = entry->off,
			.len = entry->len,
			.slab_off = entry->slab_off,
			.offset_align = direct_align(file, is_write),
			/* GPU memory may lie anywhere. */
			.memory_align = slab->region.kind == REGION_GPU ? 1
									: file->target.memory_align,
			.is_write = is_write,
		});

		if (is_write && (cut.head || cut.tail || cut.is_misaligned) &&
		    target_buffered_fd(&file->target) < 0)
			return EOPNOTSUPP;
		op->head = cut.head;
		op->tail = cut.tail;
		op->is_misaligned = cut.is_misaligned;
	}
	if (slab && slab_is_view(slab)) {
		int r = view_fill_begin(slab, file, entry);

		if (r)
			return r;
	}
	op->file = file;
	op->unaligned_left = op_unaligned(op) & 3u;
	file_ref(file);
	if (slab)
		slab_ref(slab);
	op->slab = slab;
	op->slab_off = entry->slab_off;
	op->off = entry->off;
	/* A write(2) to tmpfs extends at no cost, a device has the size that it has, and objects need none. */
	op->may_grow = entry->grow_end && entry->len && !file->facts.is_tmpfs &&
		       !file->facts.is_block_device && file->target.kind == TARGET_FILE;
	op->end = entry->len;
	return 0;
}

/* ---- take ---- */

/* There is one: ring_lane_ready() makes sure of that for rings, the session for Submit. */
static struct op *op_take(struct channel *channel)
{
	struct op *op = op_of_node(list_pop(&channel->free_ops));

	if (op)
		return op;
	assert(channel->n_fresh_ops < channel->entries);
	op = &channel->ops[channel->n_fresh_ops++];
	op->channel = channel;
	return op;
}

void intake_start(struct intake *intake, struct list *may_start)
{
	struct op *op;

	while ((op = op_of_node(list_pop(may_start))))
		ready_add(intake->ready, op);
}

/* An entry becomes an op.  The one way in, for rings and Submit. */
static void take_entry(struct intake *intake, struct channel *channel,
		       const struct ring_entry *entry, struct batch *batch, uint32_t batch_index)
{
	struct op *op = op_take(channel);
	int r;

	channel_count_time(channel, intake->turn->now_nsec);
	channel->n_open++;
	admit_open_op(intake->admit, &channel->admit);
	op_set_state(op, OP_WAITS_ORDER);
	op->id = entry->id;
	op_ids_add(&channel->ids, op);
	op->is_submitted = batch != NULL;
	if (batch) {
		op_rare(op)->batch = batch;
		op_rare(op)->batch_index = (uint16_t)batch_index;
	}
	op->opcode = entry->opcode;
	op->file = NULL;
	op->slab = NULL;
	op->len = op->end = 0;
	op->is_gated = op->is_in_order = false;
	op->has_deadline = op->may_grow = op->has_returned = op->is_unknown = false;
	op->next = op->n_in_flight = 0;
	op->error = 0;
	op->cancel_error = 0;
	op->taken_nsec = intake->turn->now_nsec;
	CHANNEL_ADD(channel, open_ops, 1);

	r = intake_check_entry(channel, entry, op);
	/* As the client wrote it, also where it is refused. */
	record(intake->turn, op,
	       (struct recording_event){ .kind = RECORDING_TAKEN,
					 .opcode = entry->opcode,
					 .file = entry->file,
					 .off = entry->off,
					 .len = entry->len });
	if (r) {
		op->error = (uint16_t)r;
		publish_end(intake->publish, op);
		return;
	}
	if (op->may_grow) {
		op_rare(op)->grow_end = entry->grow_end;
		op_rare(op)->extended = 0;
		extension_add_op(&op->file->extension);
	}
	admit_note_op(intake->admit, &channel->admit, op->len, op_is_sync(op),
		      intake->turn->now_nsec);
	if (!op->len && !op_is_sync(op)) {
		publish_end(intake->publish, op);
		return;
	}
	if (entry->timeout_msec) {
		uint64_t deadline_nsec = intake->turn->now_nsec +
					 entry->timeout_msec * UINT64_C(1000000);

		deadlines_add(&channel->deadlines, op, deadline_nsec);
		if (!intake->next_deadline_nsec || deadline_nsec < intake->next_deadline_nsec)
			intake->next_deadline_nsec = deadline_nsec;
	}
	op->is_in_order = true;
	if (order_add(&channel->order, op_number(op), op->file->inode, op_order_kind(op), op->off,
		      op->len))
		ready_add(intake->ready, op);
}

static int take_ring(struct intake *intake, struct channel *channel, int n_max)
{
	int n;

	if (!channel->has_rings || channel->is_closing || channel->is_broken)
		return 0;
	n = ring_lane_ready(&channel->ring);
	if (n < 0) {
		channel_break(channel, "its ring indices make no sense");
		return 1;
	}
	if (n > n_max)
		n = n_max;
	if (n)
		channel->quiet_nsec = intake->turn->now_nsec;
	for (int i = 0; i < n; i++) {
		struct ring_entry entry;

		ring_lane_take(&channel->ring, &entry);
		take_entry(intake, channel, &entry, NULL, 0);
	}
	return n;
}

/* The share of one of so many. */
static uint32_t part(uint32_t n, uint32_t n_awake, uint32_t least)
{
	n /= n_awake;
	return n > least ? n : least;
}

/* Returns n, or less if less is left of all in this turn. */
static uint32_t left(const struct intake *intake, struct takes *takes, enum take kind, uint32_t all,
		     uint32_t n)
{
	if (takes->turn != intake->n_turns)
		*takes = (struct takes){ .n_awake = takes->n_awake, .turn = intake->n_turns };
	all = all > takes->n[kind] ? all - takes->n[kind] : 0;
	return n < all ? n : all;
}

/* The channel's share of this turn, as far as its client and its user have left it. */
static int may_take(const struct intake *intake, const struct channel *channel, enum take kind)
{
	struct takes *user = &channel->workers.user->takes, *client = &channel->client->takes;
	uint32_t of_user = part(TAKES_PER_TURN, intake->n_awake_users, TAKES_LEAST_USER);
	uint32_t of_client = part(of_user, user->n_awake, TAKES_LEAST);
	uint32_t n = part(of_client, client->n_awake, TAKES_LEAST);

	return (int)left(intake, user, kind, of_user, left(intake, client, kind, of_client, n));
}

static void note_takes(const struct channel *channel, enum take kind, int n)
{
	channel->workers.user->takes.n[kind] += (uint32_t)n;
	channel->client->takes.n[kind] += (uint32_t)n;
}

int intake_take(struct intake *intake)
{
	struct list taken = { 0 };
	int n = 0;

	intake->n_turns++;
	LIST_EACH(struct channel, channel, &intake->awake, awake_node) {
		int max = may_take(intake, channel, TAKE_ENTRY);
		int now = max ? take_ring(intake, channel, max) : 0;

		if (!now)
			continue;
		note_takes(channel, TAKE_ENTRY, now);
		n += now;
		list_remove(&intake->awake, &channel->awake_node);
		list_push(&taken, &channel->awake_node);
	}
	/* They are the last in the next turn: the first ones of a user may use up its turn. */
	for (struct list_node *node; (node = list_pop(&taken));)
		list_push(&intake->awake, node);
	return n;
}

/* ---- deadlines and cancels ---- */

void intake_run_deadlines(struct intake *intake)
{
	uint64_t next = 0;

	if (!intake->next_deadline_nsec || intake->next_deadline_nsec > intake->turn->now_nsec)
		return;
	LIST_EACH(struct channel, channel, &intake->awake, awake_node) {
		int max = may_take(intake, channel, TAKE_DUE), n = 0;
		struct op *op;

		while ((op = deadlines_first(&channel->deadlines)) &&
		       deadlines_next_nsec(&channel->deadlines) <= intake->turn->now_nsec &&
		       n < max) { /* what is left is due in the next turn */
			n++;
			deadlines_remove(&channel->deadlines, op);
			transfer_cancel(intake->transfer, op, ETIMEDOUT);
		}
		note_takes(channel, TAKE_DUE, n);
		if (op && (!next || deadlines_next_nsec(&channel->deadlines) < next))
			next = deadlines_next_nsec(&channel->deadlines);
	}
	intake->next_deadline_nsec = next;
}

static void report_cancel(struct message *message)
{
	struct lane_cancel *cancel = container_of(message, struct lane_cancel, message);

	cancel->on_done(cancel);
}

void intake_cancel(struct intake *intake, struct lane_cancel *cancel)
{
	struct channel *channel = cancel->channel;

	intake_wake(intake, channel);
	(void)take_ring(intake, channel, INT_MAX); /* the op may still be there */
	for (struct op *op = op_ids_first(&channel->ids, cancel->id); op;
	     op = op_ids_next(&channel->ids, op))
		transfer_cancel(intake->transfer, op, ECANCELED);
	mailbox_post(channel->lane_store->main_mailbox, &cancel->message, report_cancel);
}

/* ---- Submit ---- */

void intake_submit(struct intake *intake, struct batch *batch)
{
	struct channel *channel = batch->channel;

	intake_wake(intake, channel);
	batch->n_open = batch->n + 1; /* one is ours: it may end while we still take */
	for (uint32_t i = 0; i < batch->n; i++) {
		if (channel->is_closing) {
			batch->results[i] = ring_result_failed(ECANCELED, 0);
			batch->n_open--;
		} else {
			take_entry(intake, channel, &batch->entries[i], batch, i);
		}
	}
	if (--batch->n_open == 0)
		publish_batch(batch);
}

/* ---- channels come and go ---- */

static void report_removed(struct message *message)
{
	struct channel *channel = container_of(message, struct channel, message);

	channel->owner.on_removed(channel, channel->owner.arg);
}

static void cancel_all(struct intake *intake, struct channel *channel)
{
	for (uint32_t i = 0; i < channel->n_fresh_ops; i++)
		transfer_cancel(intake->transfer, &channel->ops[i], ECANCELED);
}

void intake_remove_idle(struct intake *intake)
{
	if (!intake->n_closing)
		return;
	LIST_EACH(struct channel, channel, &intake->awake, awake_node) {
		if (!channel->is_closing)
			continue;
		/* relaxed: nothing else travels with it, and a later turn sees it, too */
		if (channel->drain &&
		    atomic_load_explicit(&channel->must_hurry, memory_order_relaxed)) {
			channel->drain = false;
			cancel_all(intake, channel);
		}
		if (channel->n_open || channel->must_wake || !transfer_remove_channel(channel))
			continue;
		if (channel->has_rings)
			poller_remove_channel(intake->poller, channel);
		awake_remove(intake, channel);
		intake->n_channels--;
		intake->n_closing--;
		admit_remove_channel(intake->admit, &channel->admit);
		mailbox_post(channel->lane_store->main_mailbox, &channel->message, report_removed);
	}
}

void intake_add_channel(struct intake *intake, struct channel *channel)
{
	intake->n_channels++;
	transfer_add_channel(intake->transfer, channel);
	intake_wake(intake, channel);
	admit_add_channel(&channel->admit);
	if (channel->has_rings && poller_add(intake->poller, channel->doorbell_fd, channel) < 0)
		channel_break(channel, "its doorbell cannot be added to epoll (epoll_ctl)");
}

void intake_remove_channel(struct intake *intake, struct channel *channel)
{
	channel->is_closing = true;
	intake->n_closing++;
	intake_wake(intake, channel);
	if (channel->drain)
		admit_lift_limits(intake->admit, &channel->admit);
	else
		cancel_all(intake, channel);
}

bool intake_is_ready(const struct intake *intake)
{
	LIST_EACH(struct channel, channel, &intake->awake, awake_node)
		if (channel->has_rings && !channel->is_closing && !channel->is_broken &&
		    ring_lane_has_entries(&channel->ring))
			return true;
	return false;
}
