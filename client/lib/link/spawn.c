#include "client/lib/link/spawn.h"

#include "client/lib/base/debug.h"
#include "client/lib/base/error.h"
#include "proto/dirs.h"
#include "proto/util/cleanup.h"
#include "proto/util/socket.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define STACK_BYTES ((size_t)128 << 10) /* of a child; sanitizers make frames large */
#define LISTEN_FD 3			/* sd_listen_fds(3): the first */
#define SIGNALS 64			/* the kernel's, with those that the C library hides */
#define PID_DIGITS 10u
#define NOFILE_WANTED 524288 /* all quotas of one user fit; below the usual fs.nr_open */
#define CPUS_MAX 8192	     /* CONFIG_NR_CPUS of the largest kernels */

/* clone(2) by its other name: what sanitizers put in the place of the first would unlock their own
   locks in both processes, which share them. */
int __clone(int (*run)(void *), void *stack, int flags, void *arg, ...);

/* ---- the program ---- */

/* The directory of the file that this function is in. */
static int own_directory(char *dir, size_t size)
{
	_cleanup_(freep) char *real = NULL;
	struct link_map *map = NULL;
	Dl_info info;
	char *slash;

	if (!dladdr1((void *)(uintptr_t)spawn_find, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
		return -ENOENT;
	/* The program itself has no name there.  A relative one says nothing after a chdir(). */
	if (*map->l_name && *map->l_name != '/')
		return -ENOENT;
	real = realpath(*map->l_name ? map->l_name : "/proc/self/exe", NULL);
	slash = real ? strrchr(real, '/') : NULL;
	if (!slash || (size_t)(slash - real) >= size)
		return -ENOENT;
	*slash = '\0';
	(void)strcpy(dir, real);
	return 0;
}

static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* A relative one is the program's: the daemon starts in another directory. */
static int find_named(const char *named, char *path, size_t size)
{
	_cleanup_(freep) char *real = realpath(named, NULL);

	if (!real || access(real, X_OK) < 0)
		return error_fail_errno(-errno, "%s: $DSAIOD must name the dsaiod program", named);
	if (!is_file(real))
		return error_fail(-EACCES, "%s: is no file: $DSAIOD must name the dsaiod program",
				  named);
	if ((size_t)snprintf(path, size, "%s", real) >= size)
		return error_fail_errno(-ENAMETOOLONG, "$DSAIOD");
	return 0;
}

int spawn_find(char *path, size_t size)
{
	const char *named = secure_getenv("DSAIOD");
	char dir[PATH_MAX];

	if (named && *named)
		return find_named(named, path, size);
	if (own_directory(dir, sizeof(dir)) < 0)
		*dir = '\0';
	if ((*dir && (size_t)snprintf(path, size, "%s/dsaiod", dir) < size && is_file(path)) ||
	    ((size_t)snprintf(path, size, "%s/dsaiod", DSAIO_SBINDIR) < size && is_file(path))) {
		/* Some tools unpack a wheel without the modes of its files. */
		if (access(path, X_OK) < 0)
			return error_fail(-EACCES,
					  "%s is not executable: chmod +x it (which a file system "
					  "mounted noexec does not allow), or set DSAIOD to "
					  "another's path",
					  path);
		return 0;
	}
	return error_fail(-ENOENT,
			  "no dsaiod in %s%s%s: install it there (make install, or your system's "
			  "package), or set DSAIOD to the program's path",
			  dir, *dir ? " nor " : "", DSAIO_SBINDIR);
}

/* ---- what it gets ---- */

static const char *const kept[] = { "HOME",
				    "USER",
				    "LOGNAME",
				    "LANG",
				    "LC_ALL",
				    "TZ",
				    "XDG_RUNTIME_DIR",
				    "XDG_CONFIG_HOME",
				    "XDG_STATE_HOME",
				    "DSAIO_CUDA_LIBRARY",
				    "DSAIO_CUFILE_LIBRARY" };
#define N_KEPT (sizeof(kept) / sizeof(kept[0]))
#define LISTEN_PID "LISTEN_PID="
#define N_OWN 4 /* LISTEN_PID, the other two of sd_listen_fds(3), PATH */

struct spawn {
	const char *program;
	char *const *argv;
	const char *environment[N_OWN + N_KEPT + 1];	  /* ends with NULL */
	char listen_pid[sizeof(LISTEN_PID) + PID_DIGITS]; /* the child writes the number */
	int listen_fd, log_fd;
	char *stacks; /* of both children */
	/* The errno of the step that failed in the daemon's process; 0: the program runs. */
	int error;
	const char *what;
};

/* Adds those that are kept: the strings of this process's environment, until the daemon has its own. */
static void environment_keep(struct spawn *spawn)
{
	const char **to = spawn->environment + N_OWN;

	for (size_t i = 0; i < N_KEPT; i++) {
		const char *value = secure_getenv(kept[i]);

		if (value)
			*to++ = value - strlen(kept[i]) - 1; /* NAME=VALUE */
	}
}

/* ---- in the children: system calls only ---- */

static void child_exit(void)
{
	for (;;)
		(void)syscall(SYS_exit_group, 0); /* does not return */
}

static void child_fail(struct spawn *spawn, const char *what)
{
	spawn->error = errno;
	spawn->what = what;
	child_exit();
}

static void signals_reset(void)
{
	/* Zeros are the default action, with no flag and an empty mask, in the kernel's struct. */
	static const unsigned long action[16], none[2];

	for (int signal = 1; signal <= SIGNALS; signal++)
		(void)syscall(SYS_rt_sigaction, signal, action, NULL, SIGNALS / 8); /* not KILL */
	(void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, none, NULL, SIGNALS / 8);
}

/* A rank's processors, memory node or limits are not those of a daemon of all ranks. */
static void share_reset(void)
{
	static const int limits[] = { RLIMIT_AS,      RLIMIT_CPU,   RLIMIT_DATA,  RLIMIT_FSIZE,
				      RLIMIT_MEMLOCK, RLIMIT_NPROC, RLIMIT_NOFILE };
	const struct sched_param priority = { 0 };
	unsigned char cpus[CPUS_MAX / 8];

	for (size_t i = 0; i < sizeof(cpus); i++) /* not memset(): it is wrapped, too */
		((volatile unsigned char *)cpus)[i] = 0xff;
	/* The kernel leaves those that the control group has.  Where a filter refuses one of these,
	   the daemon is slower, and works. */
	(void)syscall(SYS_sched_setaffinity, 0, sizeof(cpus), cpus);
	(void)syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &priority);
	(void)syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		uint64_t limit[2]; /* soft, hard */

		if (syscall(SYS_prlimit64, 0, limits[i], NULL, limit) < 0)
			continue;
		limit[0] = limit[1];
		if (limits[i] == RLIMIT_NOFILE && limit[1] < NOFILE_WANTED) {
			const uint64_t wanted[2] = { NOFILE_WANTED, NOFILE_WANTED };

			/* Only with CAP_SYS_RESOURCE. */
			if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, wanted, NULL) == 0)
				continue;
		}
		(void)syscall(SYS_prlimit64, 0, limits[i], limit, NULL);
	}
}

static void descriptors_reset(struct spawn *spawn)
{
	long null_fd;

	/* Both lie above stdio, and only the log may be where the socket has to be. */
	if (syscall(SYS_dup3, spawn->log_fd, STDERR_FILENO, 0) < 0)
		child_fail(spawn, "its log");
	if (spawn->listen_fd == LISTEN_FD ? syscall(SYS_fcntl, LISTEN_FD, F_SETFD, 0) < 0
					  : syscall(SYS_dup3, spawn->listen_fd, LISTEN_FD, 0) < 0)
		child_fail(spawn, "its socket");
	/* First, since the program may have all open that it may have. */
	if (syscall(SYS_close_range, LISTEN_FD + 1, ~0u, 0) < 0)
		child_fail(spawn, "close_range");
	null_fd = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
	if (null_fd < 0)
		child_fail(spawn, "/dev/null");
	for (int fd = STDIN_FILENO; fd <= STDOUT_FILENO; fd++)
		if (null_fd != fd && syscall(SYS_dup3, null_fd, fd, 0) < 0)
			child_fail(spawn, "/dev/null");
	if (null_fd > LISTEN_FD)
		(void)syscall(SYS_close, null_fd); /* just opened: cannot fail */
}

static void pid_write(struct spawn *spawn)
{
	char *text = spawn->listen_pid + sizeof(LISTEN_PID) - 1; /* it has PID_DIGITS */
	long pid = syscall(SYS_getpid);
	unsigned n = 0;

	for (long rest = pid; rest; rest /= 10)
		n++;
	text[n] = '\0';
	while (n) {
		text[--n] = (char)('0' + pid % 10);
		pid /= 10;
	}
}

static int daemon_main(void *arg)
{
	struct spawn *spawn = arg;

	if (syscall(SYS_setsid) < 0)
		child_fail(spawn, "setsid");
	if (syscall(SYS_chdir, "/") < 0)
		child_fail(spawn, "chdir /");
	(void)syscall(SYS_umask, 077); /* never fails */
	share_reset();
	descriptors_reset(spawn);
	pid_write(spawn);
	signals_reset();
	(void)syscall(SYS_execve, spawn->program, spawn->argv, spawn->environment);
	child_fail(spawn, "exec");
	return 0;
}

/* Between the program and the daemon: its end makes the daemon somebody else's child. */
static int middle_main(void *arg)
{
	struct spawn *spawn = arg;

	if (__clone(daemon_main, spawn->stacks + 2 * STACK_BYTES, CLONE_VM | CLONE_VFORK, spawn) <
	    0)
		child_fail(spawn, "clone");
	child_exit();
	return 0;
}

/* ---- in the program ---- */

static int children_run(struct spawn *spawn)
{
	sigset_t all, old;
	pid_t middle;
	int r;

	/* A handler of the program's must not run in a child that shares its memory. */
	(void)sigfillset(&all); /* both cannot fail */
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	middle = __clone(middle_main, spawn->stacks + STACK_BYTES, CLONE_VM | CLONE_VFORK, spawn);
	r = middle < 0 ? -errno : 0;
	/* It has ended.  ECHILD: the program waits for children of every kind, and was faster. */
	while (middle > 0 && waitpid(middle, NULL, (int)__WCLONE) < 0 && errno == EINTR)
		;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL); /* cannot fail */
	return r;
}

int spawn_daemon(const char *program, const char *socket_path, int listen_fd, int log_fd)
{
	const char *argv[] = { program, "--user", "--socket", socket_path, NULL };
	struct spawn spawn = {
		.program = program,
		.argv = (char *const *)(uintptr_t)argv, /* as execve() has it */
		.listen_fd = listen_fd,
		.log_fd = log_fd,
		.listen_pid = LISTEN_PID,
		.environment = { spawn.listen_pid, "LISTEN_FDS=1",
				 ("LISTEN_FDNAMES=" SOCKET_HANDED_OVER),
				 "PATH=/usr/local/bin:/usr/bin:/bin" },
	};
	void *stacks;
	int r;

	environment_keep(&spawn);
	stacks = mmap(NULL, 2 * STACK_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stacks == MAP_FAILED)
		return error_fail_errno(-errno, "%s: cannot start it: stack", program);
	spawn.stacks = stacks;
	r = children_run(&spawn);
	(void)munmap(stacks, 2 * STACK_BYTES); /* our own: cannot fail */
	if (r < 0)
		return error_fail_errno(r, "%s: cannot start it: clone", program);
	if (spawn.error)
		return error_fail_errno(-spawn.error, "%s: cannot start it: %s", program,
					spawn.what);
	debug_log("connect: started %s --user --socket %s", program, socket_path);
	return 0;
}
