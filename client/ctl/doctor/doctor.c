#include "client/ctl/doctor/doctor.h"

#include "client/ctl/ui/json.h"
#include "client/ctl/ui/line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 1024 /* of a value; a longer one is cut */

void doctor_add(struct doctor *doctor, enum doctor_level level, const char *what,
		const char *remedy, const char *format, ...)
{
	static const char *const levels[DOCTOR_N_LEVELS] = { "OK", "WARN", "FAIL" };
	struct json_object *finding = json_object_new_object();
	char text[TEXT_BYTES];
	va_list args;

	json_add_text(finding, "level", levels[level]);
	(void)snprintf(text, sizeof(text), "%s%s", doctor->subject, what);
	json_add_text(finding, "what", text);
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json_add_text(finding, "value", text);
	json_add_text(finding, "remedy", level == DOCTOR_OK ? "" : remedy);
	(void)json_object_array_add(doctor->findings, finding);
	doctor->n_findings[level]++;
}

const char *doctor_read(const struct doctor *doctor, char *line, const char *key,
			const char *format, ...)
{
	char path[DOCTOR_PATH_BYTES], *start;
	const char *text;
	va_list args;

	va_start(args, format);
	(void)vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	text = line_read(line, DOCTOR_LINE_BYTES, key, "%s%s", doctor->root, path);
	start = strchr(line, '[');
	if (!start)
		return text;
	start[strcspn(start, "]")] = '\0';
	return start + 1;
}
