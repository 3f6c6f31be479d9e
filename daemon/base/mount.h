/*
 * Mounts: the mount point of a file system, from /proc/PID/mountinfo.  Use it only in messages: the
 * user that mounts chooses the strings.  A mount in a client's own namespace is only in the
 * mountinfo of that client.
 */
#ifndef DSAIO_DAEMON_BASE_MOUNT_H
#define DSAIO_DAEMON_BASE_MOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Texts have no control characters; owned. */
struct mount {
	dev_t dev;
	char *point, *fs_type, *source;
};
void mount_deinit(struct mount *mount);

/*
 * Finds the mount with this id (0: not known), else a mount of the device, preferably of its root.
 * Reads the mounts of process pid (0: this process; of another process only the first 64 KiB).
 * Returns 0, -ENOENT, -E2BIG (not in these 64 KiB), or the error of open(2).  Never calls the file system itself.
 */
int mount_find(pid_t pid, uint64_t id, dev_t dev, struct mount *ret_mount);

/* Parses a line of mountinfo in place.  Returns false if it is malformed. */
struct mount_line {
	uint64_t id;
	dev_t dev;
	char *root, *point, *fs_type, *source; /* in the line */
};
bool mount_parse(char *line, struct mount_line *ret_line);

#endif
