#include "daemon/engine/fault.h"

#include "daemon/base/log.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Requests of an engine that are held: more than a test holds.  Those beyond pass without a fault. */
#define HELD_MAX 64u
#define LOOK_USEC 10000u /* between looks for another plan */
#define ERROR_MAX 4095u	 /* an errno of the kernel's */

struct held {
	struct block *block;
	uint64_t due_nsec;
	uint32_t serial, n_back;
	uint8_t kind;
	bool is_back; /* returned when it is due; else the engine gets it then */
};

struct fault {
	const struct engine_ops *ops; /* of the engine itself */
	enum engine_kind kind;
	uint32_t n_back;	/* requests that the engine has returned */
	struct fault_plan plan; /* as the newest request was compared with it */
	unsigned n_held;
	struct held held[HELD_MAX];
};

static struct {
	int fd; /* the plan, or -1; read each time, since who truncates a mapped file kills its readers */
	struct engine_ops ops[N_ENGINE_KINDS];
	const struct engine_ops *inner[N_ENGINE_KINDS];
	pthread_mutex_t lock;
	uint32_t serial, n_seen; /* under the lock */
} faults = { .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER };

/* One without a fault where it cannot be read. */
static struct fault_plan plan_read(void)
{
	struct fault_plan plan;

	if (pread(faults.fd, &plan, sizeof(plan), 0) != sizeof(plan) ||
	    plan.kind >= N_FAULT_KINDS || plan.error > ERROR_MAX)
		plan = (struct fault_plan){ .kind = FAULT_NONE };
	return plan;
}

static uint32_t serial_of(const struct fault_plan *plan)
{
	return atomic_load_explicit(&plan->serial, memory_order_relaxed); /* of a copy */
}

static uint32_t serial_now(void)
{
	const struct fault_plan plan = plan_read();

	return serial_of(&plan);
}

static bool is_planned(const struct fault *fault, const struct block *block, bool at_completion)
{
	const struct fault_plan *plan = &fault->plan;

	return plan->kind != FAULT_NONE && plan->operations & 1u << block->operation &&
	       plan->engines & 1u << fault->kind && at_completion == (plan->at_completion != 0) &&
	       fault->n_held < HELD_MAX;
}

/* Whether the request gets the plan's fault there.  It counts then, unless the engine has no room for it. */
static bool is_hit(struct fault *fault, const struct block *block, bool at_completion)
{
	uint32_t n;

	fault->plan = plan_read();
	if (!is_planned(fault, block, at_completion))
		return false;
	LOCKED(&faults.lock);
	if (faults.serial != serial_of(&fault->plan)) {
		faults.serial = serial_of(&fault->plan);
		faults.n_seen = 0;
	}
	n = faults.n_seen++;
	return n >= fault->plan.skip && n - fault->plan.skip < fault->plan.n;
}

/* There was no room for the request: it comes again. */
static void count_back(const struct fault *fault, const struct block *block)
{
	if (!is_planned(fault, block, false))
		return;
	LOCKED(&faults.lock);
	if (faults.n_seen)
		faults.n_seen--;
}

static void note(const struct fault *fault, const struct block *block, bool at_completion)
{
	static const char *const names[N_FAULT_KINDS] = {
		[FAULT_ERROR] = "error", [FAULT_SHORT] = "short",
		[FAULT_SCANT] = "scant", [FAULT_DELAY] = "delayed",
		[FAULT_NEVER] = "held",	 [FAULT_REORDER] = "out of order",
	};
	const struct fault_plan *plan = &fault->plan;

	log_notice("fault plan: %s at the %s by %s of operation %u, %" PRIu32 " bytes at %" PRIu64
		   " of %s",
		   plan->kind == FAULT_ERROR ? strerrordesc_np((int)plan->error)
					     : names[plan->kind],
		   at_completion ? "completion" : "submission", fault->ops->name, block->operation,
		   block->len, block->off, block->target->about.file);
}

/* ---- the delay ---- */

struct alarm {
	int fd;
	uint32_t usec, serial;
	bool is_of_plan; /* rings when the plan has changed */
};

static void *ring(void *arg)
{
	struct alarm *alarm = arg;
	const struct timespec time = { .tv_sec = alarm->usec / 1000000,
				       .tv_nsec = (long)(alarm->usec % 1000000) * 1000 };

	do
		(void)nanosleep(&time, NULL);
	while (alarm->is_of_plan && serial_now() == alarm->serial);
	(void)eventfd_write(alarm->fd, 1);
	closep(&alarm->fd);
	free(alarm);
	return NULL;
}

/* Wakes the lane when a held request is due.  The descriptor is its own: the engine may be gone by then. */
static void alarm_set(const struct fault *fault, const struct engine *engine)
{
	struct alarm *alarm = malloc(sizeof(*alarm));
	pthread_t thread;

	if (!alarm)
		return;
	alarm->is_of_plan = fault->plan.kind == FAULT_NEVER;
	alarm->usec = alarm->is_of_plan ? LOOK_USEC : fault->plan.delay_usec;
	alarm->serial = serial_of(&fault->plan);
	alarm->fd = fcntl(engine->event_fd, F_DUPFD_CLOEXEC, 0);
	if (alarm->fd >= 0 && pthread_create(&thread, NULL, ring, alarm) == 0) {
		(void)pthread_detach(thread);
		return;
	}
	closep(&alarm->fd);
	free(alarm);
}

static void hold(struct engine *engine, struct block *block, bool is_back)
{
	struct fault *fault = engine->fault;

	fault->held[fault->n_held++] = (struct held){
		.block = block,
		.due_nsec = clock_nsec() + UINT64_C(1000) * fault->plan.delay_usec,
		.serial = serial_of(&fault->plan),
		.n_back = fault->n_back,
		.kind = (uint8_t)fault->plan.kind,
		.is_back = is_back
	};
	engine->n_in_flight++;
	if (fault->plan.kind == FAULT_DELAY || fault->plan.kind == FAULT_NEVER)
		alarm_set(fault, engine);
}

static bool is_due(const struct engine *engine, const struct held *held)
{
	const struct fault *fault = engine->fault;

	if (held->serial != serial_now())
		return true;
	switch ((enum fault_kind)held->kind) {
	case FAULT_DELAY:
		return clock_nsec() >= held->due_nsec;
	case FAULT_NEVER:
		return false;
	case FAULT_REORDER:
		return held->n_back != fault->n_back || engine->n_in_flight == fault->n_held;
	default:
		return true;
	}
}

/* ---- the engine ---- */

/* So many bytes of the request stay: for the engine before it has it, or of its result. */
static uint32_t cut(const struct fault *fault, const struct block *block, uint32_t unit)
{
	const bool is_scant = fault->plan.kind == FAULT_SCANT;

	if (block->len <= unit)
		return block->len;
	return is_scant ? unit : (block->len - 1) / unit * unit;
}

static int fault_submit(struct engine *engine, struct block **blocks, int n)
{
	struct fault *fault = engine->fault;

	for (int i = 0; i < n; i++) {
		struct block *block = blocks[i];
		const bool hits = is_hit(fault, block, false);
		const uint32_t kind = fault->plan.kind;
		const uint32_t len = block->len;

		if (hits && kind != FAULT_SHORT && kind != FAULT_SCANT) {
			note(fault, block, false);
			if (kind == FAULT_ERROR)
				block->result = -(int64_t)fault->plan.error;
			hold(engine, block, kind == FAULT_ERROR);
			continue;
		}
		if (hits && block->operation <= BLOCK_WRITE) {
			note(fault, block, false);
			block->len = cut(fault, block, target_align(block->target));
		}
		if (fault->ops->submit(engine, &blocks[i], 1) == 1)
			continue;
		count_back(fault, block);
		block->len = len;
		return i;
	}
	return n;
}

/* The request is back.  Returns whether it stays here for now. */
static bool hit_back(struct engine *engine, struct block *block)
{
	struct fault *fault = engine->fault;

	if (!is_hit(fault, block, true))
		return false;
	note(fault, block, true);
	switch ((enum fault_kind)fault->plan.kind) {
	case FAULT_ERROR:
		block->result = -(int64_t)fault->plan.error;
		break;
	case FAULT_SHORT:
	case FAULT_SCANT:
		if (block->result > 0)
			block->result = cut(fault, block, 1);
		break;
	default:
		hold(engine, block, true);
		return true;
	}
	/* Threads, and libaio on tmpfs, have counted what is taken away here.  Those of threads are at their end. */
	block->best = block->before;
	if (fault->kind == ENGINE_THREADS && block->result > 0)
		block->best += (uint32_t)block->result;
	return false;
}

static int fault_reap(struct engine *engine, struct block **blocks, int n)
{
	struct fault *fault = engine->fault;
	int n_done = 0, n_kept = 0, n_back;

	for (unsigned i = 0; i < fault->n_held && n_done < n;) {
		struct held *held = &fault->held[i];

		if (!is_due(engine, held) ||
		    (!held->is_back && fault->ops->submit(engine, &held->block, 1) < 1)) {
			i++;
			continue;
		}
		if (held->is_back)
			blocks[n_done++] = held->block;
		engine->n_in_flight--;
		fault->n_held--;
		memmove(held, held + 1, (fault->n_held - i) * sizeof(*held));
	}
	n_back = fault->ops->reap(engine, blocks + n_done, n - n_done);
	for (int i = 0; i < n_back; i++) {
		struct block *block = blocks[n_done + i];

		if (!hit_back(engine, block)) {
			fault->n_back++;
			blocks[n_done + n_kept++] = block;
		}
	}
	return n_done + n_kept;
}

static bool fault_is_ready(const struct engine *engine)
{
	const struct fault *fault = engine->fault;

	for (unsigned i = 0; i < fault->n_held; i++)
		if (is_due(engine, &fault->held[i]))
			return true;
	return fault->ops->is_ready(engine);
}

static void fault_close(struct engine *engine)
{
	struct fault *fault = engine ? engine->fault : NULL;

	if (!fault)
		return;
	fault->ops->close(engine);
	free(fault);
}

static int fault_open(enum engine_kind kind, const struct engine_config *config,
		      struct engine **ret_engine, struct error *error)
{
	struct fault *fault = calloc(1, sizeof(*fault));
	int r;

	if (!fault)
		return error_set(error, -ENOMEM, "fault plan: engine");
	fault->ops = faults.inner[kind];
	fault->kind = kind;
	r = fault->ops->open(config, ret_engine, error);
	if (r < 0) {
		free(fault);
		return r;
	}
	(*ret_engine)->ops = &faults.ops[kind];
	(*ret_engine)->fault = fault;
	return 0;
}

static int open_libaio(const struct engine_config *config, struct engine **ret_engine,
		       struct error *error)
{
	return fault_open(ENGINE_LIBAIO, config, ret_engine, error);
}

static int open_threads(const struct engine_config *config, struct engine **ret_engine,
			struct error *error)
{
	return fault_open(ENGINE_THREADS, config, ret_engine, error);
}

/* ---- the start ---- */

const struct engine_ops *fault_ops(enum engine_kind kind)
{
	return faults.fd >= 0 ? &faults.ops[kind] : NULL;
}

int fault_start(const struct engine_ops *const engines[N_ENGINE_KINDS], const char *path,
		bool is_user, struct error *error)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set(error, -errno, "%s", path);
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct fault_plan))
		return error_set_plain(error, -EINVAL, "%s: no regular file of at least %zu bytes",
				       path, sizeof(struct fault_plan));
	if ((st.st_uid != 0 && !(is_user && st.st_uid == geteuid())) || st.st_mode & 022)
		return error_set_plain(error, -EPERM,
				       "%s: others than root (or with --user, than you) may change "
				       "it: chown and chmod go-w it",
				       path);
	for (unsigned i = 0; i < N_ENGINE_KINDS; i++) {
		faults.inner[i] = engines[i];
		faults.ops[i] = *faults.inner[i];
		faults.ops[i].submit = fault_submit;
		faults.ops[i].reap = fault_reap;
		faults.ops[i].is_ready = fault_is_ready;
		faults.ops[i].close = fault_close;
	}
	faults.ops[ENGINE_LIBAIO].open = open_libaio;
	faults.ops[ENGINE_THREADS].open = open_threads;
	faults.fd = TAKE_FD(fd);
	log_notice("fault plan: %s: makes I/O fail, as it says: for tests only", path);
	return 0;
}
