#include "client/ctl/doctor/doctor.h"

#include "client/ctl/ui/json.h"
#include "proto/util/cleanup.h"

#include <stdarg.h>
#include <string.h>

#define TEXT_BYTES 1024 /* of a value or remedy; a longer one is cut */

void doctor_init(struct doctor *doctor)
{
	*doctor = (struct doctor){ .root = "", .findings = json_object_new_array() };
}

void doctor_deinit(struct doctor *doctor)
{
	(void)json_object_put(doctor->findings);
}

void doctor_add(struct doctor *doctor, enum doctor_level level, const char *what,
		const char *format, ...)
{
	static const char *const levels[DOCTOR_N_LEVELS] = { "OK", "WARN", "FAIL" };
	struct json_object *finding = json_object_new_object();
	char title[TEXT_BYTES], value[TEXT_BYTES];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(value, sizeof(value), format, args);
	va_end(args);
	(void)snprintf(title, sizeof(title), "%s%s", doctor->subject, what);
	json_add_text(finding, "level", levels[level]);
	json_add_text(finding, "what", title);
	json_add_text(finding, "value", value);
	json_object_object_add(finding, "remedy", NULL);
	(void)json_object_array_add(doctor->findings, finding);
	doctor->n_findings[level]++;
}

void doctor_mend(struct doctor *doctor, const char *format, ...)
{
	struct json_object *last = json_object_array_get_idx(
		doctor->findings, json_object_array_length(doctor->findings) - 1);
	char text[TEXT_BYTES];
	va_list args;

	if (strcmp(json_text(last, "level"), "OK") == 0)
		return;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json_add_text(last, "remedy", text);
}

FILE *doctor_open(const struct doctor *doctor, const char *path)
{
	char whole[2 * DOCTOR_PATH_BYTES];

	(void)snprintf(whole, sizeof(whole), "%s%s", doctor->root, path);
	return fopen(whole, "re");
}

const char *doctor_line(const struct doctor *doctor, const char *path, char *line, size_t size)
{
	_cleanup_(fclosep) FILE *file = doctor_open(doctor, path);

	if (!file || !fgets(line, (int)size, file))
		line[0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return line;
}

const char *doctor_choice(const struct doctor *doctor, const char *path, char *line, size_t size)
{
	char *start;

	(void)doctor_line(doctor, path, line, size);
	start = strchr(line, '[');
	if (!start)
		return line;
	start[strcspn(start, "]")] = '\0';
	return start + 1;
}
