/*
 * Mounts: where a file system is mounted, as /proc/PID/mountinfo tells.  For people to read: a
 * mount of a client's own namespace shows only there, and who mounts chooses the words.
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
 * The mount with this id (0: not known), else one of the device, if there is one its root; of
 * those that process pid sees (0: this one; of another's the first 10,000).
 * Returns 0, -ENOENT, or what reading says.  Never asks the file system itself.
 */
int mount_find(pid_t pid, uint64_t id, dev_t dev, struct mount *ret_mount);

/* One line of mountinfo, which is cut into pieces.  False: it is none. */
struct mount_line {
	uint64_t id;
	dev_t dev;
	char *root, *point, *fs_type, *source; /* in the line */
};
bool mount_parse(char *line, struct mount_line *ret_line);

#endif
