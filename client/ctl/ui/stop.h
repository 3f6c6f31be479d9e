/*
 * Ctrl-C in commands that have something to clean up, and waits for a daemon that is silent.
 *
 * SIGINT, SIGTERM, SIGHUP and SIGPIPE set a flag and make a descriptor readable.  The command then
 * ends in its own way: it stops processes, removes files, saves results.  At the very end stop_end()
 * lets the signal end the process, so that a shell leaves the loop that the command runs in.
 *
 * A daemon that is stopped (SIGSTOP) answers nothing, and the library would wait for up to 30 s.  So
 * one second after the signal the connection is shut down: to the library the daemon has gone away,
 * and all calls and ops end with an error.  The daemon keeps the slabs of ops in flight until they
 * end, as after any client's death.  A command must not use their buffers, or keep the files that
 * they write, after the signal.
 */
#ifndef DSAIO_CLIENT_CTL_UI_STOP_H
#define DSAIO_CLIENT_CTL_UI_STOP_H

struct dsaio_conn;

/*
 * Catches the signals from now on, unless they are ignored (nohup).  sa_flags, as for sigaction(2):
 * SA_RESTART, or SA_RESETHAND if a second signal is to end the process at once.
 * Returns 0 or a negative errno.
 */
int stop_catch(int sa_flags);

/* A connection that is shut down one second after the signal: of a command's the last two; NULL: they are to be
   freed. */
void stop_hangs_up(struct dsaio_conn *conn);

/* Call these before and after a wait for the daemon: one of over a second is reported. */
void stop_wait_begin(const char *command);
void stop_wait_end(void);

/* The signal that came, or 0. */
int stop_signal(void);

/* A command's status after a signal, as shells show it: 128 + the signal's number. */
int stop_status(void);

/* Readable from the first signal on; -1: they are not caught. */
int stop_fd(void);

/* For a forked child: the terminal signals parent and child, and the parent ends its children. */
void stop_ignore(void);

/*
 * Call it last, after all clean-up.  If a signal came, flushes stdio and dies of that signal.  Else
 * returns status.
 */
int stop_end(int status);

#endif
