/*
 * Privileges that a daemon started by root drops, so that a client's op has no more rights than the
 * client.
 *
 * The kernel checks some of an op's rights when the block is submitted, against the thread that
 * submits it: CAP_FSETID keeps set-user-ID bits, CAP_SYS_RESOURCE passes quotas and reserved
 * blocks, and ext4 lets uid 0 into its reserved blocks even without a capability.  Therefore:
 *
 *  - Every daemon drops all capabilities but CAP_IPC_LOCK, which pins the pool.
 *  - The system's daemon, if root starts it, becomes user dsaiod.  Where it cannot, it stays uid 0
 *    and logs the reason.  Its threads then have the file-system uid and gid of nobody, which these
 *    checks use.  Threads that use only the daemon's own files take root's ids again.
 *  - Root's own daemon (--user) stays root, because it serves only root.
 *
 * Capabilities and file-system ids belong to a thread; a new thread inherits them.  So both calls
 * come from the main thread before there is another.
 */
#ifndef DSAIO_DAEMON_BASE_PRIVILEGES_H
#define DSAIO_DAEMON_BASE_PRIVILEGES_H

#include "daemon/base/error.h"

#include <stdbool.h>

/*
 * Call first, in the system's daemon.  If root started it, it becomes user dsaiod and makes
 * state_dir (NULL: none) for that user.  Until privileges_drop() it can read what root can, to find
 * the stores.
 */
void privileges_change_user(const char *socket_path, const char *state_dir);

/* When socket and stores are open.  is_user: --user.  0, or an error that must end the start. */
int privileges_drop(bool is_user, struct error *error);

/*
 * This thread uses the daemon's own files from now on, and never a client's: without CAP_SETUID it
 * can take root's ids, and not give them back.
 */
void privileges_own_files(void);

#endif
