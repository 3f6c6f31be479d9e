#include "daemon/store/saved.h"

#include "daemon/account/usage.h"
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

/* A file that is to be written or removed. */
struct writing {
	struct job job;
	struct saved_change change;
	const char *dir; /* borrowed: the writing ends before it */
	char name[SAVED_KEY_BYTES + 8];
	char *text;
	bool is_removal, is_damaged; /* as in state_file_write() */
	int result;
	struct error error;
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

struct saved_entry *saved_entry(struct saved *saved, const char *key)
{
	struct saved_entry *p;

	LIST_EACH(struct saved_entry, known, &saved->entries, node)
		if (strcmp(known->key, key) == 0)
			return known;
	p = key[0] && saved->n_entries < ENTRIES_MAX ? calloc(1, sizeof(*p)) : NULL;
	if (!p)
		return NULL;
	(void)snprintf(p->key, sizeof(p->key), "%s", key);
	list_push(&saved->entries, &p->node);
	saved->n_entries++;
	return p;
}

static void file_load(struct saved *saved, int dir_fd, const char *name)
{
	const size_t n = strlen(name);
	_cleanup_(fclosep) FILE *file = NULL;
	struct error error = { .text = "cannot be read, or is no file of this daemon's" };
	char key[SAVED_KEY_BYTES], path[512];
	struct saved_entry *p;

	if (n <= 5 || name[0] == '.' || strcmp(name + n - 5, ".conf") != 0 ||
	    n - 5 >= SAVED_KEY_BYTES)
		return; /* another program's file */
	(void)snprintf(key, sizeof(key), "%.*s", (int)(n - 5), name);
	(void)snprintf(path, sizeof(path), "%s/%s", saved->dir, name);
	p = saved_entry(saved, key);
	file = p ? state_file_open(dir_fd, name, FILE_BYTES_MAX) : NULL;
	if (file && config_read_saved(file, path, &p->settings, &error) == 0) {
		p->is_there = p->is_written = true;
		return;
	}
	if (p)
		p->is_damaged = true;
	log_warning("saved settings %s: ignored: %s", path, error.text);
}

void saved_init(struct saved *saved, const char *dir_path, struct mailbox *main_mailbox)
{
	_cleanup_(dirp_close) DIR *dir = opendir(dir_path);
	const struct dirent *entry;

	*saved = (struct saved){ .dir = dir_path, .main_mailbox = main_mailbox };
	if (!dir && errno != ENOENT)
		log_warning("saved settings: %s: %s: none is read", dir_path,
			    strerrordesc_np(errno));
	for (unsigned n = 0; dir && n < ENTRIES_MAX && (entry = readdir(dir)); n++)
		file_load(saved, dirfd(dir), entry->d_name);
}

void saved_deinit(struct saved *saved)
{
	work_queue_free(saved->work_queue);
	LIST_EACH(struct saved_entry, p, &saved->entries, node)
		free(p);
	*saved = (struct saved){ 0 };
}

int saved_limit_users(const struct saved *saved, struct usage *usage)
{
	uid_t uid;

	LIST_EACH(const struct saved_entry, p, &saved->entries, node)
		if (p->is_there && sscanf(p->key, SAVED_USER_KEY, &uid) == 1 &&
		    usage_set_limit(usage, uid, &p->settings.limit) < 0)
			return -ENOMEM;
	return 0;
}

/* ---- writing ---- */

/* NULL without memory. */
static char *settings_text(const struct saved_settings *settings, const char *title)
{
	const struct profile *p = &settings->profile;
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	if (!file)
		return NULL;
	(void)fprintf(file, "# As an administrator has set %s (dsaioctl).\n", title);
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

/* why: it is not saved; NULL: it is, or need not be. */
static void change_done(const struct saved_change *change, const char *why)
{
	char note[ERROR_TEXT_BYTES + 160] = "";

	if (why)
		(void)snprintf(note, sizeof(note),
			       "%s: the %s%s is not saved: %s; it lasts until %s", change->title,
			       change->is_set ? "" : "removal of the ", change->what, why,
			       change->until);
	if (why && !change->is_quiet)
		log_warning("%s", note);
	change->on_done(change->arg, note);
}

static void written_main(struct job *job)
{
	struct writing *writing = container_of(job, struct writing, job);
	struct saved_entry *entry = writing->change.entry; /* NULL: of another file */

	/* A later writing has newer settings. */
	if (entry && --entry->n_writings == 0)
		entry->is_written = writing->result == 0;
	change_done(&writing->change, writing->result < 0 ? writing->error.text : NULL);
	free(writing->text);
	free(writing);
}

static void write_run(struct job *job)
{
	struct writing *writing = container_of(job, struct writing, job);

	privileges_own_files();
	writing->result = state_file_write(writing->dir, writing->name,
					   writing->is_removal ? NULL : writing->text,
					   writing->is_damaged, &writing->error);
}

/* Takes text.  NULL: there is no memory. */
static struct writing *writing_new(const struct saved *saved, const struct saved_change *change,
				   const char *name, char *text)
{
	struct writing *writing = text ? calloc(1, sizeof(*writing)) : NULL;

	if (!writing) {
		free(text);
		change_done(change, "out of memory");
		return NULL;
	}
	*writing = (struct writing){
		.change = *change,
		.dir = saved->dir,
		.text = text,
	};
	(void)snprintf(writing->name, sizeof(writing->name), "%s", name);
	return writing;
}

void saved_set(struct saved *saved, const struct saved_change *change)
{
	const struct saved_settings *settings = &change->settings;
	const bool is_there = settings->has_profile || settings->is_drained ||
			      rate_limit_is_set(&settings->limit);
	struct saved_entry *p = change->entry;
	struct writing *writing;
	char name[SAVED_KEY_BYTES + 8];

	if (!p || !saved->dir) {
		change_done(change, !change->is_set ? NULL
				    : p		    ? "there is no state_dir"
					: "its file system has no UUID, nor its device an id, "
					  "to know it by after a restart (a [store NAME] in "
					  "dsaiod.conf gives it one)");
		return;
	}
	(void)snprintf(name, sizeof(name), "%s.conf", p->key);
	writing = writing_new(saved, change, name, settings_text(settings, change->title));
	if (!writing)
		return;
	writing->is_removal = !is_there;
	writing->is_damaged = p->is_damaged;
	p->is_there = is_there;
	p->settings = *settings;
	p->is_written = p->is_damaged = false;
	p->n_writings++;
	job_submit(saved->work_queue, &writing->job, saved->main_mailbox, write_run, written_main);
}

void saved_write(struct saved *saved, const struct saved_change *change, const char *name,
		 const char *text, bool is_damaged)
{
	struct writing *writing = writing_new(saved, change, name, strdup(text));

	if (!writing)
		return;
	writing->is_damaged = is_damaged;
	job_submit(saved->work_queue, &writing->job, saved->main_mailbox, write_run, written_main);
}
