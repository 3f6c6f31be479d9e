/*
 * Signals: handlers run while threads are in calls, and no call ends for that.
 */
#include "tests/harness.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#define SEED 10
#define LEN (4 * MIB)

static volatile sig_atomic_t n_signals;

static void on_signal(int number __attribute__((unused)))
{
	n_signals++;
}

/* A handler without SA_RESTART runs that often, until the test ends. */
static void signals_start(int64_t usec)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct itimerval timer = { .it_interval = { .tv_usec = usec },
				   .it_value = { .tv_usec = usec } };

	CHECK_SYS(sigemptyset(&action.sa_mask));
	CHECK_SYS(sigaction(SIGALRM, &action, NULL));
	CHECK_SYS(setitimer(ITIMER_REAL, &timer, NULL));
}

static void signals_stop(void)
{
	const struct itimerval none = { .it_value = { .tv_usec = 0 } };

	CHECK_SYS(setitimer(ITIMER_REAL, &none, NULL));
}

static void run_calls(struct daemon *daemon, uint8_t *private)
{
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;
	struct dsaio_op *ops[2], *taken[4];
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	struct dsaio_io ios[2];
	void *memory;
	int n = 0;

	options.socket_path = daemon->socket_path;
	CHECK_CALL(dsaio_connect(&options, &client));
	CHECK_CALL(dsaio_handle_open(client, NULL, &handle));
	CHECK_CALL(dsaio_alloc(client, LEN, NULL, &memory));
	CHECK_CALL(dsaio_open(client, daemon_path(daemon, "f"), O_RDONLY, NULL, &file));
	CHECK_EQ(dsaio_pread(handle, file, memory, LEN, 0), LEN);
	pattern_check(memory, LEN, SEED, 0, "pinned");
	CHECK_EQ(dsaio_pread(handle, file, private, LEN, 0), LEN);
	pattern_check(private, LEN, SEED, 0, "private");
	for (int i = 0; i < 2; i++)
		ios[i] = (struct dsaio_io){ .opcode = DSAIO_READ, .file = file, .len = LEN };
	ios[0].buf = memory;
	ios[1].buf = private;
	CHECK_EQ(dsaio_submit(handle, ios, sizeof(struct dsaio_io), 2, 0, ops), 2);
	CHECK_EQ(op_wait(ops[0], -1), LEN);
	while (n < 2)
		n += (int)CHECK_CALL(ops_reap(handle, taken, 1, 4, -1));
	CHECK_EQ(op_wait(ops[1], -1), LEN);
	dsaio_op_free(ops[0]);
	dsaio_op_free(ops[1]);
	CHECK_CALL(dsaio_pread_async(handle, file, memory, LEN, 0, NULL));
	CHECK_EQ(handle_wait(handle, -1), 1);
	CHECK_EQ(dsaio_fsync(handle, file, 0), 0);
	CHECK_EQ(dsaio_file_size(file), LEN);
	CHECK_CALL(dsaio_free(client, memory));
	dsaio_file_close(file);
	(void)dsaio_handle_close(handle, -1);
	(void)dsaio_disconnect(client);
}

TEST(handlers, "no call returns -EINTR while a signal handler runs again and again")
{
	struct daemon *daemon = daemon_start(NULL);
	static uint8_t private[LEN];

	file_make_pattern(daemon_path(daemon, "f"), LEN, SEED);
	signals_start(test_is_slow() ? 20000 : 500);
	for (unsigned round = 0; round < 20 || n_signals < 20; round++)
		run_calls(daemon, private);
	signals_stop();
	test_note("%d signals", (int)n_signals);
	CHECK(daemon_wait_clients(daemon, 0, 0));
}

TEST(times, "signals do not lengthen the time of a wait, nor end it")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;
	struct dsaio_op *op;
	int64_t start;
	void *memory;

	file_make_pattern(daemon_path(rig.daemon, "f"), LEN, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, LEN, NULL, &memory));
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, LEN, 0), LEN);
	process_stop(rig.daemon->pid);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, LEN, 0, &op));
	signals_start(1000);
	do { /* signals that fall due while the process does not run come as one */
		start = now_usec();
		CHECK_EQ(dsaio_op_wait(op, 200000, NULL), -ETIMEDOUT);
		CHECK(now_usec() - start >= 200000);
	} while (n_signals <= 10);
	signals_stop();
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	CHECK_EQ(op_wait(op, -1), LEN);
	dsaio_op_free(op);
}

TEST_MAIN
