/*
 * Threads that import, transfer and release at once, and a driver that hangs.
 */
#include "tests/unit/gds_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

struct task {
	pthread_t thread;
	struct gds_handle handle;
	struct gds_memory *memory;
	struct region region;
	struct block block;
	int result;
	unsigned n_current;
	_Atomic bool is_done;
};

static void *import_main(void *arg)
{
	struct task *task = arg;
	struct error error;

	task->result = gds_import(&task->handle, &task->memory, &task->region, &error);
	task->n_current = gpu.look.standin_counts().n_current;
	task->is_done = true;
	return NULL;
}

static void *transfer_main(void *arg)
{
	struct task *task = arg;

	gds_transfer(&task->block);
	task->n_current = gpu.look.standin_counts().n_current;
	task->is_done = true;
	return NULL;
}

static void *register_main(void *arg)
{
	struct task *task = arg;
	struct error error;

	task->result = gds_register((struct target *)(uintptr_t)task->block.target,
				    task->handle.uuid, &error);
	task->n_current = gpu.look.standin_counts().n_current;
	task->is_done = true;
	return NULL;
}

static void *release_main(void *arg)
{
	struct task *task = arg;

	gds_release(task->memory);
	task->n_current = gpu.look.standin_counts().n_current;
	task->is_done = true;
	return NULL;
}

static void task_start(struct task *task, void *(*run)(void *arg))
{
	task->is_done = false;
	ck_assert_int_eq(pthread_create(&task->thread, NULL, run, task), 0);
}

static void task_end(struct task *task)
{
	ck_assert_int_eq(pthread_join(task->thread, NULL), 0);
	ck_assert_uint_eq(task->n_current, 0);
}

TEST(imports_of_a_handle_wait_for_the_first)
{
	const struct gds_handle handle = exported(MEMORY_BYTES), other = exported(MEMORY_BYTES);
	struct task tasks[3] = { { .handle = handle }, { .handle = handle }, { .handle = handle } };
	struct region region;

	gds_release(import(&other, &region));
	words("cuIpcOpenMemHandle_v2=hold");
	task_start(&tasks[0], import_main);
	await_held("cuIpcOpenMemHandle_v2");
	task_start(&tasks[1], import_main);
	task_start(&tasks[2], import_main);
	words("");
	for (int i = 0; i < 3; i++)
		task_end(&tasks[i]);
	for (int i = 0; i < 3; i++)
		ck_assert(tasks[i].result == 0 && tasks[i].region.base == tasks[0].region.base);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 1);
	for (int i = 0; i < 3; i++)
		gds_release(tasks[i].memory);
	nothing_is_left("three imports");
}

TEST(an_import_waits_for_the_release_of_its_handle)
{
	struct task release = { .handle = exported(MEMORY_BYTES) },
		    next = { .handle = release.handle };

	release.memory = import(&release.handle, &release.region);
	words("cuFileBufDeregister=hold");
	task_start(&release, release_main);
	await_held("cuFileBufDeregister");
	task_start(&next, import_main);
	words("");
	task_end(&release);
	task_end(&next);
	ck_assert_int_eq(next.result, 0);
	ck_assert_uint_eq(gpu.look.standin_counts().n_imported, 1);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_buffers, 1);
	gds_release(next.memory);
	nothing_is_left("after both");
}

static const struct {
	const char *words;
	int result;
} registrations[] = {
	{ "", 0 },
	{ "cuFileHandleRegister=5008", -EOPNOTSUPP },
	{ "cuFileHandleRegister=5025", -EOPNOTSUPP }, /* whatever it is, the file cannot be used */
	{ "cuFileHandleRegister=5030", -EIO },	      /* the next time may be better */
	{ "cuFileHandleRegister=5036", -ENOMEM },
	{ "cuCtxPushCurrent_v2=709", -EIO },
};

TEST_TABLE(a_file_is_registered_before_its_first_transfer, registrations)
{
	const struct gds_handle handle = exported(MEMORY_BYTES);
	struct error error;
	struct gds_memory *memory;
	struct region region;
	struct block block;

	/* Before any import: this starts the driver. */
	words(registrations[_i].words);
	for (int i = 0; i < 2; i++) {
		int r = gds_register(&target, handle.uuid, &error);

		ck_assert_msg(r == registrations[_i].result, "%s: %d", registrations[_i].words, r);
		ck_assert(r == 0 || (error.code == r && error.text[0]));
	}
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, !registrations[_i].result);
	words("");
	ck_assert_int_eq(gds_register(&target, handle.uuid, &error), 0);
	memory = import(&handle, &region);
	block = make(BLOCK_READ, &region, 4096, 8192, 0);
	gds_transfer(&block);
	ck_assert(block.result >= 0 && block.best == 8192);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, 1);
	gds_release(memory);
	file_end();
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, 0);
	nothing_is_left(registrations[_i].words);
}

static const char *const hangs[] = {
	"cuFileRead",	     "cuFileHandleRegister", "cuIpcOpenMemHandle_v2",
	"cuFileBufRegister", "cuFileBufDeregister",  "cuIpcCloseMemHandle"
};

/* Waits until the thread is in the call: a held call becomes one that never returns. */
static void hang(struct task *task, void *(*run)(void *arg), const char *call)
{
	char text[60];

	(void)snprintf(text, sizeof(text), "%s=hold", call);
	words(text);
	task_start(task, run);
	await_held(call);
}

TEST_TABLE(a_call_that_hangs_holds_its_thread_only, hangs)
{
	const struct gds_handle a = exported(MEMORY_BYTES), b = exported(MEMORY_BYTES);
	struct target hung_target = target;
	struct task task = { .handle = a }, other = { .handle = b };
	struct gds_memory *memory;
	struct region region;

	hung_target.fd = fcntl(target.fd, F_DUPFD_CLOEXEC, 0);
	if (_i != 2 && _i != 3)
		task.memory = import(&a, &task.region);
	task.block = make(BLOCK_READ, &task.region, 4096, 4096, 0);
	task.block.target = &hung_target;
	target_register(&target);
	if (_i == 0)
		target_register(&hung_target);
	hang(&task,
	     _i == 0   ? transfer_main
	     : _i == 1 ? register_main
	     : _i < 4  ? import_main
		       : release_main,
	     hangs[_i]);

	/* Others come to the same call, and return from it when its word is gone; the first hangs on. */
	task_start(&other, import_main);
	if (_i < 2 || _i > 3) {
		task_end(&other);
		ck_assert_int_eq(other.result, 0);
		other.block = make(BLOCK_WRITE, &other.region, 4096, 4096, 0);
		task_start(&other, transfer_main);
		task_end(&other);
		ck_assert(other.block.result >= 0 && other.block.best == 4096);
	}
	ck_assert(!task.is_done);
	words("");
	task_end(&task);
	if (_i == 2 || _i == 3)
		task_end(&other);
	memory = import(&b, &region);
	gds_release(memory);
	gds_release(other.memory);
	if (_i < 4)
		gds_release(task.memory);
	nothing_is_left(hangs[_i]);
	if (hung_target.on_close)
		hung_target.on_close(&hung_target);
	file_end();
}

FIXTURE(setup, teardown)
TEST_MAIN
