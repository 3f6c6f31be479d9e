/*
 * A job: one bounced op.  It is copied through slots (slots.h) piece by piece, so that the copy of one
 * piece overlaps the I/O of others.
 *
 *     op      |-----------------------------------------|
 *     pieces  |--|-----|-----|-----|                         as many as job_may_start() allows
 *                 done  ended  in flight                     copied and counted in order
 *
 * Each piece is an op of its own on a slot; only this module and bounce_thread.c know it.  The first
 * piece that fails, in the order of the file, gives the op's error, and the bytes before it are done.
 *
 * The thread that runs a large read may post copies to the copiers (copiers.h).  It posts all ended
 * pieces but the first, copies the first itself, and then finds others copied.  So no thread is woken
 * while one keeps up with the device.  A copier knows only a piece's slot and buffer.  The thread that
 * runs the job finishes the pieces in the order of the file.  Writes have no copiers: the kernel lets
 * one thread at a time write to a memfd.
 *
 * Memory of a GPU is copied by the GPU (gpu_copy.h), whose copies are queued ahead, so that it never waits
 * for this thread.  A piece keeps its slot until its copy is over, whatever becomes of the op.
 *
 * One thread runs a job: the caller's (job_run()), or the bounce thread, which alone runs jobs on GPU memory.
 */
#ifndef DSAIO_CLIENT_LIB_IO_JOB_H
#define DSAIO_CLIENT_LIB_IO_JOB_H

#include "client/lib/io/handle.h"
#include "client/lib/io/slice.h"
#include "client/lib/memory/copiers.h"
#include "client/lib/memory/gpu_copy.h"
#include "client/lib/memory/slots.h"

/* GPU memory: some are in flight, some queued for a copy.  They fill less than a store may use of the slots. */
#define JOB_PIECES_MAX 12u
#define JOB_HOST_PIECES_MAX 8u /* 8 MiB in flight keep a device busy while one is copied */

/*
 * Where a piece is.  piece_move() in job.c alone changes it, in the thread that runs the job.
 *
 *     FREE      -> IN_FLIGHT; FILLING: a write of GPU memory; ENDED: the daemon is gone
 *     FILLING   -> IN_FLIGHT; ENDED: the copy failed, no piece may start any more, or the daemon is gone
 *     IN_FLIGHT -> ENDED -> FREE; EMPTYING; COPIED: there was nothing to copy
 *     EMPTYING  -> COPIED -> FREE
 */
enum piece_state {
	PIECE_FREE,	 /* no slot, no op */
	PIECE_FILLING,	 /* the copy into the slot is queued: in job->copies; no op yet */
	PIECE_IN_FLIGHT, /* its op is in the ring */
	PIECE_ENDED,	 /* its op has ended, or never came into the ring; no op: for error */
	PIECE_EMPTYING,	 /* the copy to the buffer is queued: in job->copies, or at the copiers */
	PIECE_COPIED,	 /* that copy is over */
};

struct job_piece {
	struct bounce_job *job;
	enum piece_state state;
	struct dsaio_op *op; /* reads or writes the slot; NULL: not yet, or never for that error */
	int error;	     /* of the copy, or for which it was never put into the ring */
	struct slot slot;
	struct slice slice;
	struct copy copy;  /* of a read: from the slot to the buffer */
	uint64_t n_copied; /* bytes */
	bool is_slow;	   /* the copy was */
	struct gpu_copy gpu_copy;
	struct list_node copy_node; /* of job->copies */
};

struct bounce_job {
	struct dsaio_op *op;
	struct dsaio_handle *via; /* the handle whose channel takes the pieces */
	struct handle_channel *channel;
	struct slots_share *share; /* of the file's store; NULL: for the ring, or no memory */
	struct copiers *copiers;   /* NULL: none */
	struct gpus *gpus;	   /* of the client */
	int gpu;		   /* the GPU whose memory buf is; -1: the host's */
	struct list *copies; /* of GPU memory: pieces whose copies are queued, in that order */
	bool is_slow;	     /* the last copy was: copiers shall help */
	char *buf;
	uint64_t next, end; /* bytes of the file: the start of the next piece, the end of the op */
	uint64_t deadline_nsec;
	struct job_piece pieces[JOB_PIECES_MAX]; /* a ring, in the order of the file */
	unsigned first, n;
	int stop;	/* errno for which no further piece starts; 0: more may */
	bool is_over;	/* a piece failed, or was at the end of the file: neither starts one */
	int error;	/* of the first piece that failed */
	uint64_t done;	/* bytes, before the first piece that failed */
	bool is_at_end; /* of the file */
	char *why;	/* a message for why_error; or NULL */
	int why_error;

	/* bounce_thread.c's */
	bool is_for_ring;	  /* no pieces: it waits to put its op into its handle's ring */
	struct dsaio_op *earlier; /* it waits for this op's end, and has a reference */
	enum job_state {
		JOB_WAITING,  /* for earlier, or (for the ring) for room */
		JOB_STARTING, /* may start pieces */
		JOB_FULL,     /* all pieces that it may have are in flight */
	} state;
	bool is_cancel_sent;
	bool is_touched; /* some of its pieces have ended, so n is not 0; it is in the list */
	struct bounce_job *next_touched;
	struct list_node node;		/* of its state's list, or the inbox */
	struct list_node starting_node; /* JOB_STARTING: of its channel's list */
};

/* The memory of a bounced op. */
struct job_memory {
	void *buf;
	int gpu; /* the GPU whose memory it is; -1: the host's */
};

/* memory: NULL: a job for the ring.  copiers: NULL: none.  gpus: of GPU memory. */
void job_init(struct bounce_job *job, struct dsaio_op *op, struct dsaio_handle *via,
	      struct handle_channel *channel, const struct job_memory *memory,
	      struct copiers *copiers, struct gpus *gpus);

/* May it start another piece, now or later? */
static inline bool job_has_more(const struct bounce_job *job)
{
	return !job->stop && !job->is_over && job->next < job->end;
}

/* May it start one before another is finished? */
static inline bool job_may_start(const struct bounce_job *job)
{
	return job->n < (job->gpu < 0 ? JOB_HOST_PIECES_MAX : JOB_PIECES_MAX) && job_has_more(job);
}

static inline struct job_piece *job_piece(struct bounce_job *job, unsigned n)
{
	return &job->pieces[(job->first + n) % JOB_PIECES_MAX];
}

/* Sets `stop` once the op was cancelled, its time is over, or the daemon is gone. */
void job_look_at_op(struct bounce_job *job);

/*
 * Starts the next piece, or notes why there will be none.  is_blocking: in a caller's thread;
 * is_further: this thread has pieces in flight on this store (blocking: of this op).  Returns 0, or
 * -EAGAIN: no slot now.
 */
int job_start_piece(struct bounce_job *job, bool is_blocking, bool is_further);

/*
 * Looks at the copy of a piece of job->copies.  False: it goes on.  Else the piece of a write goes into the
 * ring, where there is room, or ends.
 */
bool job_end_copy(struct job_piece *piece);

/* The bounce thread has consumed the op of a piece in flight: both end. */
void job_end_piece(struct job_piece *piece);

/* A read of GPU memory: queues the copies of pieces that have ended. */
void job_queue_copies(struct bounce_job *job);

/* Whether the first piece can be finished, after job_queue_copies(). */
bool job_may_finish(struct bounce_job *job);

/* Copies its bytes, where a GPU has not, counts them, and releases its slot. */
void job_finish_piece(struct bounce_job *job);

/* Ends the op.  No piece is in flight, and none will be. */
void job_end_op(struct bounce_job *job);

/* Runs the job of a blocking op on the host's memory, from its first piece to its end, in the caller's thread. */
void job_run(struct bounce_job *job);

#endif
