/*
 * The processes that are measured: a daemon of our own for the life of a measure, what it costs
 * while it runs (from /proc), and fio.
 *
 * Everything here says on stderr what went wrong, and on what.
 */
#ifndef DSAIO_TESTS_BENCH_PROCESS_H
#define DSAIO_TESTS_BENCH_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A private daemon with one store; pid is 0 while there is none. */
struct private_daemon {
	pid_t pid;
	int log_fd;   /* its stderr */
	bool is_user; /* started with --user; set before the start */
	char socket_path[108];
};

/*
 * Starts program on the sockets and the store directory dir, and waits until it is ready.
 * name tells daemons in one dir apart; config: the text of its configuration file.
 */
int private_daemon_start(struct private_daemon *daemon, const char *program, const char *dir,
			 const char *name, const char *config);
/* Ends it in order and passes its log on if it did not end well.  Nothing to do is fine. */
void private_daemon_stop(struct private_daemon *daemon);
/* SIGKILL, and waits until it is gone. */
void private_daemon_kill(struct private_daemon *daemon);

/* CPU ticks (user and system) and context switches (of both kinds) of all threads so far. */
struct process_activity {
	uint64_t ticks;
	uint64_t switches;
	uint64_t sleeps; /* the voluntary ones */
};
int process_activity(pid_t pid, struct process_activity *ret_activity);

/*
 * Resident bytes, mapping by mapping, from smaps: /proc/PID/status is only exact to some pages a
 * CPU.  Slabs, rings and boards are the memfds, all else (heap, stacks, program and libraries,
 * also where other processes share them) is the daemon's own.
 */
struct process_memory {
	uint64_t memfd_bytes;
	uint64_t own_bytes;
};
int process_memory(pid_t pid, struct process_memory *ret_memory);

/* Runs fio and gives what it printed (the caller frees it), or -ENOENT: there is none; -EIO: failed. */
int fio_output(char *const argv[], char **ret_output);

/* The member at path, each step of which is a name or "[0]"; NULL if there is none. */
struct json_object;
struct json_object *json_at(struct json_object *o, const char *const *path);

/*
 * fio reads n_files files of file_bytes each, dir/NAME.0.0 and so on, one after the other, whole,
 * direct, at depth 8, some times over; what it took for each file, in microseconds.
 */
int fio_run_files(const char *dir, const char *name, unsigned n_files, uint64_t file_bytes,
		  double *ret_usec);

#endif
