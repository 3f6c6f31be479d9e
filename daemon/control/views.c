#include "daemon/control/views.h"

#include "daemon/base/event.h"
#include "daemon/control/session.h"
#include "daemon/object/view.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdlib.h>

/* How often views are looked after that wait for something of others. */
#define TICK_MSEC 500u

/* A ViewOpen that is not answered. */
struct opening {
	struct call *call;
	struct file *file; /* referenced during the look */
	uint64_t off;
	struct job job;
	int result;
	struct error error;
	struct view_version version;
	struct view_opener opener;
};

struct waiting {
	struct call *call;
	struct view_waiter waiter;
};

/* ---- the tick ---- */

static void on_tick(EVENT_ARG(arg));

static void tick_soon(struct service *service)
{
	const struct timeval timeout = { .tv_usec = TICK_MSEC * 1000 };

	if (!service->views_event)
		service->views_event = evtimer_new(service->base, on_tick, service);
	if (service->views_event && !evtimer_pending(service->views_event, NULL))
		(void)evtimer_add(service->views_event, &timeout); /* no memory: a later one */
}

static void on_tick(EVENT_ARG(arg))
{
	struct service *service = arg;

	if (views_tick(&service->views))
		tick_soon(service);
}

/* ---- open ---- */

static void opening_end(struct opening *opening, int result, const struct error *error)
{
	struct call *call = opening->call;

	free(opening);
	call->session->service->views.n_refused++;
	call->on_done(call, result, error);
}

static void on_made(struct view_opener *opener, struct view_piece *view, int result,
		    const struct error *failed)
{
	struct opening *opening = container_of(opener, struct opening, opener);
	struct call *call = opening->call;
	struct session *session = call->session;
	struct error error;
	struct slab *slab;

	if (result == 0) {
		result = view_join(view, &session->quota, session->user->work_queue, &slab, &error);
		failed = &error;
	}
	if (result < 0) {
		opening_end(opening, result, failed);
		return;
	}
	free(opening);
	session_slab_start(session, slab, call);
}

static void look_run(struct job *job)
{
	struct opening *opening = container_of(job, struct opening, job);

	opening->result = view_look(opening->file, &opening->version, &opening->error);
}

static void look_done(struct job *job)
{
	struct opening *opening = container_of(job, struct opening, job);
	struct session *session = opening->call->session;
	struct file *file = opening->file;
	int r = opening->result;

	opening->opener.on_made = on_made;
	if (r == 0)
		r = views_open(&session->service->views, file, &opening->version, opening->off,
			       &session->quota, session->user->slab_work_queue, &opening->opener,
			       &opening->error);
	if (r < 0) {
		const struct error error = opening->error;

		opening_end(opening, r, &error);
	}
	file_unref(file);
}

int session_view_open(struct session *session, uint32_t id, uint64_t off, struct call *call,
		      struct error *error)
{
	struct file *file = NULL;
	struct opening *opening;
	int r = session_file_with_fd(session, id, "view_open", &file, error);

	if (r < 0)
		return r;
	opening = calloc(1, sizeof(*opening));
	if (!opening)
		return error_set(error, -ENOMEM, "view");
	opening->call = call;
	opening->file = file;
	opening->off = off;
	opening->job.work.about = target_about(&file->target, "fstat");
	file_ref(file);
	job_submit(session->user->work_queue, &opening->job, session->service->mailbox, look_run,
		   look_done);
	return 0;
}

/* ---- wait ---- */

static void on_state(struct view_waiter *waiter, int result, bool fills, const struct error *error)
{
	struct waiting *waiting = container_of(waiter, struct waiting, waiter);
	struct call *call = waiting->call;
	struct error ended;

	free(waiting);
	if (result < 0 && session_is_ending(call->session)) {
		result = session_end_error(call->session, "view", "", &ended);
		error = &ended;
	}
	call->view_state = fills ? WIRE__VIEW_STATE__VIEW_FILL : WIRE__VIEW_STATE__VIEW_READY;
	call->on_done(call, result, error);
}

int session_view_wait(struct session *session, uint32_t id, bool may_wait, struct call *call,
		      struct error *error)
{
	struct slab *slab = id_table_get(&session->objects.slabs, id);
	struct waiting *waiting;
	int r;

	if (!slab || !slab_is_view(slab))
		return session_no_such(error, "view", id);
	r = view_ask(slab, error);
	if (r < 0 && r != -EBUSY)
		return r;
	if (r == -EBUSY && may_wait) {
		waiting = calloc(1, sizeof(*waiting));
		if (!waiting)
			return error_set(error, -ENOMEM, "view");
		waiting->call = call;
		waiting->waiter.on_state = on_state;
		view_wait(slab, &waiting->waiter);
		tick_soon(session->service);
		return 0;
	}
	call->view_state = r == 0   ? WIRE__VIEW_STATE__VIEW_READY
			   : r == 1 ? WIRE__VIEW_STATE__VIEW_FILL
				    : WIRE__VIEW_STATE__VIEW_BUSY;
	call->on_done(call, 0, NULL);
	return 0;
}

int session_view_keep(struct session *session, uint64_t bytes, struct call *call,
		      struct error *error)
{
	struct slab *slab;
	int r = slab_new_of(&slab_kind_kept, &session->service->pool, &session->quota,
			    session->user->work_queue, bytes, bytes, &slab, error);

	if (r < 0)
		return r;
	slab->size_bytes = 0;	/* of ops */
	slab->is_locked = true; /* it was, or its client knows */
	session_slab_start(session, slab, call);
	return 0;
}

/* ---- begin and end ---- */

/* Memory that its clients have left may be mapped by others. */
static void on_left(struct views *views)
{
	struct service *service = container_of(views, struct service, views);

	tick_soon(service);
	service->on_gone(service);
}

int service_views_start(struct service *service)
{
	service->views.on_left = on_left;
	return views_init(&service->views, &service->pool);
}

void service_views_deinit(struct service *service)
{
	views_deinit(&service->views);
	event_freep(&service->views_event);
}
