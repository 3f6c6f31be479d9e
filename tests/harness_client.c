/*
 * Clients of tests by the library, and the second one, which must not be disturbed.
 */
#include "tests/harness_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

struct dsaio_client *client_open(const struct daemon *daemon)
{
	int64_t deadline = deadline_after(ANSWER_USEC);
	struct dsaio_client *client = NULL;
	int r;

	/* The library's own limit, 30 s, is not stretched. */
	do
		r = socket_connect(daemon->socket_path, &client);
	while (r == -ETIMEDOUT && now_usec() < deadline);
	CHECK_CALL(r);
	return client;
}

void rig_open(struct rig *rig, const struct dsaio_profile *profile)
{
	if (!rig->daemon)
		rig->daemon = daemon_start(NULL);
	rig->client = client_open(rig->daemon);
	CHECK_CALL(profile_open(rig->client, profile, &rig->handle));
}

struct rig rig_new(const struct dsaio_profile *profile)
{
	struct rig rig = RIG_NONE;

	rig_open(&rig, profile);
	return rig;
}

void rig_close(struct rig *rig)
{
	(void)dsaio_handle_close(rig->handle, -1);
	for (unsigned i = 0; i < rig->n_files; i++)
		dsaio_file_close(rig->files[i]);
	(void)dsaio_disconnect(rig->client);
	*rig = (struct rig){ .daemon = rig->daemon };
}

int64_t op_wait(struct dsaio_op *op, int64_t timeout_usec)
{
	int64_t result;
	int r = dsaio_op_wait(op, timeout_usec, &result);

	return r < 0 ? r : result;
}

int64_t handle_wait(struct dsaio_handle *handle, int64_t timeout_usec)
{
	int64_t result;
	int r = dsaio_handle_wait(handle, timeout_usec, &result);

	return r < 0 ? r : result;
}

struct dsaio_file *rig_file(struct rig *rig, const char *name, int flags)
{
	CHECK(rig->n_files < ARRAY_SIZE(rig->files));
	CHECK_CALL(dsaio_open(rig->client, daemon_path(rig->daemon, name), flags, NULL,
			      &rig->files[rig->n_files]));
	return rig->files[rig->n_files++];
}

/* ---- beside ---- */

struct beside {
	_Atomic uint32_t n_rounds; /* futex */
	_Atomic bool must_stop;
};
static struct beside *beside;
static pid_t beside_pid;

#define BESIDE_BYTES (256 * KIB)

/* A round: writes what depends on the round, with reads of the last round's in between. */
static void beside_round(struct rig *rig, struct dsaio_file *file, uint8_t *memory, uint32_t round)
{
	uint64_t off = round % 4 * BESIDE_BYTES;
	struct dsaio_op *ops[8] = { NULL };
	const size_t piece = BESIDE_BYTES / ARRAY_SIZE(ops);

	pattern_fill(memory, BESIDE_BYTES, round, off);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		CHECK_CALL(dsaio_pwrite_async(rig->handle, file, memory + i * piece, piece,
					      off + i * piece, &ops[i]));
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		CHECK_EQ(op_wait(ops[i], -1), piece);
		dsaio_op_free(ops[i]);
	}
	CHECK_EQ(handle_wait(rig->handle, -1), ARRAY_SIZE(ops));
	memset(memory, 0, BESIDE_BYTES);
	CHECK_EQ(dsaio_pread(rig->handle, file, memory, BESIDE_BYTES, off), BESIDE_BYTES);
	pattern_check(memory, BESIDE_BYTES, round, off, "the client beside");
}

static void beside_main(const struct daemon *daemon)
{
	struct rig rig = RIG_NONE;
	struct daemon theirs = *daemon;
	struct dsaio_file *file;
	void *memory;

	rig.daemon = &theirs;
	rig_open(&rig, NULL);
	file = rig_file(&rig, "beside", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(rig.client, BESIDE_BYTES, NULL, &memory));
	for (uint32_t round = 0; !atomic_load(&beside->must_stop); round++) {
		beside_round(&rig, file, memory, round);
		(void)atomic_fetch_add(&beside->n_rounds, 1);
		(void)syscall(SYS_futex, &beside->n_rounds, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	}
	rig_close(&rig);
}

static void beside_wait_rounds(uint32_t n)
{
	uint32_t start = atomic_load(&beside->n_rounds), now;
	int64_t deadline = deadline_after(ANSWER_USEC);

	while ((now = atomic_load(&beside->n_rounds)) - start < n) {
		struct timespec timeout = { .tv_nsec = 100000000 };
		int status;

		if (waitpid(beside_pid, &status, WNOHANG) == beside_pid)
			test_fail("the client beside died (status 0x%x)", status);
		if (now_usec() > deadline)
			test_fail("the client beside does not get on: %u of %u rounds", now - start,
				  n);
		(void)syscall(SYS_futex, &beside->n_rounds, FUTEX_WAIT, now, &timeout, NULL, 0);
	}
}

void beside_start(const struct daemon *daemon)
{
	CHECK(!beside);
	beside = mmap(NULL, sizeof(*beside), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(beside != MAP_FAILED);
	(void)fflush(NULL); /* or the child prints it again */
	beside_pid = (pid_t)CHECK_SYS(fork());
	if (beside_pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		beside_main(daemon);
		_exit(0);
	}
	beside_wait_rounds(2);
}

void beside_ok(void)
{
	beside_wait_rounds(4);
}

void beside_stop(void)
{
	if (!beside_pid)
		return;
	atomic_store(&beside->must_stop, true);
	child_wait_ok(beside_pid);
	beside_pid = 0;
	(void)munmap(beside, sizeof(*beside));
	beside = NULL;
}

void fault_run(void (*body)(struct daemon *daemon))
{
	struct daemon *daemon = daemon_start(NULL);

	beside_start(daemon);
	body(daemon);
	beside_ok();
	CHECK(daemon_is_alive(daemon));
}
