/*
 * The choices (gpu_choice.h) of a client between the two ways of ops on GPU memory, and the daemon's memory
 * of them: it keeps what clients of a user have measured (GpuRates), so that the next one need not.
 *
 * They exist if daemon and program leave the way to the library (GPU_AUTO) and the daemon imports GPU
 * memory.  A row is of a store and a GPU.  It is made by the first op on memory that was imported, which also
 * asks the daemon for what it knows.  Rows live as long as the client, so ops borrow them.
 *
 * A time counts only if it is the op's own: no other op on GPU memory of this client overlapped it, and it
 * was noticed at once that it ended (is_timely).  The first copied op of a row, which sets copies up, counts
 * for nothing.  A failure counts in any case.
 *
 * Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_GPU_CHOICES_H
#define DSAIO_CLIENT_LIB_MEMORY_GPU_CHOICES_H

#include "client/lib/link/conn.h"
#include "client/lib/memory/gpu_choice.h"
#include "client/lib/memory/gpu_region.h"
#include "proto/util/list.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Automatic stores come and go.  Ops on further ones go directly.  A guess. */
#define GPU_CHOICES_ROWS_MAX 256u

struct gpu_choices_row;

struct gpu_choices {
	struct dsaio_conn *conn;
	bool has_choice;      /* the way is the library's to choose */
	bool is_remembered;   /* the daemon keeps what was measured */
	pthread_mutex_t lock; /* of all below, and of the rows' choices */
	struct list rows;     /* a row's key never changes */
	unsigned n_rows;
	uint64_t n_begun, n_open; /* ops on GPU memory */
};

/* An op on GPU memory, from its begin to its end. */
struct gpu_choices_op {
	struct gpu_choices_row *row; /* measures it; NULL: none does */
	uint64_t number;	     /* among n_begun; 0: has not begun */
	uint64_t began_nsec;
	bool is_alone; /* no other was open when it began, and it is no part of one */
};

/* Ops of one kind. */
struct gpu_choices_kind {
	uint32_t store;
	bool is_write;
	uint64_t len;
};

/* is_direct_only: as of DSAIO_GPU_DIRECT. */
void gpu_choices_init(struct gpu_choices *choices, struct dsaio_conn *conn, bool is_direct_only);
void gpu_choices_deinit(struct gpu_choices *choices); /* no op borrows a row */

/* Is the kind's way on that GPU known to be copies?  Then its memory need not be imported.  *ret_why: the
   reason, which lives as long as the client. */
bool gpu_choices_is_copied(struct gpu_choices *choices, const struct gpu_choices_kind *kind,
			   int number, const char **ret_why);

/*
 * The way of an op on imported memory: directly?  *ret_row is for gpu_choices_begin(); NULL: the choice is
 * made.  *ret_why, if it is copied: as above.  The first call for a row sleeps for the daemon's answer.
 */
bool gpu_choices_next(struct gpu_choices *choices, const struct gpu_choices_kind *kind,
		      const struct gpu_region_gpu *gpu, struct gpu_choices_row **ret_row,
		      const char **ret_why);

/* An op on GPU memory, imported or not, begins. */
void gpu_choices_begin(struct gpu_choices *choices, struct gpu_choices_row *row, bool is_part,
		       struct gpu_choices_op *ret_op);
/* It has ended.  result: 0 for one that tells nothing about its way, as it was cancelled.  Never sleeps. */
void gpu_choices_end(struct gpu_choices *choices, const struct gpu_choices_op *op,
		     const struct gpu_choices_kind *kind, bool is_direct, bool is_timely,
		     int64_t result);

#endif
