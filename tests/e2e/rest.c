/*
 * The daemon at rest, with one client connected that has done something, or with 512: no CPU time, no
 * wake-ups.
 */
#include "tests/harness.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REST_MSEC 10000
#define N_CLIENTS 512u
#define ENTRIES 8u /* of the handle of each */

struct activity {
	uint64_t ticks, switches, n_threads;
};

static uint64_t number_after(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* NULL: it is not there any more. */
static char *text_of(const char *path)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	char text[8192];
	size_t n;

	n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	if (n == 0)
		return NULL;
	text[n] = 0;
	return test_text("%s", text);
}

static struct activity activity_of(pid_t pid)
{
	const char *tasks = test_text("/proc/%d/task", pid);
	struct activity sum = { 0 };
	unsigned long user, system;
	struct dirent *entry;
	DIR *dir = opendir(tasks);
	const char *text, *stat;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		const char *status;

		if (entry->d_name[0] == '.')
			continue;
		status = text_of(test_text("%s/%s/status", tasks, entry->d_name));
		if (!status)
			continue; /* ended meanwhile */
		sum.n_threads++;
		sum.switches += number_after(status, "\nvoluntary_ctxt_switches:");
		/* Instrumented code runs long enough for others to interrupt it, which wakes nothing. */
		if (!test_is_slow())
			sum.switches += number_after(status, "\nnonvoluntary_ctxt_switches:");
	}
	closedir(dir);
	text = text_of(test_text("/proc/%d/stat", pid));
	stat = text ? strrchr(text, ')') : NULL;
	CHECK(stat);
	/* state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime */
	CHECK_EQ(sscanf(stat, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
			&system),
		 2);
	sum.ticks = user + system;
	return sum;
}

/* At most 1 tick and 10 context switches in 10 s. */
static void check_rest(const struct daemon *daemon)
{
	struct activity before = { 0 }, after;
	bool is_at_rest = false;
	uint64_t n_threads;

	(void)poll(NULL, 0, 1000); /* what follows the last op (the end of spinning) is not rest */
	/* On a busy host the end of the work may take longer, so one of three measures has to hold:
	   whatever wakes up at intervals is in all of them. */
	for (int i = 0; i < 3 && !is_at_rest; i++) {
		/* A thread that ends, after a second without work, takes its counts with it. */
		do {
			n_threads = before.n_threads;
			(void)poll(NULL, 0, 1100);
			before = activity_of(daemon->pid);
		} while (before.n_threads != n_threads);
		(void)poll(NULL, 0, REST_MSEC); /* the measure itself */
		after = activity_of(daemon->pid);
		test_note("at rest for 10 s: %" PRIu64 " ticks, %" PRIu64 " context switches",
			  after.ticks - before.ticks, after.switches - before.switches);
		/* A wake-up that lies across a tick counts as one whole; a lane that spins has a
		   thousand.  One that looks at 512 sessions takes some ticks with a sanitizer. */
		is_at_rest = after.n_threads == before.n_threads &&
			     (double)(after.ticks - before.ticks) <= test_time_factor() &&
			     after.switches - before.switches <= 10;
	}
	CHECK(is_at_rest);
}

TEST(rest, "at rest with a client connected: at most 1 tick and 10 context switches in 10 s")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	void *memory;

	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, 8 * MIB, NULL, &memory));
	CHECK_EQ(
		dsaio_pwrite(rig.handle, rig_file(&rig, "f", O_RDWR | O_CREAT), memory, 8 * MIB, 0),
		8 * MIB);
	CHECK_EQ(dsaio_fsync(rig.handle, rig.files[0], 0), 0);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, 8 * MIB, 0), 8 * MIB);
	check_rest(rig.daemon);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, 4096, 0), 4096); /* it wakes up */
}

/* A client and what it has open. */
struct idle {
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
};

/* After an op its handle has a channel.  The op is one without memory, of which 512 slabs take 1.6 GB. */
static void idle_open(struct idle *idle, const struct daemon *daemon)
{
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;

	options.entries = ENTRIES;
	idle->client = client_open(daemon);
	CHECK_CALL(dsaio_handle_open(idle->client, &options, &idle->handle));
	CHECK_CALL(dsaio_open(idle->client, daemon_path(daemon, "f"), O_RDONLY, NULL, &idle->file));
	CHECK_EQ(dsaio_fsync(idle->handle, idle->file, 0), 0);
}

TEST(rest_of_many,
     "at rest with 512 clients connected: at most 1 tick and 10 context switches in 10 s")
{
	static struct idle idles[N_CLIENTS];
	struct daemon *daemon;

	/* By default one user may have fewer connections. */
	daemon = daemon_start_for_many(test_text("[daemon]\nuser_clients = %u\n", N_CLIENTS));
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	for (unsigned i = 0; i < N_CLIENTS; i++)
		idle_open(&idles[i], daemon);
	check_rest(daemon);
	for (unsigned i = 0; i < N_CLIENTS; i++) /* each wakes it up */
		CHECK_EQ(dsaio_fsync(idles[i].handle, idles[i].file, 0), 0);
	for (unsigned i = 0; i < N_CLIENTS; i++)
		(void)dsaio_disconnect(idles[i].client);
}

TEST_MAIN
