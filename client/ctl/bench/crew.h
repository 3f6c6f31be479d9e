/*
 * The processes of a bench: each is a client of its own, like a rank of a training job.
 *
 * bench_crew_start() forks one process for each folder.  Each connects, allocates its buffer (pinned,
 * random bytes) and waits for calls.  bench_crew_call() lets all processes run one function at the
 * same time and returns when all have ended.  So connecting, pinning and filling are paid once, not
 * for each point.
 *
 * A function that fails reports why with bench_process_fail() and returns; processes that wait at the
 * barrier are released.  A process that dies is reported in the same way, and forked anew at the next
 * call.  If the parent dies, the kernel kills its children.
 *
 * For the caller's thread alone; there must be no other threads.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_CREW_H
#define DSAIO_CLIENT_CTL_BENCH_CREW_H

#include "client/ctl/bench/process.h"
#include "client/ctl/ui/ctl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_CREW_ARG_BYTES 1024u /* of a call's argument */

struct bench_crew;

struct bench_crew_options {
	const char *socket_path; /* NULL: the library's default */
	const char *const
		*folders; /* borrowed for the crew's life: one for each process; or NULL */
	unsigned n_processes;
	const struct bench_files
		*files;	       /* borrowed for the crew's life: a place for each; or NULL */
	uint64_t buffer_bytes; /* of each; 0: none */
	const int *gpus; /* borrowed, one for each process: its buffer's, or BENCH_GPU_SPREAD; NULL:
			    buffers are the host's memory */
	bool is_gpu_direct_only; /* ops on these fail whose bytes are copied */
	bool leaves_zeros;	 /* buffers are not filled with random bytes */
	size_t shared_bytes;	 /* of each */
	/* Called a few times a second during calls, and data with it; NULL: nothing is. */
	void (*tick)(void *data);
	void *tick_data;
};

/* Runs in the process.  Returns 0 or bench_process_fail()'s value. */
typedef int bench_crew_fn(struct bench_process *process, const void *arg);

/* Returns CTL_OK, 128 + the signal that came, or CTL_FAILED (reported); *ret_crew is NULL then. */
int bench_crew_start(const struct ctl *ctl, const struct bench_crew_options *options,
		     struct bench_crew **ret_crew);

/*
 * Returns 0, or
 *   -EINTR    a signal came (stop.h); only bench_crew_free() makes sense then
 *   -EIO      a process failed; in text (of BENCH_TEXT_BYTES) its message.  The crew can go on.
 *   or what the kernel said to fork(2) and the like, with a message
 * arg is copied: at most BENCH_CREW_ARG_BYTES.
 */
int bench_crew_call(struct bench_crew *crew, bench_crew_fn *fn, const void *arg, size_t arg_bytes,
		    char *text);

/* The command's status for such a value: CTL_OK, 128 + the signal, or CTL_FAILED (text is printed). */
int bench_crew_status(const struct ctl *ctl, int r, const char *text);

/* The shared memory of process i; zero at the start of each call. */
void *bench_crew_shared(struct bench_crew *crew, unsigned i);

/* The memory of process i, as of its last answer. */
const struct bench_memory *bench_crew_memory(const struct bench_crew *crew, unsigned i);

/* How the bytes of all processes' ops went. */
struct bench_gpu_paths bench_crew_paths(const struct bench_crew *crew);

/*
 * Notes whose memory the buffers are and how the bytes went, and adds both to these arrays of texts.
 * cufile: as for bench_gpu_paths_text().
 */
void bench_crew_note_gpus(const struct ctl *ctl, const struct bench_crew *crew, const char *cufile,
			  struct json_object *gpus, struct json_object *paths);

/* Ends the processes at once.  Their shared memory stays. */
void bench_crew_kill(struct bench_crew *crew);

/* Ends the processes, in order if they are idle.  NULL is fine. */
void bench_crew_free(struct bench_crew *crew);

/* ---- in a process ---- */

/* Waits for all processes.  Returns 0, or -ECANCELED: another one failed, so return at once. */
int bench_process_barrier(struct bench_process *process);

#endif
