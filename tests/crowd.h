/*
 * For tests of restarts: a client with a file and memory that uses the daemon, and many of them, each a process.
 */
#ifndef DSAIO_TESTS_CROWD_H
#define DSAIO_TESTS_CROWD_H

#include "tests/restarting.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PIECE (64 * KIB)

/* A file with what was read from it before. */
struct kit {
	struct rig rig;
	struct dsaio_file *file;
	uint8_t *memory;
};

static inline void kit_use(struct kit *kit)
{
	memset(kit->memory, 0, PIECE);
	CHECK_EQ(dsaio_pread(kit->rig.handle, kit->file, kit->memory, PIECE, 0), PIECE);
	pattern_check(kit->memory, PIECE, 1, 0, "what was read");
}

static inline void kit_open(struct kit *kit, struct daemon *daemon, const char *socket_path,
			    const char *path)
{
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;

	*kit = (struct kit){ .rig = { .daemon = daemon } };
	options.socket_path = daemon ? daemon->socket_path : socket_path;
	CHECK_CALL(dsaio_connect(&options, &kit->rig.client));
	CHECK_CALL(profile_open(kit->rig.client, NULL, &kit->rig.handle));
	CHECK_CALL(dsaio_open(kit->rig.client, path, O_RDWR, NULL, &kit->file));
	CHECK_CALL(dsaio_alloc(kit->rig.client, PIECE, NULL, (void **)&kit->memory));
	kit_use(kit);
}

static inline void kit_close(struct kit *kit)
{
	dsaio_file_close(kit->file);
	CHECK_CALL(dsaio_disconnect(kit->rig.client));
}

static inline char *data_make(const struct daemon *daemon)
{
	char *path = daemon ? daemon_path(daemon, "f") : test_text("%s/f", test_dir());

	file_make_pattern(path, PIECE, 1);
	return path;
}

/* Each connects, uses the daemon, and waits; then goes on with the next one. */
struct crowd {
	unsigned n;
	struct board {
		_Atomic unsigned n_ready, n_served;
		_Atomic bool is_killed;
		_Atomic int64_t last_usec;
	} * board;
	pid_t pids[512];
};

static inline void crowd_member(struct crowd *crowd, struct daemon *daemon, const char *path)
{
	struct kit kit;
	int64_t now, last;

	kit_open(&kit, daemon, NULL, path);
	atomic_fetch_add(&crowd->board->n_ready, 1);
	while (!atomic_load(&crowd->board->is_killed))
		(void)poll(NULL, 0, 5); /* nobody reports it */
	kit_use(&kit);
	now = now_usec();
	last = atomic_load(&crowd->board->last_usec);
	while (now > last && !atomic_compare_exchange_weak(&crowd->board->last_usec, &last, now))
		;
	atomic_fetch_add(&crowd->board->n_served, 1);
	kit_close(&kit);
}

static inline void crowd_start(struct crowd *crowd, unsigned n, struct daemon *daemon,
			       const char *path)
{
	crowd->n = n;
	crowd->board = mmap(NULL, sizeof(*crowd->board), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(crowd->board != MAP_FAILED);
	(void)fflush(NULL);
	for (unsigned i = 0; i < n; i++) {
		crowd->pids[i] = (pid_t)CHECK_SYS(fork());
		if (crowd->pids[i] == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			crowd_member(crowd, daemon, path);
			_exit(0);
		}
	}
	while (atomic_load(&crowd->board->n_ready) < n) {
		CHECK(waitpid(-1, NULL, WNOHANG) == 0); /* else it has said why */
		(void)poll(NULL, 0, 5);
	}
}

static inline void crowd_end(struct crowd *crowd)
{
	for (unsigned i = 0; i < crowd->n; i++)
		child_wait_ok(crowd->pids[i]);
}

#endif
