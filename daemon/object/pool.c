#include "daemon/object/pool.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/map.h"
#include "proto/util/size.h"

#include "daemon/base/fs_type.h"
#include "daemon/base/memfd.h"
#include "daemon/base/memory_limit.h"
#include "daemon/object/import_step.h"
#include "daemon/object/numa.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* The processor time that huge pages may take: 6 s a GiB.  Those that the kernel has take 0.1 s, small pages
   0.7 s.  Where a hypervisor has to find the memory first, both take 1 to 4 s, and reads into small ones have half
   to three quarters of the speed.  Where the kernel has to make room for each, huge ones may take longer. */
#define HUGE_NSEC_PER_MIB UINT64_C(6000000)
#define HUGE_NSEC \
	UINT64_C(10000000) /* for each slab: a small one must not depend on one slow call */
#define SLAB_BYTES_MAX (UINT64_C(1) << 46) /* a quarter of what a process can map */
/* The bytes of a mapping that one call locks or unmaps.  Meanwhile no other thread can change the process's
   mappings (nor, behind such a thread, copy to them): 0.2 ms, if its pages are there.  Smaller steps make it
   slower. */
#define STEP_BYTES (2u << 20)
/* The same of a mapping without pages. */
#define EMPTY_STEP_BYTES (1u << 30)

#define SMALL_SLAB_BYTES (8u << 20) /* two of the library's smallest */
#define ZEROES_BYTES (64u << 10)

/* A thread that waits for the lock of the mappings needs some time to wake up.  If the next step began at once, it
   would take the lock from that thread, for 4 ms (rwsem).  So steps of that time are followed by a pause. */
#define PAUSE_AFTER_NSEC 200000u

/* After a step.  *since_nsec: the last pause, or the first step. */
static void step_pause(uint64_t *since_nsec)
{
	const struct timespec least = { .tv_nsec = 1 }; /* the kernel makes it 50 us */

	if (clock_nsec() - *since_nsec < PAUSE_AFTER_NSEC)
		return;
	(void)nanosleep(&least, NULL); /* worker threads take no signals from outside */
	*since_nsec = clock_nsec();
}

static uint64_t whole_pages(uint64_t bytes, uint64_t page)
{
	return (bytes + page - 1) / page * page;
}

/* Its calls go before those on large slabs (import_step.h). */
static bool is_small(uint64_t bytes)
{
	return bytes <= SMALL_SLAB_BYTES;
}

/* A partly used huge page would take more memory than is charged. */
static bool can_be_huge(const struct slab *slab)
{
	return slab->pool->pages != POOL_PAGES_SMALL && slab->place.pages != SLAB_PAGES_SMALL &&
	       slab->size_bytes % MAP_HUGE_BYTES == 0;
}

/*
 * Makes a transparent huge page.  Touching one byte of it is enough if shmem_enabled allows huge pages.
 * MADV_COLLAPSE (Linux 6.1) makes it although that is never, which is the kernel's default; it needs the
 * byte.  Returns 0, or -errno: -EINVAL if the kernel has no MADV_COLLAPSE, or denies it.
 */
static int fill_huge_page(const struct slab *slab, char *memory, bool must_collapse)
{
	int r;

	import_step_hold(is_small(slab->map_bytes));
	r = madvise(memory, 1, MADV_POPULATE_WRITE) < 0 ? -errno : 0;
	if (r == 0 && must_collapse)
		r = madvise(memory, MAP_HUGE_BYTES, MADV_COLLAPSE) < 0 ? -errno : 0;
	import_step_go_on();
	return r;
}

/*
 * Fills it with huge pages.  If that takes longer than small pages do, and the client takes any, or if the
 * kernel has no more, the rest is for small pages: page faults must not look for huge ones again.
 * Returns where the rest begins.
 */
static uint64_t fill_huge(struct slab *slab)
{
	uint64_t start_nsec = clock_thread_nsec(), bytes = slab->map_bytes, at;
	bool is_needed = slab->place.pages == SLAB_PAGES_HUGE, must_collapse, all = true;
	char *memory = slab->region.base, word[8];

	must_collapse = is_needed || map_lacks_huge(word);
	(void)madvise(memory, bytes, MADV_HUGEPAGE);
	for (at = 0; at < bytes; at += MAP_HUGE_BYTES) {
		uint64_t limit_nsec = HUGE_NSEC + (at >> 20) * HUGE_NSEC_PER_MIB;
		int r;

		if (!is_needed && clock_thread_nsec() - start_nsec > limit_nsec)
			break;
		r = fill_huge_page(slab, memory + at, must_collapse);
		if (r < 0 && r != -EINVAL)
			break;
		all &= r == 0;
	}
	slab->is_transparent = must_collapse && all && at == bytes;
	(void)madvise(memory + at, bytes - at, MADV_NOHUGEPAGE); /* of no bytes it is fine */
	return at;
}

/*
 * Writes zeroes from off on.  So the kernel finds and clears small pages without the lock on the process's
 * mappings: mlock(2) would hold it meanwhile, and the main thread would wait.
 */
static void fill_small(const struct slab *slab, uint64_t off)
{
	static const char zeroes[ZEROES_BYTES];
	ssize_t n;

	for (; off < slab->size_bytes; off += (uint64_t)n) {
		uint64_t left = slab->size_bytes - off;

		n = pwrite(slab->fd, zeroes, left < ZEROES_BYTES ? left : ZEROES_BYTES, (off_t)off);
		if (n <= 0)
			return; /* mlock(2) reports it */
	}
}

/* It was to be on huge pages, and the kernel has none for it. */
static bool lacks_huge(const struct slab *slab)
{
	return slab->place.pages == SLAB_PAGES_HUGE && !slab->is_huge && !slab->is_transparent;
}

/*
 * Not mlock(), which the sanitizers ignore.  One call checks the limit for all of the memory, then
 * steps fill in the pages.  Huge pages are used also without the right to lock: a user's own daemon
 * can lock almost nothing.
 */
static int mapping_lock(struct slab *slab)
{
	char *memory = slab->region.base;
	size_t bytes = slab->map_bytes;
	uint64_t filled = 0, since_nsec;
	int r = mlock2(memory, bytes, MLOCK_ONFAULT) < 0 ? -errno : 0;

	if (r < 0 && slab->pool->lock == POOL_LOCK_YES)
		return r;
	if (can_be_huge(slab) && !slab->is_huge)
		filled = fill_huge(slab);
	if (lacks_huge(slab))
		return 0; /* it is refused: what is not filled need not be emptied */
	if (r < 0)
		return r;
	if (!slab->is_huge)
		fill_small(slab, filled);
	since_nsec = clock_nsec();
	for (size_t at = 0; at < bytes; at += STEP_BYTES) {
		size_t n = bytes - at < STEP_BYTES ? bytes - at : STEP_BYTES;

		import_step_hold(is_small(bytes));
		r = mlock2(memory + at, n, 0) < 0 ? -errno : 0;
		import_step_go_on();
		if (r < 0)
			return r;
		step_pause(&since_nsec);
	}
	return 0;
}

static bool step_unmap(char *memory, bool is_first)
{
	bool is_unmapped;

	import_step_hold(is_first);
	is_unmapped = munmap(memory, STEP_BYTES) == 0;
	import_step_go_on();
	return is_unmapped;
}

static void mapping_remove(char *memory, size_t bytes)
{
	const bool is_first = is_small(bytes);
	uint64_t since_nsec = clock_nsec();

	while (bytes > STEP_BYTES && step_unmap(memory, is_first)) {
		memory += STEP_BYTES;
		bytes -= STEP_BYTES;
		step_pause(&since_nsec);
	}
	/* The last step; or all of it, if huge pages are larger than a step. */
	(void)munmap(memory, bytes); /* whole pages of our own mapping: cannot fail */
}

/* The mapping was locked, or could not be.  A failure is an error only with lock = yes. */
static int slab_locked(struct slab *slab, int code)
{
	char limit[32];

	/* EPERM, ENOMEM or EAGAIN: for the client each of them means no memory. */
	if (code == 0) {
		slab->is_locked = true;
		return 0;
	}
	memory_lock_limit(limit, sizeof(limit));
	(void)error_set_plain(&slab->error, -ENOMEM,
			      "slab of %s: cannot be locked in memory (%s; RLIMIT_MEMLOCK is "
			      "%s): " MEMORY_LOCK_CURE "%s",
			      SIZE_TEXT(slab->size_bytes), strerrordesc_np(-code), limit,
			      slab->pool->lock == POOL_LOCK_YES ? ", or configure lock = auto"
								: "");
	if (slab->pool->lock == POOL_LOCK_YES)
		return -ENOMEM;
	/* It may have failed halfway; what is locked counts against the limit. */
	(void)munlock(slab->region.base, slab->map_bytes); /* what was never locked is fine */
	return 0;
}

/* Maps the memory of fd.  what: for the message. */
static int mapping_make(struct slab *slab, const char *what, bool is_aligned)
{
	void *memory = is_aligned ? map_aligned(slab->fd, slab->map_bytes)
				  : mmap(NULL, slab->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
					 slab->fd, (off_t)slab->import_off);

	if (memory == MAP_FAILED)
		return error_set(&slab->error, -errno, "%s of %s: mmap", what,
				 SIZE_TEXT(slab->size_bytes));
	slab->region = (struct region){ .kind = REGION_HOST, .base = memory };
	/* A core dump would delay the end of file by which clients see the daemon's death. */
	(void)madvise(memory, slab->map_bytes, MADV_DONTDUMP); /* known since Linux 3.4 */
	return 0;
}

/* Maps, seals and locks the memory of fd. */
static int slab_map(struct slab *slab)
{
	int r = mapping_make(slab, "slab", can_be_huge(slab) && !slab->is_huge);
	char *memory = slab->region.base;

	/* The seal FUTURE_WRITE lets only a mapping that is there already write. */
	if (r == 0 && (r = memfd_seal(slab->fd, slab->kind->seals)) < 0)
		r = error_set(&slab->error, r, "slab: seals");
	if (r == 0 && slab->place.pages == SLAB_PAGES_SMALL) /* whatever shmem_enabled says */
		(void)madvise(memory, slab->map_bytes, MADV_NOHUGEPAGE);
	if (r == 0 && slab->place.has_node)
		r = numa_prefer(memory, slab->map_bytes, slab->place.node, &slab->error);
	return r < 0 ? r : slab_locked(slab, mapping_lock(slab));
}

/* ---- imported memory ---- */

static struct import_step step_of(const struct slab *slab)
{
	return (struct import_step){ .memory = &slab->memory, .who = &slab->job.work.about.who };
}

/* Maps the memory, to be locked as its pages come.  *ret_lock: 0, or set to the -errno of that. */
static int import_map(struct slab *slab, int *ret_lock)
{
	struct import_step step = step_of(slab);
	int r = import_step_begin(&step, &slab->error);

	if (r < 0)
		return r;
	r = mapping_make(slab, "shared memory", can_be_huge(slab) && !slab->import_off);
	if (r == 0 && mlock2(slab->region.base, slab->map_bytes, MLOCK_ONFAULT) < 0)
		*ret_lock = -errno;
	import_step_end(&step);
	return r;
}

/* Unlike mlock2(2) of a step, MADV_POPULATE_READ does not split the mapping, which would wait for walks over
   all mappings of the file. */
static int step_fill(char *memory, size_t bytes)
{
	if (madvise(memory, bytes, MADV_POPULATE_READ) == 0)
		return 0;
	if (errno != EINVAL)				   /* before Linux 5.14 */
		return errno == EFAULT ? -ENOMEM : -errno; /* as mlock2(2) reports it */
	return mlock2(memory, bytes, 0) < 0 ? -errno : 0;
}

/* Fills in the pages, until the memory is banned.  Not within a step: it may wait for a punch at each page, and others
   would wait, too.  *ret_lock as above. */
static int import_fill(struct slab *slab, int *ret_lock)
{
	const struct import_step step = step_of(slab);
	uint64_t since_nsec = clock_nsec();
	int r = 0;

	for (size_t at = 0; at < slab->map_bytes && r == 0 && *ret_lock == 0; at += STEP_BYTES) {
		const size_t left = slab->map_bytes - at;

		r = import_step_check(&step, &slab->error);
		if (r < 0)
			break;
		*ret_lock = step_fill(slab->region.base + at,
				      left < STEP_BYTES ? left : STEP_BYTES);
		step_pause(&since_nsec);
	}
	return r;
}

int slab_map_import(struct slab *slab)
{
	int lock = 0, r = import_map(slab, &lock);

	if (r == 0)
		r = import_fill(slab, &lock);
	return r < 0 ? r : slab_locked(slab, lock);
}

/* Without its pages the mapping is removed by fewer calls, each of which waits for walks over all mappings. */
static bool import_empty(const struct slab *slab)
{
	uint64_t since_nsec = clock_nsec();

	for (size_t at = 0; at < slab->map_bytes; at += STEP_BYTES) {
		const size_t left = slab->map_bytes - at;

		if (madvise(slab->region.base + at, left < STEP_BYTES ? left : STEP_BYTES,
			    MADV_DONTNEED_LOCKED) < 0)
			return false; /* before Linux 5.18 */
		step_pause(&since_nsec);
	}
	return true;
}

void slab_unmap_import(struct slab *slab)
{
	struct import_step step = step_of(slab);
	char *memory = slab->region.base;
	size_t bytes = slab->map_bytes, step_bytes;

	closep(&slab->fd); /* of one that was not made; else -1 */
	if (!memory)
		return;
	step_bytes = import_empty(slab) ? EMPTY_STEP_BYTES : STEP_BYTES;
	while (bytes > step_bytes &&
	       import_step_unmap(&step, memory, step_bytes, &slab->pool->is_stopping)) {
		memory += step_bytes;
		bytes -= step_bytes;
	}
	/* As in mapping_remove(). */
	(void)import_step_unmap(&step, memory, bytes, &slab->pool->is_stopping);
}

int slab_look(struct slab *slab, const char *what, struct slab_facts *ret_facts)
{
	struct error *error = &slab->error;
	const struct fs_type *type;
	struct statfs fs;
	struct stat st;
	int flags;

	/* First, because it finds the kind of file system, and hangs only if the file system does. */
	if (fstatfs(slab->fd, &fs) < 0)
		return error_set(error, -errno, "%s: fstatfs", what);
	type = fs_type_of((uint64_t)fs.f_type);
	if (!type->is_memory)
		return error_set_plain(
			error, -EOPNOTSUPP,
			"%s: the descriptor is on neither tmpfs nor hugetlbfs (file-system type "
			"0x%lx): use memfd_create(2) or a file in /dev/shm, or dsaio_alloc()",
			what, (unsigned long)fs.f_type);
	if (fstat(slab->fd, &st) < 0)
		return error_set(error, -errno, "%s: fstat", what);
	if (!S_ISREG(st.st_mode))
		return error_set_plain(error, -EOPNOTSUPP,
				       "%s: the descriptor is of no regular file", what);
	flags = fcntl(slab->fd, F_GETFL);
	if (flags < 0)
		return error_set(error, -errno, "%s: fcntl(F_GETFL)", what);
	if ((flags & O_PATH) || (flags & O_ACCMODE) != O_RDWR)
		return error_set_plain(error, -EACCES,
				       "%s: the descriptor is not open for reading and writing: "
				       "open it with O_RDWR",
				       what);
	slab->memory = (struct inode_id){ .dev = st.st_dev, .ino = st.st_ino };
	*ret_facts = (struct slab_facts){
		.bytes = (uint64_t)st.st_size,
		.page_bytes = type->is_tmpfs ? (uint64_t)sysconf(_SC_PAGESIZE)
					     : (uint64_t)fs.f_bsize,
		.seals = fcntl(slab->fd, F_GET_SEALS),
		.is_huge = !type->is_tmpfs,
	};
	return 0;
}

/* Fills in map_bytes. */
static int import_check(struct slab *slab)
{
	uint64_t off = slab->import_off, size_bytes = slab->size_bytes;
	struct error *error = &slab->error;
	struct slab_facts facts;
	int r = slab_look(slab, "shared memory", &facts);

	if (r < 0)
		return r;
	if (facts.seals > 0 && (facts.seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return error_set_plain(
			error, -EACCES,
			"shared memory: the file is sealed against writing (F_SEAL_%sWRITE)",
			facts.seals & F_SEAL_WRITE ? "" : "FUTURE_");
	if (off % facts.page_bytes)
		return error_set_plain(error, -EINVAL,
				       "shared memory: offset %" PRIu64
				       ": must be a multiple of its page size, %" PRIu64,
				       off, facts.page_bytes);
	/* If it shrinks later, only ops on it fail, with EFAULT. */
	if (off > facts.bytes || size_bytes > facts.bytes - off)
		return error_set_plain(error, -ERANGE,
				       "shared memory: %" PRIu64 " bytes from %" PRIu64
				       " on: the file has %" PRIu64 " bytes",
				       size_bytes, off, facts.bytes);
	slab->map_bytes = whole_pages(size_bytes, facts.page_bytes);
	return 0;
}

static int slab_do_import(struct slab *slab)
{
	int r = import_check(slab);

	if (r == 0)
		r = slab_map_import(slab);
	closep(&slab->fd); /* the mapping has the file */
	slab->fd = -1;
	return r;
}

void slab_punch(const struct slab *slab)
{
	/* It fails only on a signal, and worker threads take no signals from outside. */
	if (slab->fd >= 0 && !slab->keeps_bytes)
		(void)fallocate(slab->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				(off_t)slab->size_bytes);
}

/* On the work queue: frees the memory although a child of the client may map it. */
void slab_unmake(struct slab *slab)
{
	/* First, because it removes the pages from the mapping without blocking threads that change other
   mappings. */
	slab_punch(slab);
	if (slab->region.base)
		mapping_remove(slab->region.base, slab->map_bytes);
	if (slab->fd >= 0)
		(void)close(slab->fd);
}

/* Makes it of reserved huge pages: mmap(2) fails if too few are free. */
static int slab_make_huge(struct slab *slab)
{
	int r;

	slab->fd = memfd_new("dsaio-slab", slab->size_bytes, MFD_HUGETLB | MFD_HUGE_2MB);
	if (slab->fd < 0)
		return slab->fd;
	slab->is_huge = true;
	r = slab_map(slab);
	/* Allocates all pages now: later they may not be available, and an access would then kill the process
   (cgroups limit them too). */
	if (r < 0 || !slab->is_locked) {
		r = -ENOMEM;
		slab_unmake(slab);
		slab->is_huge = false;
		slab->region.base = NULL;
		slab->fd = -1;
	}
	return r;
}

static int slab_fail_huge(struct slab *slab)
{
	bool may_reserved = slab->pool->pages == POOL_PAGES_RESERVED;
	size_t n = slab->map_bytes / MAP_HUGE_BYTES;

	return error_set_plain(
		&slab->error, -ENOMEM,
		"slab of %s: no huge pages for it: the kernel has neither transparent ones, nor "
		"the %zu reserved ones that it needs%s: raise them with sysctl vm.nr_hugepages%s, "
		"or ask for any pages",
		SIZE_TEXT(slab->size_bytes), n,
		may_reserved ? "" : " (huge_pages = auto does not use these)",
		may_reserved ? "" : " and configure huge_pages = reserved");
}

/* On the work queue: sets fd, region, is_locked.  slab_unmake() undoes a failure. */
int slab_make_memory(struct slab *slab)
{
	int r;

	if (slab->pool->pages == POOL_PAGES_RESERVED && can_be_huge(slab) &&
	    slab_make_huge(slab) == 0)
		return 0;
	slab->fd = memfd_new("dsaio-slab", slab->size_bytes, 0);
	if (slab->fd < 0)
		return error_set(&slab->error, slab->fd, "slab of %s: memfd",
				 SIZE_TEXT(slab->size_bytes));
	r = slab_map(slab);
	if (r == 0 && lacks_huge(slab))
		r = slab_fail_huge(slab);
	return r;
}

static void slab_discharge(struct slab *slab)
{
	quota_discharge(&slab->bytes_charge);
	quota_discharge(&slab->slab_charge);
}

static void slab_made_main(struct job *job)
{
	struct slab *slab = container_of(job, struct slab, job);
	struct pool *pool = slab->pool;

	if (slab->result < 0) {
		slab_discharge(slab);
		slab->on_made(NULL, slab->result, &slab->error, slab->made_arg);
		free(slab);
		return;
	}
	if (slab->is_huge)
		pool->huge_bytes += slab->size_bytes;
	if (slab->kind->quota == QUOTA_POOL_BYTES && !slab->is_locked && pool->is_locked) {
		pool->is_locked = false;
		(void)snprintf(pool->why_unlocked, sizeof(pool->why_unlocked), "%s",
			       slab->error.text); /* the short form is enough */
	}
	slab->on_made(slab, 0, NULL, slab->made_arg);
}

/* The memory limit may have become smaller since the start, and beyond it the kernel kills. */
static int slab_check_limit(struct slab *slab)
{
	struct memory_limit limit;

	if (!slab->pool->follows_limit || slab->kind->quota != QUOTA_POOL_BYTES)
		return 0;
	memory_limit_get("", &limit);
	if (slab->pool_bytes <= limit.bytes / 2)
		return 0;
	return error_set_plain(&slab->error, -ENOMEM,
			       "slab of %s: the pool would have %s, more than half of the daemon's "
			       "memory limit, %s (%s): free buffers, raise the limit, or set "
			       "pool_size in dsaiod.conf",
			       SIZE_TEXT(slab->size_bytes), SIZE_TEXT(slab->pool_bytes),
			       SIZE_TEXT(limit.bytes), limit.path);
}

static void slab_make_run(struct job *job)
{
	struct slab *slab = container_of(job, struct slab, job);

	if (!slab->kind->make) /* its memory is there */
		return;
	slab->result = slab_check_limit(slab);
	if (slab->result == 0)
		slab->result = slab->kind->make(slab);
	if (slab->result < 0)
		slab->kind->unmake(slab);
}

static const struct slab_kind kind_new = {
	.struct_bytes = sizeof(struct slab),
	.quota = QUOTA_POOL_BYTES,
	.freeing = "slab free",
	.sends_fd = true,
	.make = slab_make_memory,
	.unmake = slab_unmake,
};

const struct slab_kind slab_kind_imported = {
	.struct_bytes = sizeof(struct slab),
	.quota = QUOTA_POOL_BYTES,
	.making = "slab import",
	.freeing = "slab free",
	.make = slab_do_import,
	.unmake = slab_unmap_import,
};

int slab_new_of(const struct slab_kind *kind, struct pool *pool, struct quota *quota,
		struct work_queue *work_queue, uint64_t size_bytes, uint64_t map_bytes,
		struct slab **ret_slab, struct error *error)
{
	struct slab *slab;
	int r;

	if (size_bytes == 0 || size_bytes > SLAB_BYTES_MAX)
		return error_set_plain(error, -EINVAL, "slab of %s: must be from 1 B to %s",
				       SIZE_TEXT(size_bytes), SIZE_TEXT(SLAB_BYTES_MAX));
	slab = calloc(1, kind->struct_bytes);
	if (!slab)
		return error_set(error, -ENOMEM, "slab");
	slab->kind = kind;
	slab->keeps_bytes = kind->keeps_bytes;
	slab->fd = -1;
	slab->size_bytes = size_bytes;
	slab->map_bytes = map_bytes;
	slab->pool = pool;
	slab->work_queue = work_queue;
	atomic_init(&slab->n_refs, 1);
	r = quota_charge(&slab->slab_charge, quota, kind->is_of_view ? QUOTA_VIEWS : QUOTA_SLABS, 1,
			 error);
	if (r == 0)
		r = quota_charge(&slab->bytes_charge, quota, kind->quota, map_bytes, error);
	if (r < 0) {
		slab_discharge(slab);
		free(slab);
		return r;
	}
	slab->pool_bytes = pool->quota.used[QUOTA_POOL_BYTES];
	*ret_slab = slab;
	return 0;
}

void slab_start(struct slab *slab,
		void (*on_made)(struct slab *slab, int result, const struct error *error,
				void *arg),
		void *arg)
{
	slab->on_made = on_made;
	slab->made_arg = arg;
	slab->job.work.about.what = slab->kind->making;
	job_submit(slab->work_queue, &slab->job, slab->pool->main_mailbox, slab_make_run,
		   slab_made_main);
}

int slab_make(struct pool *pool, struct quota *quota, struct work_queue *work_queue,
	      const struct hung_who *who, uint64_t size_bytes, const struct slab_place *place,
	      void (*on_made)(struct slab *slab, int result, const struct error *error, void *arg),
	      void *arg, struct error *error)
{
	uint64_t page = place->pages == SLAB_PAGES_HUGE ? MAP_HUGE_BYTES
							: (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t map_bytes = whole_pages(size_bytes, page);
	struct slab *slab;
	int r;

	if (place->pages == SLAB_PAGES_HUGE && pool->pages == POOL_PAGES_SMALL)
		return error_set_plain(
			error, -EOPNOTSUPP,
			"slab: the daemon's configuration says huge_pages = no: ask "
			"for any pages, or ask the administrator for another setting");
	r = slab_new_of(&kind_new, pool, quota, work_queue, size_bytes, map_bytes, &slab, error);
	if (r < 0)
		return r;
	slab->place = *place;
	slab->size_bytes = map_bytes;
	slab->memory.ino = who->uid;
	slab->job.work.about = (struct hung_about){ .file = "a slab", .who = *who };
	slab_start(slab, on_made, arg);
	return 0;
}

int slab_import(const struct slab_kind *kind, struct pool *pool, struct quota *quota,
		struct work_queue *work_queue, const struct hung_who *who, int fd, uint64_t off,
		uint64_t size_bytes,
		void (*on_made)(struct slab *slab, int result, const struct error *error,
				void *arg),
		void *arg, struct error *error)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end;
	struct slab *slab;
	int r;

	if (__builtin_add_overflow(off, size_bytes, &end) || end > INT64_MAX)
		return error_set_plain(error, -EINVAL,
				       "shared memory: %" PRIu64 " bytes from %" PRIu64
				       " on: their end passes 2^63",
				       size_bytes, off);
	r = slab_new_of(kind, pool, quota, work_queue, size_bytes, whole_pages(size_bytes, page),
			&slab, error);
	if (r < 0)
		return r;
	slab->import_off = off;
	slab->fd = fd;
	slab->job.work.about = (struct hung_about){ .file = "shared memory",
						    .fd = fd,
						    .who = *who };
	slab_start(slab, on_made, arg);
	return 0;
}

static void slab_freed_main(struct job *job)
{
	struct slab *slab = container_of(job, struct slab, job);

	if (slab->is_huge)
		slab->pool->huge_bytes -= slab->size_bytes;
	slab_discharge(slab);
	if (slab->on_freed)
		slab->on_freed(slab->freed_arg);
	if (slab->kind->freed)
		slab->kind->freed(slab);
	else
		free(slab);
}

static void slab_free_run(struct job *job)
{
	struct slab *slab = container_of(job, struct slab, job);

	if (slab->kind->unmake)
		slab->kind->unmake(slab);
}

void slab_unref(struct slab *slab)
{
	/* acq_rel: the last one sees all that the others did with it. */
	if (atomic_fetch_sub_explicit(&slab->n_refs, 1, memory_order_acq_rel) > 1)
		return;
	slab->job.work.about.what = slab->kind->freeing;
	slab->job.work.about.is_memory = true;
	job_submit(slab->work_queue, &slab->job, slab->pool->main_mailbox, slab_free_run,
		   slab_freed_main);
}
