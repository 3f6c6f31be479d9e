#include "daemon/store/saved.h"

#include "daemon/base/job.h"
#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/base/state_file.h"
#include "daemon/base/work_queue.h"
#include "proto/util/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A larger file is not the daemon's. */
#define FILE_BYTES_MAX 65536
/* Far more stores and users than a host has limits for; it bounds the time to read a directory with other files. */
#define ENTRIES_MAX 4096u

#define USER_KEY "user-%u" /* no key of a store begins so */

struct saved_entry {
	struct list_node node;
	char key[SAVED_KEY_BYTES];
	bool is_there; /* false: removed or damaged */
	bool is_damaged;
	bool is_written; /* the file has these settings */
	struct saved_settings settings;
	const struct writing
		*last_writing; /* compared only: an earlier one writes older settings */
};

/* A file that is to be written or removed. */
struct writing {
	struct job job;
	char *dir, *title;
	struct saved_entry *entry; /* the main thread's */
	struct saved_entry what;   /* a copy for the work queue's thread */
	int result;
	struct error error;
	void (*on_done)(void *arg, int result, const struct error *error);
	void *arg;
};

static void dirp_close(DIR **dir)
{
	if (*dir)
		(void)closedir(*dir); /* it was only read, so an error means nothing */
}

/* ---- keys ---- */

/* Appends text to a key, with '_' for characters that a file name cannot contain. */
static void key_add(char key[SAVED_KEY_BYTES], const char *text)
{
	size_t n = strlen(key);

	for (; *text && n < SAVED_KEY_BYTES - 1; text++)
		key[n++] = strchr(STORE_NAME_LETTERS ":", *text) ? *text : '_';
	key[n] = 0;
}

void saved_key_by_uuid(const uint8_t uuid[16], char key[SAVED_KEY_BYTES])
{
	int n = snprintf(key, SAVED_KEY_BYTES, "uuid-");

	for (unsigned i = 0; i < 16; i++)
		n += snprintf(key + n, SAVED_KEY_BYTES - (size_t)n, "%s%02x",
			      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

void saved_key_by_name(const char *name, char key[SAVED_KEY_BYTES])
{
	(void)strcpy(key, "name-");
	key_add(key, name);
}

void saved_key_by_uid(uid_t uid, char key[SAVED_KEY_BYTES])
{
	(void)snprintf(key, SAVED_KEY_BYTES, USER_KEY, uid);
}

bool saved_key_by_device(dev_t dev, bool is_block_device, char key[SAVED_KEY_BYTES])
{
	const char *path = is_block_device ? "/dev/disk/by-id" : "/dev/disk/by-uuid";
	_cleanup_(dirp_close) DIR *dir = opendir(path);
	char best[SAVED_KEY_BYTES] = "";
	const struct dirent *entry;
	struct stat st;

	/* A device has several ids: always choose the same one. */
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 &&
		    S_ISBLK(st.st_mode) && st.st_rdev == dev &&
		    strlen(entry->d_name) < SAVED_KEY_BYTES - 8 &&
		    (!best[0] || strcmp(entry->d_name, best) < 0))
			(void)strcpy(best, entry->d_name);
	if (!best[0])
		return false;
	(void)strcpy(key, is_block_device ? "id-" : "uuid-");
	key_add(key, best);
	return true;
}

/* ---- reading ---- */

/* Returns the entry of a key, made if there is none; NULL without memory. */
static struct saved_entry *entry_get(struct saved *saved, const char *key)
{
	struct saved_entry *p;

	LIST_EACH(struct saved_entry, known, &saved->entries, node)
		if (strcmp(known->key, key) == 0)
			return known;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	(void)snprintf(p->key, sizeof(p->key), "%s", key);
	list_push(&saved->entries, &p->node);
	return p;
}

static int file_load(struct saved *saved, int dir_fd, const char *name)
{
	size_t n = strlen(name);
	_cleanup_(fclosep) FILE *file = NULL;
	_cleanup_(closep) int fd = -1;
	char key[SAVED_KEY_BYTES], path[512];
	struct saved_entry *p;
	struct error error;
	struct stat st;

	if (n <= 5 || name[0] == '.' || strcmp(name + n - 5, ".conf") != 0 ||
	    n - 5 >= SAVED_KEY_BYTES)
		return 0; /* another program's file */
	(void)snprintf(key, sizeof(key), "%.*s", (int)(n - 5), name);
	(void)snprintf(path, sizeof(path), "%s/%s", saved->dir, name);
	p = entry_get(saved, key);
	if (!p)
		return -ENOMEM;
	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= FILE_BYTES_MAX)
		file = fdopen(fd, "re");
	if (file)
		(void)TAKE_FD(fd); /* the stream owns it now */
	if (file && config_read_saved(file, path, &p->settings, &error) == 0) {
		p->is_there = p->is_written = true;
		return 0;
	}
	p->is_damaged = true;
	log_warning("saved settings %s: ignored: %s", path,
		    file ? error.text : "cannot be read, or is no file of this daemon's");
	return 0;
}

int saved_init(struct saved *saved, const char *dir_path, struct mailbox *main_mailbox,
	       struct error *error)
{
	_cleanup_(dirp_close) DIR *dir = NULL;
	const struct dirent *entry;
	unsigned n = 0;

	*saved = (struct saved){ .dir = strdup(dir_path), .main_mailbox = main_mailbox };
	if (!saved->dir)
		return error_set(error, -ENOMEM, "saved settings");
	dir = opendir(dir_path);
	if (!dir) {
		if (errno != ENOENT)
			log_warning("saved settings: %s: %s: none is read", dir_path,
				    strerrordesc_np(errno));
		return 0;
	}
	while (n < ENTRIES_MAX && (entry = readdir(dir))) {
		n++;
		if (file_load(saved, dirfd(dir), entry->d_name) < 0) {
			saved_deinit(saved);
			return error_set(error, -ENOMEM, "saved settings");
		}
	}
	return 0;
}

void saved_deinit(struct saved *saved)
{
	work_queue_free(saved->work_queue);
	LIST_EACH(struct saved_entry, p, &saved->entries, node)
		free(p);
	free(saved->dir);
	*saved = (struct saved){ 0 };
}

const struct saved_settings *saved_find(const struct saved *saved, const char *key,
					bool *ret_is_written)
{
	LIST_EACH(const struct saved_entry, p, &saved->entries, node)
		if (p->is_there && strcmp(p->key, key) == 0) {
			*ret_is_written = p->is_written;
			return &p->settings;
		}
	return NULL;
}

int saved_each_user(const struct saved *saved,
		    int (*fn)(uid_t uid, const struct saved_settings *settings, void *arg),
		    void *arg)
{
	LIST_EACH(const struct saved_entry, p, &saved->entries, node) {
		uid_t uid;
		int r;

		if (!p->is_there || sscanf(p->key, USER_KEY, &uid) != 1)
			continue;
		r = fn(uid, &p->settings, arg);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- writing, on the work queue's thread ---- */

/* NULL without memory. */
static char *settings_text(const struct writing *writing)
{
	const struct saved_settings *settings = &writing->what.settings;
	const struct profile *p = &settings->profile;
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	if (!file)
		return NULL;
	(void)fprintf(file, "# As an administrator has set %s (dsaioctl).\n", writing->title);
	if (settings->has_profile)
		(void)fprintf(file,
			      "[profile]\n"
			      "block_size = %" PRIu32 "\n"
			      "queue_depth = %" PRIu32 "\n"
			      "single_submit = %s\n"
			      "overlap_events = %s\n"
			      "intra_op_parallelism = %" PRIu32 "\n",
			      p->block_size, p->queue_depth, p->single_submit ? "yes" : "no",
			      p->overlap_events ? "yes" : "no", p->intra_op_parallelism);
	if (settings->is_drained || rate_limit_is_set(&settings->limit))
		(void)fprintf(file,
			      "[settings]\n"
			      "bandwidth = %" PRIu64 "\n"
			      "iops = %" PRIu64 "\n"
			      "drained = %s\n",
			      settings->limit.bytes_per_sec, settings->limit.ops_per_sec,
			      settings->is_drained ? "yes" : "no");
	if (fclose(file) == 0)
		return text;
	free(text);
	return NULL;
}

static int file_write(const struct writing *writing, struct error *error)
{
	const char *key = writing->what.key, *dir = writing->dir;
	char name[SAVED_KEY_BYTES + 8], aside[SAVED_KEY_BYTES + 16];
	_cleanup_(closep) int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const int dir_error = dir_fd < 0 ? errno : 0;
	_cleanup_(freep) char *text = NULL;

	(void)snprintf(name, sizeof(name), "%s.conf", key);
	(void)snprintf(aside, sizeof(aside), "%s.conf.damaged", key);
	if (writing->what.is_damaged && !dir_error && renameat(dir_fd, name, dir_fd, aside) == 0)
		log_notice("saved settings %s/%s: damaged: renamed to %s", dir, name, aside);
	if (writing->what.is_there) {
		text = settings_text(writing);
		return text ? state_file_write(dir, name, text, error)
			    : error_set(error, -ENOMEM, "%s/%s", dir, name);
	}
	if (dir_error == ENOENT || dir_error == ENOTDIR)
		return 0; /* there is nothing to remove */
	if (dir_error)
		return error_set(error, -dir_error, "%s", dir);
	if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
		return error_set(error, -errno, "%s/%s: removing it", dir, name);
	if (fsync(dir_fd) < 0)
		return error_set(error, -errno, "%s: fsync", dir);
	return 0;
}

static void writing_free(struct writing *writing)
{
	if (!writing)
		return;
	free(writing->dir);
	free(writing->title);
	free(writing);
}

static void written_main(struct job *job)
{
	struct writing *writing = container_of(job, struct writing, job);

	if (writing->entry->last_writing == writing)
		writing->entry->is_written = writing->result == 0;
	writing->on_done(writing->arg, writing->result,
			 writing->result < 0 ? &writing->error : NULL);
	writing_free(writing);
}

static void write_run(struct job *job)
{
	struct writing *writing = container_of(job, struct writing, job);

	privileges_own_files();
	writing->result = file_write(writing, &writing->error);
}

int saved_set(struct saved *saved, const char *key, const char *title,
	      const struct saved_settings *settings,
	      void (*on_done)(void *arg, int result, const struct error *error), void *arg,
	      struct error *error)
{
	struct saved_entry *p = entry_get(saved, key);
	struct writing *writing = calloc(1, sizeof(*writing));

	if (writing) {
		writing->dir = strdup(saved->dir);
		writing->title = strdup(title);
	}
	if (!p || !writing || !writing->dir || !writing->title) {
		writing_free(writing);
		return error_set(error, -ENOMEM, "saved settings %s", key);
	}
	p->is_there = settings->has_profile || settings->is_drained ||
		      rate_limit_is_set(&settings->limit);
	p->settings = *settings;
	p->is_written = false;
	p->last_writing = writing;
	writing->entry = p;
	writing->what = *p;
	p->is_damaged = false; /* this write renames the damaged file */
	writing->job.run = write_run;
	writing->job.done = written_main;
	writing->job.mailbox = saved->main_mailbox;
	writing->on_done = on_done;
	writing->arg = arg;
	job_submit(saved->work_queue, &writing->job);
	return 0;
}
