/*
 * Which memory is a GPU's, and copies of it, on the stand-in for libcuda.
 */
#include "client/lib/memory/gpu_copy.h"

#include "tests/unit/gpu.h"
#include "tests/unit/own_slab.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
	int number, found;
} gpus[] = {
	{ 0, 0 }, { GPUS_MAX - 1, GPUS_MAX - 1 }, { GPUS_MAX, -1 }, /* one too many */
};

TEST_TABLE(memory_of_a_gpu_has_its_number, gpus) /* _i: the row */
{
	char *memory;

	cuda_open("gpus=100");
	memory = gpu_memory_new(gpus[_i].number, 4096);
	ck_assert_int_eq(gpus_find(memory), gpus[_i].found);
	ck_assert_int_eq(gpus_find(memory + 4095), gpus[_i].found);
	ck_assert_int_eq(gpus_find(&memory), -1);
}

TEST(libcuda_is_seen_whenever_the_program_opens_it)
{
	char *memory = NULL;

	ck_assert_int_eq(gpus_find(&memory), -1);
	ck_assert_ptr_nonnull(
		dlopen(standins_path("libcufile", (char[PATH_MAX]){ 0 }), RTLD_NOW | RTLD_LOCAL));
	ck_assert_int_eq(gpus_find(&memory), -1);
	cuda_open("gpus=2");
	memory = gpu_memory_new(1, 4096);
	ck_assert_int_eq(gpus_find(memory), 1);
	ck_assert_int_eq(gpus_find(&memory), -1);
}

/* ---- copies ---- */

static struct buffers buffers;
static struct slots slots;
static struct slots_share share;
static struct slots_slab slab;
static struct slot slot;
static struct gpus all_gpus;
static char *memory;

static void on_unmap(struct slots *s, void *map)
{
	(void)s;
	gpus_forget(&all_gpus, map);
}

static void copies_setup(void)
{
	cuda_open("");
	memory = gpu_memory_new(0, 4096);
	ck_assert_int_eq(gpus_find(memory), 0); /* as for each op */
	buffers_init(&buffers, NULL, NULL);
	slab = (struct slots_slab){ .mapped = own_slab_new(&buffers, SLOT_UNIT), .n_units = 1 };
	slots_init(&slots, NULL, NULL);
	slots.on_unmap = on_unmap;
	share.slots = &slots;
	slot = (struct slot){ &share, &slab, 0, 1 };
	gpus_init(&all_gpus);
}

static void copies_teardown(void)
{
	slots.slabs[0] = slab;
	slots_deinit(&slots);
	buffers_deinit(&buffers);
	gpus_deinit(&all_gpus);
	ck_assert_uint_eq(gpu.look.standin_counts().n_events, 0);
	ck_assert_uint_eq(gpu.look.standin_counts().n_streams, 0);
	ck_assert_uint_eq(gpu.look.standin_counts().n_registered, 0);
	ck_assert_uint_eq(gpu.look.standin_counts().n_contexts, 1); /* gpu_memory_new()'s */
}

static int copy_end(struct gpu_copy *copy, char **ret_why)
{
	int r;

	do
		r = gpu_copy_look(copy, ret_why);
	while (r == -EAGAIN);
	return r;
}

TEST(a_copy_is_over_when_the_gpu_has_made_it)
{
	char *bytes, *why = NULL;
	struct gpu_copy fill, empty;

	copies_setup();
	bytes = gpu.look.standin_bytes((uintptr_t)memory);
	gpu.look.standin_let(0);
	memset(bytes, 'a', 4096);
	ck_assert_int_eq(gpus_copy(&all_gpus, 0, true, &slot, 10, memory, 100, &fill, &why), 0);
	ck_assert_int_eq(gpu_copy_look(&fill, &why), -EAGAIN);
	gpu.look.standin_let(1);
	ck_assert_int_eq(gpu_copy_look(&fill, &why), 0);
	ck_assert_int_eq(slab.mapped->memory[9], 0);
	ck_assert_int_eq(slab.mapped->memory[10], 'a');
	ck_assert_int_eq(slab.mapped->memory[109], 'a');
	ck_assert_int_eq(slab.mapped->memory[110], 0);
	memset(bytes, 'b', 4096);
	gpu.look.standin_let(2);
	ck_assert_int_eq(gpus_copy(&all_gpus, 0, false, &slot, 10, memory + 5, 50, &empty, &why),
			 0);
	ck_assert_int_eq(copy_end(&empty, &why), 0);
	ck_assert_int_eq(memcmp(bytes, "bbbbba", 6), 0);
	ck_assert_int_eq(memcmp(bytes + 54, "abb", 3), 0);
	ck_assert_ptr_null(why);
	copies_teardown();
}

TEST(events_are_used_again)
{
	enum { N = GPU_EVENTS_MAX + 3 };
	struct gpu_copy copies[N];
	char *why = NULL;

	copies_setup();
	gpu.look.standin_let(0);
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(gpus_copy(&all_gpus, 0, true, &slot, (uint64_t)i, memory, 1,
					   &copies[i], &why),
				 0);
	ck_assert_uint_eq(gpu.look.standin_counts().n_ahead, N);
	ck_assert_uint_eq(gpu.look.standin_counts().n_events, N);
	gpu.look.standin_let(UINT64_MAX);
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(copy_end(&copies[i], &why), 0);
	ck_assert_uint_eq(gpu.look.standin_counts().n_events, GPU_EVENTS_MAX);
	ck_assert_int_eq(gpus_copy(&all_gpus, 0, true, &slot, 0, memory, 1, &copies[0], &why), 0);
	ck_assert_int_eq(copy_end(&copies[0], &why), 0);
	ck_assert_uint_eq(gpu.look.standin_counts().n_events, GPU_EVENTS_MAX);
	copies_teardown();
}

TEST_MAIN
