/*
 * A target: what blocks read, write or sync.  An engine declares the kinds that it takes (engine.h).
 * Lanes pass a target on without looking at its kind, so a new kind touches engines and its owner only.
 *
 * The owner embeds it.  It does not change while blocks use it, except that a file may get a buffered
 * description.
 */
#ifndef DSAIO_DAEMON_OBJECT_TARGET_H
#define DSAIO_DAEMON_OBJECT_TARGET_H

#include "daemon/base/hung.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum target_kind {
	TARGET_FILE,  /* a file or block device, by descriptors */
	TARGET_RADOS, /* a file of a RADOS store, by its id; it has no descriptor */
};

/* A file of a RADOS store: engine/rados.h. */
struct rados_file {
	uint64_t id;
	_Atomic uint64_t size; /* of all its bytes; of one being written 0: not known yet */
	uint32_t object_bytes; /* a power of two */
	bool is_sparse;	       /* what nobody wrote reads as zeroes */
	/* It is being written.  This and size: the main thread changes a file's, at its commit; the lane reads them. */
	_Atomic bool is_writable;
};

struct target {
	enum target_kind kind;
	struct rados_file rados;	     /* of TARGET_RADOS */
	bool is_tmpfs;			     /* a transfer is a copy within the call */
	uint32_t offset_align, memory_align; /* of direct transfers; powers of two */
	int fd;				     /* the description for direct transfers */
	_Atomic int
		buffered_fd; /* -1: none; set once by the work queue (release), others acquire */
	struct hung_about about; /* of the calls on it: everything except their name */
	/* The handle of the engine for GPU memory (gds.c), which frees it in on_close(): on the work queue
	   for GPUs, before the descriptors are closed.  NULL: none. */
	_Atomic(void *) cufile;
	void (*on_close)(struct target *target);
};

/* The description of a call, for reports of a hang.  what: for example "fsync". */
static inline struct hung_about target_about(const struct target *target, const char *what)
{
	struct hung_about about = target->about;

	about.what = what;
	return about;
}

/* The buffered description, or -1.  Any thread. */
static inline int target_buffered_fd(const struct target *target)
{
	/* acquire: pairs with the release in file.c: a thread that reads the number may use the
	   descriptor */
	return atomic_load_explicit(&target->buffered_fd, memory_order_acquire);
}

/* The alignment at which a transfer can be cut: of its offset and of its memory. */
static inline uint32_t target_align(const struct target *target)
{
	return target->offset_align > target->memory_align ? target->offset_align
							   : target->memory_align;
}

#endif
