#include "daemon/account/recorder.h"

#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/base/signals.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/process.h"
#include "proto/util/socket.h"
#include "proto/version.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BYTES RECORDING_BYTES(RECORDING_EVENTS)
#define PATH_BYTES (SOCKET_PATH_BYTES + RECORDING_SUFFIX_BYTES)

static struct {
	char socket_path[SOCKET_PATH_BYTES]; /* "": off */
	bool is_logged;			     /* why one could not be made */
	/* Main thread: a lane begins.  Any thread, and the handler of a signal: it ends, or reads. */
	struct recording *_Atomic recordings[RECORDING_FILES_MAX];
} recorder;

static const char *path_of(char path[PATH_BYTES], const char *kind, unsigned number)
{
	(void)snprintf(path, PATH_BYTES, "%s.%s.%u", recorder.socket_path, kind, number);
	return path;
}

/* ---- the predecessor's ---- */

/* In a directory for all, the file may be another user's. */
static bool is_ours(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid();
}

static bool keep_crash(void)
{
	char from[PATH_BYTES], to[PATH_BYTES];

	if (!is_ours(path_of(from, RECORDING_NOW, 0))) /* the first that is made */
		return false;
	for (unsigned i = 0; i < RECORDING_FILES_MAX; i++) {
		path_of(from, RECORDING_NOW, i);
		path_of(to, RECORDING_CRASH, i);
		/* Where it fails, nothing is lost but the record. */
		if (!is_ours(from))
			(void)unlink(to);
		else if (rename(from, to) < 0)
			(void)unlink(from);
	}
	log_notice("dsaiod: its last ops are recorded: dsaioctl trace --last-crash --socket %s",
		   recorder.socket_path);
	return true;
}

/* ---- a lane's file ---- */

struct making {
	const char *path;
	struct recording *recording;
	int error; /* positive */
};

/* On a thread of its own, because the main thread may have nobody's ids (privileges.h). */
static void *make(void *arg)
{
	struct making *making = arg;
	_cleanup_(closep) int fd = -1;
	void *map;

	privileges_own_files();
	(void)unlink(making->path); /* of a lane that has ended */
	fd = open(making->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		making->error = errno;
		return NULL;
	}
	map = MAP_FAILED;
	if (fallocate(fd, 0, 0, (off_t)BYTES) == 0)
		map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (map == MAP_FAILED) {
		making->error = errno;
		(void)unlink(making->path);
		return NULL;
	}
	making->recording = map;
	return NULL;
}

/* 0, or a positive errno. */
static int make_on_thread(struct making *making)
{
	pthread_t thread;
	sigset_t old;
	int r;

	signals_block(&old);
	r = pthread_create(&thread, NULL, make, making);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL); /* cannot fail, nor can the next */
	if (r)
		return r;
	(void)pthread_join(thread, NULL); /* on tmpfs nothing waits */
	return making->error;
}

static void describe(struct recording *recording, const char *store_name)
{
	struct process process;

	recording->version = RECORDING_VERSION;
	recording->event_bytes = sizeof(struct recording_event);
	recording->n_events = RECORDING_EVENTS;
	recording->pid = (uint32_t)getpid();
	if (process_look(getpid(), &process))
		recording->process_ticks = process.started;
	recording->start_nsec = clock_nsec();
	recording->start_real_nsec = clock_nsec_of(CLOCK_REALTIME);
	(void)snprintf(recording->store, sizeof(recording->store), "%s", store_name);
	(void)snprintf(recording->program, sizeof(recording->program), "%s", DSAIO_VERSION);
	/* Last: until then a reader takes it for one that is not there. */
	memcpy(recording->magic, RECORDING_MAGIC, sizeof(recording->magic));
}

struct recording *recorder_new(const char *store_name)
{
	char path[PATH_BYTES];
	struct making making = { .path = path };
	unsigned i = 0;
	int r;

	if (!recorder.socket_path[0])
		return NULL;
	while (i < RECORDING_FILES_MAX && atomic_load(&recorder.recordings[i]))
		i++;
	path_of(path, RECORDING_NOW, i);
	r = i < RECORDING_FILES_MAX ? make_on_thread(&making) : EMFILE;
	if (r) {
		if (!recorder.is_logged)
			log_notice("dsaiod: store %s and perhaps others have no flight recorder: "
				   "%s: %s",
				   store_name, path, strerrordesc_np(r));
		recorder.is_logged = true;
		return NULL;
	}
	describe(making.recording, store_name);
	atomic_store(&recorder.recordings[i], making.recording);
	return making.recording;
}

void recorder_free(struct recording *recording)
{
	if (!recording)
		return;
	for (unsigned i = 0; i < RECORDING_FILES_MAX; i++)
		if (atomic_load(&recorder.recordings[i]) == recording)
			atomic_store(&recorder.recordings[i], NULL);
	/* Last, or a new lane could have been mapped there already. */
	(void)munmap(recording, BYTES);
}

void recorder_note_crash(int number)
{
	const uint64_t now_nsec = clock_nsec();

	for (unsigned i = 0; i < RECORDING_FILES_MAX; i++) {
		struct recording *recording = atomic_load(&recorder.recordings[i]);

		if (!recording)
			continue;
		recording->crash_nsec = now_nsec;
		recording->crash_signal = (uint32_t)number;
	}
}

/* ---- start and stop ---- */

static bool may_record_at(const char *socket_path)
{
	char path[SOCKET_PATH_BYTES];
	const char *dir, *why = NULL;
	struct statfs fs;
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s", socket_path);
	dir = dirname(path);
	if (stat(dir, &st) < 0 || (st.st_mode & (S_IWGRP | S_IWOTH)))
		why = "is writable by others, and files there may be theirs";
	else if (statfs(dir, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		why = "is not on tmpfs, and a disk could delay lanes";
	if (why)
		log_notice("dsaiod: no flight recorder: %s %s: dsaioctl trace shows nothing", dir,
			   why);
	return !why;
}

bool recorder_start(const char *socket_path)
{
	if (strlen(socket_path) >= SOCKET_PATH_BYTES || !may_record_at(socket_path))
		return false;
	(void)strcpy(recorder.socket_path, socket_path);
	return keep_crash();
}

void recorder_end(void)
{
	char path[PATH_BYTES];

	for (unsigned i = 0; recorder.socket_path[0] && i < RECORDING_FILES_MAX; i++)
		(void)unlink(
			path_of(path, RECORDING_NOW, i)); /* if it fails, it looks like a crash */
	recorder.socket_path[0] = 0;
}
