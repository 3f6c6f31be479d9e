/*
 * A GPU probe finds the host's GPUs, and whether libcufile can move bytes to them.
 *
 * libcuda and libcufile start threads, keep descriptors, and may never return: cuFileDriverOpen() of
 * libcufile 1.20 without a working libcuda uses a core forever.  So a child process calls them.  It
 * starts before the daemon has a thread, the start lock or a socket, and closes every descriptor that it
 * has.  It writes what it finds, and before each call the call's name, into memory that both map.  The
 * daemon does not wait for it: the child's end is an event of the main thread.  A child that takes too
 * long is killed, and costs one line of the log.
 *
 * cuFileDriverOpen() is called only if libcuda has reported a device.
 *
 * On a host without the driver's device there is no child, and no library is looked for, unless the
 * configuration names a libcuda (cuda_library).
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_ENGINE_GPU_PROBE_H
#define DSAIO_DAEMON_ENGINE_GPU_PROBE_H

#include "proto/util/cleanup.h"
#include "proto/util/cuda.h"

#include <stdbool.h>
#include <stdint.h>

#define GPU_UUID_BYTES 41u    /* "GPU-" and 36 letters, as nvidia-smi prints it */
#define GPU_NAME_BYTES 96u    /* a longer one is cut */
#define GPU_TEXT_BYTES 480u   /* of a message */
#define GPU_PROBE_MSEC 30000u /* cuInit() takes seconds on a host with many GPUs; a guess */

struct event_base;
struct gpu_probe;

/* A GPU that was found. */
struct gpu_facts {
	char uuid[GPU_UUID_BYTES], name[GPU_NAME_BYTES];
	uint64_t memory_bytes;
};

/* Texts are "" where there is nothing to report. */
struct gpu_report {
	char call[GPU_TEXT_BYTES]; /* in progress: "cuInit() of libcuda.so.1" */
	int cuda_version;	   /* 13020: 13.2; 0: not known */
	uint32_t n_gpus;
	struct gpu_facts gpus[GPUS_MAX];
	char problem[GPU_TEXT_BYTES]; /* why GPUs cannot be used */
	bool is_at_cufile;	      /* the call in progress is one of libcufile */
	bool has_cufile;
	int cufile_version; /* 1170: 1.17; 0: not known */
	uint32_t nvfs_major, nvfs_minor;
	bool has_p2pdma;
	char cufile_problem[GPU_TEXT_BYTES]; /* why cuFile is not used */
};

struct gpu_probe_options {
	const char *cuda_library, *cufile_library; /* NULL: where the loader finds them */
	bool is_user;				   /* as in privileges_drop() */
	uint32_t limit_msec;
	bool is_needed; /* gpu = direct: a host without a GPU is worth a line of the log */
};

/* Starts the child.  Returns NULL if there is nothing to probe, or it cannot start (logged).  options: not
   used later, except the paths. */
struct gpu_probe *gpu_probe_new(const struct gpu_probe_options *options, struct event_base *base);
/* Calls on_ended(arg) once when the child has ended, or takes too long. */
void gpu_probe_on_end(struct gpu_probe *probe, void (*on_ended)(void *arg), void *arg);
/* Kills a child that still runs.  NULL is fine. */
void gpu_probe_free(struct gpu_probe *probe);
CLEANUP_FUNCTION(struct gpu_probe, gpu_probe_free)

/* The report so far, or NULL: nothing to tell.  probe: NULL is fine.  Valid until the event loop runs. */
const struct gpu_report *gpu_probe_report(struct gpu_probe *probe);
/* Whether the child is still at it. */
bool gpu_probe_is_running(const struct gpu_probe *probe);
/* Is cuFile in its compatibility mode, in which it copies? */
bool gpu_report_copies(const struct gpu_report *report);
/* How cuFile moves bytes, for people: "cuFile 1.17 with nvidia-fs 2.24".  Returns text. */
const char *gpu_report_cufile_text(const struct gpu_report *report, char text[GPU_TEXT_BYTES]);

#endif
