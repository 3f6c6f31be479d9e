#include "daemon/base/hung.h"

#include "daemon/base/fs_type.h"
#include "daemon/base/log.h"
#include "daemon/base/mailbox.h"
#include "daemon/base/mount.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NSEC_PER_SEC UINT64_C(1000000000)
#define WHO_BYTES 40 /* two numbers of 32 bits, and words */

/*
 * is_watching: the main thread has got a message about a call, or has a timer for one.  Only the main
 * thread clears it, when all recorded calls have been reported.  So calls cost it at most one wake-up
 * per HUNG_NSEC.
 */
static struct {
	pthread_mutex_t lock;
	/* under lock */
	struct list calls; /* struct hung, newest first */
	uint64_t last_number;
	unsigned n_gpu_told[2]; /* calls of a GPU's driver, by has_bytes, that have been reported */
	struct mailbox *mailbox; /* NULL: before hung_init() */
	bool is_watching;
	bool is_stopping;
	struct message message;
	struct list watches;
	bool is_asked; /* watch_message is under way, or watch_event will come */
	struct message watch_message;
	struct log_limit log_limit;
	/* the main thread's */
	struct event *event, *watch_event;
} stuck = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The call of this thread that was recorded last; NULL: it has ended. */
static _Thread_local struct hung *here;

/* ---- any thread ---- */

/* The mount of an open descriptor.  A read of /proc never calls the file system. */
static uint64_t fd_mount_id(int fd)
{
	_cleanup_(fclosep) FILE *file = NULL;
	uint64_t id = 0;
	char path[40], line[128];

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "mnt_id: %" SCNu64, &id) == 1)
			break;
	return id;
}

static void hung_init_call(struct hung *s, const struct hung_about *about, uint64_t since_nsec,
			   uint64_t limit_nsec)
{
	s->about = *about;
	s->since_nsec = since_nsec;
	s->limit_nsec = limit_nsec;
	s->has_bytes = about->is_block;
	s->is_told = s->is_quiet = s->has_place = false;
	(void)snprintf(s->file, sizeof(s->file), "%s", about->file); /* cut is fine */
	s->about.file = s->file;
}

/* Under the lock. */
static void hung_push(struct hung *s)
{
	s->number = ++stuck.last_number;
	list_push_front(&stuck.calls, &s->node);
	if (stuck.mailbox && !stuck.is_watching) {
		stuck.is_watching = true;
		mailbox_post(stuck.mailbox, &stuck.message);
	}
}

void hung_begin(struct hung *s, const struct hung_about *about)
{
	hung_init_call(s, about, clock_nsec(), HUNG_NSEC);
	if (!about->mount_id && !about->is_gpu && !about->is_memory)
		s->about.mount_id = fd_mount_id(about->fd);
	(void)pthread_mutex_lock(&stuck.lock); /* of the default kind: cannot fail */
	hung_push(s);
	(void)pthread_mutex_unlock(&stuck.lock);
	here = s;
}

/* "user 7: client 3", or without the client if there is no session. */
static const char *who_title(const struct hung_who *who, char text[WHO_BYTES])
{
	if (who->client)
		(void)snprintf(text, WHO_BYTES, "user %u: client %" PRIu32, who->uid, who->client);
	else
		(void)snprintf(text, WHO_BYTES, "user %u", who->uid);
	return text;
}

/* Under the lock. */
static void hung_pop(struct hung *s)
{
	char who[WHO_BYTES];

	list_remove(&stuck.calls, &s->node);
	if (s->is_told && s->about.is_gpu && --stuck.n_gpu_told[s->has_bytes])
		return;
	if (s->is_told)
		log_client(&stuck.log_limit, "%s: %s: %s came back after %" PRIu64 " s",
			   who_title(&s->about.who, who), s->file, s->about.what,
			   (clock_nsec() - s->since_nsec) / NSEC_PER_SEC);
}

void hung_end(struct hung *s)
{
	(void)pthread_mutex_lock(&stuck.lock);
	hung_pop(s);
	(void)pthread_mutex_unlock(&stuck.lock);
	here = NULL;
}

const char *hung_next(const char *what, bool has_bytes)
{
	const char *was;

	if (!here)
		return NULL;
	was = here->about.what;
	(void)pthread_mutex_lock(&stuck.lock);
	hung_pop(here);
	here->about.what = what;
	here->has_bytes = has_bytes && here->about.is_block;
	here->since_nsec = clock_nsec();
	here->is_told = here->is_quiet = here->has_place = false;
	hung_push(here);
	(void)pthread_mutex_unlock(&stuck.lock);
	return was;
}

/* ---- watches ---- */

void hung_watch_add(struct hung_watch *watch, const struct hung_about *about)
{
	watch->about = *about;
	(void)pthread_mutex_lock(&stuck.lock);
	list_push(&stuck.watches, &watch->node);
	(void)pthread_mutex_unlock(&stuck.lock);
}

void hung_watch_remove(struct hung_watch *watch)
{
	(void)pthread_mutex_lock(&stuck.lock);
	list_remove(&stuck.watches, &watch->node);
	if (watch->hung_since_nsec)
		hung_pop(&watch->stuck);
	(void)pthread_mutex_unlock(&stuck.lock);
}

/* Asks the main thread to read the watches: once for all lanes, and again only after it has done so. */
static void watch_ask(struct hung_watch *watch)
{
	(void)pthread_mutex_lock(&stuck.lock);
	if (stuck.mailbox) {
		atomic_store(&watch->is_watched, true);
		if (!stuck.is_asked) {
			stuck.is_asked = true;
			mailbox_post(stuck.mailbox, &stuck.watch_message);
		}
	}
	(void)pthread_mutex_unlock(&stuck.lock);
}

void hung_enter(struct hung_watch *watch, const struct hung_who *who, uint64_t now_nsec)
{
	/* relaxed: the store of since_nsec releases them */
	atomic_store_explicit(&watch->uid, who->uid, memory_order_relaxed);
	atomic_store_explicit(&watch->client, who->client, memory_order_relaxed);
	/* Both sequentially consistent, as in watch_look(): one of the two sees the other's. */
	atomic_store(&watch->since_nsec, now_nsec);
	if (!atomic_load(&watch->is_watched))
		watch_ask(watch);
}

void hung_leave(struct hung_watch *watch)
{
	/* relaxed: a call that seems to last a moment longer is no harm */
	atomic_store_explicit(&watch->since_nsec, 0, memory_order_relaxed);
}

/* ---- the text of a report ---- */

/* The command or event that frees the call, by the kind of file system. */
static void tell_way_out(const struct mount *mount, uid_t uid, char *text, size_t size)
{
	const struct fs_type *type = fs_type_of_mount(mount->fs_type);

	/* The connection is named by the kernel's internal device number. */
	if (type->is_fuse)
		(void)snprintf(text, size, "echo 1 > /sys/fs/fuse/connections/%u/abort",
			       major(mount->dev) << 20 | minor(mount->dev));
	else if (type->is_network)
		(void)snprintf(text, size, "umount -f %s", mount->point);
	else
		(void)snprintf(
			text, size,
			"an answer of the device; if a hung process of the user holds the "
			"file's lock: pkill -KILL -u %u (ends all processes of the user, FUSE "
			"servers included)",
			uid);
}

static void memory_place(const struct hung_who *who, struct hung_place *place)
{
	(void)snprintf(place->mount, sizeof(place->mount), "shared memory");
	(void)snprintf(
		place->text, sizeof(place->text),
		"the end of the process that holds the memory's lock (the client was process "
		"%d), and of what that waits for: pkill -KILL -u %u (ends all processes of "
		"the user, FUSE servers included)",
		who->pid, who->uid);
}

/* A stop of the daemon waits for the bytes of an op, so only the end of the process ends its call. */
static void driver_place(bool has_bytes, struct hung_place *place)
{
	char end[64];

	(void)snprintf(end, sizeof(end), "the end of the daemon: kill -9 %d", getpid());
	(void)snprintf(place->mount, sizeof(place->mount), "the GPU's driver");
	(void)snprintf(place->text, sizeof(place->text),
		       "an answer of the driver (see whether nvidia-smi returns), or %s",
		       has_bytes ? end : "a restart of the daemon");
}

/* may_read: may read mountinfo. */
static void place_find(const struct hung_about *about, bool may_read, struct hung_place *place)
{
	_cleanup_(mount_deinit) struct mount mount = { 0 };
	int r = -E2BIG;

	if (may_read)
		r = mount_find(0, about->mount_id, about->dev, &mount);
	if (may_read && r < 0 && about->who.pid) /* a namespace of the client's own */
		r = mount_find(about->who.pid, about->mount_id, about->dev, &mount);
	if (r == 0) {
		(void)snprintf(place->mount, sizeof(place->mount), "%s (%s, device %u:%u)",
			       mount.point, mount.fs_type, major(mount.dev), minor(mount.dev));
		tell_way_out(&mount, about->who.uid, place->text, sizeof(place->text));
		return;
	}
	if (about->dev) {
		(void)snprintf(place->mount, sizeof(place->mount), "device %u:%u",
			       major(about->dev), minor(about->dev));
		(void)snprintf(place->text, sizeof(place->text),
			       "the end of the process that serves it; if it is FUSE, echo 1 > "
			       "/sys/fs/fuse/connections/%u/abort",
			       major(about->dev) << 20 | minor(about->dev));
		return;
	}
	(void)snprintf(place->mount, sizeof(place->mount), "%s",
		       r == -E2BIG ? "a mount that was not looked up: too many mounts or hung calls"
				   : "no mount that is visible here");
	(void)snprintf(place->text, sizeof(place->text),
		       "the end of the process that serves the file system, or is the peer of the "
		       "socket");
}

/* The mounts are read once for each hung call. */
static void place_keep(uint64_t number, const struct hung_place *place)
{
	(void)pthread_mutex_lock(&stuck.lock);
	LIST_EACH(struct hung, s, &stuck.calls, node)
		if (s->number == number) { /* else the call has returned */
			s->place = *place;
			s->has_place = true;
		}
	(void)pthread_mutex_unlock(&stuck.lock);
}

/* s: a copy.  *may_read: may read mountinfo, and once only. */
static void tell(struct hung *s, uint64_t now_nsec, bool *may_read, struct hung_told *told)
{
	if (!s->has_place && s->about.is_gpu) {
		driver_place(s->has_bytes, &s->place);
	} else if (!s->has_place && s->about.is_memory) {
		memory_place(&s->about.who, &s->place);
	} else if (!s->has_place) {
		place_find(&s->about, *may_read, &s->place);
		if (*may_read)
			place_keep(s->number, &s->place);
		*may_read = false;
	}
	*told = (struct hung_told){ .who = s->about.who,
				    .what = s->about.what,
				    .is_gpu = s->about.is_gpu,
				    .has_bytes = s->has_bytes };
	(void)snprintf(told->file, sizeof(told->file), "%s", s->file);
	told->usec = (now_nsec - s->since_nsec) / 1000;
	told->place = s->place;
}

/* Takes the oldest of the calls that are to be reported now, if there is one. */
static bool take_due(uint64_t now_nsec, struct hung *ret_call, uint64_t *ret_next_due_nsec)
{
	_cleanup_(unlockp) pthread_mutex_t *locked = &stuck.lock;
	struct hung *oldest = NULL;

	(void)pthread_mutex_lock(locked);
	*ret_next_due_nsec = UINT64_MAX;
	LIST_EACH(struct hung, s, &stuck.calls, node) {
		const uint64_t due_nsec = s->since_nsec + s->limit_nsec;

		if (s->is_told)
			continue;
		if (now_nsec < due_nsec) {
			if (due_nsec < *ret_next_due_nsec)
				*ret_next_due_nsec = due_nsec;
			continue;
		}
		if (oldest)
			*ret_next_due_nsec = now_nsec;
		oldest = s;
	}
	if (*ret_next_due_nsec == UINT64_MAX)
		stuck.is_watching = false;
	if (!oldest)
		return false;
	oldest->is_told = true;
	if (oldest->about.is_gpu)
		oldest->is_quiet = stuck.n_gpu_told[oldest->has_bytes]++ > 0;
	*ret_call = *oldest;
	return true;
}

/* Copies the calls that have lasted for so long that they are reported. */
static int list_copy(uint64_t now_nsec, struct hung **ret_list, size_t *ret_n)
{
	_cleanup_(unlockp) pthread_mutex_t *locked = NULL;
	struct hung *list;
	size_t n = 0;

	(void)pthread_mutex_lock(&stuck.lock);
	locked = &stuck.lock;
	for (const struct list_node *node = stuck.calls.first; node; node = node->next)
		n++;
	list = calloc(n ? n : 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	n = 0;
	LIST_EACH(struct hung, s, &stuck.calls, node)
		if (now_nsec >= s->since_nsec + s->limit_nsec)
			list[n++] = *s;
	*ret_list = list;
	*ret_n = n;
	return 0;
}

int hung_list(bool (*may_tell)(uid_t uid, const void *arg), const void *arg, size_t max,
	      struct hung_told **ret_list, size_t *ret_n)
{
	_cleanup_(freep) struct hung *list = NULL;
	struct hung_told *told;
	uint64_t now_nsec = clock_nsec();
	bool may_read = true;
	size_t n, n_told = 0;
	int r;

	r = list_copy(now_nsec, &list, &n);
	if (r < 0)
		return r;
	told = calloc(n ? n : 1, sizeof(*told));
	if (!told)
		return -ENOMEM;
	for (size_t i = n; i > 0 && n_told < max; i--)
		if (!may_tell || may_tell(list[i - 1].about.who.uid, arg))
			tell(&list[i - 1], now_nsec, &may_read, &told[n_told++]);
	*ret_list = told;
	*ret_n = n_told;
	return 0;
}

/* ---- the main thread ---- */

/* How long the exit waits (stop_wait.h). */
static const char *told_delay(const struct hung_told *told)
{
	return told->has_bytes ? ", and delays the daemon's exit until it returns"
			       : ", and delays the daemon's exit by some seconds, or until it "
				 "returns if the kernel cannot interrupt it";
}

static void log_told(const struct hung_told *told, bool is_stopping)
{
	char who[WHO_BYTES];

	(void)pthread_mutex_lock(&stuck.lock);
	log_client(&stuck.log_limit,
		   "%s: %s: %s has not come back for %" PRIu64 " s%s: on %s; what frees it: %s",
		   who_title(&told->who, who), told->file, told->what, told->usec / 1000000,
		   is_stopping ? told_delay(told) : "", told->place.mount, told->place.text);
	(void)pthread_mutex_unlock(&stuck.lock);
}

static void look_in(uint64_t nsec)
{
	const struct timeval timeout = { .tv_sec = (time_t)(nsec / NSEC_PER_SEC),
					 .tv_usec = (suseconds_t)(nsec % NSEC_PER_SEC / 1000 + 1) };

	if (evtimer_add(stuck.event, &timeout) == 0)
		return;
	(void)pthread_mutex_lock(&stuck.lock);
	stuck.is_watching = false; /* without memory: the next call tries again */
	(void)pthread_mutex_unlock(&stuck.lock);
}

/* Reports one call that is due, since mountinfo may be long, and sets the timer for the next one. */
static void look(void)
{
	uint64_t now_nsec = clock_nsec(), next_due;
	bool may_read = true;
	struct hung call;

	if (take_due(now_nsec, &call, &next_due) && !call.is_quiet) {
		struct hung_told told;

		tell(&call, now_nsec, &may_read, &told);
		log_told(&told, stuck.is_stopping);
	}
	if (next_due != UINT64_MAX)
		look_in(next_due - now_nsec);
}

static void on_due(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	look();
}

static void on_begun(struct message *message)
{
	(void)message;
	look();
}

/* Under the lock: reports a call that lasts, and the end of one that was reported; true: look again. */
static bool watch_look(struct hung_watch *watch, uint64_t now_nsec)
{
	uint64_t since = atomic_load(&watch->since_nsec);

	if (!since) {
		atomic_store(&watch->is_watched, false);
		since = atomic_load(&watch->since_nsec); /* hung_enter() may have found it true */
		if (since)
			atomic_store(&watch->is_watched, true);
	}
	if (watch->hung_since_nsec && since != watch->hung_since_nsec) {
		hung_pop(&watch->stuck);
		watch->hung_since_nsec = 0;
	}
	if (since && now_nsec >= since + HUNG_LANE_NSEC && !watch->hung_since_nsec) {
		struct hung_about about = watch->about;

		about.who.uid = atomic_load_explicit(&watch->uid, memory_order_relaxed);
		about.who.client = atomic_load_explicit(&watch->client, memory_order_relaxed);
		hung_init_call(&watch->stuck, &about, since, HUNG_LANE_NSEC);
		hung_push(&watch->stuck);
		watch->hung_since_nsec = since;
	}
	return since;
}

static void watches_look_in_a_while(void)
{
	const struct timeval timeout = { .tv_sec = HUNG_LANE_NSEC / NSEC_PER_SEC };

	if (evtimer_add(stuck.watch_event, &timeout) == 0)
		return;
	(void)pthread_mutex_lock(&stuck.lock);
	stuck.is_asked = false; /* without memory: the next call asks again */
	LIST_EACH(struct hung_watch, watch, &stuck.watches, node)
		atomic_store(&watch->is_watched, false);
	(void)pthread_mutex_unlock(&stuck.lock);
}

static void on_watch_due(evutil_socket_t fd, short what, void *arg)
{
	uint64_t now_nsec = clock_nsec();
	bool must_look = false;

	(void)fd;
	(void)what;
	(void)arg;
	(void)pthread_mutex_lock(&stuck.lock);
	LIST_EACH(struct hung_watch, watch, &stuck.watches, node)
		must_look |= watch_look(watch, now_nsec);
	stuck.is_asked = must_look;
	(void)pthread_mutex_unlock(&stuck.lock);
	if (must_look)
		watches_look_in_a_while();
}

static void on_watch_asked(struct message *message)
{
	(void)message;
	watches_look_in_a_while();
}

void hung_stopping(void)
{
	_cleanup_(freep) struct hung_told *list = NULL;
	size_t n = 0;

	(void)pthread_mutex_lock(&stuck.lock);
	stuck.is_stopping = true;
	(void)pthread_mutex_unlock(&stuck.lock);
	if (hung_list(NULL, NULL, SIZE_MAX, &list, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		log_told(&list[i], true);
}

void hung_count(struct hung_counts *ret_counts)
{
	struct hung_counts counts = { 0 };

	(void)pthread_mutex_lock(&stuck.lock);
	counts.last_number = stuck.last_number;
	LIST_EACH(const struct hung, s, &stuck.calls, node) {
		counts.n_with_bytes += s->has_bytes;
		counts.n_without_bytes += !s->has_bytes;
		counts.n_blocks += !s->has_bytes && s->about.is_block;
	}
	(void)pthread_mutex_unlock(&stuck.lock);
	*ret_counts = counts;
}

int hung_init(struct event_base *base, struct mailbox *main_mailbox)
{
	stuck.event = evtimer_new(base, on_due, NULL);
	stuck.watch_event = evtimer_new(base, on_watch_due, NULL);
	if (!stuck.event || !stuck.watch_event) {
		hung_deinit();
		return -ENOMEM;
	}
	(void)pthread_mutex_lock(&stuck.lock);
	stuck.message.run = on_begun;
	stuck.watch_message.run = on_watch_asked;
	stuck.mailbox = main_mailbox;
	stuck.is_watching = stuck.is_asked = stuck.is_stopping = false;
	(void)pthread_mutex_unlock(&stuck.lock);
	return 0;
}

void hung_deinit(void)
{
	(void)pthread_mutex_lock(&stuck.lock);
	stuck.mailbox = NULL;
	(void)pthread_mutex_unlock(&stuck.lock);
	if (stuck.event)
		event_free(stuck.event);
	if (stuck.watch_event)
		event_free(stuck.watch_event);
	stuck.event = stuck.watch_event = NULL;
}
