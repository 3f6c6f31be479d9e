/*
 * channel_check_entry(): any entry, against a session with a few files and slabs, some of them
 * removed.  An accepted entry must lie within its slab and within 2^63, and its direct part must
 * be aligned.
 *
 * Input: a byte that chooses the channel's profile, then entries.  Ids that are small are taken
 * for the n-th object, so that some hit.
 */
#include "daemon/lane/channel.h"
#include "daemon/store/store.h"
#include "daemon/lane/unaligned.h"
#include "tests/fuzz/fuzz.h"

#define N_FILES 6u
#define N_SLABS 3u

static struct store store, other_store;
static struct objects objects;
static struct file files[N_FILES];
static struct slab slabs[N_SLABS];
static uint32_t file_ids[N_FILES], slab_ids[N_SLABS];

static void setup(void)
{
	static const struct file_facts facts[N_FILES] = {
		{ .can_read = true, .can_write = true, .offset_align = 512, .memory_align = 512 },
		{ .can_read = true, .offset_align = 4096, .memory_align = 4 },
		{ .can_write = true, .offset_align = 512, .memory_align = 4096 },
		{ .can_read = true, .can_write = true, .offset_align = 1, .memory_align = 1 },
		{ .can_read = true, .can_write = true, .offset_align = 512, .memory_align = 512 },
		{ .can_read = true, .can_write = true, .offset_align = 512, .memory_align = 512 },
	};
	int r = 0;

	memset(&objects.files, 0, sizeof(objects.files));
	memset(&objects.slabs, 0, sizeof(objects.slabs));
	for (uint32_t i = 0; i < N_FILES; i++) {
		files[i].facts = facts[i];
		atomic_init(&files[i].buffered_fd, i == 0 || i == 3 ? 99 : -1);
		files[i].store = i == 4 ? &other_store : &store;
		r |= id_table_add(&objects.files, &files[i], &file_ids[i]);
	}
	for (uint32_t i = 0; i < N_SLABS; i++) {
		slabs[i].memory = (void *)((uintptr_t)1 << 40); /* never touched */
		slabs[i].size_bytes = (uint64_t)4096 << (i * 18);
		r |= id_table_add(&objects.slabs, &slabs[i], &slab_ids[i]);
	}
	assert(r == 0);
	(void)id_table_remove(&objects.files, file_ids[5]);
	(void)id_table_remove(&objects.slabs, slab_ids[2]);
}

static void check_cut(const struct op *op, uint64_t slab_off)
{
	const struct file_facts *facts = &op->file->facts;
	bool is_direct = op->opcode == RING_OP_READ || file_buffered_fd(op->file) < 0;
	uint32_t unit = unaligned_unit(facts->offset_align);
	uint64_t edges = (uint64_t)op->head + op->tail;

	assert(edges <= op->len);
	assert(!(op->edges_left & OP_HEAD) == !op->head);
	assert(!(op->edges_left & OP_TAIL) == !op->tail);
	/* Bounce pages hold what is read into them; the page cache owns no page of the middle. */
	if (op->head)
		assert(unaligned_cover(op->off, op->head, unit).len <= BOUNCE_BYTES);
	if (op->tail)
		assert(unaligned_cover(op->off + op->len - op->tail, op->tail, unit).len <=
		       BOUNCE_BYTES);
	if (op->head && edges < op->len)
		assert((op->off + op->head) % unit == 0);
	if (op->tail && edges < op->len)
		assert((op->off + op->len - op->tail) % unit == 0);
	if (op->is_misaligned) {
		assert(!edges && (is_direct || op->file == &files[0] || op->file == &files[3]));
	} else if (edges < op->len) {
		assert((op->off + op->head) % facts->offset_align == 0);
		assert((op->len - edges) % facts->offset_align == 0);
		assert((slab_off + op->head) % facts->memory_align == 0);
	}
	if (op->opcode == RING_OP_WRITE && file_buffered_fd(op->file) < 0)
		assert(!edges && !op->is_misaligned);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool is_set_up;
	struct channel channel = { .store = &store, .objects = &objects };
	uint8_t choice;

	if (!is_set_up)
		setup();
	is_set_up = true;
	take_bytes(&data, &size, &choice, 1);
	channel.profile = (struct profile){ 4096u << choice % 15, 1, false, true,
					    1u + (choice / 15) * 3u };
	while (size) {
		struct op op = { .channel = &channel };
		struct ring_entry entry;
		int r;

		take_bytes(&data, &size, &entry, sizeof(entry));
		if (entry.file < N_FILES)
			entry.file = file_ids[entry.file];
		if (entry.slab > 0 && entry.slab <= N_SLABS)
			entry.slab = slab_ids[entry.slab - 1];
		for (uint32_t i = 0; i < N_FILES; i++)
			files[i].n_holds = 1;
		for (uint32_t i = 0; i < N_SLABS; i++)
			slabs[i].n_holds = 1;

		r = channel_check_entry(&channel, &entry, &op);
		assert(r >= 0);
		if (r) {
			assert(!op.file && !op.slab);
			continue;
		}
		assert(op.file->store == &store && op.file->n_holds == 2 && op.file != &files[5]);
		assert(op.off <= INT64_MAX && op.len <= INT64_MAX - op.off);
		if (op.opcode == RING_OP_READ || op.opcode == RING_OP_WRITE) {
			uint64_t slab_off = (uint64_t)(op.memory - (char *)op.slab->memory);

			assert(op.slab != &slabs[2] && op.slab->n_holds == 2);
			assert(slab_off <= op.slab->size_bytes &&
			       op.len <= op.slab->size_bytes - slab_off);
			check_cut(&op, slab_off);
			assert(op.opcode == RING_OP_WRITE ? op.file->facts.can_write
							  : op.file->facts.can_read);
		} else {
			assert(!op.slab && op.len == 0);
		}
	}
	return 0;
}
