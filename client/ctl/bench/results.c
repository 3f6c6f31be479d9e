#include "client/ctl/bench/results.h"

#include "client/ctl/ui/json.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/newfile.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JSON_BYTES_MAX (256u << 20) /* of a file that is read: 10,000 points have 10 MB */
#define ROWS_KEY "rows_file"

const struct bench_results_file bench_results_files[BENCH_RESULTS_KINDS] = {
	{ "sweep", "results.json" },
	{ "tune", "tune.json" },
	{ "latency", "latency.json" },
};

/* ---- writing ---- */

void bench_results_init(struct bench_results *results, const char *kind)
{
	*results = (struct bench_results){ json_object_new_object() };
	json_add_text(results->root, "format", BENCH_FORMAT);
	json_add_text(results->root, "kind", kind);
	json_add_bool(results->root, "is_complete", false);
	json_object_object_add(results->root, "points", json_object_new_array());
}

void bench_results_deinit(struct bench_results *results)
{
	(void)json_object_put(results->root);
	results->root = NULL;
}

static struct json_object *points(const struct bench_results *results)
{
	return bench_results_get(results, "points");
}

const char *bench_results_name(const char *kind)
{
	for (size_t i = 0; i < BENCH_RESULTS_KINDS; i++)
		if (strcmp(bench_results_files[i].kind, kind) == 0)
			return bench_results_files[i].name;
	return NULL;
}

void bench_results_append(struct bench_results *results, const char *key,
			  struct json_object *object)
{
	struct json_object *array = bench_results_get(results, key);

	if (!array) {
		array = json_object_new_array();
		bench_results_set(results, key, array);
	}
	(void)json_object_array_add(array, object);
}

int bench_results_save(struct bench_results *results, int dir_fd, bool has_rows_file, char *text,
		       size_t size)
{
	const char *name = bench_results_name(bench_results_kind(results));
	struct newfile file;
	int r;

	json_object_object_del(results->root, ROWS_KEY);
	if (has_rows_file)
		bench_results_set(results, ROWS_KEY, json_object_new_string(BENCH_ROWS_NAME));
	r = newfile_open(dir_fd, name, 0666, &file);
	if (r == 0) {
		r = dprintf(file.fd, "%s", json_pretty(results->root)) < 0 ? -errno : 0;
		if (r == 0)
			r = newfile_commit(&file);
		newfile_discard(&file);
	}
	if (r < 0)
		(void)snprintf(text, size, "%s: cannot be written: %s", name, strerror(-r));
	return r;
}

int bench_rows_write(int fd, const char *key, struct json_object *object)
{
	_cleanup_(json_putp) struct json_object *line = json_object_new_object();

	json_object_object_add(line, key, json_object_get(object));
	/* Without its end, the row counts for nothing. */
	return dprintf(fd, "%s\n",
		       json_object_to_json_string_ext(
			       line, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)) < 0
		       ? -errno
		       : 0;
}

/* ---- reading ---- */

/* Follows no link, and does not wait for the writer of a FIFO of that name. */
static int open_file(int dir_fd, const char *name, int *ret_fd, char *text, size_t size)
{
	_cleanup_(closep) int fd = openat(dir_fd, name,
					  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st = { 0 };

	if (fd < 0 || fstat(fd, &st) < 0) {
		int r = -errno;

		(void)snprintf(text, size, "%s: %s", name,
			       r == -ELOOP ? "is a symbolic link, which is not followed"
					   : strerror(-r));
		return r;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)JSON_BYTES_MAX) {
		(void)snprintf(text, size, "%s: is no results of dsaioctl bench", name);
		return -EINVAL;
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* A line of the rows file.  Returns whether it is whole. */
static bool read_row(struct bench_results *results, const char *line)
{
	_cleanup_(json_putp) struct json_object *object = json_tokener_parse(line);
	struct json_object_iter i;

	if (!json_object_is_type(object, json_type_object))
		return false;
	json_object_object_foreachC(object, i)
	{
		struct json_object *array = bench_results_get(results, i.key);

		if (array && !json_object_is_type(array, json_type_array))
			return false;
		bench_results_append(results, i.key, json_object_get(i.val));
	}
	return true;
}

/* A crash may have cut the last line short: it and what follows it are left out. */
static int read_rows(struct bench_results *results, int dir_fd, char *text, size_t size)
{
	_cleanup_(fclosep) FILE *file = NULL;
	_cleanup_(freep) char *line = NULL;
	size_t room = 0;
	ssize_t len;
	int fd, r = open_file(dir_fd, BENCH_ROWS_NAME, &fd, text, size);

	if (r < 0)
		return r == -ENOENT ? 0 : r; /* a crash before the first row */
	file = need_memory(fdopen(fd, "r"));
	while ((len = getline(&line, &room, file)) > 0 && line[len - 1] == '\n')
		if (!read_row(results, line))
			break;
	return 0;
}

int bench_results_load(int dir_fd, const char *name, struct bench_results *ret_results, char *text,
		       size_t size)
{
	struct bench_results results = { NULL };
	_cleanup_(closep) int fd = -1;
	int r = open_file(dir_fd, name, &fd, text, size);

	if (r < 0)
		return r;
	results.root = json_object_from_fd(fd);
	if (!json_object_is_type(results.root, json_type_object) ||
	    strcmp(json_text(results.root, "format"), BENCH_FORMAT) != 0 ||
	    !bench_results_name(bench_results_kind(&results)) ||
	    !json_object_is_type(points(&results), json_type_array)) {
		(void)json_object_put(results.root);
		(void)snprintf(text, size, "%s: is no results of dsaioctl bench", name);
		return -EINVAL;
	}
	if (json_text(results.root, ROWS_KEY)[0]) {
		r = read_rows(&results, dir_fd, text, size);
		if (r < 0) {
			bench_results_deinit(&results);
			return r;
		}
	}
	*ret_results = results;
	return 0;
}

const char *bench_results_kind(const struct bench_results *results)
{
	return json_text(results->root, "kind");
}

/* Members are put before the points, so that the head of the file shows them. */
void bench_results_set(struct bench_results *results, const char *key, struct json_object *value)
{
	struct json_object *last = json_object_get(points(results));

	json_object_object_del(results->root, "points");
	json_object_object_add(results->root, key, value);
	json_object_object_add(results->root, "points", last);
}

struct json_object *bench_results_get(const struct bench_results *results, const char *key)
{
	return json_object_object_get(results->root, key);
}

size_t bench_results_n_rows(const struct bench_results *results)
{
	return json_object_array_length(points(results));
}

int bench_results_row(const struct bench_results *results, size_t i, struct bench_row *ret_row)
{
	return bench_row_read(json_object_array_get_idx(points(results), i), ret_row);
}

size_t bench_results_n_good(const struct bench_results *results)
{
	size_t n = 0;

	for (size_t i = 0; i < bench_results_n_rows(results); i++)
		n += json_text(json_object_array_get_idx(points(results), i), "error")[0] == '\0';
	return n;
}

struct json_object *bench_results_last(const struct bench_results *results, const char *key)
{
	struct json_object *array = bench_results_get(results, key);

	return json_object_array_get_idx(array, json_object_array_length(array) - 1);
}

size_t bench_results_drop_failed(struct bench_results *results)
{
	struct json_object *array = points(results);
	size_t n_dropped = 0;

	for (size_t i = json_object_array_length(array); i-- > 0;) {
		if (json_text(json_object_array_get_idx(array, i), "error")[0] == '\0')
			continue;
		if (json_object_array_del_idx(array, i, 1) == 0)
			n_dropped++;
	}
	return n_dropped;
}

ssize_t bench_results_find(const struct bench_results *results, enum bench_op op,
			   const struct profile *profile)
{
	ssize_t i = (ssize_t)bench_results_n_rows(results);

	while (--i >= 0) {
		const struct bench_task task = bench_row_read_task(
			json_object_array_get_idx(points(results), (size_t)i));

		if (task.op == op && bench_same_profile(&task.profile, profile))
			break;
	}
	return i;
}
