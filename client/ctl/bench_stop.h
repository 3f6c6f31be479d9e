/*
 * Ctrl-C during a bench: SIGINT, SIGTERM and SIGHUP set a flag and make a descriptor readable, so
 * that the command ends in its own way: processes stopped, files removed, results kept.
 */
#ifndef DSAIO_CTL_BENCH_STOP_H
#define DSAIO_CTL_BENCH_STOP_H

/* Catches the signals from now on.  Returns 0 or a negative errno. */
int bench_stop_catch(void);

/* The signal that came, or 0. */
int bench_stop_signal(void);

/* The exit status then: 128 and the signal, as shells have it. */
int bench_stop_status(void);

/* Readable from the first signal on; -1: they are not caught. */
int bench_stop_fd(void);

/* In a forked child: what comes from the terminal is for the parent, which ends its children. */
void bench_stop_ignore(void);

#endif
