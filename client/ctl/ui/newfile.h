/*
 * A file that is written without a name, or under a temporary one, and then takes the place of another file.
 *
 *     r = newfile_open(dir_fd, "results.json", 0666, &file);
 *     ... write to file.fd ...
 *     r = newfile_commit(&file);              readers find the old content or the new content
 *     newfile_discard(&file);                 removes the new file if it was not renamed
 *
 * O_TMPFILE gives it no name, so the kernel removes it if this process is killed.  It has a temporary
 * name where the file system has no O_TMPFILE, and for the moment in which it replaces another file.
 * That name is ".dsaio-RANDOM.new", and this process holds a lock (flock(2)) on the file: the next
 * newfile_open() in the directory removes the user's files of such names whose lock is free.
 *
 * All names are looked up in dir_fd and no link is followed, so another user who may write to the
 * directory cannot redirect the bytes.
 */
#ifndef DSAIO_CLIENT_CTL_UI_NEWFILE_H
#define DSAIO_CLIENT_CTL_UI_NEWFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NEWFILE_NAME_BYTES 28u

struct newfile {
	int dir_fd;			    /* borrowed */
	int fd;				    /* open for reading and writing; -1: none */
	const char *name;		    /* borrowed */
	char temporary[NEWFILE_NAME_BYTES]; /* "": it has none */
	bool is_placed;			    /* renamed */
};

#define NEWFILE_NONE ((struct newfile){ .dir_fd = -1, .fd = -1 })

/*
 * Removes what killed processes left in the directory, then makes a file with that mode less the
 * umask.  Returns 0 or a negative errno.
 */
int newfile_open(int dir_fd, const char *name, mode_t mode, struct newfile *ret_file);

/*
 * Gives the file its name.  replaces: a file of that name is replaced; else it stays, and this returns
 * -EEXIST.  -ESTALE: another process removed or replaced the temporary file.  Neither the file nor the
 * directory is synced.  Returns 0 or a negative errno; after a failure newfile_discard() is due.
 */
int newfile_rename(struct newfile *file, bool replaces);

/*
 * Syncs the file, renames it and closes fd.  A failure removes the temporary file.
 * Returns 0 or a negative errno.
 */
int newfile_commit(struct newfile *file);

/*
 * Closes fd and removes the file, unless it was renamed, or another process has removed or replaced it.
 * Its room is free when this returns, also while the daemon still has it open.
 */
void newfile_discard(struct newfile *file);

/*
 * Is the name that of this file?  Nobody else's file may be removed or renamed.
 * Returns 0, -ESTALE (no), or another negative errno.
 */
int newfile_check_name(int dir_fd, const char *name, dev_t dev, ino_t ino);

/*
 * Reserves blocks for these bytes of the file and keeps its size.  Does nothing where the file
 * system cannot reserve.  Only for files that this process made: after a failure some blocks stay
 * reserved, and only truncation frees them, which could remove bytes of another process.
 * Returns 0 or a negative errno.
 */
int newfile_reserve(int fd, uint64_t off, uint64_t len);

/* Returns 0, -ENOSPC if the bytes that the file lacks do not fit, or another negative errno. */
int newfile_check_room(int fd, uint64_t bytes);

#endif
