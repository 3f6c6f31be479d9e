#include "client/ctl/bench/report_parts.h"

#include "client/ctl/bench/svg.h"
#include "client/ctl/ui/units.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>

static const char *text_at(const struct bench_results *results, const char *object, const char *key)
{
	struct json_object *value = bench_results_get(results, object);

	value = json_object_object_get(value, key);
	return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
}

static uint64_t int_at(const struct bench_results *results, const char *object, const char *key)
{
	return json_object_get_uint64(
		json_object_object_get(bench_results_get(results, object), key));
}

void report_cell(FILE *out, const char *text)
{
	(void)fputs("<td>", out);
	svg_text(out, text[0] ? text : "-");
	(void)fputs("</td>", out);
}

static size_t n_elements(struct json_object *array)
{
	return json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
}

static void command_cell(FILE *out, const struct bench_results *results)
{
	struct json_object *command = bench_results_get(results, "command");
	const size_t n = n_elements(command);

	(void)fputs("<td><code>", out);
	for (size_t i = 0; i < n; i++) {
		const char *word = json_object_get_string(json_object_array_get_idx(command, i));
		const bool is_plain = word && word[0] &&
				      !strpbrk(word, " \t\n'\"\\$`*?[]{}()<>|&;#~");

		(void)fputs(i ? is_plain ? " " : " '" : is_plain ? "" : "'", out);
		svg_text(out, word ? word : "");
		(void)fputs(is_plain ? "" : "'", out);
	}
	(void)fputs("</code></td>", out);
}

static void folders_cell(FILE *out, const struct bench_results *results, const char *const keys[],
			 size_t n_keys)
{
	struct json_object *folders = bench_results_get(results, "folders");
	const size_t n = n_elements(folders);

	(void)fputs("<td>", out);
	for (size_t i = 0; i < n; i++) {
		struct json_object *folder = json_object_array_get_idx(folders, i);
		bool is_first = true;

		(void)fputs(i ? "<br/>" : "", out);
		for (size_t k = 0; k < n_keys; k++) {
			const char *text = json_object_get_string(
				json_object_object_get(folder, keys[k]));

			if (!text || !text[0])
				continue;
			(void)fputs(is_first ? "" : ", ", out);
			svg_text(out, text);
			is_first = false;
		}
	}
	(void)fputs("</td>", out);
}

/* A run that was resumed has several. */
static void buffers_cell(FILE *out, const struct bench_results *results)
{
	struct json_object *buffers = bench_results_get(results, "buffers");
	const size_t n = n_elements(buffers);

	(void)fputs(n ? "<td>" : "<td>not known", out);
	for (size_t i = 0; i < n; i++) {
		struct json_object *one = json_object_array_get_idx(buffers, i), *huge, *gpus;
		const uint64_t bytes = json_object_get_uint64(json_object_object_get(one, "bytes"));
		char text[UNITS_TEXT_BYTES];

		(void)fputs(i ? "<br/>" : "", out);
		huge = json_object_object_get(one, "huge_page_bytes");
		gpus = json_object_object_get(one, "gpus");
		if (n_elements(gpus))
			(void)fputs("none: a GPU's,", out);
		else if (!huge)
			(void)fputs("not known", out);
		else if (json_object_get_uint64(huge) == bytes)
			(void)fputs("all", out);
		else if (json_object_get_uint64(huge) == 0)
			(void)fputs("none", out);
		else
			svg_text(out, units_format_size(text, json_object_get_uint64(huge)));
		(void)fprintf(out, " of %s", units_format_size(text, bytes));
	}
	(void)fputs("</td>", out);
}

/* A run that is resumed has the same ones again. */
static struct json_object *gpus_of(const struct bench_results *results)
{
	struct json_object *buffers = bench_results_get(results, "buffers");

	return n_elements(buffers)
		       ? json_object_object_get(json_object_array_get_idx(buffers, 0), "gpus")
		       : NULL;
}

static void write_list(FILE *out, struct json_object *array)
{
	for (size_t i = 0; i < n_elements(array); i++) {
		const char *text = json_object_get_string(json_object_array_get_idx(array, i));

		(void)fputs(i ? ", " : "", out);
		svg_text(out, text ? text : "");
	}
}

static void gpus_cell(FILE *out, const struct bench_results *results)
{
	struct json_object *gpus = gpus_of(results), *ways = bench_results_get(results, "gpu_ways");

	(void)fputs(n_elements(gpus) ? "<td>" : "<td>-", out);
	write_list(out, gpus);
	(void)fputs(n_elements(gpus) && n_elements(ways) ? ": " : "", out);
	write_list(out, ways);
	(void)fputs("</td>", out);
}

void report_write_facts(FILE *out, const struct report_run *runs, size_t n_runs)
{
	static const struct {
		const char *title, *object, *key;
	} facts[] = {
		{ "host", "machine", "host" },		 { "kernel", "machine", "kernel" },
		{ "processor", "machine", "cpu" },	 { "processors", "machine", "cpus" },
		{ "memory", "machine", "memory_bytes" }, { "dsaiod", "daemon", "version" },
	};
	static const char *const device_keys[] = { "device", "model" };
	static const char *const folder_keys[] = { "folder", "fs_type" };
	char text[UNITS_TEXT_BYTES];
	bool has_gpus = false;

	(void)fputs("<h2>What was measured, where, and how to do it again</h2>\n<div "
		    "class=\"wide\"><table>\n<tr><th>run</th>",
		    out);
	for (size_t i = 0; i < n_runs; i++) {
		(void)fputs("<th>", out);
		svg_text(out, runs[i].name);
		(void)fputs("</th>", out);
	}
	(void)fputs("</tr>\n<tr><th>bench</th>", out);
	for (size_t i = 0; i < n_runs; i++) {
		(void)fputs("<td>", out);
		svg_text(out, bench_results_kind(runs[i].results));
		(void)fputs(bench_results_is_complete(runs[i].results)
				    ? "</td>"
				    : ", <span class=\"bad\">not complete</span></td>",
			    out);
	}
	(void)fputs("</tr>\n<tr><th>began</th>", out);
	for (size_t i = 0; i < n_runs; i++) {
		const char *began = json_object_get_string(
			bench_results_get(runs[i].results, "began"));

		report_cell(out, began ? began : "");
	}
	(void)fputs("</tr>\n<tr><th>folders</th>", out);
	for (size_t i = 0; i < n_runs; i++)
		folders_cell(out, runs[i].results, folder_keys, 2);
	(void)fputs("</tr>\n<tr><th>device</th>", out);
	for (size_t i = 0; i < n_runs; i++)
		folders_cell(out, runs[i].results, device_keys, 2);
	for (size_t f = 0; f < sizeof(facts) / sizeof(facts[0]); f++) {
		(void)fprintf(out, "</tr>\n<tr><th>%s</th>", facts[f].title);
		for (size_t i = 0; i < n_runs; i++) {
			const uint64_t n = int_at(runs[i].results, facts[f].object, facts[f].key);

			if (strcmp(facts[f].key, "memory_bytes") == 0)
				report_cell(out, units_format_size(text, n));
			else if (strcmp(facts[f].key, "cpus") == 0)
				report_cell(out, units_format_count(text, n));
			else
				report_cell(out, text_at(runs[i].results, facts[f].object,
							 facts[f].key));
		}
	}
	(void)fputs("</tr>\n<tr><th>buffers in huge pages</th>", out);
	for (size_t i = 0; i < n_runs; i++)
		buffers_cell(out, runs[i].results);
	for (size_t i = 0; i < n_runs && !has_gpus; i++)
		has_gpus = n_elements(gpus_of(runs[i].results)) > 0;
	(void)fputs(has_gpus ? "</tr>\n<tr><th>memory of GPUs</th>" : "", out);
	for (size_t i = 0; i < n_runs && has_gpus; i++)
		gpus_cell(out, runs[i].results);
	(void)fputs("</tr>\n<tr><th>command</th>", out);
	for (size_t i = 0; i < n_runs; i++)
		command_cell(out, runs[i].results);
	(void)fputs("</tr>\n</table></div>\n<p>Large transfers to and from huge pages cost the "
		    "kernel a fraction of the time: compare runs only where the same share of the "
		    "buffers is in huge pages. To see the difference, measure once with "
		    "<code>huge_pages = auto</code> and once with <code>huge_pages = no</code> in "
		    "dsaiod.conf, each into a directory of its own, and name both to bench "
		    "report.</p>\n",
		    out);
}
