/*
 * Adoption: a slab whose memory an earlier daemon has made.
 *
 * The client has kept the memfd, and hands it over.  It is checked like any descriptor of a client, on a worker thread:
 * it may be a memfd of the client's own, which harms only the client.  Its seals are those of a slab, so that its size
 * cannot change and it can be punched.  Then it is mapped and locked as imported memory is, in steps, because also a
 * slab can be mapped a million times.  Its bytes stay as they are.
 *
 * It is freed like a slab of the pool: its memory is punched, because a child of the client may still map it.  One that
 * is refused is not punched.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_RECOVERY_ADOPT_H
#define DSAIO_DAEMON_RECOVERY_ADOPT_H

#include "daemon/object/pool.h"

/*
 * For slab_import() of the whole memfd.  When on_made is called with a slab, its keeps_bytes is set; the callee clears
 * it when the client has got the slab.  Errors: -EINVAL (no memfd like those of slabs, or of another size), -ENOMEM
 * (charge, or it cannot be locked and lock = yes), -EAGAIN (import_step.h).
 */
extern const struct slab_kind slab_kind_adopted;

#endif
