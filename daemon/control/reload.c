#include "daemon/control/reload.h"

#include "daemon/base/job.h"
#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/base/systemd.h"
#include "daemon/base/work_queue.h"
#include "daemon/config/changes.h"
#include "daemon/config/config.h"
#include "daemon/control/session.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/plural.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct reload {
	struct job job;
	struct service *service;
	struct work_queue *work_queue; /* its own: the thread may read what only root may */
	struct call *call;
	struct hung_who who;
	struct config next;
	struct store **prepared; /* next's stores; NULL: there is none, or the registry has it */
	unsigned n_prepared;
	int result; /* of reading it */
	struct error error;
};

static void reload_free(struct reload *reload)
{
	for (unsigned i = 0; i < reload->n_prepared; i++)
		store_free(reload->prepared[i]);
	free(reload->prepared);
	config_deinit(&reload->next);
	work_queue_leave(reload->work_queue);
	free(reload);
}

static int read_all(struct reload *reload)
{
	struct config *next = &reload->next;
	struct hung_call call;
	int r;

	hung_begin(&call, &(struct hung_about){ .what = "check",
						.file = "configuration",
						.fd = -1,
						.who = reload->who });
	r = reload->service->config->reread(next);
	hung_end(&call);
	if (r < 0)
		return r;
	reload->prepared = calloc(next->n_stores + 1, sizeof(*reload->prepared));
	if (!reload->prepared)
		return -ENOMEM;
	reload->n_prepared = next->n_stores;
	return registry_prepare_all(next, reload->service->mailbox, &reload->who, reload->prepared);
}

/* On a worker thread. */
static void on_read(struct job *job)
{
	struct reload *reload = container_of(job, struct reload, job);

	privileges_own_files();
	reload->result = read_all(reload);
	if (reload->result < 0)
		(void)error_set_plain(&reload->error, reload->result, "%s",
				      reload->next.mistakes[0] ? reload->next.mistakes[0]
							       : "out of memory");
}

static int apply(struct reload *reload, struct changes *changes)
{
	struct service *service = reload->service;
	struct config *next = &reload->next;
	int r = registry_reload(&service->registry, service->config, next, reload->prepared,
				changes, &reload->error);

	if (r < 0)
		return r;
	config_adopt(service->config, next, changes);
	service_apply_limits(service);
	return 0;
}

static void log_changes(const struct change_list *list, const char *what)
{
	for (size_t i = 0; i < list->n; i++)
		log_notice("dsaiod: reload: %s: %s", what, list->lines[i]);
}

static void on_done(struct job *job)
{
	struct reload *reload = container_of(job, struct reload, job);
	struct changes changes = { 0 };
	int r = reload->result;

	reload->service->is_reloading = false;
	(void)sd_notifyf(false, "READY=1"); /* fails if systemd did not start the daemon */
	if (r == 0)
		r = apply(reload, &changes);
	if (r < 0) {
		config_log_mistakes(&reload->next, "reload: ");
		log_error("dsaiod: reload: the configuration stays as it was: %s",
			  reload->error.text);
	} else {
		log_changes(&changes.applied, "applied");
		log_changes(&changes.needs_restart, "needs a restart");
		log_notice(
			"dsaiod: configuration reloaded: %zu change%s applied, %zu need%s a restart",
			changes.applied.n, plural(changes.applied.n), changes.needs_restart.n,
			changes.needs_restart.n == 1 ? "s" : "");
	}
	reload->call->changes = &changes;
	reload->call->on_done(reload->call, r, &reload->error);
	changes_deinit(&changes);
	reload_free(reload);
}

int session_reload(struct session *session, struct call *call, struct error *error)
{
	struct service *service = session->service;
	struct reload *reload;
	int r;

	r = config_check_admin(service->config, &session->peer,
			       "only administrators reload the configuration", "", error);
	if (r < 0)
		return r;
	if (!service->config->reread)
		return error_set_plain(error, -EOPNOTSUPP, "this daemon has no configuration");
	if (service->is_reloading)
		return error_set_plain(
			error, -EBUSY,
			"another reload is under way: try again when it has ended; if "
			"it hangs, dsaioctl status shows where, and what frees it");
	reload = calloc(1, sizeof(*reload));
	if (!reload)
		return error_set(error, -ENOMEM, "reload");
	r = work_queue_new("reload", 1, &reload->work_queue);
	if (r < 0) {
		free(reload);
		return error_set(error, r, "reload" WORK_QUEUE_ADVICE);
	}
	reload->service = service;
	reload->who = session->who;
	reload->call = call;
	service->is_reloading = true;
	(void)sd_notifyf(false, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_nsec() / 1000);
	job_submit(reload->work_queue, &reload->job, service->mailbox, on_read, on_done);
	return 0;
}
