#include "daemon/control/call.h"

#include "daemon/control/session.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

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

void call_free(struct call *call)
{
	struct session *session;

	if (!call)
		return;
	session = call->session;
	quota_discharge(&call->charge);
	for (unsigned i = 0; i < call->n_reply_fds; i++)
		closep(&call->reply_fds[i]);
	free(call->note);
	free(call);

	session->n_calls--;
	session_touch(session);
	connection_resume(&session->connection);
	users_room(session->user->users);
}

void call_end(struct call *call, int result, const struct error *error, const char *note)
{
	call->note = strdup(note);
	call->on_done(call, result, error);
}

static void on_store(struct store *store, int result, const struct error *error, const char *note,
		     void *arg)
{
	struct call *call = arg;

	call->store = store;
	call_end(call, result, error, note);
}

struct registry_question call_question(struct call *call, const char *name, int fd)
{
	const struct session *session = call->session;

	return (struct registry_question){ .name = name,
					   .fd = fd,
					   .peer = &session->peer,
					   .work_queue = session->user->work_queue,
					   .who = &session->who,
					   .on_done = on_store,
					   .arg = call };
}

int call_add_fd(struct call *call, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (copy < 0)
		return -errno;
	assert(call->n_reply_fds < FRAME_FDS_MAX);
	call->reply_fds[call->n_reply_fds++] = copy;
	return 0;
}
