#include "daemon/engine/gpu_file.h"

#include "daemon/engine/gds.h"
#include "daemon/object/file.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A file that a worker thread registers. */
struct registration {
	struct job job;
	struct file *file; /* held */
	char uuid[sizeof(CUuuid)];
	int result;
	struct error error;
	void (*on_done)(struct file *file, int result, const struct error *error, void *arg);
	void *arg;
};

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
	struct file *file = registration->file;

	registration->on_done(file, registration->result,
			      registration->result < 0 ? &registration->error : NULL,
			      registration->arg);
	free(registration);
	file_unref(file);
}

int gpu_file_register(struct file *file, const char uuid[sizeof(CUuuid)],
		      void (*on_done)(struct file *file, int result, const struct error *error,
				      void *arg),
		      void *arg, struct error *error)
{
	struct registration *registration = calloc(1, sizeof(*registration));

	if (!registration)
		return error_set(error, -ENOMEM, "file %s: its registration with cuFile",
				 file->name);
	file_ref(file);
	registration->file = file;
	memcpy(registration->uuid, uuid, sizeof(registration->uuid));
	registration->on_done = on_done;
	registration->arg = arg;
	registration->job.run = registration_run;
	registration->job.done = registration_main;
	registration->job.mailbox = file->job.mailbox;
	registration->job.work.about = target_about(&file->target, "cuFileHandleRegister");
	/* cuFile looks at the file, so a call that hangs may hang there: the report names what can end it. */
	registration->job.work.about.is_gpu = !file->facts.is_foreign;
	job_submit(file->work_queue, &registration->job);
	return 0;
}
