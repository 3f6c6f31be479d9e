/*
 * A client's GPU memory: the allocations that the daemon has imported, and the ranges that the program has
 * registered.
 *
 * The first op on an allocation (allocation.h) imports it, whole: libcuda exports it, and DeviceImport
 * makes it a slab: a region.  Ops then name it as they name a slab of the pool, and the library copies nothing.
 *
 * Each op asks libcuda whether the memory is still of that allocation.  If it is not, the program has
 * freed the one and got another at its place, and the region is released.  Nothing else tells: a
 * region that was found by its address alone would be other memory than the program's.
 *
 * Memory that the program frees stays taken on the GPU while the daemon has it mapped.  (CUDA's documentation
 * says so of memory that is exported by descriptor, and calls the same undefined for IPC handles: to be tried
 * on a GPU, by make check-gpu.)  So an op looks, at most once a second, which allocations are gone, and each
 * import does.  Regions are bounded, and the one that was not used for the longest time goes first.
 *
 * If libcuda does not export an allocation, or the daemon refuses it, then the library remembers that until
 * the allocation is gone, or for a second if the cause may end sooner.  Ops on it are copied, or fail if
 * the daemon or the program demands that (GPU_DIRECT, DSAIO_GPU_DIRECT).
 *
 * A registered range (dsaio_memory_register()) lies within one allocation, whose region does not go for another.
 * If the program frees the memory without unregistering the range, the range stays until it is unregistered, or
 * until memory at its place is registered.  gpu_memory_has() does not find it meanwhile.
 *
 * Any thread.  Imports wait for one another; ops on memory that is imported wait for none.  Where nothing may be
 * copied, imports that the daemon has no room for yet are repeated.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_GPU_MEMORY_H
#define DSAIO_CLIENT_LIB_MEMORY_GPU_MEMORY_H

#include "client/lib/link/conn.h"
#include "client/lib/memory/buffer.h"
#include "proto/util/cuda.h"
#include "proto/util/list.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPU_REGIONS_MAX 256u /* a guess */
/*
 * How often to look for freed memory (256 questions of 0.1 us each are nothing in that time), how long a
 * region is unused before it may go for another (an import costs milliseconds), and when a refusal that
 * may have been mended is forgotten.
 */
#define GPU_PAUSE_NSEC UINT64_C(1000000000)

/* All of a client. */
struct gpu_memory {
	struct dsaio_conn *conn;
	bool can_import;       /* the daemon may take some; else none */
	bool must_import;      /* ops fail rather than be copied */
	bool is_programs_wish; /* that, and the daemon would allow copies */
	char why[256];	       /* the daemon's reason for both */
	size_t n_max;	       /* GPU_REGIONS_MAX; fewer in tests */
	uint64_t pause_nsec;   /* GPU_PAUSE_NSEC; shorter in tests */
	/* One import, or release that is waited for, at a time; above `lock`, and held while it sleeps. */
	pthread_mutex_t import_lock;
	pthread_mutex_t lock; /* of all below */
	struct list regions;  /* struct gpu_region, the last used first */
	size_t n, n_stale;    /* of them; n without the stale ones */
	uint64_t looked_nsec; /* for freed memory */
	struct list ranges;   /* struct gpu_range: registered */
	bool is_left;	      /* the session has ended */
};

/* is_direct_only: as of DSAIO_GPU_DIRECT. */
void gpu_memory_init(struct gpu_memory *gpu, struct dsaio_conn *conn, bool is_direct_only);
/* The daemon's part is the session's, whose end frees it. */
void gpu_memory_deinit(struct gpu_memory *gpu);

/* ---- ops ---- */

/*
 * References the region that the range lies in, and makes it before if there is none.  function: for
 * the message.  Returns
 *   1   *ret_place is set; the reference is dropped by buffer_unref()
 *   0   the op is to copy: the memory is not a GPU's, or cannot be imported
 *   a negative errno with a message: it cannot be imported, and may not be copied
 * Sleeps for the daemon's answer.
 */
int gpu_memory_ref_slow(struct gpu_memory *gpu, const char *function, const void *memory,
			uint64_t len, struct buffer_place *ret_place);

static inline int gpu_memory_ref(struct gpu_memory *gpu, const char *function, const void *memory,
				 uint64_t len, struct buffer_place *ret_place)
{
	if (!gpu->can_import && !gpu->must_import)
		return 0;
	return gpu_memory_ref_slow(gpu, function, memory, len, ret_place);
}

/* For ops that reference no region although there may be some: releases what the program has freed, at most
   once a second, and does not wait for the answer. */
void gpu_memory_tend(struct gpu_memory *gpu);

/* The GPU of a region that an op references. */
const CUuuid *gpu_memory_uuid(const struct buffer_place *place);

/* Why ops on that memory of a GPU are copied; the caller's to free.  NULL: no memory. */
char *gpu_memory_why(struct gpu_memory *gpu, const void *memory);

/* ---- registered memory ---- */

/*
 * Registers a range of an allocation, and imports that, unless ops are to copy.  Returns 0, -EINVAL (it is no GPU
 * memory), -ERANGE (it passes the allocation's end), -EEXIST (part of it is registered), -EOPNOTSUPP (the driver
 * is too old), -ENOMEM, or as gpu_memory_ref(), with a message.  Sleeps for the daemon's answer.
 */
int gpu_memory_register(struct gpu_memory *gpu, void *start, size_t bytes);

/*
 * Returns 0, or -EINVAL: no such range starts there.  The last range of an allocation releases it, unless ops use
 * it.  *ret_is_last: it was the last one that gpu_memory_leave() has left.  Sleeps for the daemon's answer.
 */
int gpu_memory_unregister(struct gpu_memory *gpu, const void *start, bool *ret_is_last);

/* Is the whole range in a registered one, whose memory was not freed? */
bool gpu_memory_has(struct gpu_memory *gpu, const void *memory, size_t bytes);

/* The session has ended, or is about to.  Returns whether ranges are registered. */
bool gpu_memory_leave(struct gpu_memory *gpu);

/* ---- files: file_gpu.h ---- */

/* The daemon has no room for such a request now: sleeps until that may have changed. */
void gpu_memory_await_room(void);

/*
 * An op's memory would do, and its file does not, for that error and reason, which names the file (NULL: the
 * errno has to do).  Returns 0: the op is to copy; or the error, with a message: it may not be copied.
 */
int gpu_memory_refuse_file(const struct gpu_memory *gpu, const char *function, int error,
			   const char *why);

#endif
