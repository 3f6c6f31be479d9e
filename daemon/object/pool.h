/*
 * The pool: the daemon's budget of pinned memory, and the slabs cut from it.
 *
 * A slab is a memfd of one client, never shared between clients.  It is sealed so that its size cannot
 * change, mapped, and (if the pool locks) locked.  The daemon never accesses its bytes.
 *
 * The session and each op on the slab have a reference.  The last unreference returns the memory to the
 * pool, so memory of a killed client is not reused while a device writes to it.  The memory is
 * punched, not only closed, because a child of the client may still map it.
 *
 * A slab whose size is a multiple of a huge page consists of huge pages, locked or not, if pool_pages
 * allows it and the kernel has them.
 *
 * An imported slab is the client's own memory, passed by descriptor.  Only tmpfs and hugetlbfs are
 * accepted, because a page fault on another file system could hang.  It is charged, mapped and locked
 * like other slabs, but the client may shrink or punch it at any time.  The kernel's copies then fail
 * with EFAULT.  Freeing only unmaps it.
 *
 * When the daemon stops, the slabs of living clients are not punched: the clients hand them over to the next daemon,
 * where they are slabs of another kind (recovery/adopt.h).
 *
 * Other kinds of memory are slabs, too: struct slab_kind says how they are made and freed.  Those of views (view.h) are
 * of no client: several share them, and they are not punched.
 *
 * A client can hold its memory's lock for as long as it likes, and a free waits for that.  So frees are recorded
 * as calls that may hang.
 *
 * Making takes 0.1 to 6 s a GiB, freeing 0.1 to 0.3 s.  They run on the user's worker thread, in steps, because
 * a call that fills or unmaps memory blocks all other threads from changing mappings.
 *
 * Main thread.  slab_ref() and slab_unref(): lanes too.
 */
#ifndef DSAIO_DAEMON_OBJECT_POOL_H
#define DSAIO_DAEMON_OBJECT_POOL_H

#include "daemon/base/job.h"
#include "daemon/base/quota.h"
#include "daemon/config/config.h"
#include "daemon/object/region.h"
#include "proto/util/inode_id.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pool {
	struct quota quota; /* the daemon's: parent of all users' */
	enum pool_lock lock;
	enum pool_pages pages;
	bool follows_limit;  /* pool_size is not configured: at most half of the memory limit */
	uint64_t huge_bytes; /* bytes of slabs in reserved huge pages */
	/* False: a slab is served unlocked (lock = auto), or what cannot be locked is refused. */
	bool is_locked;
	char why_unlocked[ERROR_TEXT_BYTES];
	struct mailbox *main_mailbox; /* where slabs report */
	_Atomic bool is_stopping;     /* frees do not pause */
};

enum slab_pages {
	SLAB_PAGES_ANY, /* huge ones as far as pool_pages allows it and the kernel has them */
	SLAB_PAGES_HUGE,
	SLAB_PAGES_SMALL,
};

/* Where the memory of a slab has to be. */
struct slab_place {
	enum slab_pages pages;
	bool has_node;
	uint32_t node; /* NUMA node that is preferred */
};

struct slab;

/* A kind of slab.  Its functions run on the work queue's thread. */
struct slab_kind {
	size_t struct_bytes;	      /* of the struct that begins with the slab */
	enum quota_kind quota;	      /* of its bytes */
	bool is_of_view;	      /* counts as a piece, not as a slab */
	const char *making, *freeing; /* the calls, if they may hang, for reports; else NULL */
	bool sends_fd;		      /* the client needs the descriptor to map it */
	bool keeps_bytes;	      /* as of struct slab, until its client has the slab */
	int seals;		      /* beside those of its size */
	/* Sets region, fd and is_locked.  Returns 0, or -errno with the message in slab->error.  NULL, as unmake():
	   the memory is there already, and stays. */
	int (*make)(struct slab *slab);
	/* Frees what make() has left, also after its failure. */
	void (*unmake)(struct slab *slab);
	/* Frees the struct, in the main thread, after all else; NULL: free(3). */
	void (*freed)(struct slab *slab);
};

struct slab {
	const struct slab_kind *kind;
	uint32_t id;	      /* in its session; 0 before it has one */
	int fd;		      /* sealed: the size cannot change; -1: the client's own memory */
	struct region region; /* as the daemon sees it */
	uint64_t size_bytes, map_bytes; /* what ops may use; whole pages, that and more */
	struct slab_place place;
	uint64_t import_off;	/* imported: in the client's file */
	uint64_t pool_bytes;	/* charged to the pool when this one was, it included */
	struct inode_id memory; /* of the client's file; else as stall.h has it for slabs */
	bool is_locked;
	bool keeps_bytes;    /* its client goes on with the memory: not punched when it is freed */
	bool is_huge;	     /* in huge pages that the host has reserved */
	bool is_transparent; /* all of it is known to have been in transparent huge pages when made */
	struct charge bytes_charge, slab_charge;
	_Atomic uint32_t n_refs; /* lanes: +1 relaxed (the caller holds one),
				     -1 acq_rel (the last sees all use before) */
	struct slab *view;	 /* of a use: its piece, which has the memory (view.h); else NULL */
	struct pool *pool;
	struct work_queue *work_queue; /* borrowed: the user's */
	/* for the work queue */
	struct job job;
	struct error error;
	int result;
	void (*on_made)(struct slab *slab, int result, const struct error *error, void *arg);
	void (*on_freed)(void *arg);
	void *made_arg, *freed_arg;
};

/*
 * Makes a slab of size_bytes (rounded up to pages), charged to quota; made on the work queue's
 * thread.  who: for reports of calls that hang.  Returns 0 and later calls on_made in the main thread:
 * with 0 and a slab that the callee holds, or a negative errno and a NULL slab (charges are released).  Or returns
 * -EINVAL (size 0 or over 2^46), -EOPNOTSUPP (huge pages are wanted, and pool_pages forbids them),
 * -ENOMEM (charge, memory) and calls nothing.
 */
int slab_make(struct pool *pool, struct quota *quota, struct work_queue *work_queue,
	      const struct hung_who *who, uint64_t size_bytes, const struct slab_place *place,
	      void (*on_made)(struct slab *slab, int result, const struct error *error, void *arg),
	      void *arg, struct error *error);

/*
 * The same of size_bytes from byte off on of the client's file fd, checked, mapped and closed on the
 * work queue's thread: of the kind below, or of recovery/adopt.h.  Its memory is charged in whole pages.
 * Further errors: -EINVAL (off + size_bytes
 * passes 2^63; off is not at a page), -EOPNOTSUPP (neither on tmpfs nor on hugetlbfs, no regular
 * file), -EACCES (not open for reading and writing, sealed against writing), -ERANGE (the file is
 * shorter).  If on_made will be called, fd is taken; else it is still the caller's, which must
 * not simply close it.
 */
extern const struct slab_kind slab_kind_imported;
int slab_import(const struct slab_kind *kind, struct pool *pool, struct quota *quota,
		struct work_queue *work_queue, const struct hung_who *who, int fd, uint64_t off,
		uint64_t size_bytes,
		void (*on_made)(struct slab *slab, int result, const struct error *error,
				void *arg),
		void *arg, struct error *error);

/*
 * For kinds of slabs that are not of the pool: makes a slab of size_bytes, charged, with zeroes behind
 * struct slab.  slab_start() then makes its memory and calls on_made, as slab_make() does.  Between them
 * the caller may fill in job.work.about, except what.
 */
int slab_new_of(const struct slab_kind *kind, struct pool *pool, struct quota *quota,
		struct work_queue *work_queue, uint64_t size_bytes, uint64_t map_bytes,
		struct slab **ret_slab, struct error *error);
void slab_start(struct slab *slab,
		void (*on_made)(struct slab *slab, int result, const struct error *error,
				void *arg),
		void *arg);

/* make() and unmake() of slabs of the pool. */
int slab_make_memory(struct slab *slab);
void slab_unmake(struct slab *slab);

/*
 * For kinds of slabs that are memory of a client's descriptor, on the work queue.  slab_look() checks what all of them
 * have to be, sets memory, and finds the rest; what: the start of its messages.  The others: maps and locks map_bytes
 * of slab->fd from import_off on, step by step (import_step.h); and removes what that has left, and closes fd.
 * Returns 0, or -errno with the message in slab->error.
 */
struct slab_facts {
	uint64_t bytes, page_bytes; /* of the file */
	int seals;		    /* -1: it cannot have any */
	bool is_huge;
};
int slab_look(struct slab *slab, const char *what, struct slab_facts *ret_facts);
int slab_map_import(struct slab *slab);
void slab_unmap_import(struct slab *slab);
/* Frees the memory of slab->fd although others may map it, unless its client goes on with it. */
void slab_punch(const struct slab *slab);

static inline void slab_ref(struct slab *slab)
{
	(void)atomic_fetch_add_explicit(&slab->n_refs, 1, memory_order_relaxed);
}
/* The last unreference punches and frees the slab on the work queue, discharges the charges in the main
   thread, and then calls on_freed, if it is set. */
void slab_unref(struct slab *slab);

#endif
