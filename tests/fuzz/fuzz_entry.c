/*
 * intake_check_entry(): any entry, against a session with a few files and slabs, some of them
 * removed.  An accepted entry must lie within its slab and within 2^63, and its direct part must
 * be aligned.
 *
 * Input: a byte that chooses the channel's profile, then entries.  Ids that are small are taken
 * for the n-th object, so that some hit.
 */
#include "daemon/lane/intake.h"
#include "daemon/object/unaligned.h"
#include "daemon/store/store.h"
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
	static const struct {
		bool can_read, can_write;
		uint32_t offset_align, memory_align;
	} kinds[N_FILES] = {
		{ true, true, 512, 512 }, { true, false, 4096, 4 }, { false, true, 512, 4096 },
		{ true, true, 1, 1 },	  { true, true, 512, 512 }, { true, true, 512, 512 },
	};
	int r = 0;

	memset(&objects.files, 0, sizeof(objects.files));
	memset(&objects.slabs, 0, sizeof(objects.slabs));
	for (uint32_t i = 0; i < N_FILES; i++) {
		files[i].facts.can_read = kinds[i].can_read;
		files[i].facts.can_write = kinds[i].can_write;
		files[i].target.offset_align = kinds[i].offset_align;
		files[i].target.memory_align = kinds[i].memory_align;
		atomic_init(&files[i].target.buffered_fd, i == 0 || i == 3 ? 99 : -1);
		files[i].store = i == 4 ? &other_store : &store;
		r |= id_table_add(&objects.files, &files[i], 0, &file_ids[i]);
	}
	for (uint32_t i = 0; i < N_SLABS; i++) {
		slabs[i].region.base = (void *)((uintptr_t)1 << 40); /* never touched */
		slabs[i].size_bytes = (uint64_t)4096 << (i * 18);
		r |= id_table_add(&objects.slabs, &slabs[i], 0, &slab_ids[i]);
	}
	slabs[1].region.kind = REGION_GPU;
	assert(r == 0);
	(void)id_table_remove(&objects.files, file_ids[5]);
	(void)id_table_remove(&objects.slabs, slab_ids[2]);
}

static void check_cut(const struct op *op)
{
	const struct target *target = &op->file->target;
	bool is_direct = op->opcode == RING_OP_READ || target_buffered_fd(target) < 0;
	uint32_t unit = unaligned_unit(target->offset_align);
	uint64_t unaligned = (uint64_t)op->head + op->tail;

	assert(unaligned <= op->len);
	assert(!(op->unaligned_left & OP_HEAD) == !op->head);
	assert(!(op->unaligned_left & OP_TAIL) == !op->tail);
	/* Bounce pages hold what is read into them; the page cache owns no page of the middle. */
	if (op->head)
		assert(unaligned_cover(op->off, op->head, unit).len <= BOUNCE_BYTES);
	if (op->tail)
		assert(unaligned_cover(op->off + op->len - op->tail, op->tail, unit).len <=
		       BOUNCE_BYTES);
	if (op->head && unaligned < op->len)
		assert((op->off + op->head) % unit == 0);
	if (op->tail && unaligned < op->len)
		assert((op->off + op->len - op->tail) % unit == 0);
	if (op->is_misaligned) {
		assert(!unaligned && (is_direct || op->file == &files[0] || op->file == &files[3]));
	} else if (unaligned < op->len) {
		assert((op->off + op->head) % target->offset_align == 0);
		assert((op->len - unaligned) % target->offset_align == 0);
		/* GPU memory may lie anywhere. */
		assert(op->slab->region.kind == REGION_GPU ||
		       (op->slab_off + op->head) % target->memory_align == 0);
	}
	if (op->opcode == RING_OP_WRITE && target_buffered_fd(target) < 0)
		assert(!unaligned && !op->is_misaligned);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool is_set_up;
	struct channel channel = { .store = &store,
				   .lane_store = &store.lane_store,
				   .objects = &objects };
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
		op.opcode = entry.opcode; /* as take_entry() does */
		if (entry.file < N_FILES)
			entry.file = file_ids[entry.file];
		if (entry.slab > 0 && entry.slab <= N_SLABS)
			entry.slab = slab_ids[entry.slab - 1];
		for (uint32_t i = 0; i < N_FILES; i++)
			files[i].n_refs = 1;
		for (uint32_t i = 0; i < N_SLABS; i++)
			slabs[i].n_refs = 1;

		r = intake_check_entry(&channel, &entry, &op);
		assert(r >= 0);
		if (r) {
			assert(!op.file && !op.slab);
			continue;
		}
		assert(op.file->store == &store && op.file->n_refs == 2 && op.file != &files[5]);
		assert(op.off <= INT64_MAX && op.len <= INT64_MAX - op.off);
		if (op.opcode == RING_OP_READ || op.opcode == RING_OP_WRITE) {
			assert(op.slab != &slabs[2] && op.slab->n_refs == 2);
			assert(op.slab_off <= op.slab->size_bytes &&
			       op.len <= op.slab->size_bytes - op.slab_off);
			check_cut(&op);
			assert(op.opcode == RING_OP_WRITE ? op.file->facts.can_write
							  : op.file->facts.can_read);
		} else {
			assert(!op.slab && op.len == 0);
		}
	}
	return 0;
}
