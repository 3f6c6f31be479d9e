/*
 * Ctrl-C in commands that have something to clean up.
 *
 * SIGINT, SIGTERM, SIGHUP and SIGPIPE set a flag and make a descriptor readable.  The command then ends in
 * its own way: processes stopped, files removed, results kept.  At the very end stop_end() lets the
 * signal end the process, so that a shell leaves the loop that the command runs in.
 */
#ifndef DSAIO_CLIENT_CTL_UI_STOP_H
#define DSAIO_CLIENT_CTL_UI_STOP_H

/*
 * Catches the signals from now on, unless they are ignored (nohup).  sa_flags, as for sigaction(2):
 * SA_RESTART, or SA_RESETHAND if a second signal is to end the process at once.
 * Returns 0 or a negative errno.
 */
int stop_catch(int sa_flags);

/* The signal that came, or 0. */
int stop_signal(void);

/* A command's status after a signal, as shells show it: 128 and the signal's number. */
int stop_status(void);

/* Readable from the first signal on; -1: they are not caught. */
int stop_fd(void);

/* In a forked child: a signal from the terminal is for the parent, which ends its children. */
void stop_ignore(void);

/*
 * Call it last, after all clean-up: if a signal came, writes out what stdio holds and dies of that
 * signal; else returns status.
 */
int stop_end(int status);

#endif
