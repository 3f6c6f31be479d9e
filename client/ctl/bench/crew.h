/*
 * The processes of a bench: clients of their own, as the ranks of a training job are.
 *
 * bench_crew_start() forks one for each folder.  Each connects, takes its buffer (pinned, random
 * bytes), and then does calls: bench_crew_call() lets all run one function at the same time and
 * returns when all have.  So connecting, pinning and filling are paid once, not for each point.
 *
 * A function that fails says why (bench_worker_fail()) and returns; the others, who may wait for
 * it at the barrier, are let go.  One that dies is likewise told of, and forked anew at the next
 * call.  If this process dies its children do, too.
 *
 * The caller's thread alone; there must be no other threads.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_CREW_H
#define DSAIO_CLIENT_CTL_BENCH_CREW_H

#include "client/lib/dsaio.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_TEXT_BYTES 1024u	   /* of a sentence */
#define BENCH_CREW_ARG_BYTES 1024u /* of a call's argument */

struct bench_crew;
struct bench_board;

/* What a process has: all its own, kept between calls. */
struct bench_worker {
	unsigned id, n_workers;
	const char *folder, *socket_path;
	struct dsaio_client *client;
	void *buffer; /* buffer_bytes of dsaio_alloc(), filled with random bytes */
	uint64_t buffer_bytes;
	void *shared; /* shared_bytes that the parent sees too: results */
	void *state;  /* whatever the functions keep there; NULL at first */
	struct bench_board *board;
	char text[BENCH_TEXT_BYTES];
};

struct bench_crew_options {
	const char *socket_path;    /* NULL: the library's default */
	const char *const *folders; /* borrowed for the crew's life: one for each worker */
	unsigned n_workers;
	uint64_t buffer_bytes; /* of each; 0: none */
	bool leaves_zeros;     /* buffers are not filled with random bytes */
	size_t shared_bytes;   /* of each */
	/* Called a few times a second during calls, and data with it; NULL: nothing is. */
	void (*tick)(void *data);
	void *tick_data;
};

/* Runs in the worker.  Returns 0 or bench_worker_fail()'s value. */
typedef int bench_crew_fn(struct bench_worker *worker, const void *arg);

/*
 * Both return 0, or
 *   -EINTR    a signal came (stop.h); only bench_crew_free() makes sense then
 *   -EIO      a worker failed; in text (of BENCH_TEXT_BYTES) its sentence.  The crew can go on.
 *   or what the kernel said to fork(2) and the like, with a sentence
 * arg is copied: at most BENCH_CREW_ARG_BYTES.
 */
int bench_crew_start(const struct bench_crew_options *options, struct bench_crew **ret_crew,
		     char *text);
int bench_crew_call(struct bench_crew *crew, bench_crew_fn *fn, const void *arg, size_t arg_bytes,
		    char *text);

/* The shared memory of worker i; zero at the start of each call. */
void *bench_crew_shared(struct bench_crew *crew, unsigned i);

/* Ends the processes, in order if they are idle.  NULL is fine. */
void bench_crew_free(struct bench_crew *crew);

/* ---- in a worker ---- */

/* Keeps the sentence for the parent.  Returns -EIO. */
int bench_worker_fail(struct bench_worker *worker, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Waits for all workers.  Returns 0, or -ECANCELED: another one failed, so return at once. */
int bench_worker_barrier(struct bench_worker *worker);

/* Fills memory with bytes that no layer can compress or share. */
void bench_fill_random(void *memory, size_t len);

#endif
