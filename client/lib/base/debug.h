/*
 * $DSAIO_DEBUG=FILE: one line for each event: discovery and the reason why each place was passed over,
 * connecting, the start of a daemon, errors returned, objects made, slow ops, the session's end.  No
 * line per op.
 *
 *     2026-11-21T14:24:34.123456Z 4711.4712 connect: /run/dsaiod/dsaiod.sock: no such file
 *                                 pid.tid
 *
 * The variable is read at the first event, and not at all in a set-user-id program.  The file is
 * opened anew for each line, so that no descriptor of the program's is held, and renaming it
 * starts another; it is made with mode 0600, appended to, and no symbolic link is followed, but
 * /dev/stderr is the standard error.  A line that cannot be written is lost: no result depends on
 * it.
 *
 * Any thread, any lock held; errno stays.
 */
#ifndef DSAIO_CLIENT_LIB_BASE_DEBUG_H
#define DSAIO_CLIENT_LIB_BASE_DEBUG_H

#include <stdatomic.h>
#include <stdbool.h>

enum debug_state { DEBUG_UNKNOWN, DEBUG_OFF, DEBUG_ON };
extern _Atomic int debug_state;

/* Costs a load when off.  Check it before an expensive message. */
static inline bool debug_is_on(void)
{
	/* relaxed: who sees DEBUG_ON goes through pthread_once() before the path is used */
	return atomic_load_explicit(&debug_state, memory_order_relaxed) != DEBUG_OFF;
}

#define debug_log(...)                            \
	do {                                      \
		if (debug_is_on())                \
			debug_write(__VA_ARGS__); \
	} while (0)

/*
 * Can lines be written?  Opens the file as a line does.  Returns 0, also without $DSAIO_DEBUG, or a
 * negative errno; *ret_path is what the variable says, borrowed from the environment.
 */
int debug_check(const char **ret_path);

void debug_write(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
