#include "daemon/control/wear.h"

#include "daemon/base/event.h"
#include "daemon/base/log.h"
#include "daemon/base/state_file.h"
#include "daemon/control/session.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "wear.ini"
#define FILE_BYTES_MAX (1 << 20) /* a larger one is not the daemon's */
#define SAVE_SEC 60

/* ---- reading ---- */

static void read_number(struct usage *usage, struct saved *saved, const char *name, uint64_t number)
{
	struct saved_entry *entry;
	struct usage_user *user;
	uid_t uid;

	if (strcmp(name, "since") == 0)
		usage->since_sec = number;
	else if (strcmp(name, "crashes") == 0)
		usage->n_crashes = number;
	else if (strcmp(name, "rest") == 0)
		usage->rest.earlier_bytes += number;
	else if (sscanf(name, SAVED_USER_KEY, &uid) == 1 && (user = usage_user(usage, uid)))
		user->earlier_bytes = number;
	else if ((entry = saved_entry(saved, name))) /* else no memory: not counted */
		entry->written_bytes += number;
}

bool wear_read(FILE *file, const char *path, struct usage *usage, struct saved *saved)
{
	char name[SAVED_KEY_BYTES] = "";
	uint64_t number;

	/* SAVED_KEY_BYTES - 1 */
	while (fscanf(file, " %135[^ =\n] = %" SCNu64, name, &number) == 2)
		read_number(usage, saved, name, number);
	if (feof(file) && !ferror(file))
		return true;
	log_warning("wear: %s: damaged: what follows %s is not counted", path, name);
	return false;
}

/* ---- writing ---- */

static uint64_t user_bytes(const struct service *service, const struct usage_user *user)
{
	uint64_t bytes = user->earlier_bytes + metrics_get(&user->ended.write_bytes);

	LIST_EACH(const struct session, session, &service->sessions, node)
		if (session->usage == user)
			bytes += session_open_bytes(session);
	return bytes;
}

static void print_stores(const struct registry *registry, FILE *out)
{
	LIST_EACH(const struct saved_entry, one, &registry->saved.entries, node) {
		uint64_t bytes = one->written_bytes;

		LIST_EACH(const struct store, store, &registry->stores, node)
			if (store->saved == one)
				bytes += lane_store_written(&store->lane_store);
		if (bytes)
			(void)fprintf(out, "%s = %" PRIu64 "\n", one->key, bytes);
	}
}

/* NULL: no memory. */
static char *text_new(const struct service *service)
{
	const struct usage *usage = &service->usage;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	(void)fprintf(out, "since = %" PRIu64 "\ncrashes = %" PRIu64 "\n", usage->since_sec,
		      usage->n_crashes);
	print_stores(&service->registry, out);
	LIST_EACH(const struct usage_user, user, &usage->users, node) {
		const uint64_t bytes = user_bytes(service, user);

		if (bytes)
			(void)fprintf(out, SAVED_USER_KEY " = %" PRIu64 "\n", user->uid, bytes);
	}
	(void)fprintf(out, "rest = %" PRIu64 "\n", user_bytes(service, &usage->rest));
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

static void on_written(void *arg, const char *note)
{
	struct wear *wear = arg;

	wear->has_failed = note[0]; /* the next minute tries again */
	wear->is_damaged = wear->is_damaged && note[0];
}

void wear_save(struct wear *wear)
{
	struct saved *saved = wear->service ? &wear->service->registry.saved : NULL;
	_cleanup_(freep) char *text = saved && saved->work_queue ? text_new(wear->service) : NULL;
	const struct saved_change change = {
		.title = "wear",
		.what = "count of written bytes",
		.is_set = true,
		.until = "the daemon ends",
		.is_quiet = wear->has_failed,
		.on_done = on_written,
		.arg = wear,
	};

	if (!text || (!wear->has_failed && strcmp(text, wear->text) == 0))
		return; /* without memory: a minute later */
	saved_write(saved, &change, FILE_NAME, text, wear->is_damaged);
	free(wear->text);
	wear->text = TAKE_PTR(text);
}

/* ---- begin and end ---- */

static void on_minute(EVENT_ARG(arg))
{
	wear_save(arg);
}

int wear_init(struct wear *wear, struct service *service)
{
	const struct timeval minute = { .tv_sec = SAVE_SEC };
	const char *dir = service->config->state_dir;
	_cleanup_(fclosep) FILE *file = NULL;
	char path[PATH_MAX];

	*wear = (struct wear){ .service = service };
	service->usage.since_sec = clock_nsec_of(CLOCK_REALTIME) / NSEC_PER_SEC;
	(void)snprintf(path, sizeof(path), "%s/" FILE_NAME, dir ? dir : "");
	file = dir ? state_file_open(AT_FDCWD, path, FILE_BYTES_MAX) : NULL;
	if (file) {
		wear->is_damaged = !wear_read(file, path, &service->usage,
					      &service->registry.saved);
	} else if (dir && errno != ENOENT && errno != ENOTDIR) {
		wear->is_damaged = true;
		log_warning("wear: %s: %s: not counted", path, strerrordesc_np(errno));
	}
	wear->text = text_new(service);
	wear->event = event_new(service->base, -1, EV_PERSIST, on_minute, wear);
	return wear->text && wear->event && event_add(wear->event, &minute) == 0 ? 0 : -ENOMEM;
}

void wear_deinit(struct wear *wear)
{
	event_freep(&wear->event);
	free(wear->text);
	*wear = (struct wear){ 0 };
}
