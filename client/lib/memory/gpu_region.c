#include "client/lib/memory/gpu_region.h"

#include "client/lib/base/debug.h"
#include "client/lib/base/error.h"
#include "client/lib/dsaio.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * The states, and those that may follow:
 *   IMPORTING  a thread imports it, and others wait; it stays where it is    IMPORTED REFUSED
 *   IMPORTED   the slab is the daemon's; ops may reference it                STALE
 *   REFUSED    there is none: error and why say it                           IMPORTING STALE
 *   STALE      on a list; its memory, or its place here, is another's
 */
enum region_state { REGION_IMPORTING, REGION_IMPORTED, REGION_REFUSED, REGION_STALE };

struct gpu_region {
	struct allocation allocation;
	CUuuid uuid; /* of its GPU; IMPORTED */
	enum region_state state;
	bool has_slab;
	struct slab slab;	/* what ops name */
	struct cut_piece piece; /* for its n_ops */
	unsigned n_registered;
	uint64_t used_nsec;
	int error;	     /* REFUSED */
	char *why;	     /* REFUSED; NULL: no memory for it */
	uint64_t retry_nsec; /* REFUSED: when to ask again */
	struct list_node node;
};

void gpu_regions_init(struct gpu_regions *regions, struct dsaio_conn *conn, bool is_direct_only)
{
	const struct conn_facts facts = conn_facts(conn);

	*regions = (struct gpu_regions){ .conn = conn,
					 .n_max = GPU_REGIONS_MAX,
					 .pause_nsec = GPU_REGIONS_PAUSE_NSEC };
	regions->can_import = (facts.features & RING_FEATURE_DEVICE) &&
			      (facts.gpu_way != WIRE__GPU_WAY__GPU_COPY || is_direct_only);
	regions->must_import = facts.gpu_way == WIRE__GPU_WAY__GPU_DIRECT || is_direct_only;
	regions->is_programs_wish = facts.gpu_way != WIRE__GPU_WAY__GPU_DIRECT;
	(void)snprintf(regions->why, sizeof(regions->why), "%s",
		       *facts.gpu_why
			       ? facts.gpu_why
			       : "the daemon is of an older version, which uses no GPU memory");
	(void)pthread_mutex_init(&regions->lock, NULL); /* default attributes: cannot fail */
	(void)pthread_cond_init(&regions->changed, NULL);
}

static void region_free(struct gpu_region *region)
{
	free(region->why);
	free(region);
}

void gpu_regions_deinit(struct gpu_regions *regions)
{
	for (size_t i = 0; i < regions->n; i++)
		region_free(regions->regions[i]);
	LIST_EACH(struct gpu_region, region, &regions->stale, node)
		region_free(region);
	free(regions->regions);
	(void)pthread_cond_destroy(&regions->changed);
	(void)pthread_mutex_destroy(&regions->lock);
}

/* ---- the table: under the lock ---- */

/* The region that ends behind the address, or the table's end. */
static size_t regions_from(const struct gpu_regions *regions, uintptr_t address)
{
	size_t low = 0, high = regions->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct allocation *allocation = &regions->regions[middle]->allocation;

		if (address - allocation->base < allocation->bytes || address < allocation->base)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static struct gpu_region *regions_at(const struct gpu_regions *regions, const void *memory)
{
	size_t i = regions_from(regions, (uintptr_t)memory);

	return i < regions->n && allocation_has(&regions->regions[i]->allocation, memory, 1)
		       ? regions->regions[i]
		       : NULL;
}

/* No range of the table overlaps the region's. */
static int regions_add(struct gpu_regions *regions, struct gpu_region *region)
{
	size_t i = regions_from(regions, region->allocation.base);

	if (regions->n == regions->n_allocated) {
		size_t n = regions->n_allocated ? 2 * regions->n_allocated : 8;
		struct gpu_region **all = reallocarray(regions->regions, n, sizeof(*all));

		if (!all)
			return -ENOMEM;
		regions->regions = all;
		regions->n_allocated = n;
	}
	memmove(&regions->regions[i + 1], &regions->regions[i],
		(regions->n - i) * sizeof(regions->regions[0]));
	regions->regions[i] = region;
	regions->n++;
	return 0;
}

static bool region_is_used(const struct gpu_region *region)
{
	return atomic_load_explicit(&region->piece.n_ops, memory_order_acquire); /* unref */
}

/* The region leaves the table, for stale_take(). */
static void regions_retire(struct gpu_regions *regions, size_t i)
{
	struct gpu_region *region = regions->regions[i];

	region->state = REGION_STALE;
	regions->n--;
	memmove(&regions->regions[i], &regions->regions[i + 1],
		(regions->n - i) * sizeof(regions->regions[0]));
	list_push(&regions->stale, &region->node);
}

static bool region_is_gone(const struct gpu_region *region)
{
	return region->state != REGION_IMPORTING &&
	       !allocation_is_current(&region->allocation, (const void *)region->allocation.base);
}

/* Retires the regions of memory that was freed. */
static void regions_look(struct gpu_regions *regions, uint64_t now_nsec)
{
	regions->looked_nsec = now_nsec;
	for (size_t i = regions->n; i-- > 0;)
		if (region_is_gone(regions->regions[i]))
			regions_retire(regions, i);
}

/*
 * Makes room for a region: retires the one that was not used for the longest time, if it may be given up.
 * Returns whether there was one.  Where ops may be copied as well, regions in use are not given up for
 * others: all would be imported in turns.
 */
static bool regions_spare(struct gpu_regions *regions)
{
	uint64_t now_nsec = clock_nsec(),
		 longest_nsec = regions->must_import ? 0 : regions->pause_nsec;
	size_t oldest = regions->n;

	for (size_t i = 0; i < regions->n; i++) {
		const struct gpu_region *region = regions->regions[i];

		if (region->state == REGION_IMPORTING || region->n_registered ||
		    region_is_used(region) || now_nsec - region->used_nsec < longest_nsec)
			continue;
		longest_nsec = now_nsec - region->used_nsec;
		oldest = i;
	}
	if (oldest == regions->n)
		return false;
	regions_retire(regions, oldest);
	return true;
}

/* Moves those that no op uses any more to the list, for give_back().  Returns whether there is one. */
static bool stale_take(struct gpu_regions *regions, struct list *gone)
{
	LIST_EACH(struct gpu_region, region, &regions->stale, node) {
		if (region_is_used(region))
			continue;
		list_remove(&regions->stale, &region->node);
		list_push(gone, &region->node);
	}
	regions->n_giving += gone->first != NULL;
	return gone->first;
}

/* Gives them back, without the lock. */
static void give_back(struct gpu_regions *regions, struct list *gone, bool waits)
{
	if (!gone->first)
		return;
	LIST_EACH(struct gpu_region, region, gone, node) {
		if (region->has_slab) {
			debug_log("GPU memory: slab %u is given back", region->slab.id);
			if (waits)
				slab_give_back(regions->conn, region->slab.id);
			else
				slab_leave(regions->conn, region->slab.id);
		}
		region_free(region);
	}
	(void)pthread_mutex_lock(&regions->lock);
	regions->n_giving--;
	regions->n_given++;
	(void)pthread_cond_broadcast(&regions->changed);
	(void)pthread_mutex_unlock(&regions->lock);
}

/* ---- import ---- */

/* Without the lock. */
static int import(struct gpu_regions *regions, struct gpu_region *region, char **ret_why)
{
	struct allocation_handle handle;
	int r = allocation_export(&region->allocation, &handle, ret_why);

	if (r < 0)
		return r;
	region->uuid = handle.uuid;
	r = slab_import_gpu(regions->conn, &handle, region->allocation.bytes, regions->must_import,
			    &region->slab.id);
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
 * The daemon takes no further import while too many wait for the GPU driver.  Ops that may be copied do not
 * wait for that.  Under the lock, which is released meanwhile.
 */
static bool regions_await_driver(struct gpu_regions *regions)
{
	static const struct timespec pause = { .tv_nsec = 10000000 }; /* a guess */

	if (!regions->must_import)
		return false;
	(void)pthread_mutex_unlock(&regions->lock);
	(void)nanosleep(&pause, NULL); /* a signal only makes it shorter */
	(void)pthread_mutex_lock(&regions->lock);
	return true;
}

/* The releases that had ended before an import. */
struct given {
	uint64_t n_given, n_answered;
};

/*
 * After an import that was refused for now: whether less counts towards what this client may have than when
 * it was asked for.  Memory counts until the daemon has released it, so this waits for a release under way.
 * Under the lock, which is released meanwhile.
 */
static bool regions_await_less(struct gpu_regions *regions, const struct given *given)
{
	const size_t n = regions->n;
	bool is_answered;

	regions_look(regions, clock_nsec());
	while (regions->n_giving && regions->n_given == given->n_given)
		(void)pthread_cond_wait(&regions->changed, &regions->lock);
	if (regions->n < n || regions->n_given != given->n_given)
		return true;
	(void)pthread_mutex_unlock(&regions->lock);
	is_answered = conn_await_post(regions->conn, given->n_answered);
	(void)pthread_mutex_lock(&regions->lock);
	return is_answered;
}

/* After an import that was refused: whether to ask again. */
static bool regions_may_retry(struct gpu_regions *regions, int error, const struct given *given)
{
	if (error == -EAGAIN)
		return regions_await_driver(regions);
	return is_for_now(error) && (regions_await_less(regions, given) || regions_spare(regions));
}

/*
 * Imports a region that is IMPORTING by this thread's doing.  Under the lock, which is released meanwhile.
 * Regions that go are given back first, since they count towards what this client may have.
 */
static void region_import(struct gpu_regions *regions, struct gpu_region *region)
{
	char *why;
	int r;

	regions_look(regions, clock_nsec());
	do {
		struct list gone = { .first = NULL };
		struct given given;

		why = NULL;
		given.n_given = regions->n_given + stale_take(regions, &gone);
		(void)pthread_mutex_unlock(&regions->lock);
		give_back(regions, &gone, true);
		given.n_answered = conn_posts_answered(regions->conn);
		r = import(regions, region, &why);
		(void)pthread_mutex_lock(&regions->lock);
		if (!regions_may_retry(regions, r, &given))
			break;
		free(why);
	} while (true);
	region->has_slab = r == 0;
	region->state = r == 0 ? REGION_IMPORTED : REGION_REFUSED;
	region->error = r;
	free(region->why);
	region->why = why;
	region->used_nsec = clock_nsec();
	region->retry_nsec = is_for_now(r) ? region->used_nsec + regions->pause_nsec : UINT64_MAX;
	(void)pthread_cond_broadcast(&regions->changed);
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
static const char *no_copies(const struct gpu_regions *regions)
{
	return regions->is_programs_wish
		       ? "the program does not allow copies (DSAIO_GPU_DIRECT)"
		       : "the daemon is configured not to have it copied (engine = gds)";
}

/*
 * The daemon cannot use the memory, for that error and reason (NULL: the errno has to do).  Returns 0: the op is
 * to copy; or the error, with a sentence: it may not be copied.
 */
static int regions_refuse(const struct gpu_regions *regions, const char *function,
			  const void *memory, int error, const char *why)
{
	if (!regions->must_import)
		return 0;
	return error_fail(error, "%s: GPU memory at %p: %s; %s", function, memory,
			  why ? why : strerrordesc_np(-error), no_copies(regions));
}

int gpu_regions_refuse_file(const struct gpu_regions *regions, const char *function, int error,
			    const char *why)
{
	const char *advice = ""; /* another file would have the same error */

	if (!regions->must_import)
		return 0;
	if (error == -EOPNOTSUPP)
		advice =
			regions->is_programs_wish
				? ": move the file to ext4 or XFS, or open the client without that flag"
				: ": move the file to ext4 or XFS, or set engine = auto";
	return error_fail(error, "%s: %s; %s%s", function, why ? why : strerrordesc_np(-error),
			  no_copies(regions), advice);
}

/*
 * Makes way for the allocation.  Regions that it overlaps are of memory that was freed.  Returns false if
 * one of them is IMPORTING.
 */
static bool regions_make_way(struct gpu_regions *regions, const struct allocation *allocation)
{
	for (;;) {
		size_t i = regions_from(regions, allocation->base);

		if (i == regions->n ||
		    regions->regions[i]->allocation.base >= allocation->base + allocation->bytes)
			return true;
		if (regions->regions[i]->state == REGION_IMPORTING)
			return false;
		regions_retire(regions, i);
	}
}

/*
 * A new region for memory that none has.  Under the lock.  Returns 1: *ret_region is IMPORTING by this
 * thread; -EAGAIN: another one is, in its place; else as gpu_regions_ref().
 */
static int region_new(struct gpu_regions *regions, const char *function, const void *memory,
		      struct gpu_region **ret_region)
{
	_cleanup_(freep) struct gpu_region *region = NULL;
	_cleanup_(freep) char *why = NULL;
	struct allocation allocation;
	int r = allocation_find(memory, &allocation, &why);

	if (r < 0)
		return r == -ENOENT ? 0 : regions_refuse(regions, function, memory, r, why);
	if (!regions->can_import)
		return regions_refuse(regions, function, memory, -EOPNOTSUPP, regions->why);
	if (!regions_make_way(regions, &allocation))
		return -EAGAIN;
	if (regions->n >= regions->n_max && !regions_spare(regions))
		return regions_refuse(regions, function, memory, -EMFILE,
				      "ops use as many allocations as can be imported at a time");
	region = calloc(1, sizeof(*region));
	if (!region)
		return regions_refuse(regions, function, memory, -ENOMEM, NULL);
	region->allocation = allocation;
	region->state = REGION_IMPORTING;
	region->slab.is_imported = region->slab.is_gpu = true;
	atomic_init(&region->piece.n_ops, 0);
	r = regions_add(regions, region);
	if (r < 0)
		return regions_refuse(regions, function, memory, r, NULL);
	*ret_region = TAKE_PTR(region);
	return 1;
}

/* The region of the memory, IMPORTED or REFUSED, as it is now.  Under the lock.  As region_new(). */
static int region_get(struct gpu_regions *regions, const char *function, const void *memory,
		      struct gpu_region **ret_region)
{
	for (;;) {
		struct gpu_region *region = regions_at(regions, memory);
		int r = -EAGAIN;

		if (region && region->state != REGION_IMPORTING &&
		    !allocation_is_current(&region->allocation, memory)) {
			regions_retire(regions, regions_from(regions, (uintptr_t)memory));
			region = NULL;
		}
		if (region && region->state == REGION_REFUSED &&
		    region->retry_nsec <= clock_nsec()) {
			region->state = REGION_IMPORTING;
			r = 1;
		} else if (region && region->state != REGION_IMPORTING) {
			*ret_region = region;
			return 1;
		} else if (!region) {
			r = region_new(regions, function, memory, &region);
		}
		if (r == -EAGAIN) {
			(void)pthread_cond_wait(&regions->changed, &regions->lock);
		} else if (r == 1) {
			region_import(regions, region);
			*ret_region = region;
			return 1;
		} else {
			return r;
		}
	}
}

/* ---- ops ---- */

/* Whether ops may name the region for this memory: 1, or as region_new(). */
static int region_check(const struct gpu_regions *regions, const char *function,
			const struct gpu_region *region, const void *memory, uint64_t len)
{
	if (region->error == -ENOTCONN)
		return error_fail(region->error, "%s: %s", function, reason(region));
	if (region->state == REGION_REFUSED)
		return regions_refuse(regions, function, memory, region->error, region->why);
	if (!allocation_has(&region->allocation, memory, len))
		return regions_refuse(regions, function, memory, -EFAULT,
				      "the range must lie within one allocation");
	return 1;
}

static int region_ref(struct gpu_regions *regions, const char *function, const void *memory,
		      uint64_t len, struct gpu_region **ret_region)
{
	int r = region_get(regions, function, memory, ret_region);

	return r == 1 ? region_check(regions, function, *ret_region, memory, len) : r;
}

/* Looks for freed memory if that was not done for a while; *gone gets the regions to give back. */
static void regions_tend(struct gpu_regions *regions, uint64_t now_nsec, struct list *gone)
{
	if (now_nsec - regions->looked_nsec >= regions->pause_nsec)
		regions_look(regions, now_nsec);
	if (regions->stale.first)
		(void)stale_take(regions, gone); /* none is fine */
}

int gpu_regions_ref_slow(struct gpu_regions *regions, const char *function, const void *memory,
			 uint64_t len, struct buffer_place *ret_place)
{
	struct list gone = { .first = NULL };
	struct gpu_region *region;
	int r;

	(void)pthread_mutex_lock(&regions->lock); /* a plain mutex: cannot fail */
	r = region_ref(regions, function, memory, len, &region);
	if (r == 1) {
		/* relaxed: regions go under the lock alone */
		(void)atomic_fetch_add_explicit(&region->piece.n_ops, 1, memory_order_relaxed);
		*ret_place = (struct buffer_place){ &region->slab,
						    (uintptr_t)memory - region->allocation.base,
						    &region->piece };
		region->used_nsec = clock_nsec();
	}
	regions_tend(regions, clock_nsec(), &gone);
	(void)pthread_mutex_unlock(&regions->lock);
	give_back(regions, &gone, false);
	return r;
}

void gpu_regions_tend(struct gpu_regions *regions)
{
	struct list gone = { .first = NULL };

	(void)pthread_mutex_lock(&regions->lock);
	regions_tend(regions, clock_nsec(), &gone);
	(void)pthread_mutex_unlock(&regions->lock);
	give_back(regions, &gone, false);
}

const CUuuid *gpu_region_uuid(const struct buffer_place *place)
{
	/* An op references it, so it is imported, and this does not change. */
	return &container_of(place->slab, const struct gpu_region, slab)->uuid;
}

char *gpu_regions_why(struct gpu_regions *regions, const void *memory)
{
	const struct gpu_region *region;
	const char *why = regions->why;
	char *copy;

	(void)pthread_mutex_lock(&regions->lock);
	region = regions_at(regions, memory);
	if (region)
		why = region->state == REGION_REFUSED
			      ? reason(region)
			      : "the range does not lie within one allocation";
	else if (regions->can_import)
		why = "libcuda says too little about it, or too many allocations are in use";
	copy = strdup(why);
	(void)pthread_mutex_unlock(&regions->lock);
	return copy;
}

/* ---- registered memory ---- */

int gpu_regions_register(struct gpu_regions *regions, const char *function, const void *memory,
			 uint64_t len)
{
	struct gpu_region *region = NULL;
	int r;

	if (!regions->can_import && !regions->must_import)
		return 0;
	(void)pthread_mutex_lock(&regions->lock);
	r = region_get(regions, function, memory, &region);
	if (r == 1)
		r = region_check(regions, function, region, memory, len);
	/* Also of a region that is refused: its unregistration counts, and a later try may import it. */
	if (r >= 0 && region)
		region->n_registered++;
	(void)pthread_mutex_unlock(&regions->lock);
	return r < 0 ? r : 0;
}

void gpu_regions_unregister(struct gpu_regions *regions, const struct allocation *allocation)
{
	struct list gone = { .first = NULL };
	struct gpu_region *region;

	(void)pthread_mutex_lock(&regions->lock);
	region = regions_at(regions, (const void *)allocation->base);
	if (region && region->allocation.id == allocation->id && region->n_registered &&
	    !--region->n_registered && region->state == REGION_IMPORTED && !region_is_used(region))
		regions_retire(regions, regions_from(regions, allocation->base));
	(void)stale_take(regions, &gone); /* none is fine */
	(void)pthread_mutex_unlock(&regions->lock);
	give_back(regions, &gone, true);
}
