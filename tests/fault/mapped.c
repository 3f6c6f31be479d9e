/*
 * Memory that processes map very often and punch.  A call that maps or unmaps it waits for the walk over all of
 * these mappings, with the lock of the daemon's mappings held: connects and allocations of others took seconds.
 */
#include "tests/harness.h"
#include "tests/victim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (4 * MIB)
#define UID 60031u /* of the first client; the others have those that follow */
#define N_MAPPERS 8u
#define N_MAPPINGS 60000u /* of each: the kernel allows 65530 */
#define N_USERS_MAX 15u
#define N_FREES 200u
#define TURN_USEC 500000
#define REFUSED "imports of this memory are refused"

static int memory_new(void)
{
	int fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC));

	CHECK_SYS(ftruncate(fd, BYTES));
	return fd;
}

/* ---- processes that map the memory and punch it ---- */

struct mappers {
	_Atomic unsigned *n_ready;
	pid_t pids[N_MAPPERS];
};

/* One of them punches: punches wait for each other, and would take the processors from the victims. */
static void mapper_main(int fd, _Atomic unsigned *n_ready, bool punches)
{
	CHECK_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL));
	for (unsigned i = 0; i < N_MAPPINGS; i++)
		CHECK(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	(void)atomic_fetch_add(n_ready, 1);
	while (!punches)
		(void)pause();
	for (;;)
		CHECK_SYS(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES));
}

static void mappers_start(struct mappers *mappers, int fd)
{
	mappers->n_ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
				0);
	CHECK(mappers->n_ready != MAP_FAILED);
	for (unsigned i = 0; i < N_MAPPERS; i++) {
		mappers->pids[i] = (pid_t)CHECK_SYS(fork());
		if (!mappers->pids[i])
			mapper_main(fd, mappers->n_ready, !i);
	}
	while (atomic_load(mappers->n_ready) < N_MAPPERS)
		(void)poll(NULL, 0, 10);
}

static void processes_end(const pid_t *pids, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		CHECK_SYS(kill(pids[i], SIGKILL));
	for (unsigned i = 0; i < n; i++)
		CHECK_SYS(waitpid(pids[i], NULL, 0));
}

/* ---- clients that import it ---- */

static uint32_t import_send(struct raw *raw, int fd, struct answer *answer)
{
	Wire__SlabImport import = WIRE__SLAB_IMPORT__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_IMPORT, slab_import, &import);

	import.size_bytes = BYTES;
	raw_call(raw, &request, &fd, 1, answer);
	return answer->reply->error ? 0 : answer->reply->slab_import->slab;
}

static void slab_free(struct raw *raw, uint32_t slab)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__SlabFree slab_free = WIRE__SLAB_FREE__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_FREE, slab_free, &slab_free);

	slab_free.slab = slab;
	raw_call_ok(raw, &request, NULL, 0, &answer);
}

/* Imports it and frees it without end. */
static void attack(const struct daemon *daemon, int fd, unsigned user, bool takes_turns)
{
	struct raw raw = RAW_NONE;

	child_become(UID + user);
	raw_open(&raw, daemon);
	for (;;) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		uint32_t slab;

		while (takes_turns && now_usec() / TURN_USEC % 2 != user)
			(void)poll(NULL, 0, 10);
		slab = import_send(&raw, fd, &answer);
		if (slab)
			slab_free(&raw, slab);
		else
			answer_check_fails(&answer, -EAGAIN, "shared memory;map;punch");
	}
}

/* Imports it often, stops until it is mapped very often, and frees it until it is killed. */
static void attack_by_frees(const struct daemon *daemon, int fd)
{
	uint32_t slabs[N_FREES];
	struct raw raw = RAW_NONE;

	child_become(UID);
	raw_open(&raw, daemon);
	for (unsigned i = 0; i < N_FREES; i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		slabs[i] = import_send(&raw, fd, &answer);
		CHECK_MSG(slabs[i], "%s", answer.reply->text);
	}
	CHECK_SYS(raise(SIGSTOP));
	for (unsigned i = 0; i < N_FREES; i++) {
		slab_free(&raw, slabs[i]);
		(void)poll(NULL, 0, 10);
	}
}

static const struct {
	const char *what;
	unsigned n_users;
	bool is_alone; /* when the attack begins */
	bool takes_turns;
} rows[] = {
	{ "one user", 1, false, false },
	{ "alone when it begins", 1, true, false },
	{ "two users in turns", 2, false, true },
	{ "subordinate uids", N_USERS_MAX, false, false },
};

static struct daemon *start(bool is_alone)
{
	struct daemon *daemon;

	test_needs_root();
	daemon = daemon_start(NULL);
	daemon_open_to_all(daemon);
	if (!is_alone)
		victim_start(daemon);
	return daemon;
}

TEST_TABLE(imports, rows, "imports of memory that was mapped very often stalled all control calls")
{
	struct daemon *daemon = start(rows[row].is_alone);
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(closep) int fd = memory_new(), other = memory_new();
	pid_t pids[N_USERS_MAX];
	struct mappers mappers;

	mappers_start(&mappers, fd);
	for (unsigned i = 0; i < rows[row].n_users; i++) {
		pids[i] = (pid_t)CHECK_SYS(fork());
		if (!pids[i])
			attack(daemon, fd, i, rows[row].takes_turns);
	}
	daemon_log_wait(daemon, REFUSED);
	victims_check(daemon, 3);
	processes_end(pids, rows[row].n_users);
	processes_end(mappers.pids, N_MAPPERS);
	/* Other uids gain nothing, and other memory is imported. */
	test_note("%u bans", daemon_log_count(daemon, REFUSED));
	raw_open(&raw, daemon);
	CHECK(import_send(&raw, other, &answer));
}

TEST(frees, "frees of memory that was mapped very often since its import stalled all control calls")
{
	struct daemon *daemon = start(false);
	_cleanup_(closep) int fd = memory_new();
	struct mappers mappers;
	pid_t pid;

	pid = (pid_t)CHECK_SYS(fork());
	if (!pid)
		attack_by_frees(daemon, fd);
	CHECK_SYS(waitpid(pid, NULL, WUNTRACED));
	mappers_start(&mappers, fd);
	CHECK_SYS(kill(pid, SIGCONT));
	daemon_log_wait(daemon, REFUSED);
	processes_end(&pid, 1); /* which frees the rest */
	victims_check(daemon, 5);
	processes_end(mappers.pids, N_MAPPERS);
}

TEST_MAIN
