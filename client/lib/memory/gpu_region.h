/*
 * GPU memory that is the daemon's, too: allocations of the program's that the daemon has mapped.
 *
 * The first op on an allocation (allocation.h) imports it, whole: libcuda exports it, and DeviceImport
 * makes it a slab.  Ops then name it as they name a slab of the pool, and the library copies nothing.
 *
 * Each op asks libcuda whether the memory is still of that allocation.  If it is not, the program has
 * freed the one and got another at its place, and the region is given back.  Nothing else tells: a
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
 * Any thread.  A thread that finds an allocation whose import is under way waits for that.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_GPU_REGION_H
#define DSAIO_CLIENT_LIB_MEMORY_GPU_REGION_H

#include "client/lib/link/conn.h"
#include "client/lib/memory/allocation.h"
#include "client/lib/memory/buffer.h"
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
#define GPU_REGIONS_PAUSE_NSEC UINT64_C(1000000000)

struct gpu_region;

/* All of a client. */
struct gpu_regions {
	struct dsaio_conn *conn;
	bool can_import;	     /* the daemon may take some; else none */
	bool must_import;	     /* ops fail rather than be copied */
	bool is_programs_wish;	     /* that, and the daemon would allow copies */
	char why[256];		     /* the daemon's reason for both */
	size_t n_max;		     /* GPU_REGIONS_MAX; fewer in tests */
	uint64_t pause_nsec;	     /* GPU_REGIONS_PAUSE_NSEC; shorter in tests */
	pthread_mutex_t lock;	     /* of all below */
	pthread_cond_t changed;	     /* an import has ended, or a thread has given regions back */
	struct gpu_region **regions; /* by address */
	size_t n, n_allocated;
	struct list stale;    /* regions of memory that was freed while ops used it */
	unsigned n_giving;    /* threads that give regions back */
	uint64_t n_given;     /* times that one has done so */
	uint64_t looked_nsec; /* for freed memory */
};

/* is_direct_only: as of DSAIO_GPU_DIRECT. */
void gpu_regions_init(struct gpu_regions *regions, struct dsaio_conn *conn, bool is_direct_only);
/* The daemon's part is the session's, whose end frees it. */
void gpu_regions_deinit(struct gpu_regions *regions);

/*
 * References the region that the range lies in, and makes it before if there is none.  function: for
 * the sentence.  Returns
 *   1   *ret_place is set; the reference is dropped by buffer_unref()
 *   0   the op is to copy: the memory is not a GPU's, or cannot be imported
 *   a negative errno with a sentence: it cannot be imported, and may not be copied
 * Sleeps for the daemon's answer.
 */
int gpu_regions_ref_slow(struct gpu_regions *regions, const char *function, const void *memory,
			 uint64_t len, struct buffer_place *ret_place);

static inline int gpu_regions_ref(struct gpu_regions *regions, const char *function,
				  const void *memory, uint64_t len, struct buffer_place *ret_place)
{
	if (!regions->can_import && !regions->must_import)
		return 0;
	return gpu_regions_ref_slow(regions, function, memory, len, ret_place);
}

/* For ops that reference no region although there may be some: gives back what the program has freed, at most
   once a second, and does not wait for the answer. */
void gpu_regions_tend(struct gpu_regions *regions);

/* The GPU of a region that an op references. */
const CUuuid *gpu_region_uuid(const struct buffer_place *place);

/*
 * Imports the range's allocation, whose region is then not given up for another one.  Returns 0, also
 * where ops are to copy, or a negative errno with a sentence.  Sleeps for the daemon's answer.
 */
int gpu_regions_register(struct gpu_regions *regions, const char *function, const void *memory,
			 uint64_t len);
/* The opposite, once for each call of the above.  Without further ones, and ops, the region goes. */
void gpu_regions_unregister(struct gpu_regions *regions, const struct allocation *allocation);

/*
 * An op's memory would do, and its file does not, for that error and reason, which names the file (NULL: the
 * errno has to do).  Returns 0: the op is to copy; or the error, with a sentence: it may not be copied.
 */
int gpu_regions_refuse_file(const struct gpu_regions *regions, const char *function, int error,
			    const char *why);

/* Why ops on that memory of a GPU are copied; the caller's to free.  NULL: no memory. */
char *gpu_regions_why(struct gpu_regions *regions, const void *memory);

#endif
