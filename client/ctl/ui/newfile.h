/*
 * A file that is written under a random name and then replaces the one of the wanted name.
 *
 *     r = newfile_open(dir_fd, "results.json", &file);
 *     ... write to file.fd ...
 *     r = newfile_commit(&file);              readers find the old content or the new one
 *     newfile_discard(&file);                  without a commit nothing is left
 *
 * All names are looked up in dir_fd and no link is followed, so another user who may write to the
 * directory cannot redirect the bytes.
 */
#ifndef DSAIO_CLIENT_CTL_UI_NEWFILE_H
#define DSAIO_CLIENT_CTL_UI_NEWFILE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct newfile {
	int dir_fd;	  /* borrowed */
	int fd;		  /* -1: none, or committed */
	const char *name; /* borrowed */
	char temporary[NAME_MAX + 1];
};

/* Mode 0666 less the umask.  Each returns 0 or a negative errno. */
int newfile_open(int dir_fd, const char *name, struct newfile *ret_file);

/* Waits until the bytes are on the device, then takes the name.  Closes fd, also on error. */
int newfile_commit(struct newfile *file);

/* Removes what was not committed. */
void newfile_discard(struct newfile *file);

/* write(2) until all of it is written.  Returns 0 or a negative errno. */
int write_all(int fd, const char *bytes, size_t len);

/*
 * Reserves blocks for the file's first bytes, and keeps its size; where the file system cannot,
 * does nothing.  For a file of our own making only: after a failure some blocks stay reserved, and
 * only a cut, which could remove bytes of others, gives them back.  Returns 0 or a negative errno.
 */
int newfile_reserve(int fd, uint64_t bytes);

/* Is there room for the bytes that the file does not have yet?  Returns 0 or a negative errno. */
int newfile_check_room(int fd, uint64_t bytes);

#endif
