/*
 * New pinned memory: dsaio_alloc() in a new process beside memfd_create(2), mmap(2) and mlock(2).
 *
 * The sides take turns and give their memory back.  So both get pages that the host has backed before:
 * a virtual machine's first use of a page is ten times as slow on either side.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/clock.h"

#define FRESH_BYTES ((size_t)1 << 30)

struct times {
	double alloc_msec, written_msec; /* since the start */
};

static struct times written(void *memory, uint64_t start_nsec, uint64_t alloc_nsec)
{
	for (size_t at = 0; at < FRESH_BYTES; at += SMALL_BYTES)
		((volatile char *)memory)[at] = 1;
	return (struct times){ .alloc_msec = (double)(alloc_nsec - start_nsec) / 1e6,
			       .written_msec = (double)(clock_nsec() - start_nsec) / 1e6 };
}

static int ours(const struct bench *b, struct times *ret_times)
{
	struct dsaio_client *client;
	uint64_t start;
	void *memory;

	if (socket_connect(b->daemon.socket_path, &client) < 0)
		return failed("connect");
	start = clock_nsec();
	if (dsaio_alloc(client, FRESH_BYTES, NULL, &memory) < 0)
		return failed("1 GiB of pinned memory");
	*ret_times = written(memory, start, clock_nsec());
	if (dsaio_free(client, memory) < 0) /* it is in the pool again */
		return failed("free");
	(void)dsaio_disconnect(client);
	return 0;
}

static int reference(const struct bench *b, struct times *ret_times)
{
	const uint64_t start = clock_nsec();
	_cleanup_(closep) int fd = memfd_create("bench", MFD_CLOEXEC);
	void *memory;

	(void)b;
	if (fd < 0 || ftruncate(fd, FRESH_BYTES) < 0)
		return -errno;
	memory = mmap(NULL, FRESH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED || mlock(memory, FRESH_BYTES) < 0)
		return -errno;
	*ret_times = written(memory, start, clock_nsec());
	return 0;
}

/* A side in a process of its own. */
static int in_process(const struct bench *b, int (*side)(const struct bench *, struct times *),
		      struct times *ret_times)
{
	int fds[2], status = 0;
	ssize_t n;
	pid_t pid;

	if (pipe(fds) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		struct times times;
		int r = side(b, &times);

		if (r < 0)
			fprintf(stderr, "bench: new memory: %s\n", strerror(-r));
		_exit(r < 0 || write(fds[1], &times, sizeof(times)) != (ssize_t)sizeof(times));
	}
	(void)close(fds[1]);
	n = pid < 0 ? -1 : read(fds[0], ret_times, sizeof(*ret_times));
	(void)close(fds[0]);
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	return n == (ssize_t)sizeof(*ret_times) && status == 0 ? 0 : -EIO;
}

int measure_fresh(struct bench *b)
{
	struct row *row = &rows[ROW_FRESH];
	int r = private_daemon_start(&b->daemon, b->program, b->dir, "d", "");

	for (unsigned i = 0; r == 0 && row->n_rounds < ROUNDS_MIN; i++) {
		struct times values[2];

		r = round_begin(row, i);
		if (r == 0)
			r = in_process(b, i % 2 ? ours : reference, &values[i % 2 ? 0 : 1]);
		if (r == 0)
			r = in_process(b, i % 2 ? reference : ours, &values[i % 2 ? 1 : 0]);
		if (r < 0 || i == 0)
			continue;
		row_add(row, values[0].alloc_msec, values[1].alloc_msec);
		row_add(&rows[ROW_FRESH_WRITTEN], values[0].written_msec, values[1].written_msec);
	}
	private_daemon_stop(&b->daemon);
	return r;
}
