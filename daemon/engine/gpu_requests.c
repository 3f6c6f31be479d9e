#include "daemon/engine/gpu_requests.h"

#include "daemon/object/file.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the path ---- */

/* Why nothing can be imported, by the report of a probe that has ended.  Returns false: it can. */
static bool has_obstacle(const struct gpu_report *report, char why[ERROR_TEXT_BYTES])
{
	char cufile[GPU_TEXT_BYTES];

	if (!report)
		(void)snprintf(why, ERROR_TEXT_BYTES, "the daemon has found no GPU on this host");
	else if (report->problem[0])
		(void)snprintf(why, ERROR_TEXT_BYTES, "the GPUs cannot be used: %.400s",
			       report->problem);
	else
		(void)snprintf(why, ERROR_TEXT_BYTES, "%s", gpu_report_cufile_text(report, cufile));
	return !report || report->problem[0] || !report->has_cufile;
}

struct gpu_path gpu_path(enum gpu_mode mode, const struct gpu_report *report, bool is_probing)
{
	struct gpu_path path = { .path = WIRE__GPU_PATH__GPU_COPY };

	if (mode == GPU_MODE_COPY)
		(void)snprintf(path.why, sizeof(path.why),
			       "the daemon's configuration says gpu = copy");
	else if (is_probing)
		(void)snprintf(path.why, sizeof(path.why), "the GPU driver has not answered yet");
	if (mode == GPU_MODE_COPY)
		return path;
	path.can_import = is_probing || !has_obstacle(report, path.why);
	if (mode == GPU_MODE_DIRECT) {
		if (!is_probing && !report)
			(void)snprintf(path.why, sizeof(path.why),
				       "the daemon has found no GPU on this host: see whether "
				       "nvidia-smi finds one and restart the daemon, or set "
				       "gpu = auto");
		path.path = WIRE__GPU_PATH__GPU_DIRECT;
		return path;
	}
	if (is_probing || (path.can_import && !gpu_report_copies(report)))
		path.path = WIRE__GPU_PATH__GPU_AUTO;
	return path;
}

struct gpu_path gpu_requests_path(const struct gpu_requests *requests)
{
	return gpu_path(requests->mode, gpu_probe_report(requests->probe),
			gpu_probe_is_running(requests->probe));
}

/* ---- imports ---- */

struct gpu_slab {
	struct slab slab; /* its error is set: it is refused */
	struct list_node node;
	struct gpu_client *client;
	struct gds_handle handle;
	bool must_import;
	struct gds_memory *memory; /* NULL: not imported */
	void (*on_made)(struct slab *slab, int result, const struct error *error, void *arg);
	void *arg;
};
static_assert(offsetof(struct gpu_slab, slab) == 0, "the pool frees it by its slab");

static struct gpu_slab *gpu_slab(struct slab *slab)
{
	return container_of(slab, struct gpu_slab, slab);
}

static int import(struct slab *slab)
{
	struct gpu_slab *gpu = gpu_slab(slab);
	struct gds_handle handle = gpu->handle;

	if (slab->error.code < 0) {
		closep(&handle.fd);
		return slab->error.code;
	}
	return gds_import(&handle, &gpu->memory, &slab->region, &slab->error);
}

static void release(struct slab *slab)
{
	if (gpu_slab(slab)->memory)
		gds_release(gpu_slab(slab)->memory);
}

static const struct slab_kind kind_gpu = {
	.struct_bytes = sizeof(struct gpu_slab),
	.quota = QUOTA_GPU_BYTES,
	.making = "GPU import",
	.freeing = "GPU release",
	.make = import,
	.unmake = release,
};

static void on_made(struct slab *slab, int result, const struct error *error, void *arg)
{
	const struct gpu_slab *gpu = arg;

	gpu->client->n_imports--;
	gpu->client->user->n_imports--;
	gpu->on_made(slab, result, error, gpu->arg);
}

static int path_check(const struct gpu_requests *requests, bool must_import, struct error *error)
{
	const struct gpu_path path = gpu_requests_path(requests);

	if (path.can_import && (must_import || path.path != WIRE__GPU_PATH__GPU_COPY))
		return 0;
	return error_set_plain(error, -EOPNOTSUPP, "the daemon does not use GPU memory: %s",
			       path.why);
}

/* The driver may not return: then calls for it would be all of the requests that a user may have. */
static int imports_check(const struct gpu_client *client, struct error *error)
{
	const uint64_t most = (client->quota->limit[QUOTA_CALLS] + 1) / 2,
		       user_most = (client->user->quota->limit[QUOTA_CALLS] + 1) / 2;

	if (client->n_imports < most && client->user->n_imports < user_most)
		return 0;
	return error_set_plain(error, -EAGAIN,
			       "%" PRIu32 " requests of this client and %" PRIu32
			       " of its user wait for the GPU driver, of at most %" PRIu64
			       " and %" PRIu64
			       ", which follow from client_handles in dsaiod.conf: see "
			       "whether nvidia-smi returns",
			       client->n_imports, client->user->n_imports, most, user_most);
}

int gpu_import(struct gpu_client *client, const struct gds_handle *handle, bool must_import,
	       void (*on_its_made)(struct slab *slab, int result, const struct error *error,
				   void *arg),
	       void *arg, struct error *error)
{
	struct gpu_slab *gpu;
	struct slab *slab;
	int r = path_check(client->requests, must_import, error);

	if (r == 0)
		r = imports_check(client, error);
	if (r == 0)
		r = slab_new_of(&kind_gpu, client->pool, client->quota, client->user->work_queue,
				handle->size_bytes, handle->size_bytes, &slab, error);
	if (r < 0)
		return r;
	gpu = gpu_slab(slab);
	gpu->client = client;
	gpu->handle = *handle;
	gpu->must_import = must_import;
	gpu->on_made = on_its_made;
	gpu->arg = arg;
	slab->job.work.about = (struct hung_about){ .file = "GPU memory",
						    .is_gpu = true,
						    .who = *client->who };
	client->n_imports++;
	client->user->n_imports++;
	if (gpu_probe_is_running(client->requests->probe))
		list_push(&client->requests->waits, &gpu->node);
	else
		slab_start(slab, on_made, gpu);
	return 0;
}

void gpu_imports_stop(struct gpu_client *client, const struct error *error)
{
	LIST_EACH(struct gpu_slab, gpu, &client->requests->waits, node) {
		if (gpu->client != client)
			continue;
		list_remove(&client->requests->waits, &gpu->node);
		gpu->slab.error = *error;
		slab_start(&gpu->slab, on_made, gpu);
	}
}

void gpu_requests_on_probe_end(void *arg)
{
	struct gpu_requests *requests = arg;
	struct list_node *node;

	while ((node = list_pop(&requests->waits))) {
		struct gpu_slab *gpu = container_of(node, struct gpu_slab, node);

		(void)path_check(requests, gpu->must_import, &gpu->slab.error); /* import() looks */
		slab_start(&gpu->slab, on_made, gpu);
	}
}

/* ---- files ---- */

/* A file that a worker thread registers. */
struct registration {
	struct list_node node; /* in the user's list */
	struct gpu_client *client;
	struct job job;
	struct file *file; /* held */
	char uuid[sizeof(CUuuid)];
	int result;
	struct error error;
	void (*on_done)(int result, const struct error *error, void *arg);
	void *arg;
};

/*
 * cuFile calls the file's file system, and a dead one does not return.  So the files of a user have their own share
 * of the requests that a client may have, beside that of imports, and a store has half of that.  The threads are those
 * for all calls into the user's file systems: half of them are left to other calls.
 */
static int files_check(const struct gpu_client *client, const struct file *file,
		       struct error *error)
{
	uint64_t n = 0, n_store = 0, most = 4 * GPU_FILES_MAX, store_most;

	if (most > client->quota->limit[QUOTA_CALLS])
		most = client->quota->limit[QUOTA_CALLS];
	most = (most + 3) / 4;
	store_most = (most + 1) / 2;
	LIST_EACH(const struct registration, other, &client->user->files, node) {
		if (other->file == file)
			return error_set_plain(error, -EAGAIN,
					       "file %s: cuFile is registering it already",
					       file->name);
		n++;
		n_store += other->file->store == file->store;
	}
	if (n < most && n_store < store_most)
		return 0;
	return error_set_plain(error, -EAGAIN,
			       "file %s: cuFile is registering %" PRIu64
			       " files of this user, of at most %" PRIu64 " (%" PRIu64
			       " of its store, of at most %" PRIu64
			       "; both follow from client_handles in dsaiod.conf)",
			       file->name, n, most, n_store, store_most);
}

static void registration_run(struct job *job)
{
	struct registration *registration = container_of(job, struct registration, job);
	struct file *file = registration->file;
	struct error why;
	int r = gds_register(&file->target, registration->uuid, &why);

	if (r < 0)
		(void)error_set_plain(&registration->error, r, "file %s: %s", file->name, why.text);
	registration->result = r;
}

static void registration_main(struct job *job)
{
	struct registration *registration = container_of(job, struct registration, job);

	list_remove(&registration->client->user->files, &registration->node);
	registration->on_done(registration->result, &registration->error, registration->arg);
	file_unref(registration->file);
	free(registration);
}

int gpu_file_register(struct gpu_client *client, struct file *file, const char uuid[sizeof(CUuuid)],
		      void (*on_done)(int result, const struct error *error, void *arg), void *arg,
		      struct error *error)
{
	const struct gpu_path path = gpu_requests_path(client->requests);
	struct registration *registration;
	int r;

	if (!path.can_import)
		return error_set_plain(error, -EOPNOTSUPP,
				       "file %s: the daemon does not use GPU memory: %s",
				       file->name, path.why);
	/* A client asks when it has imported memory, whose reply came after the probe. */
	if (gpu_probe_is_running(client->requests->probe))
		return error_set_plain(error, -EAGAIN,
				       "file %s: the GPU driver has not answered yet", file->name);
	r = files_check(client, file, error);
	if (r < 0)
		return r;
	registration = calloc(1, sizeof(*registration));
	if (!registration)
		return error_set(error, -ENOMEM, "file %s: its registration with cuFile",
				 file->name);
	file_ref(file);
	registration->client = client;
	registration->file = file;
	memcpy(registration->uuid, uuid, sizeof(registration->uuid));
	registration->on_done = on_done;
	registration->arg = arg;
	registration->job.work.about = target_about(&file->target, "cuFileHandleRegister");
	/* cuFile looks at the file, so a call that hangs may hang there: the report names what can end it. */
	registration->job.work.about.is_gpu = !file->facts.is_foreign;
	list_push(&client->user->files, &registration->node);
	job_submit(file->work_queue, &registration->job, file->job.mailbox, registration_run,
		   registration_main);
	return 0;
}
