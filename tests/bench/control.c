/*
 * Control calls of one user beside a load of others: connect, open, alloc and status.
 *
 * The load goes through the daemon, and in the reference it does the same without one: so what the
 * processors, the memory and the kernel cost is on both sides.  A slice is some rounds of all calls beside
 * one load.  The slices take turns.  A row is the median or the p95 of each slice, or the p99 of all.
 *
 * Each process of a load is of a user of its own, so that no call waits in its user's queue.
 */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/dsaio.pb-c.h"
#include "proto/frame.h"
#include "proto/util/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/clock.h"
#include "tests/bench/statistics.h"

#define SLICES 10u
#define SLICE_ROUNDS 32u
#define SETTLE_USEC 200000u /* the load begins; or the daemon frees what it had */
#define PAUSE_USEC 2000u    /* between rounds */
#define USER_FIRST 60020u
#define ALLOC_BYTES ((size_t)512 << 20)
#define IMPORT_BYTES ((size_t)1 << 30)

enum call { CONNECT, OPEN, ALLOC, STATUS, N_CALLS };
enum { OURS, REFERENCE, N_SIDES };
#define N_SHARES 3u /* p50, p95, p99 */

static const char *const call_names[N_CALLS] = { "connect", "open", "alloc", "status" };

struct load {
	const char *name;
	unsigned n_processes;
	bool has_client; /* of the library */
	int (*ours)(struct dsaio_client *client, const char *socket_path);
	int (*reference)(const char *listening_path);
};

/* The memory that is imported, and the address at which nobody but a plain loop accepts. */
static int shared_fd = -1;
static char listening_path[108];
static _Atomic bool *must_stop; /* of the load's processes */

/* ---- loads ---- */

static int alloc_ours(struct dsaio_client *client, const char *socket_path)
{
	void *memory;

	(void)socket_path;
	return dsaio_alloc(client, ALLOC_BYTES, NULL, &memory) < 0 || dsaio_free(client, memory) < 0
		       ? failed("512 MiB")
		       : 0;
}

static int map_locked(int fd, size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return -errno;
	if (mlock(memory, bytes) < 0)
		return -errno;
	return munmap(memory, bytes) < 0 ? -errno : 0;
}

static int alloc_reference(const char *path)
{
	_cleanup_(closep) int fd = memfd_create("bench", MFD_CLOEXEC);

	(void)path;
	return fd < 0 || ftruncate(fd, ALLOC_BYTES) < 0 ? -errno : map_locked(fd, ALLOC_BYTES);
}

static int import_ours(struct dsaio_client *client, const char *socket_path)
{
	void *memory = mmap(NULL, IMPORT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
	int r = 0;

	(void)socket_path;
	if (memory == MAP_FAILED)
		return -errno;
	if (fd_register(client, shared_fd, 0, IMPORT_BYTES, memory) < 0 ||
	    dsaio_memory_unregister(client, memory) < 0)
		r = failed("an import of 1 GiB");
	(void)munmap(memory, IMPORT_BYTES); /* whole pages of our own mapping: cannot fail */
	return r;
}

static int import_reference(const char *path)
{
	(void)path;
	return map_locked(shared_fd, IMPORT_BYTES);
}

static int socket_at(const char *path, struct sockaddr_un *ret_address)
{
	*ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(ret_address->sun_path, path, strlen(path) + 1);
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int connect_plain(const char *path)
{
	struct sockaddr_un address;
	_cleanup_(closep) int fd = socket_at(path, &address);

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return 0;
}

static int connect_ours(struct dsaio_client *client, const char *socket_path)
{
	(void)client;
	return connect_plain(socket_path);
}

static const struct load loads[] = {
	{ "6 x 512 MiB", 6, true, alloc_ours, alloc_reference },
	{ "imports of 1 GiB", 2, true, import_ours, import_reference },
	{ "16 that connect", 16, false, connect_ours, connect_plain },
};

_Noreturn static void load_main(const struct load *load, unsigned side, const char *socket_path,
				uid_t uid, pid_t parent)
{
	struct dsaio_client *client = NULL;
	int r = 0;

	/* The reference locks memory, for which it needs the right. */
	if (side == OURS && (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
			     setresuid(uid, uid, uid) < 0))
		r = -errno;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of user clears it */
	if (getppid() != parent)
		_exit(1);
	if (r == 0 && side == OURS && load->has_client)
		r = socket_connect(socket_path, &client);
	while (r == 0 && !atomic_load(must_stop))
		r = side == OURS ? load->ours(client, socket_path)
				 : load->reference(listening_path);
	(void)dsaio_disconnect(client);
	if (r < 0)
		fprintf(stderr, "bench: a load of %s: %s\n", load->name, strerror(-r));
	_exit(r < 0);
}

/* Accepts at the plain address and closes, without end. */
static pid_t listener_start(const char *dir)
{
	struct sockaddr_un address;
	const pid_t parent = getpid();
	pid_t pid;
	int fd;

	(void)snprintf(listening_path, sizeof(listening_path), "%s/plain", dir);
	fd = socket_at(listening_path, &address);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, 1024) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a known option */
		while (getppid() == parent)
			(void)close(accept(fd, NULL, NULL));
		_exit(0);
	}
	(void)close(fd);
	return pid;
}

/* ---- the calls ---- */

static int status_call(int fd, Wire__Request *request)
{
	struct frame_writer writer = { 0 };
	struct frame_reader reader = { 0 };
	uint8_t body[256];
	struct frame frame;
	char why[256] = "no reply";
	int r;

	r = frame_queue(&writer, body, wire__request__pack(request, body), NULL, 0);
	if (r == 0)
		r = frame_flush(&writer, fd);
	if (r == 0)
		r = frame_read(&reader, fd, &frame, why, sizeof(why));
	if (r == 1)
		frame_deinit(&frame);
	frame_reader_deinit(&reader);
	frame_writer_deinit(&writer);
	return r == 1 ? 0 : -EPROTO;
}

/* A connection for Status, which the library does not have. */
static int status_open(const char *socket_path)
{
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = WIRE__REQUEST__INIT;
	struct sockaddr_un address;
	int fd = socket_at(socket_path, &address);

	hello.version_min = hello.version_max = 1;
	hello.name = (char *)(uintptr_t) "bench";
	hello.pid = (uint32_t)getpid();
	request.body_case = WIRE__REQUEST__BODY_HELLO;
	request.hello = &hello;
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    status_call(fd, &request) < 0) {
		closep(&fd);
		return -EIO;
	}
	return fd;
}

static int status(int fd)
{
	Wire__Status body = WIRE__STATUS__INIT;
	Wire__Request request = WIRE__REQUEST__INIT;

	request.body_case = WIRE__REQUEST__BODY_STATUS;
	request.status = &body;
	return status_call(fd, &request);
}

/* All calls once; usec[call]. */
static int calls(const struct bench *b, int status_fd, double *ret_usec)
{
	struct dsaio_client *client = NULL;
	struct dsaio_file *file = NULL;
	int64_t times[N_CALLS + 1];
	void *memory;
	int r = -EIO;

	times[CONNECT] = now_nsec();
	if (socket_connect(b->daemon.socket_path, &client) == 0) {
		times[OPEN] = now_nsec();
		r = dsaio_open(client, b->path, O_RDONLY, NULL, &file);
		times[ALLOC] = now_nsec();
		r = r < 0 ? r : dsaio_alloc(client, SMALL_BYTES, NULL, &memory);
		times[STATUS] = now_nsec();
		r = r < 0 ? r : status(status_fd);
		times[N_CALLS] = now_nsec();
	}
	if (r < 0)
		r = failed("a call beside a load");
	else
		for (unsigned i = 0; i < N_CALLS; i++)
			ret_usec[i] = (double)(times[i + 1] - times[i]) / 1e3;
	if (file)
		dsaio_file_close(file);
	(void)dsaio_disconnect(client);
	return r;
}

/* ---- slices and rows ---- */

static double usec[N_SIDES][N_CALLS][SLICES * SLICE_ROUNDS];

static int slice_rounds(const struct bench *b, int status_fd, unsigned side, unsigned slice)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < SLICE_ROUNDS; i++) {
		double times[N_CALLS];

		(void)usleep(PAUSE_USEC); /* shorter after a signal is fine */
		r = calls(b, status_fd, times);
		for (unsigned call = 0; r == 0 && call < N_CALLS; call++)
			usec[side][call][slice * SLICE_ROUNDS + i] = times[call];
	}
	return r;
}

static int slice_run(const struct bench *b, const struct load *load, unsigned side, unsigned slice,
		     int status_fd)
{
	const pid_t self = getpid();
	pid_t pids[16];
	int r = 0;

	atomic_store(must_stop, false);
	for (unsigned i = 0; i < load->n_processes; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			load_main(load, side, b->daemon.socket_path, USER_FIRST + i, self);
		r = pids[i] < 0 ? -errno : r;
	}
	(void)usleep(SETTLE_USEC);
	if (r == 0)
		r = slice_rounds(b, status_fd, side, slice);
	atomic_store(must_stop, true);
	for (unsigned i = 0; i < load->n_processes; i++) {
		int result = 0;

		if (pids[i] > 0 && (waitpid(pids[i], &result, 0) < 0 || result))
			r = r < 0 ? r : -ECHILD;
	}
	(void)usleep(SETTLE_USEC);
	return r;
}

static double share(unsigned side, unsigned call, unsigned slice, unsigned n_slices, double q)
{
	double sorted[SLICES * SLICE_ROUNDS];
	const size_t n = (size_t)n_slices * SLICE_ROUNDS;

	memcpy(sorted, &usec[side][call][slice * SLICE_ROUNDS], n * sizeof(*sorted));
	sort_values(sorted, n);
	return quantile(sorted, n, q);
}

static void fill_rows(const struct load *load)
{
	static char names[CONTROL_ROWS][64];
	static const double shares[N_SHARES] = { 0.5, 0.95, 0.99 };

	for (unsigned i = 0; i < N_CALLS * N_SHARES; i++) {
		const unsigned at = (unsigned)(load - loads) * N_CALLS * N_SHARES + i;
		const unsigned call = i / N_SHARES;
		const double q = shares[i % N_SHARES];
		const unsigned n_slices = q > 0.98 ? SLICES : 1; /* the p99 needs all */
		struct row *row = &rows[ROW_CONTROL + at];

		(void)snprintf(names[at], sizeof(names[at]), "%s beside %s: p%.0f",
			       call_names[call], load->name, 100 * q);
		*row = (struct row){ .name = names[at], .unit = "us", .bar = 2.0 };
		for (unsigned s = 0; s < SLICES; s += n_slices)
			row_add(row, share(OURS, call, s, n_slices, q),
				share(REFERENCE, call, s, n_slices, q));
	}
}

static int measure(struct bench *b, const struct load *load, int status_fd)
{
	const struct row row = { .name = load->name };
	int r = 0;

	for (unsigned i = 0; r == 0 && i < SLICES; i++) {
		r = round_begin(&row, i);
		for (unsigned side = 0; r == 0 && side < N_SIDES; side++)
			r = slice_run(b, load, (side + i) % N_SIDES, i, status_fd);
	}
	if (r == 0)
		fill_rows(load);
	return r;
}

static int measure_beside(struct bench *b, const struct load *load)
{
	_cleanup_(closep) int status_fd = -1;
	pid_t listener = -1;
	int r;

	if (geteuid() != 0) {
		fprintf(stderr, "bench: control: run it as root: its loads are of other users\n");
		return -EPERM;
	}
	must_stop = mmap(NULL, sizeof(*must_stop), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shared_fd = memfd_create("bench", MFD_CLOEXEC);
	if (must_stop == MAP_FAILED || shared_fd < 0 ||
	    (load == &loads[1] && fallocate(shared_fd, 0, 0, IMPORT_BYTES) < 0) ||
	    chmod(b->dir, 0755) < 0) /* for the users of the loads */
		return -errno;
	r = private_daemon_start(&b->daemon, b->program, b->dir, "d", "");
	if (r == 0) {
		status_fd = status_open(b->daemon.socket_path);
		listener = listener_start(b->dir);
		r = status_fd < 0 || listener < 0 ? -EIO : 0;
	}
	if (r == 0)
		r = measure(b, load, status_fd);
	if (listener > 0) {
		(void)kill(listener, SIGKILL); /* it is ours, and not reaped */
		(void)waitpid(listener, NULL, 0);
	}
	closep(&shared_fd);
	shared_fd = -1;
	return r;
}

int measure_control_alloc(struct bench *b)
{
	return measure_beside(b, &loads[0]);
}

int measure_control_import(struct bench *b)
{
	return measure_beside(b, &loads[1]);
}

int measure_control_connect(struct bench *b)
{
	return measure_beside(b, &loads[2]);
}
