#include "daemon/control/wear.h"

#include "daemon/base/job.h"
#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/base/state_file.h"
#include "daemon/control/session.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/parser.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "wear.ini"
#define SAVE_SEC 60
#define NSEC_PER_SEC UINT64_C(1000000000)

/* ---- reading ---- */

static bool read_number(const char *text, uint64_t max, uint64_t *ret_number)
{
	char *end;

	errno = 0;
	*ret_number = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *ret_number <= max;
}

/* False: it is no line of such a file. */
static bool read_key(struct usage *usage, const char *section, const char *name, const char *value)
{
	struct usage_user *user = NULL;
	uint64_t number, uid;

	/* A sum of two cannot pass 2^64. */
	if (!read_number(value, INT64_MAX, &number))
		return false;
	if (strcmp(section, "stores") == 0) {
		usage_add_store(usage, name, number);
	} else if (strcmp(section, "users") == 0) {
		if (strcmp(name, "rest") == 0) {
			usage->has_rest = true;
			user = &usage->rest;
		} else if (read_number(name, UINT32_MAX, &uid)) {
			user = usage_user(usage, (uid_t)uid);
		}
		if (!user)
			return false;
		user->earlier_bytes = number;
	} else if (strcmp(name, "since") == 0) {
		usage->since_sec = number;
	} else if (strcmp(name, "crashes") == 0) {
		usage->n_crashes = number;
	} else {
		return false;
	}
	return true;
}

void wear_read(FILE *file, const char *path, struct usage *usage)
{
	struct parser parser = { .file = file };
	char section[16] = "";
	char why[ERROR_TEXT_BYTES];
	bool is_damaged = false;
	int item;

	while ((item = parser_next(&parser, why, sizeof(why))) != PARSER_END && item != -EIO) {
		if (item == PARSER_SECTION)
			(void)snprintf(section, sizeof(section), "%s", parser.name);
		else if (item != PARSER_KEY || !read_key(usage, section, parser.name, parser.value))
			is_damaged = true;
	}
	if (is_damaged || item == -EIO)
		log_warning(
			"wear: %s: damaged: what it says of some stores or users is not counted",
			path);
}

/* ---- writing ---- */

struct writing {
	struct job job;
	struct wear *wear;
	char *dir, *text;
	int result;
	struct error error;
};

static uint64_t user_bytes(const struct service *service, const struct usage_user *user)
{
	uint64_t bytes = user->earlier_bytes + metrics_get(&user->ended.write_bytes);

	LIST_EACH(const struct session, session, &service->sessions, node)
		if (session->usage == user)
			bytes += session_open_bytes(session);
	return bytes;
}

static uint64_t store_bytes(const struct store *store)
{
	struct metrics sum;

	lane_store_sum(&store->lane_store, &sum);
	return metrics_get(&sum.write_bytes);
}

static void print_stores(struct service *service, FILE *out)
{
	const struct list *stores = &service->registry.stores;

	LIST_EACH(const struct store, store, stores, node)
		if (store_bytes(store))
			usage_add_store(&service->usage, store->saved_key, 0);
	(void)fputs("[stores]\n", out);
	LIST_EACH(const struct usage_store, one, &service->usage.stores, node) {
		uint64_t bytes = one->bytes;

		LIST_EACH(const struct store, store, stores, node)
			if (store->saved_key && strcmp(store->saved_key, one->key) == 0)
				bytes += store_bytes(store);
		(void)fprintf(out, "%s = %" PRIu64 "\n", one->key, bytes);
	}
}

/* NULL: no memory. */
static char *text_new(struct service *service)
{
	const struct usage *usage = &service->usage;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	(void)fprintf(out,
		      "# Bytes that were written through dsaiod (dsaioctl wear), and since when.\n"
		      "[wear]\n"
		      "since = %" PRIu64 "\n"
		      "crashes = %" PRIu64 "\n",
		      usage->since_sec, usage->n_crashes);
	print_stores(service, out);
	(void)fputs("[users]\n", out);
	LIST_EACH(const struct usage_user, user, &usage->users, node)
		if (user_bytes(service, user))
			(void)fprintf(out, "%u = %" PRIu64 "\n", user->uid,
				      user_bytes(service, user));
	if (usage->has_rest)
		(void)fprintf(out, "rest = %" PRIu64 "\n", user_bytes(service, &usage->rest));
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

static void writing_free(struct writing *writing)
{
	if (!writing)
		return;
	free(writing->dir);
	free(writing->text);
	free(writing);
}

static void writing_freep(struct writing **writing)
{
	writing_free(*writing);
}

static void write_run(struct job *job)
{
	struct writing *writing = container_of(job, struct writing, job);

	privileges_own_files();
	writing->result = state_file_write(writing->dir, FILE_NAME, writing->text, &writing->error);
}

static void write_done(struct job *job)
{
	struct writing *writing = container_of(job, struct writing, job);
	struct wear *wear = writing->wear;
	const bool has_failed = writing->result < 0;

	if (has_failed && !wear->has_failed)
		log_warning("wear: %s: what was written is not counted after a restart",
			    writing->error.text);
	wear->has_failed = has_failed;
	if (has_failed) {
		free(wear->saved_text);
		wear->saved_text = NULL; /* the next minute tries again */
	}
	writing_free(writing);
}

void wear_save(struct wear *wear)
{
	_cleanup_(writing_freep) struct writing *writing = NULL;
	struct work_queue *work_queue = wear->service ? wear->service->registry.saved.work_queue
						      : NULL;
	_cleanup_(freep) char *text = work_queue ? text_new(wear->service) : NULL;

	if (!text || (wear->saved_text && strcmp(text, wear->saved_text) == 0))
		return;
	writing = calloc(1, sizeof(*writing));
	if (!writing || !(writing->dir = strdup(wear->service->config->state_dir)) ||
	    !(writing->text = strdup(text)))
		return; /* without memory: a minute later */
	free(wear->saved_text);
	wear->saved_text = TAKE_PTR(text);
	writing->wear = wear;
	writing->job.run = write_run;
	writing->job.done = write_done;
	writing->job.mailbox = wear->service->mailbox;
	job_submit(work_queue, &TAKE_PTR(writing)->job);
}

/* ---- begin and end ---- */

static void on_minute(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
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
	file = dir ? fopen(path, "re") : NULL;
	if (file)
		wear_read(file, path, &service->usage);
	else if (dir && errno != ENOENT && errno != ENOTDIR)
		log_warning("wear: %s: %s: not counted", path, strerrordesc_np(errno));
	wear->saved_text = text_new(service);
	wear->event = event_new(service->base, -1, EV_PERSIST, on_minute, wear);
	return wear->event && event_add(wear->event, &minute) == 0 ? 0 : -ENOMEM;
}

void wear_deinit(struct wear *wear)
{
	if (wear->event)
		event_free(wear->event);
	free(wear->saved_text);
	*wear = (struct wear){ 0 };
}
