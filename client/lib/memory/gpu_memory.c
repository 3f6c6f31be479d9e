#include "client/lib/memory/gpu_memory.h"

#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/error.h"
#include "client/lib/dsaio.h"
#include "client/lib/memory/allocation.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often to repeat what the daemon has no room for yet: a guess. */
#define REPEAT_NSEC 10000000u

/*
 * The states, and those that may follow:
 *   IMPORTED   the slab is the daemon's; ops may reference it		STALE
 *   REFUSED    there is none: error and why say it			STALE
 *   STALE      its memory, or its place here, is another's: it goes when no op uses it
 */
enum region_state { REGION_IMPORTED, REGION_REFUSED, REGION_STALE };

struct gpu_region {
	struct list_node node;
	struct allocation allocation;
	CUuuid uuid; /* of its GPU; IMPORTED */
	enum region_state state;
	struct slab_name slab;	/* what ops name */
	struct cut_piece piece; /* for its n_ops */
	uint64_t used_nsec;
	int error;	     /* REFUSED, and STALE from there: why there is no slab; else 0 */
	char *why;	     /* REFUSED; NULL: no memory for it */
	uint64_t retry_nsec; /* REFUSED: when to ask again */
};

/* A registered range. */
struct gpu_range {
	struct list_node node;
	uintptr_t start;
	size_t bytes;
	struct allocation allocation;
};

void gpu_memory_init(struct gpu_memory *gpu, struct dsaio_conn *conn, bool is_direct_only)
{
	const struct conn_facts facts = conn_facts(conn);

	*gpu = (struct gpu_memory){ .conn = conn,
				    .n_max = GPU_REGIONS_MAX,
				    .pause_nsec = GPU_PAUSE_NSEC };
	gpu->can_import = (facts.features & RING_FEATURE_DEVICE) &&
			  (facts.gpu_path != WIRE__GPU_PATH__GPU_COPY || is_direct_only);
	gpu->must_import = facts.gpu_path == WIRE__GPU_PATH__GPU_DIRECT || is_direct_only;
	gpu->is_programs_wish = facts.gpu_path != WIRE__GPU_PATH__GPU_DIRECT;
	(void)snprintf(gpu->why, sizeof(gpu->why), "%s", facts.gpu_why);
	(void)pthread_mutex_init(&gpu->import_lock, NULL); /* default attributes: cannot fail */
	(void)pthread_mutex_init(&gpu->lock, NULL);
}

static void region_free(struct gpu_region *region)
{
	free(region->why);
	free(region);
}

void gpu_memory_deinit(struct gpu_memory *gpu)
{
	LIST_EACH(struct gpu_region, region, &gpu->regions, node)
		region_free(region);
	LIST_EACH(struct gpu_range, range, &gpu->ranges, node)
		free(range);
	(void)pthread_mutex_destroy(&gpu->import_lock);
	(void)pthread_mutex_destroy(&gpu->lock);
}

void gpu_memory_await_room(void)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = REPEAT_NSEC }, NULL); /* EINTR: earlier */
}

/* ---- the list of regions: under the lock ---- */

/* The region that the byte lies in, or NULL. */
static struct gpu_region *region_at(const struct gpu_memory *gpu, const void *memory)
{
	LIST_EACH(struct gpu_region, region, &gpu->regions, node)
		if (region->state != REGION_STALE && allocation_has(&region->allocation, memory, 1))
			return region;
	return NULL;
}

static bool region_is_used(const struct gpu_region *region)
{
	return atomic_load_explicit(&region->piece.n_ops, memory_order_acquire); /* unref */
}

static bool region_is_registered(const struct gpu_memory *gpu, const struct gpu_region *region)
{
	LIST_EACH(const struct gpu_range, range, &gpu->ranges, node)
		if (range->allocation.id == region->allocation.id &&
		    range->allocation.base == region->allocation.base)
			return true;
	return false;
}

static void region_retire(struct gpu_memory *gpu, struct gpu_region *region)
{
	region->state = REGION_STALE;
	gpu->n--;
	gpu->n_stale++;
}

/* Is it still of that allocation, and of this session?  The next daemon does not take GPU memory over. */
static bool region_is_current(const struct gpu_memory *gpu, const struct gpu_region *region,
			      const void *memory)
{
	return allocation_is_current(&region->allocation, memory) &&
	       (region->state != REGION_IMPORTED ||
		region->slab.session == conn_session(gpu->conn));
}

/* Retires the regions of memory that was freed. */
static void regions_look(struct gpu_memory *gpu)
{
	gpu->looked_nsec = clock_nsec();
	LIST_EACH(struct gpu_region, region, &gpu->regions, node)
		if (region->state != REGION_STALE &&
		    !region_is_current(gpu, region, (const void *)region->allocation.base))
			region_retire(gpu, region);
}

/*
 * Makes room for a region: retires the one that was not used for the longest time, if it may be given up.
 * Returns whether there was one.  Where ops may be copied as well, regions in use are not given up for
 * others: all would be imported in turns.
 */
static bool regions_spare(struct gpu_memory *gpu)
{
	const uint64_t unused_nsec = gpu->must_import ? 0 : gpu->pause_nsec,
		       now_nsec = clock_nsec();
	struct gpu_region *oldest = NULL;

	LIST_EACH(struct gpu_region, region, &gpu->regions, node)
		if (region->state != REGION_STALE && !region_is_registered(gpu, region) &&
		    !region_is_used(region) && now_nsec - region->used_nsec >= unused_nsec)
			oldest = region;
	if (oldest)
		region_retire(gpu, oldest);
	return oldest;
}

/* Moves those that are stale and no op uses to the list, for release(). */
static void stale_take(struct gpu_memory *gpu, struct list *gone)
{
	if (!gpu->n_stale)
		return;
	LIST_EACH(struct gpu_region, region, &gpu->regions, node) {
		if (region->state != REGION_STALE || region_is_used(region))
			continue;
		list_remove(&gpu->regions, &region->node);
		list_push(gone, &region->node);
		gpu->n_stale--;
	}
}

/* Gives them back, without the lock. */
static void release(struct gpu_memory *gpu, const struct list *gone, bool waits)
{
	LIST_EACH(struct gpu_region, region, gone, node) {
		if (!region->error) {
			debug_log("GPU memory: slab %u is released", region->slab.id);
			slab_release(gpu->conn, &region->slab, waits);
		}
		region_free(region);
	}
}

/* ---- import ---- */

/* Without the lock. */
static int import(struct gpu_memory *gpu, struct gpu_region *region, char **ret_why)
{
	struct allocation_handle handle;
	int r = allocation_export(&region->allocation, &handle, ret_why);

	if (r < 0)
		return r;
	region->uuid = handle.uuid;
	r = slab_import_gpu(gpu->conn, &handle, region->allocation.bytes, gpu->must_import,
			    &region->slab);
	if (r < 0)
		*ret_why = strdup(dsaio_error());
	return r;
}

static const char *reason(const struct gpu_region *region)
{
	return region->why ? region->why : strerrordesc_np(-region->error);
}

/* Whether less, or a moment, may mend it. */
static bool is_for_now(int error)
{
	return error == -ENOMEM || error == -EDQUOT || error == -EMFILE || error == -ENOSPC ||
	       error == -EAGAIN;
}

/*
 * After an import that was refused, when so many posts had been answered before: whether to ask again.  The daemon
 * takes no further import while too many wait for the GPU driver; ops that may be copied do not wait for that.
 * Else there has to be less than when it was asked for.  Memory counts until the daemon has released it.
 */
static bool may_retry(struct gpu_memory *gpu, int error, uint64_t n_answered)
{
	size_t n;

	if (error == -EAGAIN && gpu->must_import)
		gpu_memory_await_room();
	if (error == -EAGAIN || !is_for_now(error))
		return error == -EAGAIN && gpu->must_import;
	(void)pthread_mutex_lock(&gpu->lock);
	n = gpu->n;
	regions_look(gpu);
	n -= gpu->n;
	(void)pthread_mutex_unlock(&gpu->lock);
	if (n || conn_await_post(gpu->conn, n_answered))
		return true;
	LOCKED(&gpu->lock);
	return regions_spare(gpu);
}

/*
 * Imports a region that is in no list yet, with the import lock.  Under the lock, which is released meanwhile.
 * Regions that go are released first, since they count towards what this client may have.
 */
static void region_import(struct gpu_memory *gpu, struct gpu_region *region)
{
	uint64_t n_answered;
	int r;

	regions_look(gpu);
	(void)pthread_mutex_unlock(&gpu->lock);
	do {
		struct list gone = { .first = NULL };

		free(TAKE_PTR(region->why));
		(void)pthread_mutex_lock(&gpu->lock);
		stale_take(gpu, &gone);
		(void)pthread_mutex_unlock(&gpu->lock);
		n_answered = conn_posts_answered(gpu->conn);
		release(gpu, &gone, false);
		r = import(gpu, region, &region->why);
	} while (may_retry(gpu, r, n_answered));
	(void)pthread_mutex_lock(&gpu->lock);
	region->state = r == 0 ? REGION_IMPORTED : REGION_REFUSED;
	region->error = r;
	region->used_nsec = clock_nsec();
	region->retry_nsec = is_for_now(r) ? region->used_nsec + gpu->pause_nsec : UINT64_MAX;
	if (r == 0)
		debug_log("GPU memory: slab %u: %" PRIu64 " bytes of GPU %d at %#" PRIxPTR,
			  region->slab.id, region->allocation.bytes, region->allocation.number,
			  region->allocation.base);
	else
		debug_log("GPU memory: %" PRIu64 " bytes of GPU %d at %#" PRIxPTR
			  " cannot be imported: %s",
			  region->allocation.bytes, region->allocation.number,
			  region->allocation.base, reason(region));
}

/* Why ops may not be copied. */
static const char *no_copies(const struct gpu_memory *gpu)
{
	return gpu->is_programs_wish
		       ? "the program does not allow copies (DSAIO_GPU_DIRECT)"
		       : "the daemon is configured not to have it copied (gpu = direct)";
}

/*
 * The daemon cannot use the memory, for that error and reason (NULL: the errno has to do).  Returns 0: the op is
 * to copy; or the error, with a message: it may not be copied.
 */
static int refuse(const struct gpu_memory *gpu, const char *function, const void *memory, int error,
		  const char *why)
{
	if (!gpu->must_import)
		return 0;
	return error_fail(error, "%s: GPU memory at %p: %s; %s", function, memory,
			  why ? why : strerrordesc_np(-error), no_copies(gpu));
}

int gpu_memory_refuse_file(const struct gpu_memory *gpu, const char *function, int error,
			   const char *why)
{
	const char *advice = ""; /* another file would have the same error */

	if (!gpu->must_import)
		return 0;
	if (error == -EOPNOTSUPP)
		advice =
			gpu->is_programs_wish
				? ": move the file to ext4 or XFS, or open the client without that flag"
				: ": move the file to ext4 or XFS, or set gpu = auto";
	return error_fail(error, "%s: %s; %s%s", function, why ? why : strerrordesc_np(-error),
			  no_copies(gpu), advice);
}

/* Retires the regions that the allocation overlaps: they are of memory that was freed. */
static void regions_retire(struct gpu_memory *gpu, const struct allocation *allocation)
{
	LIST_EACH(struct gpu_region, region, &gpu->regions, node) {
		const struct allocation *old = &region->allocation;

		if (region->state != REGION_STALE &&
		    old->base < allocation->base + allocation->bytes &&
		    allocation->base < old->base + old->bytes)
			region_retire(gpu, region);
	}
}

/*
 * A new region for memory that none has, IMPORTED or REFUSED.  Under both locks; gpu.lock is released meanwhile.
 * Returns 1, or as gpu_memory_ref().
 */
static int region_new(struct gpu_memory *gpu, const char *function, const void *memory,
		      struct gpu_region **ret_region)
{
	_cleanup_(freep) char *why = NULL;
	struct allocation allocation;
	struct gpu_region *region;
	int r = allocation_find(memory, &allocation, &why);

	if (r < 0)
		return r == -ENOENT ? 0 : refuse(gpu, function, memory, r, why);
	if (!gpu->can_import)
		return refuse(gpu, function, memory, -EOPNOTSUPP, gpu->why);
	regions_retire(gpu, &allocation);
	if (gpu->n >= gpu->n_max && !regions_spare(gpu))
		return refuse(gpu, function, memory, -EMFILE,
			      "ops use as many allocations as can be imported at a time");
	region = calloc(1, sizeof(*region));
	if (!region)
		return refuse(gpu, function, memory, -ENOMEM, NULL);
	region->allocation = allocation;
	region->slab.is_imported = region->slab.is_gpu = true;
	region_import(gpu, region);
	list_push_front(&gpu->regions, &region->node);
	gpu->n++;
	*ret_region = region;
	return 1;
}

/* The region of the memory, or NULL: there is none that is of use now.  Under the lock. */
static struct gpu_region *region_get(struct gpu_memory *gpu, const void *memory)
{
	struct gpu_region *region = region_at(gpu, memory);

	if (!region || (region_is_current(gpu, region, memory) &&
			(region->state != REGION_REFUSED || clock_nsec() < region->retry_nsec)))
		return region;
	region_retire(gpu, region);
	return NULL;
}

/* ---- ops ---- */

/*
 * The region of the range, if ops may name it: 1, or as gpu_memory_ref().  Under the lock, which is released while
 * it is imported.
 */
static int region_find(struct gpu_memory *gpu, const char *function, const void *memory,
		       uint64_t len, struct gpu_region **ret_region)
{
	struct gpu_region *region = region_get(gpu, memory);
	int r = 1;

	if (!region) {
		(void)pthread_mutex_unlock(&gpu->lock);
		(void)pthread_mutex_lock(&gpu->import_lock);
		(void)pthread_mutex_lock(&gpu->lock);
		region = region_get(gpu, memory); /* another thread may have imported it */
		if (!region)
			r = region_new(gpu, function, memory, &region);
		(void)pthread_mutex_unlock(&gpu->import_lock);
	}
	if (r != 1)
		return r;
	if (region->error == -ENOTCONN)
		return error_fail(region->error, "%s: %s", function, reason(region));
	if (region->state == REGION_REFUSED)
		return refuse(gpu, function, memory, region->error, region->why);
	if (!allocation_has(&region->allocation, memory, len))
		return refuse(gpu, function, memory, -EFAULT,
			      "the range must lie within one allocation");
	*ret_region = region;
	return 1;
}

/* Looks for freed memory if that was not done for a while, and releases it.  Unlocks. */
static void tend_and_unlock(struct gpu_memory *gpu)
{
	struct list gone = { .first = NULL };

	if (clock_nsec() - gpu->looked_nsec >= gpu->pause_nsec)
		regions_look(gpu);
	stale_take(gpu, &gone);
	(void)pthread_mutex_unlock(&gpu->lock);
	release(gpu, &gone, false);
}

int gpu_memory_ref_slow(struct gpu_memory *gpu, const char *function, const void *memory,
			uint64_t len, struct buffer_place *ret_place)
{
	struct gpu_region *region;
	int r;

	(void)pthread_mutex_lock(&gpu->lock); /* a plain mutex: cannot fail */
	r = region_find(gpu, function, memory, len, &region);
	if (r == 1) {
		/* relaxed: regions go under the lock alone */
		(void)atomic_fetch_add_explicit(&region->piece.n_ops, 1, memory_order_relaxed);
		*ret_place = (struct buffer_place){ &region->slab,
						    (uintptr_t)memory - region->allocation.base,
						    &region->piece };
		region->used_nsec = clock_nsec();
		list_remove(&gpu->regions, &region->node);
		list_push_front(&gpu->regions, &region->node);
	}
	tend_and_unlock(gpu);
	return r;
}

void gpu_memory_tend(struct gpu_memory *gpu)
{
	(void)pthread_mutex_lock(&gpu->lock);
	tend_and_unlock(gpu);
}

const CUuuid *gpu_memory_uuid(const struct buffer_place *place)
{
	/* An op references it, so it is imported, and this does not change. */
	return &container_of(place->slab, const struct gpu_region, slab)->uuid;
}

char *gpu_memory_why(struct gpu_memory *gpu, const void *memory)
{
	const struct gpu_region *region;
	const char *why = gpu->why;
	LOCKED(&gpu->lock);

	region = region_at(gpu, memory);
	if (region)
		why = region->state == REGION_REFUSED
			      ? reason(region)
			      : "the range does not lie within one allocation";
	else if (gpu->can_import)
		why = "libcuda says too little about it, or too many allocations are in use";
	return strdup(why);
}

/* ---- registered memory ---- */

/* Under the lock.  Forgets ranges there whose memory was freed.  -EEXIST: another one is there. */
static int range_add(struct gpu_memory *gpu, const struct gpu_range *new)
{
	struct gpu_range *copy;

	LIST_EACH(struct gpu_range, range, &gpu->ranges, node) {
		if (new->start >= range->start + range->bytes ||
		    range->start >= new->start + new->bytes)
			continue;
		if (allocation_is_current(&range->allocation, (const void *)range->start))
			return -EEXIST;
		list_remove(&gpu->ranges, &range->node);
		free(range);
	}
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	*copy = *new;
	list_push(&gpu->ranges, &copy->node);
	return 0;
}

/* Under the lock.  The range that starts there, taken out and the caller's to free; or NULL. */
static struct gpu_range *range_take(struct gpu_memory *gpu, const void *start)
{
	LIST_EACH(struct gpu_range, range, &gpu->ranges, node) {
		if (range->start != (uintptr_t)start)
			continue;
		list_remove(&gpu->ranges, &range->node);
		return range;
	}
	return NULL;
}

/* Under the lock, which is released meanwhile.  A range that was added.  As gpu_memory_ref(). */
static int range_import(struct gpu_memory *gpu, const struct gpu_range *range)
{
	struct gpu_region *region;
	int r;

	if (!gpu->can_import && !gpu->must_import)
		return 0;
	r = region_find(gpu, "memory_register", (const void *)range->start, range->bytes, &region);
	if (r < 0)
		free(range_take(gpu, (const void *)range->start)); /* just added */
	return r < 0 ? r : 0;
}

int gpu_memory_register(struct gpu_memory *gpu, void *start, size_t bytes)
{
	_cleanup_(freep) char *why = NULL;
	struct gpu_range range = { .start = (uintptr_t)start, .bytes = bytes };
	const struct allocation *allocation = &range.allocation;
	int r = allocation_find(start, &range.allocation, &why);

	if (r == -ENOENT)
		return error_fail(
			-EINVAL,
			"memory_register: %p is not GPU memory: give the address of memory "
			"that the program's CUDA has allocated",
			start);
	if (r < 0)
		return error_fail(r, "memory_register: %zu bytes of GPU memory at %p: %s", bytes,
				  start, why ? why : "no memory for the reason");
	if (!allocation_has(allocation, start, bytes))
		return error_fail(-ERANGE,
				  "memory_register: %zu bytes at %p: the allocation of %" PRIu64
				  " bytes at %#" PRIxPTR " ends before: register each allocation",
				  bytes, start, allocation->bytes, allocation->base);
	(void)pthread_mutex_lock(&gpu->lock);
	r = range_add(gpu, &range);
	if (r == -EEXIST)
		r = error_fail(r,
			       "memory_register: %zu bytes at %p: part of it is registered already",
			       bytes, start);
	else if (r < 0)
		r = error_fail_errno(r, "memory_register: %zu bytes at %p", bytes, start);
	else
		r = range_import(gpu, &range);
	(void)pthread_mutex_unlock(&gpu->lock);
	if (r == 0)
		debug_log("memory_register: %zu bytes of GPU %d", bytes, allocation->number);
	return r;
}

/* The region of a range that goes.  Under the lock. */
static void region_unregister(struct gpu_memory *gpu, const struct allocation *allocation)
{
	struct gpu_region *region = region_at(gpu, (const void *)allocation->base);

	if (region && region->allocation.id == allocation->id && region->state == REGION_IMPORTED &&
	    !region_is_registered(gpu, region) && !region_is_used(region))
		region_retire(gpu, region);
}

int gpu_memory_unregister(struct gpu_memory *gpu, const void *start, bool *ret_is_last)
{
	_cleanup_(freep) struct gpu_range *range = NULL;
	struct list gone = { .first = NULL };
	LOCKED(&gpu->import_lock); /* imports wait until the memory does not count any more */

	(void)pthread_mutex_lock(&gpu->lock);
	range = range_take(gpu, start);
	if (range)
		*ret_is_last = gpu->is_left && !gpu->ranges.first;
	if (range && !gpu->is_left) {
		region_unregister(gpu, &range->allocation);
		stale_take(gpu, &gone);
	}
	(void)pthread_mutex_unlock(&gpu->lock);
	release(gpu, &gone, true);
	return range ? 0 : -EINVAL;
}

bool gpu_memory_has(struct gpu_memory *gpu, const void *memory, size_t bytes)
{
	bool has = false;
	LOCKED(&gpu->lock);

	LIST_EACH(const struct gpu_range, range, &gpu->ranges, node) {
		uintptr_t off = (uintptr_t)memory - range->start;

		has |= off < range->bytes && bytes <= range->bytes - off &&
		       allocation_is_current(&range->allocation, (const void *)range->start);
	}
	return has;
}

bool gpu_memory_leave(struct gpu_memory *gpu)
{
	LOCKED(&gpu->lock);

	gpu->is_left = true;
	return gpu->ranges.first;
}
