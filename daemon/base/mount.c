#include "daemon/base/mount.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

/* Bytes that are read of another process, which may have its own namespace: takes about 1 ms. */
#define BYTES_MAX (64u << 10)

void mount_deinit(struct mount *mount)
{
	free(mount->point);
	free(mount->fs_type);
	free(mount->source);
	*mount = (struct mount){ 0 };
}

static bool is_octal(const char *text)
{
	for (unsigned i = 0; i < 3; i++)
		if (text[i] < '0' || text[i] > '7')
			return false;
	return true;
}

/* In place: the kernel writes blanks and backslashes as \ooo. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++) {
		unsigned char c = (unsigned char)*from++;

		if (c == '\\' && is_octal(from)) {
			c = (unsigned char)((from[0] - '0') << 6 | (from[1] - '0') << 3 |
					    (from[2] - '0'));
			from += 3;
		}
		*to = c < ' ' || c == 0x7f ? '?' : (char)c;
	}
	*to = 0;
}

bool mount_parse(char *line, struct mount_line *ret_line)
{
	struct mount_line mount;
	unsigned major_no, minor_no;
	char *rest = line, *field;
	int n;

	/* 36 35 98:0 /root /point options [tags...] - type source options */
	line[strcspn(line, "\n")] = 0;
	if (sscanf(line, "%" SCNu64 " %*u %u:%u %n", &mount.id, &major_no, &minor_no, &n) != 3)
		return false;
	mount.dev = makedev(major_no, minor_no);
	rest = line + n;
	mount.root = strsep(&rest, " ");
	mount.point = strsep(&rest, " ");
	do
		field = strsep(&rest, " ");
	while (field && strcmp(field, "-") != 0);
	mount.fs_type = strsep(&rest, " ");
	mount.source = strsep(&rest, " ");
	if (!mount.source || mount.root[0] != '/' || mount.point[0] != '/')
		return false;
	unescape(mount.root);
	unescape(mount.point);
	unescape(mount.fs_type);
	unescape(mount.source);
	*ret_line = mount;
	return true;
}

static int mount_keep(const struct mount_line *line, struct mount *mount)
{
	mount_deinit(mount);
	mount->dev = line->dev;
	mount->point = strdup(line->point);
	mount->fs_type = strdup(line->fs_type);
	mount->source = strdup(line->source);
	return mount->point && mount->fs_type && mount->source ? 0 : -ENOMEM;
}

int mount_find(pid_t pid, uint64_t id, dev_t dev, struct mount *ret_mount)
{
	_cleanup_(fclosep) FILE *file = NULL;
	_cleanup_(mount_deinit) struct mount best = { 0 };
	_cleanup_(freep) char *text = NULL;
	bool has_root = false;
	size_t size = 0, n_bytes = 0;
	char path[40] = "/proc/self/mountinfo";

	if (pid)
		(void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while ((!pid || n_bytes < BYTES_MAX) && getline(&text, &size, file) > 0) {
		struct mount_line line;
		bool is_it, is_root;

		n_bytes += strlen(text);
		if (!mount_parse(text, &line))
			continue;
		is_it = id && line.id == id;
		is_root = strcmp(line.root, "/") == 0;
		if (!is_it && (line.dev != dev || (best.point && (has_root || !is_root))))
			continue;
		if (mount_keep(&line, &best) < 0)
			return -ENOMEM;
		has_root = is_root;
		if (is_it)
			break;
	}
	if (!best.point)
		return pid && n_bytes >= BYTES_MAX ? -E2BIG : -ENOENT;
	*ret_mount = best;
	best = (struct mount){ 0 };
	return 0;
}
