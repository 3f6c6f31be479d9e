#include "client/lib/memory/gpu_memory.h"

#include "client/lib/base/debug.h"
#include "client/lib/base/error.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* A registered range. */
struct gpu_range {
	uintptr_t start;
	size_t bytes;
	struct allocation allocation;
};

void gpu_memory_init(struct gpu_memory *gpu)
{
	*gpu = (struct gpu_memory){ .ranges = NULL };
	(void)pthread_mutex_init(&gpu->lock, NULL); /* default attributes: cannot fail */
}

void gpu_memory_deinit(struct gpu_memory *gpu)
{
	free(gpu->ranges);
	(void)pthread_mutex_destroy(&gpu->lock);
}

/* ---- registered ranges: under the lock ---- */

static bool range_is_current(const struct gpu_range *range)
{
	return allocation_is_current(&range->allocation, (const void *)range->start);
}

static int ranges_reserve(struct gpu_memory *gpu)
{
	size_t n = gpu->n_ranges_allocated ? 2 * gpu->n_ranges_allocated : 8;
	struct gpu_range *ranges;

	if (gpu->n_ranges < gpu->n_ranges_allocated)
		return 0;
	ranges = reallocarray(gpu->ranges, n, sizeof(*ranges));
	if (!ranges)
		return -ENOMEM;
	gpu->ranges = ranges;
	gpu->n_ranges_allocated = n;
	return 0;
}

static void range_remove(struct gpu_memory *gpu, size_t i)
{
	gpu->ranges[i] = gpu->ranges[--gpu->n_ranges]; /* they have no order */
}

/* Forgets ranges there whose memory was freed.  -EEXIST: another one is there. */
static int ranges_make_way(struct gpu_memory *gpu, uintptr_t start, size_t bytes)
{
	for (size_t i = gpu->n_ranges; i-- > 0;) {
		const struct gpu_range *range = &gpu->ranges[i];

		if (start >= range->start + range->bytes || range->start >= start + bytes)
			continue;
		if (range_is_current(range))
			return -EEXIST;
		range_remove(gpu, i);
	}
	return 0;
}

static int range_add(struct gpu_memory *gpu, uintptr_t start, size_t bytes,
		     const struct allocation *allocation)
{
	int r = ranges_make_way(gpu, start, bytes);

	if (r == 0)
		r = ranges_reserve(gpu);
	if (r == 0)
		gpu->ranges[gpu->n_ranges++] = (struct gpu_range){ start, bytes, *allocation };
	return r;
}

int gpu_memory_register(struct gpu_memory *gpu, void *start, size_t bytes)
{
	_cleanup_(freep) char *why = NULL;
	struct allocation allocation;
	int r = allocation_find(start, &allocation, &why);

	if (r == -ENOENT)
		return error_fail(
			-EINVAL,
			"memory_register: %p is not GPU memory: give the address of memory "
			"that the program's CUDA has allocated",
			start);
	if (r < 0)
		return error_fail(r, "memory_register: %zu bytes of GPU memory at %p: %s", bytes,
				  start, why ? why : "no memory for the reason");
	if (!allocation_has(&allocation, start, bytes))
		return error_fail(-ERANGE,
				  "memory_register: %zu bytes at %p: the allocation of %" PRIu64
				  " bytes at %#" PRIxPTR " ends before: register each allocation",
				  bytes, start, allocation.bytes, allocation.base);
	(void)pthread_mutex_lock(&gpu->lock); /* a plain mutex: cannot fail */
	r = range_add(gpu, (uintptr_t)start, bytes, &allocation);
	(void)pthread_mutex_unlock(&gpu->lock);
	if (r == -EEXIST)
		return error_fail(
			r, "memory_register: %zu bytes at %p: part of it is registered already",
			bytes, start);
	if (r < 0)
		return error_fail_errno(r, "memory_register: %zu bytes at %p", bytes, start);
	debug_log("memory_register: %zu bytes of GPU %d", bytes, allocation.number);
	return 0;
}

int gpu_memory_unregister(struct gpu_memory *gpu, const void *start,
			  struct allocation *ret_allocation, bool *ret_is_last)
{
	int r = -EINVAL;

	*ret_is_last = false;
	(void)pthread_mutex_lock(&gpu->lock);
	for (size_t i = 0; i < gpu->n_ranges && r < 0; i++) {
		if (gpu->ranges[i].start != (uintptr_t)start)
			continue;
		*ret_allocation = gpu->ranges[i].allocation;
		range_remove(gpu, i);
		*ret_is_last = gpu->is_left && !gpu->n_ranges;
		r = 0;
	}
	(void)pthread_mutex_unlock(&gpu->lock);
	return r;
}

bool gpu_memory_has(struct gpu_memory *gpu, const void *memory, size_t bytes)
{
	bool has = false;

	(void)pthread_mutex_lock(&gpu->lock);
	for (size_t i = 0; i < gpu->n_ranges && !has; i++) {
		const struct gpu_range *range = &gpu->ranges[i];
		uintptr_t off = (uintptr_t)memory - range->start;

		has = off < range->bytes && bytes <= range->bytes - off && range_is_current(range);
	}
	(void)pthread_mutex_unlock(&gpu->lock);
	return has;
}

bool gpu_memory_leave(struct gpu_memory *gpu)
{
	bool has;

	(void)pthread_mutex_lock(&gpu->lock);
	gpu->is_left = true;
	has = gpu->n_ranges;
	(void)pthread_mutex_unlock(&gpu->lock);
	return has;
}
