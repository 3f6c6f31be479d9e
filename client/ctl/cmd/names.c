/*
 * dsaioctl ls, rm and stat: the names of RADOS stores.  Files of other stores have names of the system: ls(1), rm(1).
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/table.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char ls_help[] =
	"dsaioctl ls - the files of a RADOS store\n"
	"\n"
	"    dsaioctl ls rados://tensors/llama/             all, by name\n"
	"    dsaioctl ls rados://tensors/llama/step-1000/   those whose names begin so\n"
	"    dsaioctl ls --json rados://tensors/llama/ | jq '[.files[].bytes] | add'\n"
	"\n"
	"Shows committed files, with their size and the time since their commit.\n"
	"\n" HELP_JSON HELP_SOCKET HELP_EXIT;

static const char rm_help[] =
	"dsaioctl rm - remove files of RADOS stores\n"
	"\n"
	"    dsaioctl rm rados://tensors/llama/step-900/MANIFEST rados://tensors/llama/step-900/shard.0\n"
	"\n"
	"Stops at the first name that cannot be removed.  The bytes go after the store's trash_after;\n"
	"readers that have a file open go on until then.\n"
	"\n" HELP_JSON HELP_SOCKET HELP_EXIT;

static const char stat_help[] =
	"dsaioctl stat - what a name of a RADOS store means now\n"
	"\n"
	"    dsaioctl stat rados://tensors/llama/step-1000/MANIFEST\n"
	"    dsaioctl stat --json rados://tensors/llama/latest | jq -r .id\n"
	"\n"
	"Another file of the same name has another id; a file never changes.\n"
	"\n" HELP_JSON HELP_SOCKET HELP_EXIT;

/* Committed files; the names are owned. */
struct found {
	struct dsaio_stat *files;
	size_t n_files, size;
};

static void found_deinit(struct found *found)
{
	for (size_t i = 0; i < found->n_files; i++)
		free((char *)found->files[i].name);
	free(found->files);
}

static int found_add(const struct dsaio_stat *file, void *arg)
{
	struct found *found = arg;
	char *name;

	if (found->n_files == found->size) {
		size_t size = found->size * 2 + 64;
		struct dsaio_stat *files = reallocarray(found->files, size, sizeof(*files));

		if (!files)
			return -ENOMEM;
		found->files = files;
		found->size = size;
	}
	name = strdup(file->name);
	if (!name)
		return -ENOMEM;
	found->files[found->n_files] = *file;
	found->files[found->n_files++].name = name;
	return 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct dsaio_stat *)a)->name, ((const struct dsaio_stat *)b)->name);
}

static struct json_object *file_json(const struct dsaio_stat *file, const char *name)
{
	struct json_object *object = json_object_new_object();
	char id[17];

	(void)snprintf(id, sizeof(id), "%016" PRIx64, file->id);
	json_add_text(object, "name", name);
	json_add_number(object, "bytes", file->file_size);
	json_object_object_add(object, "mtime_sec", json_object_new_int64(file->mtime_sec));
	json_add_number(object, "object_bytes", file->object_size);
	json_add_text(object, "id", id);
	return object;
}

static int print_found(const struct ctl *ctl, const struct found *found)
{
	static const struct table_column columns[] = {
		{ "SIZE", true },
		{ "AGE", true },
		{ "NAME", false },
	};
	_cleanup_(table_deinit) struct table table;
	const time_t now = time(NULL);
	char text[UNITS_TEXT_BYTES];

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < found->n_files; i++) {
		const struct dsaio_stat *file = &found->files[i];
		/* By another host's clock it may lie ahead. */
		uint64_t age = file->mtime_sec < now ? (uint64_t)(now - file->mtime_sec) : 0;

		table_add(&table, "%s", units_format_size(text, file->file_size));
		table_add(&table, "%s",
			  age ? units_format_nsec(text, age * UINT64_C(1000000000)) : "0 s");
		table_add(&table, "%s", file->name);
	}
	return table_print(&table, stdout) == -ENOMEM ? ctl_fail(ctl, "out of memory")
						      : ctl_flush(ctl);
}

/* Checks that all arguments are names of RADOS stores, and connects. */
static int names_connect(struct ctl *ctl, struct dsaio_client **ret_client)
{
	if (ctl->is_private)
		return ctl_usage(ctl, "--private: a daemon for this command alone has no RADOS "
				      "store: leave it out");
	for (int i = 0; i < ctl->n_args; i++)
		if (!ctl_is_rados(ctl->args[i]))
			return ctl_usage(ctl, "%s: is no rados://POOL/NAMESPACE/FILE: use %s(1)",
					 ctl->args[i], ctl->command);
	ctl->only_looks = true;
	ctl->is_of_all = true;
	return ctl_connect(ctl, (const char *const *)ctl->args, (size_t)ctl->n_args, ret_client);
}

static int ls_run(struct ctl *ctl)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	_cleanup_(found_deinit) struct found found = { .n_files = 0 };
	struct json_object *object, *array;
	int r;

	if (ctl->n_args != 1)
		return ctl_usage(ctl, "name one store: dsaioctl ls rados://POOL/NAMESPACE/: see "
				      "dsaioctl ls --help");
	r = names_connect(ctl, &client);
	if (r != CTL_OK)
		return r;
	r = dsaio_list(client, ctl->args[0], found_add, &found);
	if (r < 0)
		return ctl_fail(ctl, "%s", r == -ENOMEM ? "out of memory" : dsaio_error());
	if (found.n_files)
		qsort(found.files, found.n_files, sizeof(*found.files), compare);
	if (!ctl->is_json)
		return print_found(ctl, &found);
	object = json_object_new_object();
	array = json_object_new_array();
	for (size_t i = 0; i < found.n_files; i++)
		(void)json_object_array_add(array, file_json(&found.files[i], found.files[i].name));
	json_object_object_add(object, "files", array);
	return ctl_print_json(ctl, object);
}

static int rm_run(struct ctl *ctl)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	struct json_object *object, *array;
	int r;

	if (!ctl->n_args)
		return ctl_usage(ctl, "name a file: dsaioctl rm rados://POOL/NAMESPACE/FILE...: "
				      "see dsaioctl rm --help");
	r = names_connect(ctl, &client);
	if (r != CTL_OK)
		return r;
	for (int i = 0; i < ctl->n_args; i++)
		if (dsaio_remove(client, ctl->args[i]) < 0)
			return ctl_fail(ctl, "%s", dsaio_error());
	if (!ctl->is_json)
		return CTL_OK;
	object = json_object_new_object();
	array = json_object_new_array();
	for (int i = 0; i < ctl->n_args; i++)
		(void)json_object_array_add(array, json_object_new_string(ctl->args[i]));
	json_object_object_add(object, "removed", array);
	return ctl_print_json(ctl, object);
}

static int stat_run(struct ctl *ctl)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	struct dsaio_stat file = DSAIO_STAT_INIT;
	char size[UNITS_TEXT_BYTES], object_size[UNITS_TEXT_BYTES], date[32] = "?";
	time_t mtime;
	struct tm tm;
	int r;

	if (ctl->n_args != 1)
		return ctl_usage(ctl, "name one file: dsaioctl stat rados://POOL/NAMESPACE/FILE: "
				      "see dsaioctl stat --help");
	r = names_connect(ctl, &client);
	if (r != CTL_OK)
		return r;
	if (dsaio_stat(client, ctl->args[0], &file) < 0)
		return ctl_fail(ctl, "%s", dsaio_error());
	if (ctl->is_json)
		return ctl_print_json(ctl, file_json(&file, ctl->args[0]));
	mtime = (time_t)file.mtime_sec;
	if (localtime_r(&mtime, &tm))
		(void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm);
	return ctl_print_line(
		ctl, "%s: %s (%" PRIu64 " bytes) in objects of %s, committed %s, id %016" PRIx64,
		ctl->args[0], units_format_size(size, file.file_size), file.file_size,
		units_format_size(object_size, file.object_size), date, file.id);
}

const struct command command_ls = { "ls",    ls_run,	  "the files of a RADOS store",
				    ls_help, { NULL, 0 }, NULL };
const struct command command_rm = { "rm",    rm_run,	  "removes files of RADOS stores",
				    rm_help, { NULL, 0 }, NULL };
const struct command command_stat = { "stat",	 stat_run,    "what a name of a RADOS store means",
				      stat_help, { NULL, 0 }, NULL };
