/*
 * 64 client processes with 8 handles each, of one user: all do I/O at the same time, and what is
 * read is what was written.  Some are killed meanwhile; the others finish, and the daemon has
 * nothing of any of them in the end.
 */
#include "tests/harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_CLIENTS 64
#define N_HANDLES 8
#define KILLED_EACH 8 /* one in so many */
#define OPS 4	      /* of a handle at a time */
#define OP_BYTES (16 * KIB)
#define HANDLE_BYTES (OPS * OP_BYTES)
#define ROUNDS 4

/* As most programs find them: the daemon takes what the hard limit allows. */
static void common_limit(void)
{
	struct rlimit limit;

	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 1024;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
}

static void system_limit(void)
{
	struct rlimit limit;

	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max = 20000;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
}

static const struct {
	const char *what;
	const char *const *args;
	void (*before_exec)(void);
} daemons[] = {
	{ "the system's, with 20,000 descriptors", NULL, system_limit },
	{ "a user's own, started with 1024 descriptors", DAEMON_ARGS("--user"), common_limit },
};

struct member {
	struct dsaio_client *client;
	struct dsaio_handle *handles[N_HANDLES];
	struct dsaio_file *file;
	uint8_t *memory;
	uint64_t seed;
};

/* All handles at once: written, and read back from behind the others' writes. */
static void round_run(struct member *m, uint64_t round)
{
	uint64_t seed = m->seed + round * N_CLIENTS;

	pattern_fill(m->memory, N_HANDLES * HANDLE_BYTES, seed, 0);
	for (unsigned i = 0; i < N_HANDLES * OPS; i++)
		CHECK_CALL(dsaio_pwrite_async(m->handles[i / OPS], m->file,
					      m->memory + i * OP_BYTES, OP_BYTES, i * OP_BYTES,
					      NULL));
	for (unsigned i = 0; i < N_HANDLES; i++)
		CHECK_EQ(handle_wait(m->handles[i], -1), OPS);
	memset(m->memory, 0, N_HANDLES * HANDLE_BYTES);
	for (unsigned i = 0; i < N_HANDLES * OPS; i++)
		CHECK_CALL(dsaio_pread_async(m->handles[i / OPS], m->file, m->memory + i * OP_BYTES,
					     OP_BYTES, i * OP_BYTES, NULL));
	for (unsigned i = 0; i < N_HANDLES; i++)
		CHECK_EQ(handle_wait(m->handles[i], -1), OPS);
	pattern_check(m->memory, N_HANDLES * HANDLE_BYTES, seed, 0, "read");
}

/* A byte to the parent after each round; after the first it waits for all others. */
_Noreturn static void member_main(const struct daemon *daemon, unsigned number, int reported_fd,
				  int go_fd)
{
	struct member m = { .client = client_open(daemon), .seed = number };
	char byte;

	CHECK_CALL(dsaio_open(m.client, daemon_path(daemon, test_text("f%u", number)),
			      O_RDWR | O_CREAT, NULL, &m.file));
	for (unsigned i = 0; i < N_HANDLES; i++)
		CHECK_CALL(dsaio_handle_open(m.client, NULL, &m.handles[i]));
	if (number % 4 == 3) { /* private memory goes by further handles, of the library's */
		m.memory = malloc(N_HANDLES * HANDLE_BYTES);
		CHECK(m.memory);
	} else {
		CHECK_CALL(
			dsaio_alloc(m.client, N_HANDLES * HANDLE_BYTES, NULL, (void **)&m.memory));
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		round_run(&m, i);
		CHECK_EQ(write(reported_fd, "", 1), 1);
		if (i == 0) /* its channels are idle, and parked, until the parent has closed it */
			CHECK_EQ(read(go_fd, &byte, 1), 0);
	}
	(void)dsaio_disconnect(m.client);
	_exit(0);
}

static void pipe_read(int fd, unsigned n)
{
	char byte;

	while (n--)
		CHECK_EQ(read(fd, &byte, 1), 1);
}

static void one_more(struct rig *rig, struct daemon *daemon)
{
	uint8_t block[4096];

	rig->daemon = daemon;
	rig_open(rig, NULL);
	CHECK_EQ(dsaio_pread(rig->handle, rig_file(rig, "f", O_RDONLY), block, sizeof(block), 0),
		 sizeof(block));
}

TEST_TABLE(crowd, daemons, "64 processes with 8 handles each")
{
	struct daemon_options options = { .args = daemons[row].args,
					  .before_exec = daemons[row].before_exec };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	pid_t pids[N_CLIENTS];
	struct daemon *daemon;
	struct rlimit limit;
	struct usage before;
	uint8_t block[4096];
	int reported[2], go[2];

	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	if (limit.rlim_max < 20000)
		test_skip("needs a hard RLIMIT_NOFILE of 20000");
	daemon = daemon_start_with(&options);
	file_make_pattern(daemon_path(daemon, "f"), sizeof(block), 1);
	one_more(&rig, daemon); /* starts the lane, which the daemon keeps */
	rig_close(&rig);
	before = daemon_usage_settled(daemon);
	CHECK_SYS(pipe(reported));
	CHECK_SYS(pipe(go));
	for (unsigned i = 0; i < N_CLIENTS; i++) {
		pids[i] = (pid_t)CHECK_SYS(fork());
		if (pids[i])
			continue;
		CHECK_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL));
		CHECK_SYS(close(go[1]));
		member_main(daemon, i, reported[1], go[0]);
	}
	CHECK_SYS(close(reported[1]));
	pipe_read(reported[0], N_CLIENTS);

	/* All are idle, with all their handles open: one more is served as if they were not there. */
	one_more(&rig, daemon);
	for (unsigned i = 0; i < 1000; i++) {
		CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], block, sizeof(block), 0),
			 sizeof(block));
		pattern_check(block, sizeof(block), 1, 0, "the one more");
	}

	CHECK_SYS(close(go[1]));
	pipe_read(reported[0], N_CLIENTS / 2); /* they are at it */
	for (unsigned i = 0; i < N_CLIENTS; i += KILLED_EACH)
		CHECK_SYS(kill(pids[i], SIGKILL));
	for (unsigned i = 0; i < N_CLIENTS; i++) {
		int status;

		if (i % KILLED_EACH) {
			child_wait_ok(pids[i]);
			continue;
		}
		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0); /* it was fast */
	}
	CHECK(daemon_is_alive(daemon));
	rig_close(&rig);
	daemon_usage_back(daemon, &before);
	CHECK_SYS(close(reported[0]));
	CHECK_SYS(close(go[0]));
}

TEST_MAIN
