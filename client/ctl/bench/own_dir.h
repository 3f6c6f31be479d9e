/*
 * A directory that this user made inside of one that other users may write to.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_OWN_DIR_H
#define DSAIO_CLIENT_CTL_BENCH_OWN_DIR_H

/* Follows no link.  Returns the descriptor or a negative errno; -EPERM: it is another user's. */
int own_dir_open(int dir_fd, const char *name);

#endif
