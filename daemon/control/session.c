#include "daemon/control/session.h"

#include "daemon/object/file.h"
#include "daemon/base/work_queue.h"
#include "daemon/base/log.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/file_board.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* Slabs being made, and without further threads files being checked or closed, at once for one user:
   a guess. */
#define USER_THREADS 4u
/* What hangs in a dead mount keeps its thread, so each unanswered request and each closing of
   descriptors of a user may need one: a guess. */
#define USER_FURTHER_THREADS 60u
/* How long a session's requests are served before it is another session's turn: a guess. */
#define TURN_NSEC 250000u
/* Descriptors of one user that are to be closed, before its clients wait: a guess. */
#define USER_CLOSING_FDS_MAX 64u
/* Idle files of one user that go at once when it is near its bound on files. */
#define RECLAIM_FILES 64u
#define RECLAIM_NSEC 100000000u /* there were fewer: not sooner again for this client */

/* How soon after the last file was added, or idle ones were let go, and how often then. */
#define LOOK_SOON_SEC 3
#define LOOK_SEC 5
/* Files of one client that the work queue looks at before other work has its turn: a millisecond. */
#define LOOK_FILES 1024u

/* A slab or file whose id is gone: lanes are asked, then it is dropped; who asked is told. */
struct removal {
	struct id_table *table;
	uint32_t id;
	void *object;
	void (*drop)(void *object, void (*on_freed)(void *arg), void *arg);
	void (*on_freed)(void *arg);
	void *arg;
	uint32_t n_unquiet; /* lanes that may still look at it */
	struct quiet {
		struct lane_quiesce quiesce;
		struct removal *removal;
	} quiets[];
};

/* A file that waits for room within the user's bound. */
struct add {
	struct add *next;
	struct call *call;
	int fd;
	char name[128];
};

/* Idle files of one client, held, while the work queue looks which of them have no link any more. */
struct look {
	struct session *session;
	struct work work;
	struct message message;
	uint32_t cursor; /* in the table of files: where the next turn goes on */
	bool has_found;	 /* some file was let go, in this turn or an earlier one */
	unsigned n_files;
	struct {
		struct file *file;
		bool is_unlinked;
	} files[LOOK_FILES];
};

/* Descriptors that a worker thread is to close: received from a client, or one control socket. */
struct closing {
	struct service *service;
	struct user *user;
	struct session *session; /* NULL: a control socket, which holds the user */
	struct work work;
	struct message message;
	unsigned n_fds;
	int fds[];
};

static void session_touch(struct session *session);
static void session_resume(struct session *session);
static void on_look(evutil_socket_t fd, short what, void *arg);

/* ---- users ---- */

static void user_name(struct quota *quota, uid_t uid)
{
	(void)snprintf(quota->name, sizeof(quota->name), "user %u", uid);
}

static int user_take(struct service *service, uid_t uid, struct user **ret_user)
{
	char name[16];
	struct user *user;
	int r;

	for (user = service->users; user; user = user->next) {
		if (user->uid == uid) {
			user->n_sessions++;
			*ret_user = user;
			return 0;
		}
	}
	user = calloc(1, sizeof(*user));
	if (!user)
		return -ENOMEM;
	(void)snprintf(name, sizeof(name), "user-%u", uid);
	r = work_queue_new(name, USER_THREADS, &user->slab_work_queue);
	if (r == 0)
		r = work_queue_new_deep(name, USER_THREADS, USER_FURTHER_THREADS,
					&user->work_queue);
	if (r < 0) {
		work_queue_free(user->slab_work_queue);
		free(user);
		return r;
	}
	user->uid = uid;
	user->last_add = &user->first_add;
	turn_owner_init(&user->turns);
	user->n_sessions = 1;
	user_name(&user->quota, uid);
	user->quota.parent = &service->pool.quota;
	memcpy(user->quota.limit, service->user_limit, sizeof(user->quota.limit));
	user->next = service->users;
	service->users = user;
	*ret_user = user;
	return 0;
}

/* The last session takes the user along.  Its worker threads have nothing to do any more. */
static void user_give(struct service *service, struct user *user)
{
	struct user **at = &service->users;

	if (--user->n_sessions)
		return;
	assert(quota_is_zero(&user->quota));
	while (*at != user)
		at = &(*at)->next;
	*at = user->next;
	work_queue_free(user->slab_work_queue);
	work_queue_free(user->work_queue);
	free(user);
}

/* ---- calls ---- */

int call_new(struct session *session, uint64_t seq, struct call **ret_call, struct error *error)
{
	struct call *call = calloc(1, sizeof(*call));
	int r;

	if (!call)
		return error_set(error, -ENOMEM, "request");
	r = quota_charge(&call->charge, &session->quota, QUOTA_CALLS, 1, error);
	if (r < 0) {
		free(call);
		return r;
	}
	call->session = session;
	call->seq = seq;
	session->n_calls++;
	*ret_call = call;
	return 0;
}

static bool user_is_full(const struct user *user)
{
	return user->quota.used[QUOTA_CALLS] >= user->quota.limit[QUOTA_CALLS] ||
	       user->n_closing_fds >= USER_CLOSING_FDS_MAX;
}

/* What held up one held up all of the user's. */
static void user_resume(struct service *service, const struct user *user)
{
	for (struct session *s = service->sessions; s; s = s->next)
		if (s->user == user)
			session_resume(s);
}

void call_free(struct call *call)
{
	struct session *session;
	bool was_full;

	if (!call)
		return;
	session = call->session;
	was_full = user_is_full(session->user);
	quota_discharge(&call->charge);
	for (unsigned i = 0; i < call->n_reply_fds; i++)
		closep(&call->reply_fds[i]);
	free(call);

	session->n_calls--;
	session_touch(session);
	session_resume(session);
	if (was_full)
		user_resume(session->service, session->user);
}

/* A copy of a descriptor for the reply. */
static int call_add_fd(struct call *call, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (copy < 0)
		return -errno;
	assert(call->n_reply_fds < FRAME_FDS_MAX);
	call->reply_fds[call->n_reply_fds++] = copy;
	return 0;
}

/* ---- foreign descriptors ---- */

static void closed_main(struct message *message)
{
	struct closing *closing = container_of(message, struct closing, message);
	struct service *service = closing->service;
	struct session *session = closing->session;
	struct user *user = closing->user;
	bool was_full = user_is_full(user);

	user->n_closing_fds -= closing->n_fds;
	free(closing);
	if (was_full)
		user_resume(service, user);
	if (session) {
		session->n_closings--;
		session_touch(session);
	} else {
		service->n_closing_sockets--;
		user_give(service, user);
		service->on_gone(service);
	}
}

static void close_run(struct work *work)
{
	struct closing *closing = container_of(work, struct closing, work);

	for (unsigned i = 0; i < closing->n_fds; i++)
		closep(&closing->fds[i]);
	closing->message.run = closed_main;
	mailbox_post(closing->service->mailbox, &closing->message);
}

/* Rather this thread hangs than that descriptors run out as memory has. */
static void close_here(const int *fds, unsigned n_fds)
{
	for (unsigned i = 0; i < n_fds; i++)
		if (fds[i] >= 0)
			(void)close(fds[i]); /* foreign: its errors are the client's */
}

/* Returns NULL without memory. */
static struct closing *closing_new(struct service *service, struct user *user, const int *fds,
				   unsigned n_fds)
{
	struct closing *closing = calloc(1, sizeof(*closing) + n_fds * sizeof(closing->fds[0]));

	if (!closing)
		return NULL;
	closing->service = service;
	closing->user = user;
	for (unsigned i = 0; i < n_fds; i++)
		if (fds[i] >= 0)
			closing->fds[closing->n_fds++] = fds[i];
	return closing;
}

static void closing_submit(struct closing *closing, const struct hung_who *who, const char *file)
{
	closing->work.run = close_run;
	closing->work.about = (struct hung_about){
		.what = "close",
		.file = file,
		.fd = closing->fds[0],
		.who = *who,
	};
	closing->user->n_closing_fds += closing->n_fds;
	work_queue_submit(closing->user->work_queue, &closing->work);
}

/* Closes descriptors received from the client on a worker thread of its user, because close(2) may
   hang. */
static void session_close_fds(struct session *session, const int *fds, unsigned n_fds)
{
	struct closing *closing;
	unsigned n = 0;

	for (unsigned i = 0; i < n_fds; i++)
		n += fds[i] >= 0;
	if (!n)
		return;
	closing = closing_new(session->service, session->user, fds, n_fds);
	if (!closing) {
		close_here(fds, n_fds);
		return;
	}
	closing->session = session;
	session->n_closings++;
	closing_submit(closing, &session->who, "descriptors that came with a request");
}

/* Stops the peer from sending.  Returns whether the socket contains anything: close(2) of the socket
   then closes the descriptors in it, and may hang. */
static bool socket_has_unread(int fd)
{
	int n_bytes;

	(void)shutdown(fd, SHUT_RD); /* of a connected socket: cannot fail */
	return ioctl(fd, FIONREAD, &n_bytes) < 0 || n_bytes > 0; /* each descriptor has a byte */
}

/*
 * Closes a control socket that has unread messages on a worker thread.  The descriptors in it stay in
 * flight until then: they take no place in the daemon's table, and the kernel charges them to the
 * sender.  The client sees the end of file now.  Takes the hold on the user.
 */
static void close_unread(struct service *service, struct user *user, int fd,
			 const struct hung_who *who, const char *file)
{
	struct closing *closing = closing_new(service, user, &fd, 1);

	if (!closing) {
		user_give(service, user);
		close_here(&fd, 1);
		return;
	}
	service->n_closing_sockets++;
	(void)shutdown(fd, SHUT_WR); /* as above */
	closing_submit(closing, who, file);
}

void service_close_refused(struct service *service, int fd)
{
	struct ucred cred = { .uid = (uid_t)-1 };
	socklen_t len = sizeof(cred);
	struct user *user;

	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len); /* of any connected socket */
	if (!socket_has_unread(fd) || user_take(service, cred.uid, &user) < 0) {
		close_here(&fd, 1);
		return;
	}
	close_unread(service, user, fd, &(struct hung_who){ .uid = cred.uid, .pid = cred.pid },
		     "descriptors that a refused connection sent");
}

bool service_may_accept(const struct service *service)
{
	return service->n_closing_sockets < service->max_closing_sockets;
}

/* ---- the socket ---- */

const char *session_title(const struct session *session)
{
	static char title[160]; /* the main thread's, until the next call */

	(void)snprintf(title, sizeof(title), "client %" PRIu32 " (pid %d%s%s)", session->id,
		       session->peer.pid, session->name[0] ? ", " : "", session->name);
	return title;
}

static bool session_is_ending(const struct session *session)
{
	return session->state >= SESSION_ENDING;
}

/* Only the owner of what is at its bound waits: its requests stay in its own socket. */
static bool session_may_read(const struct session *session)
{
	return !session_is_ending(session) &&
	       session->quota.used[QUOTA_CALLS] < session->quota.limit[QUOTA_CALLS] &&
	       !user_is_full(session->user) && session->writer.queued_bytes <= SESSION_UNSENT_MAX &&
	       session->writer.n_queued_fds <= SESSION_UNSENT_FDS_MAX;
}

static void session_resume(struct session *session)
{
	if (session->is_reading || !session_may_read(session))
		return;
	session->is_reading = true;
	(void)event_add(session->read_event, NULL);	     /* epoll knew this descriptor before */
	turns_add(&session->service->turns, &session->turn); /* frames may wait in the reader */
}

static void session_pause(struct session *session)
{
	if (!session->is_reading)
		return;
	session->is_reading = false;
	(void)event_del(session->read_event); /* it was added */
}

/* Nothing can reach the client any more. */
static void session_lost(struct session *session)
{
	session->is_mute = true;
	session_end(session, false);
}

static void session_flush(struct session *session)
{
	static const struct timeval retry = { .tv_usec = 10000 };
	int r;

	if (session->is_mute)
		return;
	r = frame_flush(&session->writer, session->fd);
	if (r == -EAGAIN)
		(void)event_add(session->write_event, NULL); /* as for reading */
	else if (r == -ETOOMANYREFS && event_add(session->retry_event, &retry) == 0)
		return; /* the uid has more descriptors in flight than the daemon may open */
	else if (r < 0)
		session_lost(session);
	else
		session_resume(session);
}

/* What was sent, or will not be: only of the client's files can a close hang. */
static void close_reply_fds(struct frame_writer *writer, const int *fds, unsigned n_fds)
{
	struct session *session = container_of(writer, struct session, writer);

	if (session->has_got_files) {
		session_close_fds(session, fds, n_fds);
		return;
	}
	for (unsigned i = 0; i < n_fds; i++)
		(void)close(fds[i]); /* our own */
}

void session_send(struct session *session, const void *body, size_t len, const int *fds,
		  unsigned n_fds)
{
	int r;

	if (session->is_mute) {
		close_reply_fds(&session->writer, fds, n_fds);
		return;
	}
	r = frame_queue(&session->writer, body, len, fds, n_fds);
	if (r < 0) { /* a reply that is lost would be waited for without end */
		log_client(&session->user->log_limit, "%s: no reply can be sent: %s",
			   session_title(session), strerrordesc_np(-r));
		session_lost(session);
		return;
	}
	session_flush(session);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	session_flush(arg);
}

/* Serves requests for TURN_NSEC; returns whether more may wait. */
static bool session_serve(struct session *session)
{
	uint64_t end_nsec = clock_nsec() + TURN_NSEC;

	while (session_may_read(session)) {
		struct frame frame;
		char why[ERROR_TEXT_BYTES];
		int r = frame_read(&session->reader, session->fd, &frame, why, sizeof(why));

		if (r == -EAGAIN)
			return false;
		if (r == -EPROTO) {
			session->service->on_garbage(session, why);
			return false;
		}
		if (r <= 0) { /* its end, or a reset, which is how an end looks with data unread */
			session_lost(session);
			return false;
		}
		session->service->on_frame(session, &frame);
		session_close_fds(session, frame.fds, frame.n_fds);
		if (clock_nsec() >= end_nsec)
			return true;
	}
	session_pause(session);
	return false;
}

static bool turn_serve(struct turn *turn)
{
	struct session *session = container_of(turn, struct session, turn);
	bool has_more = session_serve(session);

	session_touch(session); /* its end waits for its turn */
	return has_more && !session_is_ending(session);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct session *session = arg;

	(void)fd;
	(void)what;
	turns_add(&session->service->turns, &session->turn);
}

static void on_death(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	session_lost(arg); /* a forked child may keep the socket open: nobody reads it for us */
}

/* Takes pidfd. */
static int session_watch(struct session *session, int pidfd)
{
	session->pidfd = pidfd;
	session->pid_event = event_new(session->service->base, pidfd, EV_READ, on_death, session);
	if (!session->pid_event || event_add(session->pid_event, NULL) < 0)
		return -ENOMEM;
	return 0;
}

/* ---- handles and channels ---- */

static void handle_free(struct handle *handle)
{
	struct call *call = handle->close_call;

	closep(&handle->doorbell_fd);
	quota_discharge(&handle->charge);
	free(handle);
	if (call)
		call->on_done(call, 0, NULL);
}

/* Its ids are gone at once; the handle when its lanes have given all channels back. */
static void handle_close(struct handle *handle, bool drain)
{
	struct session *session = handle->session;

	(void)id_table_remove(&session->handles, handle->id); /* it is there */
	id_table_release(&session->handles, handle->id);      /* lanes never look there */
	handle->is_closed = true;
	for (struct member *member = handle->members; member; member = member->next) {
		(void)id_table_remove(&session->channels, member->channel->id);
		id_table_release(&session->channels, member->channel->id);
		lane_remove_channel(member->channel->home, member->channel, drain);
	}
	if (!handle->n_channels)
		handle_free(handle);
}

/* The share, made if need be, for something to be put in; then, or without, share_settle(). */
static struct share *share_get(struct session *session, struct store *store)
{
	struct share *share;

	for (share = session->shares; share; share = share->next)
		if (share->store == store)
			return share;
	share = calloc(1, sizeof(*share));
	if (!share)
		return NULL;
	share->session = session;
	share->store = store;
	store_ref(store);
	store->n_shares++;
	sched_client_init(&share->client);
	share->next = session->shares;
	session->shares = share;
	return share;
}

/* Frees a share that has nothing any more. */
static void share_settle(struct share *share)
{
	struct share **at = &share->session->shares;

	if (share->n_channels || share->n_files)
		return;
	while (*at != share)
		at = &(*at)->next;
	*at = share->next;
	share->store->n_shares--;
	store_unref(share->store);
	free(share);
}

/* A file there is closed. */
static void share_lose_file(struct share *share)
{
	share->n_files--;
	share_settle(share);
}

static void share_settlep(struct share **share)
{
	if (*share)
		share_settle(*share);
}

static void on_channel_removed(struct channel *channel, void *arg)
{
	struct member *member = arg, **at;
	struct handle *handle = member->handle;
	struct session *session = handle->session;

	assert(handle->is_closed);
	for (at = &handle->members; *at != member; at = &(*at)->next)
		;
	*at = member->next;
	for (at = &session->members; *at != member; at = &(*at)->next_in_session)
		;
	*at = member->next_in_session;
	handle->n_channels--;
	session->n_channels--;
	channel_free(channel);
	member->share->n_channels--;
	share_settle(member->share);
	free(member);
	if (!handle->n_channels)
		handle_free(handle);
	session_touch(session);
}

static void on_channel_broken(struct channel *channel, const char *why, void *arg)
{
	const struct member *member = arg;
	struct session *session = member->handle->session;

	if (!session_is_ending(session))
		log_client(&session->user->log_limit, "%s: channel %" PRIu32 ": %s: disconnected",
			   session_title(session), channel->id, why);
	session_end(session, false);
}

int session_handle_open(struct session *session, const struct handle_config *config,
			struct handle **ret_handle, int *ret_client_fd, struct error *error)
{
	struct handle *handle;
	int fds[2], r;

	handle = calloc(1, sizeof(*handle));
	if (!handle)
		return error_set(error, -ENOMEM, "handle");
	handle->doorbell_fd = -1;
	handle->session = session;
	handle->has_profile = config->profile;
	if (config->profile)
		handle->profile = *config->profile;
	handle->io_class = config->io_class;
	handle->weight = config->weight;
	r = quota_charge(&handle->charge, &session->quota, QUOTA_HANDLES, 1, error);
	if (r < 0) {
		handle_free(handle);
		return r;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0) {
		r = error_set(error, -errno, "handle: bell socket");
		handle_free(handle);
		return r;
	}
	/* Nothing is read there.  So the client can send nothing, and no descriptor of the client's
	   waits in the socket to be closed with it. */
	(void)shutdown(fds[0], SHUT_RD); /* a connected socket: can not fail */
	handle->doorbell_fd = fds[0];
	r = id_table_add(&session->handles, handle, &handle->id);
	if (r < 0) {
		closep(&fds[1]);
		handle_free(handle);
		return error_set(error, r, "handle: no id");
	}
	*ret_handle = handle;
	*ret_client_fd = fds[1];
	return 0;
}

static int error_no_such(struct error *error, const char *what, uint32_t id)
{
	return error_set_plain(error, -EBADF,
			       "%s %" PRIu32
			       ": this client has none with this id; it was closed, or never "
			       "opened here",
			       what, id);
}

int session_handle_close(struct session *session, uint32_t id, struct call *call,
			 struct error *error)
{
	struct handle *handle = id_table_get(&session->handles, id);

	if (!handle)
		return error_no_such(error, "handle", id);
	handle->close_call = call;
	handle_close(handle, false);
	return 0;
}

/* Copies of what a client needs of a channel with rings. */
static int channel_copy_fds(const struct channel *channel, int ret_fds[FRAME_FDS_MAX],
			    unsigned *ret_n_fds)
{
	const int from[] = { channel->ring_fd, channel->doorbell_fd, lane_board_fd(channel->home) };
	unsigned n;

	for (n = 0; n < sizeof(from) / sizeof(*from); n++) {
		ret_fds[n] = fcntl(from[n], F_DUPFD_CLOEXEC, 3);
		if (ret_fds[n] < 0) {
			int code = -errno;

			while (n-- > 0)
				closep(&ret_fds[n]);
			return code;
		}
	}
	*ret_n_fds = n;
	return 0;
}

int session_channel_open(struct session *session, uint32_t handle_id, uint32_t store_id,
			 uint32_t entries, bool has_rings, struct channel **ret_channel,
			 int ret_fds[FRAME_FDS_MAX], unsigned *ret_n_fds, struct error *error)
{
	struct handle *handle = id_table_get(&session->handles, handle_id);
	struct store *store = registry_by_id(&session->service->stores, store_id);
	_cleanup_(freep) struct member *member = NULL;
	_cleanup_(share_settlep) struct share *share = NULL;
	struct channel *channel;
	unsigned n_fds = 0;
	int r;

	if (!handle)
		return error_no_such(error, "handle", handle_id);
	if (!store)
		return error_set_plain(
			error, -ENXIO,
			"channel: store %" PRIu32 ": the daemon has none with this id", store_id);
	r = registry_check_access(&session->service->stores, store, &session->peer, "channel",
				  error);
	if (r < 0)
		return r;
	for (const struct member *m = handle->members; m; m = m->next)
		if (m->share->store == store)
			return error_set_plain(error, -EEXIST,
					       "channel: handle %" PRIu32
					       " has one on store %s already",
					       handle_id, store->name);
	member = calloc(1, sizeof(*member));
	share = share_get(session, store);
	if (!member || !share)
		return error_set(error, -ENOMEM, "channel");

	struct channel_config config = {
		.store = store,
		.objects = &session->objects,
		.client = &share->client,
		.quota = &session->quota,
		.uid = session->user->uid,
		.profile = handle->has_profile ? handle->profile : store->profile,
		.io_class = handle->io_class,
		.weight = handle->weight,
		.entries = entries,
		.has_rings = has_rings,
		.client_doorbell_fd = handle->doorbell_fd,
		.owner = { .on_removed = on_channel_removed,
			   .on_broken = on_channel_broken,
			   .arg = member },
	};
	r = store_start_lanes(store, &config.profile, error);
	if (r < 0)
		return r;
	r = channel_new(&config, &channel, error);
	if (r < 0)
		return r;
	if (has_rings) {
		r = channel_copy_fds(channel, ret_fds, &n_fds);
		if (r < 0) {
			channel_free(channel);
			return error_set(error, r, "channel: descriptors");
		}
	}
	r = id_table_add(&session->channels, member, &channel->id);
	if (r < 0) {
		for (unsigned i = 0; i < n_fds; i++)
			closep(&ret_fds[i]);
		channel_free(channel);
		return error_set(error, r, "channel: no id");
	}

	member->handle = handle;
	member->share = share;
	member->channel = channel;
	member->next = handle->members;
	member->next_in_session = session->members;
	session->members = member;
	handle->members = TAKE_PTR(member);
	share->n_channels++;
	handle->n_channels++;
	session->n_channels++;
	lane_add_channel(channel->home, channel);
	*ret_channel = channel;
	*ret_n_fds = n_fds;
	return 0;
}

/* ---- ops by Submit ---- */

static void on_batch_done(struct batch *batch)
{
	struct call *call = batch->arg;

	call->member->n_submitted -= batch->n;
	call->batch = batch;
	call->on_done(call, 0, NULL);
	batch_free(batch);
}

int session_submit(struct session *session, uint32_t channel_id, const struct ring_entry *entries,
		   uint32_t n, struct call *call, struct error *error)
{
	struct member *member = id_table_get(&session->channels, channel_id);
	struct channel *channel = member ? member->channel : NULL;
	struct batch *batch;
	int r;

	if (!channel)
		return error_no_such(error, "channel", channel_id);
	if (channel->has_rings)
		return error_set_plain(error, -EINVAL,
				       "submit: channel %" PRIu32
				       " has rings: its ops come by them; open one without",
				       channel_id);
	if (n > channel->entries)
		return error_set_plain(error, -EINVAL,
				       "submit: %" PRIu32 " ops: at most %" PRIu32
				       " ops may be open on this channel: submit fewer, or open a "
				       "channel with more entries",
				       n, channel->entries);
	if (n > channel->entries - member->n_submitted)
		return error_set_plain(error, -EAGAIN,
				       "submit: %" PRIu32 " ops behind %" PRIu32
				       " open ones: at most %" PRIu32
				       " ops may be open on this channel: wait for replies first",
				       n, member->n_submitted, channel->entries);
	r = batch_new(channel, n, on_batch_done, call, &batch);
	if (r < 0)
		return error_set(error, r, "submit: %" PRIu32 " ops", n);
	memcpy(batch->entries, entries, n * sizeof(*entries));
	call->member = member;
	member->n_submitted += n;
	lane_submit(batch);
	return 0;
}

static void on_cancelled(struct lane_cancel *cancel)
{
	struct call *call = container_of(cancel, struct call, cancel);

	call->on_done(call, 0, NULL);
}

int session_cancel(struct session *session, uint32_t channel_id, uint64_t op_id, struct call *call,
		   struct error *error)
{
	struct member *member = id_table_get(&session->channels, channel_id);

	if (!member)
		return error_no_such(error, "channel", channel_id);
	call->cancel = (struct lane_cancel){
		.channel = member->channel,
		.id = op_id,
		.on_done = on_cancelled,
	};
	lane_cancel(&call->cancel);
	return 0;
}

/* ---- slabs and files ---- */

/* A look at all idle files, by then. */
static void service_look_in(struct service *service, unsigned sec)
{
	const struct timeval timeout = { .tv_sec = sec };
	uint64_t due = clock_nsec() + sec * UINT64_C(1000000000);

	if (!service->look_event)
		service->look_event = evtimer_new(service->base, on_look, service);
	if (!service->look_event)
		return; /* without memory: the next file tries again */
	if (evtimer_pending(service->look_event, NULL) && service->look_due_nsec <= due)
		return;
	if (evtimer_add(service->look_event, &timeout) == 0)
		service->look_due_nsec = due;
}

static void object_gone(struct session *session)
{
	session->n_objects--;
	session_touch(session);
}

static void on_dropped(void *arg)
{
	object_gone(arg);
}

static void on_removed(void *arg)
{
	struct call *call = arg;
	struct session *session = call->session;

	call->on_done(call, 0, NULL);
	object_gone(session);
}

static void slab_unref_for(void *object, void (*on_freed)(void *arg), void *arg)
{
	struct slab *slab = object;

	slab->on_freed = on_freed;
	slab->freed_arg = arg;
	slab_unref(slab);
}

static void file_unref_for(void *object, void (*on_freed)(void *arg), void *arg)
{
	struct file *file = object;

	file->on_freed = on_freed;
	file->freed_arg = arg;
	file_unref(file);
}

static void removal_is_quiet(struct removal *removal)
{
	id_table_release(removal->table, removal->id);
	removal->drop(removal->object, removal->on_freed, removal->arg);
	free(removal);
}

static void on_quiet(struct lane_quiesce *quiesce)
{
	struct removal *removal = container_of(quiesce, struct quiet, quiesce)->removal;

	if (--removal->n_unquiet == 0)
		removal_is_quiet(removal);
}

/* Takes the id away from all lanes, then drops the object, which calls on_freed. */
static int session_remove(struct session *session, struct id_table *table, uint32_t id,
			  const char *what,
			  void (*drop)(void *object, void (*on_freed)(void *arg), void *arg),
			  void (*on_freed)(void *arg), void *arg, struct error *error)
{
	struct removal *removal;
	uint32_t n = 0;

	if (!id_table_get(table, id))
		return error_no_such(error, what, id);
	for (const struct share *share = session->shares; share; share = share->next)
		n += share->n_channels > 0;
	removal = calloc(1, sizeof(*removal) + n * sizeof(removal->quiets[0]));
	if (!removal)
		return error_set(error, -ENOMEM, "%s %" PRIu32, what, id);
	*removal = (struct removal){
		.table = table,
		.id = id,
		.object = id_table_remove(table, id),
		.drop = drop,
		.on_freed = on_freed,
		.arg = arg,
		.n_unquiet = n,
	};

	n = 0;
	for (const struct share *share = session->shares; share; share = share->next) {
		struct quiet *quiet = &removal->quiets[n];

		if (!share->n_channels)
			continue;
		quiet->removal = removal;
		quiet->quiesce.on_quiet = on_quiet;
		lane_quiesce(store_home(share->store), &quiet->quiesce);
		n++;
	}
	if (!n)
		removal_is_quiet(removal);
	return 0;
}

static void on_slab_made(struct slab *slab, int result, const struct error *failed, void *arg)
{
	struct call *call = arg;
	struct session *session = call->session;
	struct error error;

	if (result < 0) {
		session->n_objects--;
		call->on_done(call, result, failed);
		return;
	}
	if (session_is_ending(session)) {
		slab_unref_for(slab, on_dropped, session);
		(void)error_set(&error, -ECANCELED, "slab: the connection ends");
		call->on_done(call, error.code, &error);
		return;
	}
	if (!slab->is_imported)
		result = call_add_fd(call, slab->fd);
	if (result == 0)
		result = id_table_add(&session->objects.slabs, slab, &slab->id);
	if (result < 0) {
		slab_unref_for(slab, on_dropped, session);
		(void)error_set(&error, result, "slab: no id or descriptor for it");
		call->on_done(call, result, &error);
		return;
	}
	call->slab = slab;
	call->on_done(call, 0, NULL);
}

int session_slab_new(struct session *session, uint64_t size_bytes, struct call *call,
		     struct error *error)
{
	int r = slab_make(&session->service->pool, &session->quota, session->user->slab_work_queue,
			  size_bytes, on_slab_made, call, error);

	if (r == 0)
		session->n_objects++;
	return r;
}

int session_slab_import(struct session *session, int fd, uint64_t off, uint64_t size_bytes,
			struct call *call, struct error *error)
{
	int r = slab_import(&session->service->pool, &session->quota, session->user->work_queue, fd,
			    off, size_bytes, on_slab_made, call, error);

	if (r < 0)
		session_close_fds(session, &fd, 1);
	else
		session->n_objects++;
	return r;
}

int session_slab_free(struct session *session, uint32_t id, struct call *call, struct error *error)
{
	return session_remove(session, &session->objects.slabs, id, "slab", slab_unref_for,
			      on_removed, call, error);
}

static void on_file_checked(struct file *file, int result, const struct error *failed, void *arg)
{
	struct call *call = arg;
	struct session *session = call->session;
	struct share *share = NULL;
	struct store *store;
	struct error error;

	if (result < 0) {
		session->n_objects--;
		call->on_done(call, result, failed);
		return;
	}
	if (session_is_ending(session))
		result = error_set(&error, -ECANCELED, "file %s: the connection ends", file->name);
	else
		result = registry_for_file(&session->service->stores, &file->facts, file->name,
					   &session->peer, &store, &error);
	if (result == 0) {
		share = share_get(session, store);
		result = share ? 0 : error_set(&error, -ENOMEM, "file %s", file->name);
	}
	if (result == 0) {
		share->n_files++;
		file->share = share;
		file->on_closed = share_lose_file;
		result = file_attach(file, store, &store->inodes);
		if (result == 0)
			result = id_table_add(&session->objects.files, file, &file->id);
		if (result < 0)
			(void)error_set(&error, result, "file %s: no id for it", file->name);
	}
	if (result < 0) {
		file_unref_for(file, on_dropped, session);
		call->on_done(call, result, &error);
		return;
	}
	assert(file_board_index(file->id) < session->board_bytes / sizeof(*session->board));
	file_board_set(session->board, file->id, FILE_BOARD_USED);
	service_look_in(session->service, LOOK_SOON_SEC);
	call->file = file;
	call->on_done(call, 0, NULL);
}

/* Takes an idle file from the client; n_holds of it are ours.  True if on_freed(session) will be
   called. */
static bool file_let_go(struct session *session, struct file *file, uint32_t n_holds,
			void (*on_freed)(void *arg))
{
	struct error error;
	uint32_t id = file->id;

	/* Removed meanwhile; or an op is on it, whatever the client says: relaxed, its own harm. */
	if (id_table_get(&session->objects.files, id) != file ||
	    atomic_load_explicit(&file->n_holds, memory_order_relaxed) > n_holds)
		return false;
	if (!file_board_take(session->board, id, FILE_BOARD_GONE))
		return false;
	/* For want of memory it stays, GONE, until the session's end. */
	return session_remove(session, &session->objects.files, id, "file", file_unref_for,
			      on_freed, session, &error) == 0;
}

static int add_try(struct add *add, struct error *error);

/* Those that wait for room go on, or fail when there is none to come. */
static void user_retry(struct user *user)
{
	struct add *add;

	while ((add = user->first_add)) {
		struct session *session = add->call->session;
		struct error error;
		int r = add_try(add, &error);

		if (r == -EMFILE && user->n_leaving)
			return;
		user->first_add = add->next;
		if (!user->first_add)
			user->last_add = &user->first_add;
		if (r < 0) {
			session_close_fds(session, &add->fd, 1);
			add->call->on_done(add->call, r, &error);
		}
		free(add);
	}
}

static void on_reclaimed(void *arg)
{
	struct session *session = arg;
	struct user *user = session->user;

	user->n_leaving--;
	user_retry(user);
	object_gone(session);
}

/* Lets idle files of one session go, at most n; returns how many. */
static uint32_t session_reclaim(struct session *session, uint32_t n)
{
	uint32_t cursor = 0, n_gone = 0;
	struct file *file;

	while (n_gone < n && (file = id_table_next(&session->objects.files, &cursor)))
		n_gone += file_let_go(session, file, 1, on_reclaimed);
	session->user->n_leaving += n_gone;
	return n_gone;
}

/*
 * A user's files that lie idle in one client's cache do not keep another from opening some: near
 * the user's bound they go.  Closing takes its time: who comes meanwhile at the bound waits.
 */
static void user_reclaim(struct service *service, const struct session *asking)
{
	struct user *user = asking->user;
	uint64_t limit = user->quota.limit[QUOTA_FILES], spare, now_nsec;
	uint32_t n = RECLAIM_FILES;

	spare = limit / 8 < 4 * RECLAIM_FILES ? limit / 8 : 4 * RECLAIM_FILES;
	if (user->quota.used[QUOTA_FILES] + spare < limit)
		return;
	now_nsec = clock_nsec();
	if (user->fruitless_id == asking->id && now_nsec - user->fruitless_nsec < RECLAIM_NSEC)
		return;
	for (struct session *s = service->sessions; s && n; s = s->next)
		if (s->user == user && s != asking && s->state == SESSION_OPEN)
			n -= session_reclaim(s, n);
	if (n) {
		user->fruitless_id = asking->id;
		user->fruitless_nsec = now_nsec;
	}
}

static int add_try(struct add *add, struct error *error)
{
	struct session *session = add->call->session;
	int r = file_make(&session->quota, session->user->work_queue, session->service->mailbox,
			  &session->who, add->fd, add->name, on_file_checked, add->call, error);

	if (r == 0)
		session->n_objects++;
	return r;
}

static bool user_is_out_of_files(const struct user *user)
{
	return user->quota.used[QUOTA_FILES] >= user->quota.limit[QUOTA_FILES];
}

int session_file_add(struct session *session, int fd, const char *name, struct call *call,
		     struct error *error)
{
	struct user *user = session->user;
	struct add *add;
	int r;

	add = calloc(1, sizeof(*add));
	if (!add) {
		session_close_fds(session, &fd, 1);
		return error_set(error, -ENOMEM, "file %s", name);
	}
	add->call = call;
	add->fd = fd;
	(void)snprintf(add->name, sizeof(add->name), "%s", name); /* cut is fine */
	user_reclaim(session->service, session);
	r = add_try(add, error);
	if (r == -EMFILE && user_is_out_of_files(user) && user->n_leaving) {
		*user->last_add = add;
		user->last_add = &add->next;
		return 0;
	}
	if (r < 0)
		session_close_fds(session, &fd, 1);
	free(add);
	return r;
}

/* The session ends: what of it waits does not. */
static void session_stop_adds(struct session *session)
{
	struct user *user = session->user;
	struct add **at = &user->first_add, *add;
	struct error error;

	while ((add = *at)) {
		if (add->call->session != session) {
			at = &add->next;
			continue;
		}
		*at = add->next;
		session_close_fds(session, &add->fd, 1);
		(void)error_set(&error, -ECANCELED, "file %s: the connection ends", add->name);
		add->call->on_done(add->call, error.code, &error);
		free(add);
	}
	user->last_add = at;
}

int session_file_remove(struct session *session, uint32_t id, struct call *call,
			struct error *error)
{
	return session_remove(session, &session->objects.files, id, "file", file_unref_for,
			      on_removed, call, error);
}

static void on_buffered_added(struct file *file, int result, const struct error *failed, void *arg)
{
	struct call *call = arg;

	(void)file;
	call->on_done(call, result, failed);
}

int session_file_buffered(struct session *session, uint32_t id, int fd, struct call *call,
			  struct error *error)
{
	struct file *file = id_table_get(&session->objects.files, id);
	int r;

	user_reclaim(session->service, session); /* it counts as a file; it does not wait, though */
	if (file)
		r = file_add_buffered(file, fd, on_buffered_added, call, error);
	else
		r = error_no_such(error, "file", id);
	if (r < 0)
		session_close_fds(session, &fd, 1);
	return r;
}

int session_file_get(struct session *session, uint32_t id, int *ret_fd, struct error *error)
{
	const struct file *file = id_table_get(&session->objects.files, id);
	int fd;

	if (!file)
		return error_no_such(error, "file", id);
	fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return error_set(error, -errno, "file %s: a descriptor for it", file->name);
	session->has_got_files = true;
	*ret_fd = fd;
	return 0;
}

/* ---- idle files ---- */

static void look_run(struct work *work)
{
	struct look *look = container_of(work, struct look, work);

	for (unsigned i = 0; i < look->n_files; i++) {
		struct statx stx;

		/* What is known here will do: a network server or a FUSE program is not asked. */
		if (statx(look->files[i].file->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
			  STATX_TYPE | STATX_NLINK, &stx) == 0)
			look->files[i].is_unlinked = S_ISREG(stx.stx_mode) && !stx.stx_nlink;
	}
	mailbox_post(look->session->service->mailbox, &look->message);
}

/* The next idle files, held. */
static void look_fill(struct look *look)
{
	struct session *session = look->session;
	struct file *file;

	look->n_files = 0;
	while (look->n_files < LOOK_FILES &&
	       (file = id_table_next(&session->objects.files, &look->cursor))) {
		if (!file_board_is_idle(session->board, file->id))
			continue;
		file_ref(file);
		look->files[look->n_files].is_unlinked = false;
		look->files[look->n_files++].file = file;
	}
}

/* Lets go what has no link; then the next turn, or the end. */
static void looked_main(struct message *message)
{
	struct look *look = container_of(message, struct look, message);
	struct session *session = look->session;

	for (unsigned i = 0; i < look->n_files; i++) {
		struct file *file = look->files[i].file;

		if (look->files[i].is_unlinked && !session_is_ending(session))
			look->has_found |= file_let_go(session, file, 2,
						       on_dropped); /* the table's, too */
		file_unref(file);
	}
	if (!session_is_ending(session) && look->n_files == LOOK_FILES)
		look_fill(look);
	else
		look->n_files = 0;
	if (look->n_files) {
		work_queue_submit(session->user->work_queue, &look->work);
		return;
	}
	if (look->has_found)
		service_look_in(session->service, LOOK_SOON_SEC);
	session->look = NULL;
	free(look);
	session_touch(session);
}

static void session_look(struct session *session)
{
	struct look *look;

	if (session->look || session_is_ending(session))
		return;
	look = calloc(1, sizeof(*look)); /* without memory: the next time */
	if (!look)
		return;
	look->session = session;
	look->work.run = look_run;
	look->message.run = looked_main;
	look_fill(look);
	if (!look->n_files) {
		free(look);
		return;
	}
	session->look = look;
	work_queue_submit(session->user->work_queue, &look->work);
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	struct service *service = arg;
	bool has_files = false;

	(void)fd;
	(void)what;
	for (struct session *session = service->sessions; session; session = session->next) {
		if (!session->objects.files.n_objects)
			continue;
		has_files = true;
		session_look(session);
	}
	if (has_files)
		service_look_in(service, LOOK_SEC);
}

/* ---- from the first to the last ---- */

/* Only a pidfd: to watch another kind of file in epoll can call into its file system and hang. */
static bool fd_is_pidfd(int fd)
{
	char path[32], target[32];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return false;
	target[n] = 0;
	return strcmp(target, "anon_inode:[pidfd]") == 0;
}

uint32_t session_max_files(const struct session *session)
{
	uint64_t limit = session->quota.limit[QUOTA_FILES];

	return limit < ID_TABLE_SLOTS_MAX ? (uint32_t)limit : ID_TABLE_SLOTS_MAX;
}

/* The file board: only pages that are touched cost memory. */
static int session_make_board(struct session *session, int *ret_fd, struct error *error)
{
	uint32_t max_files = session_max_files(session);
	size_t bytes = file_board_bytes(max_files);
	_cleanup_(closep) int fd = -1;
	void *board;
	int r;

	r = memfd_sealed("dsaio-files", bytes);
	if (r < 0)
		return error_set(error, r, "hello: the file board");
	fd = r;
	board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (board == MAP_FAILED)
		return error_set(error, -errno, "hello: the file board");
	session->board = board;
	session->board_bytes = bytes;
	id_table_bound(&session->objects.files, max_files);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int session_hello(struct session *session, const char *name, int pidfd, int *ret_board_fd,
		  struct error *error)
{
	int r;

	assert(session->state == SESSION_GREETING);
	r = session_make_board(session, ret_board_fd, error);
	if (r < 0) {
		session_close_fds(session, &pidfd, 1);
		return r;
	}
	(void)snprintf(session->name, sizeof(session->name), "%s", name); /* cut is fine */
	for (char *c = session->name; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	session->state = SESSION_OPEN;

	/* A false one hurts only its sender. */
	if (pidfd < 0 || session->pidfd >= 0 || !fd_is_pidfd(pidfd))
		session_close_fds(session, &pidfd, 1);
	else if (session_watch(session, pidfd) < 0)
		log_client(&session->user->log_limit, "%s: its pidfd can not be watched",
			   session_title(session));
	return 0;
}

static void session_free(struct session *session)
{
	struct service *service;

	if (!session)
		return;
	service = session->service;
	assert(!session->n_channels && !session->n_objects && !session->n_calls &&
	       !session->n_closings && !session->look && !session->is_advancing &&
	       !session->turn.is_queued && !session->shares);
	if (session->prev_next) {
		*session->prev_next = session->next;
		if (session->next)
			session->next->prev_next = session->prev_next;
		else
			service->last_session = session->prev_next;
		service->n_sessions--;
	}
	if (session->read_event)
		event_free(session->read_event);
	if (session->write_event)
		event_free(session->write_event);
	if (session->retry_event)
		event_free(session->retry_event);
	if (session->pid_event)
		event_free(session->pid_event);
	closep(&session->pidfd);
	frame_reader_deinit(&session->reader);
	frame_writer_deinit(&session->writer);
	if (session->board)
		(void)munmap((void *)session->board, session->board_bytes); /* whole: no error */
	id_table_deinit(&session->objects.slabs);
	id_table_deinit(&session->objects.files);
	id_table_deinit(&session->handles);
	id_table_deinit(&session->channels);
	assert(quota_is_zero(&session->quota));
	quota_discharge(&session->session_charge);
	peer_deinit(&session->peer);

	/* The last act: the end of file proves to the client that the daemon uses nothing of it. */
	if (session->fd >= 0 && socket_has_unread(session->fd)) {
		close_unread(service, session->user, session->fd, &session->who,
			     "descriptors that a client sent before its end");
	} else {
		if (session->user)
			user_give(service, session->user);
		closep(&session->fd);
	}
	free(session);
}

static void session_drop_objects(struct session *session)
{
	uint32_t cursor = 0;
	struct slab *slab;
	struct file *file;

	while ((slab = id_table_next(&session->objects.slabs, &cursor))) {
		(void)id_table_remove(&session->objects.slabs, slab->id); /* no lane looks */
		id_table_release(&session->objects.slabs, slab->id);
		slab_unref_for(slab, on_dropped, session);
	}
	cursor = 0;
	while ((file = id_table_next(&session->objects.files, &cursor))) {
		(void)id_table_remove(&session->objects.files, file->id); /* no lane looks */
		id_table_release(&session->objects.files, file->id);
		file_unref_for(file, on_dropped, session);
	}
}

/* The way to the end, as far as it goes now. */
static void session_advance(struct message *message)
{
	struct session *session = container_of(message, struct session, advance);
	struct service *service = session->service;

	session->is_advancing = false;
	if (session->state == SESSION_ENDING && !session->n_channels) {
		session_drop_objects(session);
		session->state = SESSION_EMPTYING;
	}
	if (session->state != SESSION_EMPTYING || session->n_objects || session->n_calls ||
	    session->look || session->turn.is_queued)
		return;
	frame_writer_deinit(&session->writer); /* its descriptors may be of the client's files */
	session->is_mute = true;
	if (session->n_closings)
		return;
	session_free(session);
	if (!service->n_sessions && service->look_event) {
		event_free(service->look_event);
		service->look_event = NULL;
	}
	service->on_gone(service);
}

/* Something that the end waits for may have happened. */
static void session_touch(struct session *session)
{
	if (!session_is_ending(session) || session->is_advancing)
		return;
	session->is_advancing = true;
	session->advance.run = session_advance;
	mailbox_post(session->service->mailbox, &session->advance);
}

void session_end(struct session *session, bool drain)
{
	uint32_t cursor = 0;
	struct handle *handle;

	if (session->pid_event && !drain)
		(void)event_del(session->pid_event); /* a dead client's stays readable */
	if (session_is_ending(session)) {
		if (!drain)
			for (struct member *m = session->members; m; m = m->next_in_session)
				lane_hurry_channel(m->channel);
		return;
	}
	session->state = SESSION_ENDING;
	session_pause(session);
	session_stop_adds(session);
	session_close_fds(session, session->reader.fds, session->reader.n_fds);
	session->reader.n_fds = 0;
	while ((handle = id_table_next(&session->handles, &cursor)))
		handle_close(handle, drain);
	session_touch(session);
}

int service_init(struct service *service, struct event_base *base)
{
	service->base = base;
	service->last_session = &service->sessions;
	return turns_init(&service->turns, base, turn_serve);
}

void service_deinit(struct service *service)
{
	assert(!service->n_sessions);
	turns_deinit(&service->turns);
}

static void session_freep(struct session **session)
{
	session_free(*session);
}

int session_new(struct service *service, int fd, struct error *error)
{
	_cleanup_(session_freep) struct session *session = calloc(1, sizeof(*session));
	socklen_t len;
	int pidfd, r;

	if (!session)
		return error_set(error, -ENOMEM, "connection");
	session->service = service;
	session->fd = session->pidfd = -1;
	frame_writer_init(&session->writer);
	session->writer.close_fds = close_reply_fds;

	r = peer_init(&session->peer, fd, error);
	if (r < 0)
		return r;
	/* Otherwise recvmsg(2) skips a byte with MSG_OOB, and closes the descriptors with it here. */
	if (setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &(int){ 1 }, sizeof(int)) < 0)
		return error_set(error, -errno, "connection: SO_OOBINLINE");
	r = user_take(service, session->peer.uid, &session->user);
	if (r < 0)
		return error_set(error, r, "connection");
	session->turn.owner = &session->user->turns;
	r = quota_charge(&session->session_charge, &session->user->quota, QUOTA_SESSIONS, 1, error);
	if (r < 0)
		return r;
	session->id = service->last_id + 1;
	session->who = (struct hung_who){ .uid = session->peer.uid,
					  .pid = session->peer.pid,
					  .client = session->id };
	(void)snprintf(session->quota.name, sizeof(session->quota.name), "client %" PRIu32,
		       session->id);
	session->quota.parent = &session->user->quota;
	memcpy(session->quota.limit, service->client_limit, sizeof(session->quota.limit));

	session->read_event = event_new(service->base, fd, EV_READ | EV_PERSIST, on_readable,
					session);
	session->write_event = event_new(service->base, fd, EV_WRITE, on_writable, session);
	session->retry_event = evtimer_new(service->base, on_writable, session);
	if (!session->read_event || !session->write_event || !session->retry_event)
		return error_set(error, -ENOMEM, "connection: events");
	len = sizeof(pidfd);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0 &&
	    session_watch(session, pidfd) < 0)
		return error_set(error, -ENOMEM, "connection: pidfd event");
	if (event_add(session->read_event, NULL) < 0)
		return error_set(error, -ENOMEM, "connection: event");

	session->is_reading = true;
	session->fd = fd;
	service->last_id++;
	service->n_sessions++;
	session->prev_next = service->last_session;
	*service->last_session = session;
	service->last_session = &session->next;
	session = NULL; /* the service's list has it */
	return 0;
}
