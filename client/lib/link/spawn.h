/*
 * Starting the daemon: where its program lies, and a process that has nothing of this one.
 *
 * The program that calls us may have many threads, children that it waits for, SIGCHLD ignored or
 * handled, hundreds of gigabytes mapped and memory pinned for a network card, and may be piped to
 * something that waits for the last writer.  So:
 *   - no fork(): as posix_spawn() does, a child that shares the memory until it runs the daemon, on
 *     a stack of its own, while the calling thread sleeps.  It costs the same however large the
 *     program is, runs no handlers of pthread_atfork(), and pages that are pinned stay where they
 *     are.
 *   - two of them: the daemon's parent ends at once, without a signal to the program (exit signal
 *     0), and only a wait that asks for such children (__WCLONE), which is ours, sees it.
 *   - the child makes nothing but system calls, raw ones: wrappers may keep accounts in the memory
 *     that is the program's.
 *
 * The daemon gets: a session of its own, / as working directory, umask 077, all processors, the
 * default memory policy and scheduling, the soft limits raised to the hard ones (but stack and
 * core), no signal blocked or ignored, /dev/null as stdin and stdout, the log as stderr, the
 * listening socket as descriptor 3, and no other; of the environment HOME, USER, LOGNAME, LANG,
 * LC_ALL, TZ, XDG_RUNTIME_DIR, XDG_CONFIG_HOME, XDG_STATE_HOME, DSAIO_CUDA_LIBRARY and
 * DSAIO_CUFILE_LIBRARY, PATH=/usr/local/bin:/usr/bin:/bin, and the three variables of
 * sd_listen_fds(3).  It stays in the program's control group and
 * namespaces: a batch system kills it with the job.
 */
#ifndef DSAIO_CLIENT_LIB_LINK_SPAWN_H
#define DSAIO_CLIENT_LIB_LINK_SPAWN_H

#include <stddef.h>

/*
 * The daemon's program: $DSAIOD, else dsaiod beside the library (beside the program, if the library
 * is linked into that), else in the configured sbindir; never from PATH.
 * Returns 0, or -ENOENT or what $DSAIOD's access says, with a message.
 */
int spawn_find(char *path, size_t size);

/*
 * Starts PROGRAM --user --socket SOCKET_PATH.  listen_fd, log_fd: above stdio; the caller's.
 * Returns 0: the program runs; or -errno with a message.  Any thread.
 */
int spawn_daemon(const char *program, const char *socket_path, int listen_fd, int log_fd);

#endif
