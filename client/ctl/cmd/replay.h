/*
 * The ops of a recorded job, as bench replay does them again.
 *
 * A stream is a client's channel: a handle of a program, on one store.  Depth and pauses follow from times: before op i
 * of a stream so many ops had ended (n_before), and the program then waited so long (pause_nsec).
 *
 * A stream has one file, in which those of the job lie one behind the other, each from a multiple of REPLAY_PAGE on.
 * So a read that met the end of its file has as many bytes as it got.
 *
 * The recording is a stranger's: ops that cannot be done again are left out, others refused.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_REPLAY_H
#define DSAIO_CLIENT_CTL_CMD_REPLAY_H

#include "client/ctl/cmd/trace_file.h"

#define REPLAY_STREAMS_MAX 256u		     /* each is a process of a replay: a guess */
#define REPLAY_BYTES_MAX (UINT64_C(1) << 40) /* an offset, or a length */
#define REPLAY_PAGE 4096u

struct replay {
	/* Stream by stream, by their start, and times since the first.  Borrowed. */
	struct trace_op *ops;
	uint64_t n_ops, n_left_out; /* that failed, had not ended, or were lost */
	uint64_t duration_nsec;
	uint32_t n_streams;
	uint64_t stream_ops[REPLAY_STREAMS_MAX];   /* how many each has, at least 1 */
	uint64_t stream_bytes[REPLAY_STREAMS_MAX]; /* how long its file has to be */
};

/* Orders and changes the ops.  path: for messages.  Returns CTL_OK or CTL_FAILED (reported). */
int replay_init(const struct ctl *ctl, const char *path, struct trace_ops *ops,
		struct replay *ret_replay);

/* When an op of a stream is due. */
struct replay_due {
	uint64_t n_before;   /* ops of the stream that have ended before: at most its number */
	uint64_t pause_nsec; /* since then, and since the op before was submitted */
};
/* For n ops of one stream.  ends: room for n times. */
void replay_dues(const struct trace_op *ops, uint64_t n, uint64_t *ends,
		 struct replay_due *ret_dues);

#endif
