/*
 * Private memory of a test, and the threads and the stopped daemon that its tests look at.
 */
#ifndef DSAIO_TESTS_PRIVATE_MEMORY_H
#define DSAIO_TESTS_PRIVATE_MEMORY_H

#include "tests/harness.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define SEED 9

static inline uint8_t *private_new(size_t len)
{
	void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

/* Calls back for each thread of a process; returns their number. */
static inline unsigned each_thread(pid_t pid, void (*look)(const char *status))
{
	DIR *dir = opendir(test_text("/proc/%d/task", (int)pid));
	struct dirent *entry;
	unsigned n = 0;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		_cleanup_(fclosep) FILE *file = NULL;
		char text[4096] = "";

		if (entry->d_name[0] == '.')
			continue;
		file = fopen(test_text("/proc/%d/task/%s/status", (int)pid, entry->d_name), "re");
		if (!file || !fread(text, 1, sizeof(text) - 1, file))
			continue; /* it has just ended */
		n++;
		if (look)
			look(text);
	}
	closedir(dir);
	return n;
}

static inline void check_stopped(const char *status)
{
	if (!strstr(status, "\nState:\tT"))
		(void)poll(NULL, 0, 1);
}

static bool all_stopped;
static inline void note_stopped(const char *status)
{
	check_stopped(status);
	if (!strstr(status, "\nState:\tT"))
		all_stopped = false;
}

/* Nothing moves until it goes on. */
static inline void daemon_hold(const struct daemon *daemon)
{
	process_stop(daemon->pid);
	do {
		all_stopped = true;
		(void)each_thread(daemon->pid, note_stopped);
	} while (!all_stopped);
}

static inline void daemon_go_on(const struct daemon *daemon)
{
	CHECK_SYS(kill(daemon->pid, SIGCONT));
}

#endif
