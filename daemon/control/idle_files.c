#include "daemon/control/idle_files.h"

#include "daemon/base/event.h"
#include "daemon/base/job.h"
#include "daemon/control/objects.h"
#include "daemon/control/session.h"
#include "proto/file_board.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Idle files of one user that are closed together when it is near its limit on files. */
#define RECLAIM_FILES 64u
#define RECLAIM_NSEC \
	100000000u /* after a reclaim that found fewer, the same client starts none for so long */

/* The time from a new file, a request of a client that was quiet, or a look that closed one, to the next look; and
   the period of looks. */
#define LOOK_SOON_MSEC 3000u
#define LOOK_MSEC 5100u
/* A file that stays idle is closed by the first look that comes so long after the one that found it: two periods
   are a bit longer.  That is 10 to 15.3 s after the last use, or to 20 s if looks that come sooner change the
   rhythm. */
#define IDLE_NSEC UINT64_C(10000000000)
/* Files of one client that a worker looks at before other work runs: takes about a millisecond. */
#define LOOK_FILES 1024u

/* Idle files of one client, referenced, while a worker looks which of them have no link any more. */
struct look {
	struct session *session;
	struct job job;
	uint32_t cursor; /* the next batch starts at this slot of the table of files */
	bool has_found;	 /* some file was taken, in this batch or an earlier one */
	unsigned n_files;
	struct {
		struct file *file;
		bool is_unlinked;
	} files[LOOK_FILES];
};

static void on_look(EVENT_ARG(arg));

/* Schedules a look at all idle files at that time, or earlier. */
static void look_in(struct service *service, unsigned msec)
{
	const struct timeval timeout = { .tv_sec = msec / 1000, .tv_usec = msec % 1000 * 1000 };
	uint64_t due = clock_nsec() + msec * UINT64_C(1000000);

	if (!service->look_event)
		service->look_event = evtimer_new(service->base, on_look, service);
	if (!service->look_event)
		return; /* without memory: the next file tries again */
	if (evtimer_pending(service->look_event, NULL) && service->look_due_nsec <= due)
		return;
	if (evtimer_add(service->look_event, &timeout) == 0)
		service->look_due_nsec = due;
}

bool idle_file_take(struct session *session, struct file *file, uint32_t n_refs)
{
	struct error error;
	uint32_t id = file->id;

	/* The file was removed meanwhile, or an op uses it.  Relaxed: a client that lies harms only itself. */
	if (id_table_get(&session->objects.files, id) != file ||
	    atomic_load_explicit(&file->n_refs, memory_order_relaxed) > n_refs)
		return false;
	if (!file_board_take(session->board, id, FILE_BOARD_GONE))
		return false;
	/* Without memory the file stays open, marked GONE, until the session ends. */
	return session_remove(session, &session->objects.files, id, "file", file_unref_for,
			      session_object_gone, session, &error) == 0;
}

/* ---- reclaim ---- */

/* Takes at most n idle files from one session; returns their number. */
static uint32_t session_reclaim(struct session *session, uint32_t n)
{
	uint32_t cursor = 0, n_gone = 0;
	struct file *file;

	while (n_gone < n && (file = id_table_next(&session->objects.files, &cursor)))
		n_gone += idle_file_take(session, file, 1);
	return n_gone;
}

/*
 * Idle files in one client's cache must not keep the user's other clients from opening files, so they
 * are closed near the user's limit: so early that there is room until close(2) returns.
 */
void idle_files_reclaim(const struct session *asking)
{
	struct user *user = asking->user;
	uint64_t limit = user->quota.limit[QUOTA_FILES], spare, now_nsec;
	uint32_t n = RECLAIM_FILES;

	spare = limit / 8 < 4 * RECLAIM_FILES ? limit / 8 : 4 * RECLAIM_FILES;
	if (user->quota.used[QUOTA_FILES] + spare < limit)
		return;
	now_nsec = clock_nsec();
	if (user->reclaim_failed_id == asking->id &&
	    now_nsec - user->reclaim_failed_nsec < RECLAIM_NSEC)
		return;
	LIST_EACH(struct session, s, &asking->service->sessions, node)
		if (n && s->user == user && s != asking && s->state == SESSION_OPEN)
			n -= session_reclaim(s, n);
	if (n) {
		user->reclaim_failed_id = asking->id;
		user->reclaim_failed_nsec = now_nsec;
	}
}

/* ---- files without a link, and those idle for long ---- */

/* Whether the file has been idle for IDLE_NSEC, as far as looks tell. */
static bool file_is_stale(const struct session *session, struct file *file, uint64_t now_nsec)
{
	uint32_t word = file_board_idle(session->board, file->id);

	if (word && word == file->idle_word)
		return now_nsec - file->idle_since_nsec >= IDLE_NSEC;
	file->idle_word = word;
	file->idle_since_nsec = now_nsec;
	return false;
}

static void look_run(struct job *job)
{
	struct look *look = container_of(job, struct look, job);

	for (unsigned i = 0; i < look->n_files; i++) {
		struct statx stx;

		/* Cached attributes suffice; a query of a network or FUSE server may hang. */
		if (statx(look->files[i].file->target.fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
			  STATX_TYPE | STATX_NLINK, &stx) == 0)
			look->files[i].is_unlinked = S_ISREG(stx.stx_mode) && !stx.stx_nlink;
	}
}

static void looked_main(struct job *job);

/* Takes references to the next idle files, for a worker.  False: there are none. */
static bool look_go_on(struct look *look)
{
	struct session *session = look->session;
	struct file *file;

	look->n_files = 0;
	while (look->n_files < LOOK_FILES &&
	       (file = id_table_next(&session->objects.files, &look->cursor))) {
		if (!file_board_idle(session->board, file->id))
			continue;
		file_ref(file);
		look->files[look->n_files].is_unlinked = false;
		look->files[look->n_files++].file = file;
	}
	if (look->n_files)
		job_submit(session->user->work_queue, &look->job, session->service->mailbox,
			   look_run, looked_main);
	return look->n_files;
}

/* Closes files that have no link or are stale, then starts the next batch or ends the look. */
static void looked_main(struct job *job)
{
	struct look *look = container_of(job, struct look, job);
	struct session *session = look->session;
	uint64_t now_nsec = clock_nsec();

	for (unsigned i = 0; i < look->n_files; i++) {
		struct file *file = look->files[i].file;

		if (!session_is_ending(session) &&
		    (file_is_stale(session, file, now_nsec) || look->files[i].is_unlinked))
			/* This look and the table have a reference each. */
			look->has_found |= idle_file_take(session, file, 2);
		file_unref(file);
	}
	if (!session_is_ending(session) && look->n_files == LOOK_FILES && look_go_on(look))
		return;
	if (look->has_found)
		look_in(session->service, LOOK_SOON_MSEC);
	session->look = NULL;
	free(look);
	session_touch(session);
}

/* Whether all files are in use, and the client sends a request when one is not. */
static bool session_set_quiet(const struct session *session)
{
	uint32_t cursor = 0;
	struct file *file;

	while ((file = id_table_next(&session->objects.files, &cursor)))
		if (!session->knows_quiet || !file_board_set_quiet(session->board, file->id))
			return false;
	return true;
}

static void session_look(struct session *session)
{
	struct look *look;

	if (session->look || session_is_ending(session))
		return;
	look = calloc(1, sizeof(*look)); /* without memory the next look tries again */
	if (!look)
		return;
	look->session = session;
	if (look_go_on(look)) {
		session->look = look;
		return;
	}
	free(look);
	session->is_quiet = session_set_quiet(session);
}

static void on_look(EVENT_ARG(arg))
{
	struct service *service = arg;
	bool must_look = false;

	LIST_EACH(struct session, session, &service->sessions, node) {
		if (session->is_quiet || !session->objects.files.n_objects)
			continue;
		session_look(session);
		must_look |= !session->is_quiet;
	}
	if (must_look)
		look_in(service, LOOK_MSEC);
}

void idle_files_watch(struct session *session)
{
	session->is_quiet = false;
	look_in(session->service, LOOK_SOON_MSEC);
}

void idle_files_stop(struct service *service)
{
	event_freep(&service->look_event);
}
