/*
 * dsaioctl ls, rm and stat: the names of RADOS stores.  Files of other stores have names of the system: ls(1), rm(1).
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/table.h"
#include "client/ctl/ui/units.h"
#include "client/lib/base/uri.h"
#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
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
	"    dsaioctl stat --json rados://tensors/llama/latest | jq -r '.files[].id'\n"
	"\n"
	"Another file of the same name has another id; a file never changes.\n"
	"\n" HELP_JSON HELP_SOCKET HELP_EXIT;

static struct json_object *field(struct json_object *file, const char *key)
{
	return json_object_object_get(file, key);
}

static int add_file(const struct dsaio_stat *file, void *array)
{
	struct json_object *object = json_object_new_object();
	char id[17];

	(void)snprintf(id, sizeof(id), "%016" PRIx64, file->id);
	json_add_text(object, "name", file->name);
	json_add_number(object, "bytes", file->file_size);
	json_object_object_add(object, "mtime_sec", json_object_new_int64(file->mtime_sec));
	json_add_number(object, "object_bytes", file->object_size);
	json_add_text(object, "id", id);
	return json_object_array_add(array, object);
}

static int compare(const void *a, const void *b)
{
	return strcmp(json_text(*(struct json_object *const *)a, "name"),
		      json_text(*(struct json_object *const *)b, "name"));
}

static int ls_ask(struct dsaio_client *client, const char *name, struct json_object *files)
{
	int r = dsaio_list(client, name, add_file, files);

	json_object_array_sort(files, compare);
	return r;
}

static int rm_ask(struct dsaio_client *client, const char *name, struct json_object *names)
{
	int r = dsaio_remove(client, name);

	return r < 0 ? r : json_object_array_add(names, json_object_new_string(name));
}

static int stat_ask(struct dsaio_client *client, const char *name, struct json_object *files)
{
	struct dsaio_stat file = DSAIO_STAT_INIT;
	int r = dsaio_stat(client, name, &file);

	file.name = name;
	return r < 0 ? r : add_file(&file, files);
}

static int ls_print(const struct ctl *ctl, struct json_object *files)
{
	_cleanup_(table_deinit) struct table table = { .columns = ">SIZE|>AGE|NAME" };
	const time_t now = time(NULL);
	char text[UNITS_TEXT_BYTES];

	for (size_t i = 0; i < json_object_array_length(files); i++) {
		struct json_object *file = json_object_array_get_idx(files, i);
		const int64_t age = now - json_object_get_int64(field(file, "mtime_sec"));

		table_add(&table, "%s",
			  units_format_size(text, json_object_get_uint64(field(file, "bytes"))));
		/* By another host's clock it may lie ahead. */
		table_add(&table, "%s",
			  age > 0 ? units_format_nsec(text, (uint64_t)age * UINT64_C(1000000000))
				  : "0 s");
		table_add(&table, "%s", json_text(file, "name"));
	}
	table_print(&table, stdout);
	return ctl_flush(ctl);
}

static int stat_print(const struct ctl *ctl, struct json_object *files)
{
	struct json_object *file = json_object_array_get_idx(files, 0);
	const uint64_t bytes = json_object_get_uint64(field(file, "bytes"));
	const time_t mtime = json_object_get_int64(field(file, "mtime_sec"));
	char size[UNITS_TEXT_BYTES], object_size[UNITS_TEXT_BYTES], date[32] = "?";
	struct tm tm;

	if (localtime_r(&mtime, &tm))
		(void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm);
	return ctl_print_line(
		ctl, "%s: %s (%" PRIu64 " bytes) in objects of %s, committed %s, id %s",
		json_text(file, "name"), units_format_size(size, bytes), bytes,
		units_format_size(object_size, json_object_get_uint64(field(file, "object_bytes"))),
		date, json_text(file, "id"));
}

/* Asks about all arguments, which are names of RADOS stores.  key: of the array in JSON.  print: its
   text; NULL: none. */
static int names_run(struct ctl *ctl, const char *key,
		     int (*ask)(struct dsaio_client *client, const char *name,
				struct json_object *array),
		     int (*print)(const struct ctl *ctl, struct json_object *array))
{
	struct json_object *object, *array;
	int r;

	if (ask == rm_ask ? !ctl->n_args : ctl->n_args != 1)
		return ctl_usage(ctl,
				 "name one: rados://POOL/NAMESPACE/FILE: see dsaioctl %s --help",
				 ctl->command);
	for (int i = 0; i < ctl->n_args; i++)
		if (!uri_is_rados(ctl->args[i]))
			return ctl_usage(ctl, "%s: is no rados://POOL/NAMESPACE/FILE: use %s(1)",
					 ctl->args[i], ctl->command);
	ctl->only_looks = true;
	r = ctl_connect(ctl, (const char *const *)ctl->args, (size_t)ctl->n_args, &ctl->client);
	if (r != CTL_OK)
		return r;
	array = json_object_new_array();
	for (int i = 0; i < ctl->n_args && r == CTL_OK; i++)
		if (ask(ctl->client, ctl->args[i], array) < 0)
			r = ctl_fail(ctl, "%s", dsaio_error());
	if (r == CTL_OK && !ctl->is_json && print)
		r = print(ctl, array);
	if (r != CTL_OK || !ctl->is_json) {
		(void)json_object_put(array);
		return r;
	}
	object = json_object_new_object();
	json_object_object_add(object, key, array);
	return ctl_print_json(ctl, object);
}

static int ls_run(struct ctl *ctl)
{
	return names_run(ctl, "files", ls_ask, ls_print);
}

static int rm_run(struct ctl *ctl)
{
	return names_run(ctl, "removed", rm_ask, NULL);
}

static int stat_run(struct ctl *ctl)
{
	return names_run(ctl, "files", stat_ask, stat_print);
}

const struct command command_ls = COMMAND("ls", ls_run, "the files of a RADOS store", ls_help,
					  .of_all = true);
const struct command command_rm = COMMAND("rm", rm_run, "removes files of RADOS stores", rm_help,
					  .of_all = true);
const struct command command_stat = COMMAND("stat", stat_run, "what a name of a RADOS store means",
					    stat_help, .of_all = true);
