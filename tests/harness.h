/*
 * Shared by end-to-end and bad-input tests.
 *
 * A program is a list of tests (TEST, TEST_TABLE, FAULT) and TEST_MAIN.  Each test runs in a
 * process of its own, in a fresh directory on a real file system, with a time limit, so that a
 * crash, a hang or an abort is one line "not ok NAME: why" and the next test starts clean.
 * Whatever it started is killed when it ends.  A test ends at its first failed check, in
 * whatever thread or child that is.
 *
 * A daemon that a test started and that still runs at the test's end has to stop in an orderly
 * way: SIGTERM, exit status 0.  So each test also checks that nothing was left over.
 *
 *     TEST(eof, "a read behind the end returns 0")
 *     {
 *             _cleanup_(rig_close) struct rig rig = rig_new(NULL);
 *             uint8_t buf[512];
 *
 *             file_make_pattern(daemon_path(rig.daemon, "f"), 4096, 1);
 *             CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDONLY), buf, 512, 4096), 0);
 *     }
 *     TEST_MAIN
 *
 * Environment: BUILD (default build) is where dsaiod lies; TMPDIR (default /var/tmp); KEEP=1
 * leaves the directories; TEST_TIME_FACTOR stretches all time limits, for sanitizers;
 * TEST_DAEMON_PREFIX: words before the daemon's command line (valgrind).
 */
#ifndef DSAIO_TESTS_HARNESS_H
#define DSAIO_TESTS_HARNESS_H

#include "client/lib/dsaio.h"
#include "proto/frame.h"
#include "proto/ring.h"
#include "proto/util/cleanup.h"
#include "proto/wire.h"
#include "tests/calls.h"

#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* ---- tests ---- */

void test_add(const char *name, void (*run)(int row), int row);
int tests_main(int argc, char **argv); /* PROGRAM [-l] [PART OF A NAME]... */

#define TEST(id, text)                                          \
	static void id(int row);                                \
	__attribute__((constructor)) static void id##_add(void) \
	{                                                       \
		test_add(text, id, 0);                          \
	}                                                       \
	static void id(int row __attribute__((unused)))

/* One test for each row of a table whose rows have a member what; the body sees int row. */
#define TEST_TABLE(id, table, text)                                                  \
	static void id(int row);                                                     \
	__attribute__((constructor)) static void id##_add(void)                      \
	{                                                                            \
		for (int i = 0; i < (int)ARRAY_SIZE(table); i++)                     \
			test_add(test_text("%s: %s", text, (table)[i].what), id, i); \
	}                                                                            \
	static void id(int row)

#define TEST_MAIN                              \
	int main(int argc, char **argv)        \
	{                                      \
		return tests_main(argc, argv); \
	}

/* The rest of this test's time limit, stretched; 300 s unless the test asks for more at its start. */
void test_time_limit(unsigned seconds);
_Noreturn void test_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
void test_needs_root(void);
/*
 * Reserves further huge pages (2 MiB) on this host until the test has ended.  No other test changes
 * or compares their number meanwhile.  Skips where it cannot; needs root.
 */
void huge_pages_add(size_t bytes);
double test_time_factor(void); /* how much time limits are stretched; 1 as a rule */
bool test_is_slow(void);       /* time limits are stretched: a sanitizer, or valgrind */
/* A number worth reading, on stdout as "# ...". */
void test_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Formatted text that lives until the program ends. */
char *test_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *test_dir(void); /* this test's own, empty at its start */
/* A further one elsewhere, say on tmpfs; removed at the test's end, too. */
const char *test_dir_in(const char *base);
unsigned test_seed(void); /* $TEST_SEED, or 1 */
uint64_t test_random(uint64_t *state);

#define CHECK(cond) ((cond) ? (void)0 : test_fail("%s:%d: %s", __FILE__, __LINE__, #cond))
#define CHECK_MSG(cond, format, ...) \
	((cond) ? (void)0            \
		: test_fail("%s:%d: %s: " format, __FILE__, __LINE__, #cond, ##__VA_ARGS__))
#define CHECK_EQ(got, wanted)                                                                 \
	do {                                                                                  \
		int64_t got_ = (int64_t)(got), wanted_ = (int64_t)(wanted);                   \
		if (got_ != wanted_)                                                          \
			test_fail("%s:%d: %s is %" PRId64 ", not %" PRId64 " (%s)", __FILE__, \
				  __LINE__, #got, got_, wanted_, dsaio_error());              \
	} while (0)
/* A call that returns a negative errno on failure must not fail; evaluates to its result. */
#define CHECK_CALL(call) check_call(#call, (int64_t)(call), __FILE__, __LINE__)
int64_t check_call(const char *what, int64_t result, const char *file, int line);
/* It must fail with this errno and a message that contains all of the words (";" between). */
#define CHECK_FAILS(call, error, words) \
	check_fails(#call, (int64_t)(call), error, dsaio_error(), words, __FILE__, __LINE__)
void check_fails(const char *what, int64_t result, int64_t error, const char *message,
		 const char *words, const char *file, int line);
/* As CHECK_CALL, for what sets errno. */
#define CHECK_SYS(call) check_sys(#call, (int64_t)(call), __FILE__, __LINE__)
int64_t check_sys(const char *what, int64_t result, const char *file, int line);

/* Waits, at most the given time, stretched; the last returns false when it is over. */
bool wait_readable(int fd, int64_t timeout_usec);
int64_t now_usec(void);
/* Sorts them, and returns the one that so many percent of them are below: 99, or 50, the median. */
int64_t percentile(int64_t *values, size_t n, unsigned percent);
/* SIGSTOP, and waits until it has stopped: the first of its threads to run stops the others. */
void process_stop(pid_t pid);
/* Waits for a child; it must end with exit status 0. */
void child_wait_ok(pid_t pid);
/* In the child of a fork, of root: becomes this user, without groups, and ends with its parent. */
void child_become(uid_t uid);

/* ---- bytes ---- */

/* The byte at position pos of a pattern depends on both, so that shifted data is seen. */
void pattern_fill(void *buf, size_t len, uint64_t seed, uint64_t pos);
/* Index of the first byte that differs, or -1. */
int64_t pattern_compare(const void *buf, size_t len, uint64_t seed, uint64_t pos);
void pattern_check(const void *buf, size_t len, uint64_t seed, uint64_t pos, const char *what);

/* A buffer between two zones that must not change. */
struct guarded {
	uint8_t *memory; /* len bytes */
	size_t len;
	uint8_t *start;
	size_t size;
	struct dsaio_client *client; /* NULL: private memory */
};
#define GUARD_BYTES ((size_t)8192)
/* misalign: the address' distance from a page's start. */
void guarded_new(struct guarded *g, struct dsaio_client *client, size_t len, size_t misalign);
void guarded_free(struct guarded *g);
void guarded_check(const struct guarded *g, const char *what);

/* Ordinary files, without the daemon. */
void file_make_pattern(const char *path, uint64_t size, uint64_t seed);
void file_make_sparse(const char *path, uint64_t size);
void file_check_pattern(const char *path, uint64_t off, uint64_t len, uint64_t seed, uint64_t pos);
uint64_t file_size(const char *path);
int open_direct(const char *path, int flags); /* with O_DIRECT, but on tmpfs where it is refused */

/* ---- daemons ---- */

struct daemon {
	pid_t pid; /* 0: it is gone */
	int pid_fd;
	char socket_path[108];
	char store_dir[PATH_MAX]; /* of the store "t" */
	char log_path[PATH_MAX];
};

struct daemon_options {
	const char *const *args;   /* further ones; ends with NULL */
	const char *socket_path;   /* NULL: s.sock in the test's directory */
	const char *store_dir;	   /* NULL: store in the test's directory; "": none */
	void (*before_exec)(void); /* in the new process */
	bool not_stopped;	   /* the test's end just kills it */
};

/* Starts one and waits until it is ready; args: DAEMON_ARGS("--config", path), or NULL. */
struct daemon *daemon_start(const char *const *args);
#define DAEMON_ARGS(...) ((const char *const[]){ __VA_ARGS__, NULL })
/* The same in the place of one that has ended: socket, store and log are that one's. */
void daemon_again(struct daemon *daemon, const char *const *args);
struct daemon *daemon_start_with(const struct daemon_options *options);
/*
 * Starts one with this text as its configuration.  It and the test may have 20000 descriptors; skips where
 * that is above the hard limit.
 */
struct daemon *daemon_start_for_many(const char *config);
/* Starts one that cannot run; returns its exit status and its output in ret_said. */
int daemon_start_fails(const struct daemon_options *options, char **ret_said);
void daemon_stop(struct daemon *daemon);			/* SIGTERM; has to exit with 0 */
void daemon_kill(struct daemon *daemon);			/* SIGKILL, and waits */
void daemon_wait_end(struct daemon *daemon, int wanted_status); /* after a signal */
bool daemon_is_alive(const struct daemon *daemon);
bool daemon_log_has(const struct daemon *daemon, const char *text);
unsigned daemon_log_count(const struct daemon *daemon, const char *text); /* lines with it */
/* Waits until the log has it; the test fails if it does not come. */
void daemon_log_wait(const struct daemon *daemon, const char *text);
/* Lets all users in, to its socket and its store "t". */
void daemon_open_to_all(const struct daemon *daemon);
/* Gives its socket a longer queue: so many connections, and more, can wait while it is stopped. */
void daemon_queue_long(const struct daemon *daemon);
/* The path of a file in its store "t". */
char *daemon_path(const struct daemon *daemon, const char *name);

/* Its resources, as the kernel counts them. */
struct usage {
	unsigned n_fds, n_memfds, n_threads;
	uint64_t locked_kib, rss_kib;
};
struct usage daemon_usage(const struct daemon *daemon);
/* The same when sessions that have just ended are gone from it. */
struct usage daemon_usage_settled(const struct daemon *daemon);
/* Waits until fds, memfds and locked memory are no more than that; worker threads may stay. */
void daemon_usage_back(const struct daemon *daemon, const struct usage *before);

int64_t daemon_cpu_msec(const struct daemon *daemon); /* the CPU time that it has used so far */

/* ---- clients by the library ---- */

struct rig {
	struct daemon *daemon;
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *files[16];
	unsigned n_files;
};
#define RIG_NONE                              \
	{                                     \
		NULL, NULL, NULL, { NULL }, 0 \
	}
/* A daemon of its own, a client and a handle. */
struct rig rig_new(const struct dsaio_profile *profile);
/* The same with the daemon that is in rig->daemon already, if one is. */
void rig_open(struct rig *rig, const struct dsaio_profile *profile);
void rig_close(struct rig *rig);
struct dsaio_client *client_open(const struct daemon *daemon);
/*
 * dsaio_op_wait() and dsaio_handle_wait() for tests that do not tell the wait's outcome from the result:
 * the result or, if the wait fails, its errno.
 */
int64_t op_wait(struct dsaio_op *op, int64_t timeout_usec);
int64_t handle_wait(struct dsaio_handle *handle, int64_t timeout_usec);
/* A file of the store "t" or, with a path that starts with /, any; closed by rig_close(). */
struct dsaio_file *rig_file(struct rig *rig, const char *name, int flags);

/* ---- a second client, in a process of its own, that must not be disturbed ---- */

/* It writes and reads back without end, comparing each byte. */
void beside_start(const struct daemon *daemon);
/* It has done no wrong and goes on: some more of its rounds end, soon. */
void beside_ok(void);
void beside_stop(void);

/* A bad-input test: a daemon, a client beside, the wrong thing, then all must still be well. */
#define FAULT(id, text)                               \
	static void id##_body(struct daemon *daemon); \
	TEST(id, text)                                \
	{                                             \
		fault_run(id##_body);                 \
	}                                             \
	static void id##_body(struct daemon *daemon __attribute__((unused)))
void fault_run(void (*body)(struct daemon *daemon));

/* ---- clients by hand ---- */

struct raw {
	int fd;
	struct frame_reader reader;
	uint64_t seq;
};
#define RAW_NONE             \
	{                    \
		-1, { 0 }, 0 \
	}

struct answer {
	Wire__Reply *reply; /* NULL: the daemon has closed the connection */
	int fds[FRAME_FDS_MAX];
	unsigned n_fds;
};
#define ANSWER_NONE            \
	{                      \
		NULL, { 0 }, 0 \
	}
void answer_free(struct answer *answer);

struct raw_slab {
	uint32_t id;
	int fd;
	uint8_t *memory;
	size_t size;
};
struct raw_file {
	uint32_t id, store;
	uint32_t offset_align, memory_align;
};
struct raw_channel {
	struct raw *raw;
	uint32_t id, entries;
	bool has_rings;
	struct ring_client ring;
	void *map, *board;
	int ring_fd, bell_fd, board_fd;
	uint64_t next_id;
};

void raw_connect(struct raw *raw, const struct daemon *daemon); /* no Hello */
void raw_open(struct raw *raw, const struct daemon *daemon);	/* with Hello */
struct raw raw_new(const struct daemon *daemon);		/* likewise */
void raw_close(struct raw *raw);

/* Sends exactly these bytes with these descriptors (they stay the caller's). */
void raw_send_bytes(struct raw *raw, const void *bytes, size_t len, const int *fds, unsigned n_fds);
/* The frame of a request; the next seq. */
void raw_send(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds);
void raw_receive(struct raw *raw, struct answer *ret_answer);
/* Receives an answer, which must have no error. */
void raw_receive_ok(struct raw *raw);
/* Sends and waits for its answer. */
void raw_call(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
	      struct answer *ret_answer);
/* The answer must be this errno with a message that contains the words (";" between). */
void raw_call_fails(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
		    int error, const char *words);
void answer_check_fails(const struct answer *answer, int error, const char *words);
/* The same where any errno for a wrong argument will do: EBADF, EINVAL, ENOENT, ENXIO. */
void raw_call_refused(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
		      const char *words);
/* A request that has to succeed. */
void raw_call_ok(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
		 struct answer *ret_answer);
/* The daemon ends the session: waits for the end of file. */
void raw_wait_closed(struct raw *raw);

/* struct initializers for requests: RAW_REQUEST(SLAB_NEW, slab_new, &message). */
#define RAW_REQUEST WIRE_REQUEST

void raw_slab(struct raw *raw, size_t bytes, struct raw_slab *ret_slab);
void raw_slab_unmap(struct raw_slab *slab);
void raw_file(struct raw *raw, const char *path, int flags, struct raw_file *ret_file);
uint32_t raw_store(
	const char *name); /* the number of the store with that name, as in FileAddReply */
uint32_t raw_handle(struct raw *raw);
uint32_t raw_handle_with_bell(struct raw *raw, int *ret_bell_fd); /* the client's end */
void raw_channel(struct raw *raw, uint32_t handle, uint32_t store, uint32_t entries, bool rings,
		 struct raw_channel *ret_channel);
void raw_channel_unmap(struct raw_channel *channel);

/* Runs entries, at most channel->entries, gives them ids, waits; results in their order. */
void raw_run(struct raw_channel *channel, struct ring_entry *entries, unsigned n,
	     int64_t *ret_results);
int64_t raw_run_one(struct raw_channel *channel, struct ring_entry entry);
/* The halves of it, on a channel with rings; raw_reap() waits for n completions, false: not in time. */
void raw_put(struct raw_channel *channel, struct ring_entry *entry);
void raw_ring(struct raw_channel *channel);
bool raw_reap(struct raw_channel *channel, unsigned n, struct ring_completion *ret_completions,
	      int64_t timeout_usec);

/* The first page of Status, by a session of its own.  answer_free() it. */
void daemon_status(const struct daemon *daemon, struct answer *ret_answer);
/* Waits until only so many clients are connected, the asking one not counted, and only so many
   bytes of the pool are used. */
bool daemon_wait_clients(const struct daemon *daemon, unsigned n_clients, uint64_t pool_bytes);

#endif
