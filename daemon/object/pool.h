/*
 * The pool: the daemon's budget of pinned memory, and the slabs cut from it.
 *
 * A slab: one memfd from the pool, for one client and never for two, sealed so that its size
 * can not change, mapped and (if the pool locks) locked.  The daemon never touches its bytes.
 *
 * Its session and each op on it hold it; the last returns it to the pool, so a killed client's
 * memory is not reused while a device writes to it.  It is punched, not only closed: a child of
 * the client may still map it.
 *
 * One whose size is a multiple of a huge page's is made of such, locked or not, where pool_pages says
 * so and the kernel has them.
 *
 * Or its memory is the client's own, imported by descriptor: tmpfs or hugetlbfs only, since a page
 * fault on anything else could hang.  It is charged, mapped and locked like another, but the client
 * may shrink or punch it at any time: the kernel's copies then fail with EFAULT.  It is only
 * unmapped.
 *
 * Making and freeing take 0.1-0.3 s a GiB and run on the user's worker thread, in steps: a call that
 * fills or takes down a mapping keeps all other threads from changing theirs.
 * Main thread, but for slab_ref() and slab_unref(): lanes too.
 */
#ifndef DSAIO_DAEMON_OBJECT_POOL_H
#define DSAIO_DAEMON_OBJECT_POOL_H

#include "daemon/base/job.h"
#include "daemon/base/quota.h"
#include "daemon/config/config.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pool {
	struct quota quota; /* the daemon's: parent of all users' */
	enum pool_lock lock;
	enum pool_pages pages;
	uint64_t huge_bytes; /* of slabs in reserved ones */
	bool is_locked;	     /* false: some slab had to be served unlocked (lock = auto) */
	char why_unlocked[ERROR_TEXT_BYTES];
	struct mailbox *main_mailbox; /* where slabs report */
};

struct slab {
	uint32_t id;  /* in its session; 0 before it has one */
	int fd;	      /* sealed: the size can not change; -1: imported, closed when it is mapped */
	void *memory; /* the daemon's mapping: an address for iocbs, never touched */
	uint64_t size_bytes, map_bytes; /* what ops may use; whole pages, that and more */
	bool is_imported;
	uint64_t import_off;
	bool is_locked;
	bool is_huge; /* in huge pages that the host has reserved */
	struct charge bytes_charge, slab_charge;
	_Atomic uint32_t n_holds; /* lanes: +1 relaxed (the caller holds one),
				     -1 acq_rel (the last sees all use before) */
	struct pool *pool;
	struct work_queue *work_queue; /* borrowed: the user's */
	/* for what runs elsewhere */
	struct job job;
	struct error error;
	int result;
	void (*on_made)(struct slab *slab, int result, const struct error *error, void *arg);
	void (*on_freed)(void *arg);
	void *made_arg, *freed_arg;
};

/*
 * Makes a slab of size_bytes (rounded up to pages), charged to quota; made on the work queue's
 * thread.  Returns 0 and later calls on_made in the main thread: with 0 and a slab that the
 * callee holds, or a negative errno and a NULL slab (charges are given back).  Or returns
 * -EINVAL (size 0 or over 2^46), -ENOMEM (charge, memory) and calls nothing.
 */
int slab_make(struct pool *pool, struct quota *quota, struct work_queue *work_queue,
	      uint64_t size_bytes,
	      void (*on_made)(struct slab *slab, int result, const struct error *error, void *arg),
	      void *arg, struct error *error);

/*
 * The same of size_bytes from byte off on of the client's file fd, checked, mapped and closed on the
 * helper's thread.  Its memory is charged in whole pages.  Further errors: -EINVAL (off + size_bytes
 * passes 2^63; off is not at a page), -EOPNOTSUPP (neither on tmpfs nor on hugetlbfs, no regular
 * file), -EACCES (not open for reading and writing, sealed against writing), -ERANGE (the file is
 * shorter).  If on_made will be called, fd is taken; else it is still the caller's, who can not just
 * close it.
 */
int slab_import(struct pool *pool, struct quota *quota, struct work_queue *work_queue, int fd,
		uint64_t off, uint64_t size_bytes,
		void (*on_made)(struct slab *slab, int result, const struct error *error,
				void *arg),
		void *arg, struct error *error);

static inline void slab_ref(struct slab *slab)
{
	(void)atomic_fetch_add_explicit(&slab->n_holds, 1, memory_order_relaxed);
}
/* The last drop punches and frees it on the work queue's thread, gives the charges back in the main
   thread and then calls on_freed, if it was set. */
void slab_unref(struct slab *slab);

#endif
