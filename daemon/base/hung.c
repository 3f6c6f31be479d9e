#include "daemon/base/hung.h"

#include "daemon/base/event.h"
#include "daemon/base/fs_type.h"
#include "daemon/base/log.h"
#include "daemon/base/mailbox.h"
#include "daemon/base/mount.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DEVICE_TEXT "an answer of the device: dmesg may say more"
#define WHO_BYTES 40 /* two numbers of 32 bits, and words */

static struct {
	/* A message to the main thread is under way, or its timer is set.  Changed under the lock, and read by each
	   call of a lane: not beside what else changes. */
	_Alignas(64) _Atomic bool is_watching;
	_Alignas(64) pthread_mutex_t lock;
	/* under lock */
	struct list calls; /* struct hung_call: of lanes, then the others, oldest first */
	uint64_t n_begun;
	struct mailbox *mailbox; /* NULL: before hung_init() */
	bool is_stopping;
	struct message message;
	struct log_limit log_limit;
	struct event *event; /* the main thread's */
} hung = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* "user 7: client 3", or without the client if there is no session. */
static const char *who_title(const struct hung_who *who, char text[WHO_BYTES])
{
	if (who->client)
		(void)snprintf(text, WHO_BYTES, "user %u: client %" PRIu32, who->uid, who->client);
	else
		(void)snprintf(text, WHO_BYTES, "user %u", who->uid);
	return text;
}

/* Under the lock: whether the log has a line about another call of the driver, which stands for this one. */
static bool has_line(const struct hung_call *call)
{
	if (call->about.is_gpu)
		LIST_EACH(const struct hung_call, other, &hung.calls, node)
			if (other != call && other->reported_nsec && other->about.is_gpu &&
			    other->about.is_block == call->about.is_block)
				return true;
	return false;
}

/* Under the lock: a call that was reported has returned. */
static void log_return(struct hung_call *call)
{
	char who[WHO_BYTES];

	if (!has_line(call))
		log_event(&hung.log_limit,
			  LOG_FIELDS(.event = "hung-end", .store = call->about.store,
				     .op = call->about.what, .who = &call->about.who),
			  "%s: %s: %s came back after %" PRIu64 " s",
			  who_title(&call->about.who, who), call->file, call->about.what,
			  (clock_nsec() - call->reported_nsec) / NSEC_PER_SEC);
	call->reported_nsec = 0;
}

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

static void call_init(struct hung_call *call, const struct hung_about *about)
{
	call->about = *about;
	call->is_lane = false;
	call->reported_nsec = 0;
	atomic_init(&call->since_nsec, 0);
	(void)snprintf(call->file, sizeof(call->file), "%s", about->file); /* cut is fine */
	call->about.file = call->file;
}

static void on_begun(struct message *message);

/* Under the lock: has the main thread look at the records. */
static void watch(void)
{
	if (!hung.mailbox || atomic_load(&hung.is_watching))
		return;
	atomic_store(&hung.is_watching, true);
	mailbox_post(hung.mailbox, &hung.message, on_begun);
}

void hung_begin(struct hung_call *call, const struct hung_about *about)
{
	call_init(call, about);
	if (!about->mount_id && !about->is_gpu && !about->is_memory)
		call->about.mount_id = fd_mount_id(about->fd);
	LOCKED(&hung.lock);
	atomic_store(&call->since_nsec, clock_nsec());
	hung.n_begun++;
	list_push(&hung.calls, &call->node);
	watch();
}

void hung_end(struct hung_call *call)
{
	LOCKED(&hung.lock);
	list_remove(&hung.calls, &call->node);
	if (call->reported_nsec)
		log_return(call);
}

/* ---- lanes ---- */

void hung_add_lane(struct hung_call *call, const struct hung_about *about)
{
	call_init(call, about);
	call->is_lane = true;
	LOCKED(&hung.lock);
	list_push_front(&hung.calls, &call->node);
}

void hung_enter(struct hung_call *call, const struct hung_who *who, uint64_t now_nsec)
{
	/* relaxed: the store of since_nsec releases them */
	atomic_store_explicit(&call->uid, who->uid, memory_order_relaxed);
	atomic_store_explicit(&call->pid, (uint32_t)who->pid, memory_order_relaxed);
	atomic_store_explicit(&call->client, who->client, memory_order_relaxed);
	/* Both sequentially consistent, as in on_due(): one of the two sees the other's. */
	atomic_store(&call->since_nsec, now_nsec);
	if (atomic_load(&hung.is_watching))
		return;
	LOCKED(&hung.lock);
	watch();
}

void hung_leave(struct hung_call *call)
{
	/* relaxed: a call that seems to last a moment longer is no harm */
	atomic_store_explicit(&call->since_nsec, 0, memory_order_relaxed);
}

/* ---- the text of a report ---- */

/* The command or event that frees the call, by the kind of file system. */
static void mount_cure(const struct mount *mount, const struct hung_about *about, char *text,
		       size_t size)
{
	const struct fs_type *type = fs_type_of_mount(mount->fs_type);

	/* The connection is named by the kernel's internal device number. */
	if (type->is_fuse)
		(void)snprintf(text, size, "echo 1 > /sys/fs/fuse/connections/%u/abort",
			       major(mount->dev) << 20 | minor(mount->dev));
	else if (type->is_network)
		(void)snprintf(text, size, "umount -f %s", mount->point);
	else if (about->is_device)
		(void)snprintf(text, size, DEVICE_TEXT);
	else
		(void)snprintf(
			text, size,
			"an answer of the device; if a hung process of the user holds the "
			"file's lock: pkill -KILL -u %u (ends all processes of the user, FUSE "
			"servers included)",
			about->who.uid);
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
static void driver_place(bool is_block, struct hung_place *place)
{
	char end[64];

	(void)snprintf(end, sizeof(end), "the end of the daemon: kill -9 %d", getpid());
	(void)snprintf(place->mount, sizeof(place->mount), "the GPU's driver");
	(void)snprintf(place->text, sizeof(place->text),
		       "an answer of the driver (see whether nvidia-smi returns), or %s",
		       is_block ? end : "a restart of the daemon");
}

static void place_find(const struct hung_about *about, struct hung_place *place)
{
	_cleanup_(mount_deinit) struct mount mount = { 0 };
	int r;

	if (about->is_gpu) {
		driver_place(about->is_block, place);
		return;
	}
	if (about->is_memory) {
		memory_place(&about->who, place);
		return;
	}
	if (about->is_cluster) {
		(void)snprintf(place->mount, sizeof(place->mount), "the Ceph cluster");
		(void)snprintf(
			place->text, sizeof(place->text),
			"an answer of the cluster, or the store's op_timeout: ceph -s may say more");
		return;
	}
	r = mount_find(0, about->mount_id, about->dev, &mount);
	if (r < 0 && about->who.pid) /* a namespace of the client's own */
		r = mount_find(about->who.pid, about->mount_id, about->dev, &mount);
	if (r == 0) {
		(void)snprintf(place->mount, sizeof(place->mount), "%s (%s, device %u:%u)",
			       mount.point, mount.fs_type, major(mount.dev), minor(mount.dev));
		mount_cure(&mount, about, place->text, sizeof(place->text));
		return;
	}
	if (about->dev) {
		(void)snprintf(place->mount, sizeof(place->mount), "device %u:%u",
			       major(about->dev), minor(about->dev));
		if (about->is_device)
			(void)snprintf(place->text, sizeof(place->text), DEVICE_TEXT);
		else
			(void)snprintf(
				place->text, sizeof(place->text),
				"the end of the process that serves it; if it is FUSE, echo 1 > "
				"/sys/fs/fuse/connections/%u/abort",
				major(about->dev) << 20 | minor(about->dev));
		return;
	}
	(void)snprintf(place->mount, sizeof(place->mount), "%s",
		       r == -E2BIG ? "a mount that was not looked up: too many mounts"
				   : "no mount that is visible here");
	(void)snprintf(place->text, sizeof(place->text),
		       "the end of the process that serves the file system, or is the peer of the "
		       "socket");
}

/* ---- the main thread ---- */

/* How long the exit waits (stop_wait.h). */
static const char *delay_of(const struct hung_call *call)
{
	if (!hung.is_stopping)
		return "";
	return call->about.is_block ? ", and delays the daemon's exit until it returns"
				    : ", and delays the daemon's exit by some seconds, or until it "
				      "returns if the kernel cannot interrupt it";
}

/* Under the lock. */
static void log_hung(const struct hung_call *call)
{
	char who[WHO_BYTES];

	log_event(&hung.log_limit,
		  LOG_FIELDS(.event = "hung", .store = call->about.store, .op = call->about.what,
			     .who = &call->about.who, .is_warning = true),
		  "%s: %s: %s has not come back for %" PRIu64 " s%s: on %s; what frees it: %s",
		  who_title(&call->about.who, who), call->file, call->about.what,
		  (clock_nsec() - call->reported_nsec) / NSEC_PER_SEC, delay_of(call),
		  call->place.mount, call->place.text);
}

/* A copy of what a report of a call needs, since the call may return meanwhile. */
struct due {
	struct hung_call *call; /* NULL: none */
	uint64_t since_nsec;
	struct hung_about about;
};

/* Under the lock: reports calls of lanes that have returned, and finds the first call that is to be reported.
   Returns whether any call is in progress. */
static bool look(struct due *ret_due)
{
	const uint64_t now_nsec = clock_nsec();
	bool is_any = false;

	ret_due->call = NULL;
	LIST_EACH(struct hung_call, call, &hung.calls, node) {
		const uint64_t since_nsec = atomic_load(&call->since_nsec);

		if (call->reported_nsec && call->reported_nsec != since_nsec)
			log_return(call);
		if (!since_nsec)
			continue;
		is_any = true;
		if (ret_due->call || call->reported_nsec ||
		    now_nsec < since_nsec + (call->is_lane ? HUNG_LANE_NSEC : HUNG_NSEC))
			continue;
		if (call->is_lane) { /* relaxed: as in hung_enter() */
			call->about.who.uid = atomic_load_explicit(&call->uid,
								   memory_order_relaxed);
			call->about.who.pid = (pid_t)atomic_load_explicit(&call->pid,
									  memory_order_relaxed);
			call->about.who.client = atomic_load_explicit(&call->client,
								      memory_order_relaxed);
		}
		*ret_due = (struct due){ call, since_nsec, call->about };
	}
	return is_any;
}

/* Finds its place, without the lock because mountinfo may be long, and reports it if it has not returned. */
static void report(const struct due *due)
{
	struct hung_place place;

	place_find(&due->about, &place);
	LOCKED(&hung.lock);
	LIST_EACH(struct hung_call, call, &hung.calls, node) {
		if (call != due->call || atomic_load(&call->since_nsec) != due->since_nsec)
			continue;
		call->place = place;
		call->reported_nsec = due->since_nsec;
		if (!has_line(call))
			log_hung(call);
	}
}

static void look_in(time_t sec)
{
	const struct timeval timeout = { .tv_sec = sec };

	if (evtimer_add(hung.event, &timeout) < 0)
		atomic_store(&hung.is_watching, false); /* no memory: the next call tries again */
}

static void on_due(EVENT_ARG(arg))
{
	struct due due;
	bool is_any;

	(void)arg;
	(void)pthread_mutex_lock(&hung.lock);
	is_any = look(&due);
	if (!is_any) {
		atomic_store(&hung.is_watching, false);
		is_any = look(&due); /* hung_enter() may have found it true */
		atomic_store(&hung.is_watching, is_any);
	}
	(void)pthread_mutex_unlock(&hung.lock);
	if (due.call)
		report(&due);
	if (is_any)
		look_in(due.call ? 0 : 1); /* there may be others to report */
}

static void on_begun(struct message *message)
{
	(void)message;
	look_in(1);
}

void hung_stopping(void)
{
	LOCKED(&hung.lock);
	hung.is_stopping = true;
	LIST_EACH(const struct hung_call, call, &hung.calls, node)
		if (call->reported_nsec)
			log_hung(call);
}

void hung_count(struct hung_counts *ret_counts)
{
	LOCKED(&hung.lock);
	*ret_counts = (struct hung_counts){ .n_begun = hung.n_begun };
	LIST_EACH(const struct hung_call, call, &hung.calls, node) {
		if (!atomic_load(&call->since_nsec))
			continue;
		ret_counts->n_with_bytes += call->about.is_block;
		ret_counts->n_without_bytes += !call->about.is_block;
	}
}

void hung_each(bool (*each)(const struct hung_call *call, void *arg), void *arg)
{
	LOCKED(&hung.lock);
	LIST_EACH(const struct hung_call, call, &hung.calls, node)
		if (call->reported_nsec && !each(call, arg))
			break;
}

int hung_init(struct event_base *base, struct mailbox *main_mailbox)
{
	hung.event = evtimer_new(base, on_due, NULL);
	if (!hung.event)
		return -ENOMEM;
	LOCKED(&hung.lock);
	hung.mailbox = main_mailbox;
	hung.is_stopping = false;
	atomic_store(&hung.is_watching, false);
	return 0;
}

void hung_deinit(void)
{
	LOCKED(&hung.lock);
	hung.mailbox = NULL;
	event_freep(&hung.event);
}
