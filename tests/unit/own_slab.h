/*
 * A slab of the library without a daemon: a memfd that the test has made.
 */
#ifndef DSAIO_TESTS_UNIT_OWN_SLAB_H
#define DSAIO_TESTS_UNIT_OWN_SLAB_H

#include "client/lib/memory/slots.h"

#include <check.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The only slab of these buffers, whose buffers_deinit() frees it. */
static inline struct mapped_slab *own_slab_new(struct buffers *buffers, size_t bytes)
{
	struct mapped_slab *slab = calloc(1, sizeof(*slab));

	ck_assert_ptr_nonnull(slab);
	slab->fd = memfd_create("slab", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(slab->fd, (off_t)bytes), 0);
	slab->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, slab->fd, 0);
	ck_assert_ptr_ne(slab->memory, MAP_FAILED);
	slab->bytes = bytes;
	slab->is_own = true;
	buffers->slabs = calloc(1, sizeof(struct mapped_slab *));
	ck_assert_ptr_nonnull(buffers->slabs);
	buffers->slabs[0] = slab;
	buffers->n = buffers->n_allocated = 1;
	return slab;
}

static inline void own_slab_ignore(struct slots *slots, void *memory)
{
	(void)slots;
	(void)memory;
}

#endif
