/*
 * The control side without a server: a service with an event loop, stores that are made by the first file
 * on a device, and clients that are the other ends of socket pairs.  Requests are calls of the session's
 * functions; their answers lie in answers[], by sequence number.
 */
#ifndef DSAIO_TESTS_UNIT_CONTROL_PARTS_H
#define DSAIO_TESTS_UNIT_CONTROL_PARTS_H

#include "daemon/control/session.h"
#include "proto/file_board.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>

#define ANSWERS_MAX 64
#define CONTROL_LIBRARY "1.2.3"

static struct control {
	struct config config;
	struct event_base *base;
	struct mailbox mailbox;
	struct event *mailbox_event;
	struct service service;
	struct error error;
	unsigned n_gone, n_frames, n_garbage;
	int said; /* to a client at its end; 0: nothing */
} c;

static struct answer {
	bool is_done;
	int result;
	unsigned n_fds;
	uint32_t id; /* of the slab or file */
	char text[ERROR_TEXT_BYTES];
} answers[ANSWERS_MAX];

static void control_on_mailbox(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	(void)mailbox_run(&c.mailbox);
}

static void control_on_frame(struct session *session, struct frame *frame)
{
	(void)session;
	(void)frame; /* its descriptors are the session's to close */
	c.n_frames++;
}

static void control_on_garbage(struct session *session, const char *why)
{
	(void)why;
	c.n_garbage++;
	session_end(session, false);
}

static void control_say_end(struct session *session, const struct error *why)
{
	(void)session;
	c.said = why->code;
}

static void control_on_gone(struct service *service)
{
	(void)service;
	c.n_gone++;
}

/* Until the condition holds: an event has to come for it, else the test's time runs out. */
#define CONTROL_UNTIL(condition) \
	while (!(condition))     \
	ck_assert_int_ge(event_base_loop(c.base, EVLOOP_ONCE), 0)

/* All that can happen without waiting. */
__attribute__((unused)) static void control_settle(void)
{
	for (int i = 0; i < 20; i++)
		(void)event_base_loop(c.base, EVLOOP_NONBLOCK);
}

/* Tests may change config and limits before the first client. */
static void control_setup(void)
{
	make_dir();
	memset(&c, 0, sizeof(c));
	memset(answers, 0, sizeof(answers));
	ck_assert_int_eq(setenv("STATE_DIRECTORY", "/nonexistent/state", 1), 0);
	ck_assert_int_eq(config_init(&c.config), 0);
	config_set_user(&c.config); /* any file system has stores */
	ck_assert_int_eq(config_check(&c.config, &c.error), 0);
	c.base = event_base_new();
	ck_assert_int_eq(mailbox_init(&c.mailbox), 0);
	c.mailbox_event = event_new(c.base, c.mailbox.event_fd, EV_READ | EV_PERSIST,
				    control_on_mailbox, NULL);
	ck_assert_int_eq(event_add(c.mailbox_event, NULL), 0);
	c.service = (struct service){
		.config = &c.config,
		.mailbox = &c.mailbox,
		.pool = { .quota = { .name = "the daemon", .n_descriptors = 1024 },
			  .lock = POOL_LOCK_AUTO,
			  .pages = POOL_PAGES_SMALL,
			  .main_mailbox = &c.mailbox },
		.max_closing_sockets = 2,
		.on_frame = control_on_frame,
		.on_garbage = control_on_garbage,
		.say_end = control_say_end,
		.on_gone = control_on_gone,
	};
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++) {
		c.service.pool.quota.limit[i] = UINT64_MAX;
		c.config.client_limit[i] = c.config.user_limit[i] = 1000;
	}
	c.config.client_limit[QUOTA_POOL_BYTES] = c.config.user_limit[QUOTA_POOL_BYTES] = 64 << 20;
	ck_assert_msg(registry_init(&c.service.registry, &c.config, c.base, &c.mailbox, &c.error) ==
			      0,
		      "%s", c.error.text);
	ck_assert_int_eq(registry_start(&c.service.registry, &c.error), 0);
	ck_assert_int_eq(service_init(&c.service, c.base), 0);
}

/* Ends what is left; nothing may stay charged. */
__attribute__((unused)) static void control_teardown(void)
{
	LIST_EACH(struct session, session, &c.service.sessions, node)
		session_end(session, false);
	CONTROL_UNTIL(!c.service.n_sessions && !c.service.n_closing_sockets);
	ck_assert_ptr_null(c.service.users.all.first);
	ck_assert(quota_is_zero(&c.service.pool.quota));
	service_deinit(&c.service);
	registry_deinit(&c.service.registry);
	(void)mailbox_run(&c.mailbox);
	event_free(c.mailbox_event);
	mailbox_deinit(&c.mailbox);
	event_base_free(c.base);
	config_deinit(&c.config);
	remove_dir();
}

/* A session before its Hello; *ret_fd: the client's end. */
static struct session *control_connect(int *ret_fd)
{
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	ck_assert_msg(session_new(&c.service, fds[0], &c.error) == 0, "%s", c.error.text);
	*ret_fd = fds[1];
	return list_entry(c.service.sessions.last, struct session, node);
}

__attribute__((unused)) static struct session *control_client(int *ret_fd)
{
	struct session *session = control_connect(ret_fd);
	int board_fd;

	ck_assert_int_eq(session_hello(session, "test", CONTROL_LIBRARY, -1, &board_fd, &c.error),
			 0);
	(void)close(board_fd);
	return session;
}

static void control_on_done(struct call *call, int result, const struct error *error)
{
	struct answer *answer = &answers[call->seq];

	ck_assert(!answer->is_done);
	*answer = (struct answer){ .is_done = true, .result = result, .n_fds = call->n_reply_fds };
	if (result < 0)
		(void)snprintf(answer->text, sizeof(answer->text), "%s", error->text);
	else if (call->what == 's')
		answer->id = call->slab->id;
	else if (call->what == 'f' || call->what == WIRE__REQUEST__BODY_FILE_OPEN)
		answer->id = call->file->id;
	call_free(call);
}

/* A call with answers[seq].  what: 's' or 'f' if it makes a slab or a file. */
__attribute__((unused)) static struct call *control_call(struct session *session, unsigned seq,
							 int what)
{
	struct call *call;

	ck_assert_int_eq(call_new(session, seq, &call, &c.error), 0);
	call->what = what;
	call->on_done = control_on_done;
	return call;
}

/* A file of 64 KiB in the temporary directory. */
__attribute__((unused)) static int control_open(const char *name)
{
	int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);

	if (fd < 0) /* a file system without direct I/O */
		fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 65536), 0);
	return fd;
}

/* The session's new file; returns its id. */
__attribute__((unused)) static uint32_t control_file(struct session *session, unsigned seq,
						     const char *name)
{
	ck_assert_int_eq(session_file_add(session, control_open(name), name,
					  control_call(session, seq, 'f'), &c.error),
			 0);
	CONTROL_UNTIL(answers[seq].is_done);
	ck_assert_msg(answers[seq].result == 0, "%s", answers[seq].text);
	return answers[seq].id;
}

/* A handle of the session; its doorbell is closed. */
__attribute__((unused)) static struct handle *control_handle(struct session *session)
{
	const struct handle_config config = { .weight = 1 };
	struct handle *handle;
	int doorbell_fd;

	ck_assert_int_eq(session_handle_open(session, &config, &handle, &doorbell_fd, &c.error), 0);
	(void)close(doorbell_fd);
	return handle;
}

/* Returns what session_channel_open() does; the descriptors of the reply are closed. */
__attribute__((unused)) static int control_channel(struct session *session, uint32_t handle,
						   uint32_t store, uint32_t entries, bool has_rings,
						   struct channel **ret_channel)
{
	int fds[FRAME_FDS_MAX], r;
	struct profile gives;
	unsigned n_fds = 0;

	r = session_channel_open(session, handle, store, 0, entries, has_rings, ret_channel, &gives,
				 fds, &n_fds, &c.error);
	for (unsigned i = 0; r == 0 && i < n_fds; i++)
		(void)close(fds[i]);
	return r;
}

/* The key of the store of the session's file. */
__attribute__((unused)) static uint32_t control_store(struct session *session, uint32_t file)
{
	return ((struct file *)id_table_get(&session->objects.files, file))->store->key;
}

/* Sends one frame from the client. */
__attribute__((unused)) static void control_send(int fd, const int *fds, unsigned n_fds)
{
	struct frame_writer writer = { 0 };

	ck_assert_int_eq(frame_queue(&writer, "x", 1, fds, n_fds), 0);
	ck_assert_int_eq(frame_flush(&writer, fd), 0);
	frame_writer_deinit(&writer);
}

static inline bool control_is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

#endif
