/*
 * Buffers of a bench in the memory of GPUs, as --gpu asks for.
 *
 * The command needs no CUDA: libcuda is opened at run time.  CUDA does not survive fork(2), so only the
 * processes of a crew initialise it, each for itself; the command's own looks whether it opens.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_GPU_H
#define DSAIO_CLIENT_CTL_BENCH_GPU_H

#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/flags.h"

#include <stddef.h>
#include <stdint.h>

#define BENCH_GPU_MAX 1023u /* a guess: more is a mistake */
#define BENCH_GPU_NAME_BYTES 96u
#define BENCH_GPU_WHY_BYTES 256u
#define BENCH_GPU_PATHS_BYTES 700u /* of a text: both paths, each with its reason */
#define BENCH_GPU_SPREAD (-1) /* process i takes GPU i, and the first one again behind the last */

struct bench_process;
struct bench_gpu; /* the driver's functions, of a process */

/* How the bytes of ops went. */
struct bench_gpu_paths {
	uint64_t n_direct, n_copied;   /* ops */
	char why[BENCH_GPU_WHY_BYTES]; /* the last copied one's reason */
};

/* The options, which ds_io has, too. */
struct bench_gpu_options {
	struct flag_optional gpu; /* --gpu, --gpu=N */
	bool gds;		  /* --gds, --use_gds: the bytes may not be copied */
};

#define BENCH_GPU_FLAGS(o)                                    \
	{ "gpu", FLAG_OPTIONAL, &(o).gpu, 0, BENCH_GPU_MAX }, \
	{                                                     \
		"gds", FLAG_BOOL, &(o).gds, 0, 0              \
	}
#define BENCH_GPU_HELP                                                                          \
	"    --gpu[=N]              buffers in the memory of GPU N, or of a GPU for each\n"     \
	"                           process (not yet run on a GPU)\n"                           \
	"    --gds                  with --gpu: fail where the bytes would be copied through\n" \
	"                           memory of the host\n"

/*
 * Refuses arguments that are no options: these benches have none, and a number behind --gpu is one.
 * Returns CTL_OK or CTL_USAGE (reported).
 */
int bench_gpu_check_args(const struct ctl *ctl, const struct bench_gpu_options *options);

/*
 * Are they possible here?  Returns CTL_OK, CTL_USAGE or CTL_FAILED (reported): there is no libcuda.
 * gds_flag: its name, for messages.
 */
int bench_gpu_check(const struct ctl *ctl, const struct bench_gpu_options *options,
		    const char *gds_flag);

/* The number of --gpu=N, or BENCH_GPU_SPREAD. */
int bench_gpu_number(const struct bench_gpu_options *options);

/* For the results: the number, "each", or NULL: no GPU. */
struct json_object *bench_gpu_json(const struct bench_gpu_options *options);

/* Adds a text of a process, as the name of its GPU, to an array that has each once; "": it has none. */
void bench_gpu_add(struct json_object *array, const char *text);

/* Adds the ops of a process to those of all. */
void bench_gpu_sum_paths(struct bench_gpu_paths *sum, const struct bench_gpu_paths *paths);
/*
 * "direct (cuFile 1.17 with nvidia-fs 2.24)", "copied: " with the reason, or both with the number of
 * ops.  cufile: how cuFile moves bytes; "": not known.  Returns text, of BENCH_GPU_PATHS_BYTES.
 */
const char *bench_gpu_paths_text(const struct bench_gpu_paths *paths, const char *cufile,
				 char *text);
/* All of them, as text of BENCH_TEXT_BYTES.  Returns text. */
const char *bench_gpu_list(struct json_object *array, char *text);

/* ---- in a process ---- */

/*
 * Takes memory of the GPU with that number as the process's buffer.  The process keeps it to its end.
 * is_direct_only: as of --gds, and so is the process's connection.  Returns 0 or bench_process_fail()'s value.
 */
int bench_gpu_open(struct bench_process *process, int number, bool is_direct_only);

/* An op on the process's buffer has ended well: notes how its bytes went, if that is of a GPU. */
void bench_gpu_note(struct bench_process *process, const struct dsaio_op *op);

/* Copies len bytes from or to off of the buffer.  Return 0 or bench_process_fail()'s value. */
int bench_gpu_put(struct bench_process *process, uint64_t off, const void *from, size_t len);
int bench_gpu_get(struct bench_process *process, uint64_t off, void *to, size_t len);

#endif
