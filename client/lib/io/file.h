/*
 * A file: the program opened it with its own rights, and handed it over to the daemon.
 *
 * The daemon has a direct description of it and, after the first unaligned write, a buffered one.  A
 * duplicate of the direct one may stay in this process (file_fd.h).
 *
 *   in use   the file is open, or an op on it is: n_refs is not 0
 *   leaving  the last reference is gone.  dsaio_file_close() settles the file at once.  The end of an
 *            op may hold locks: it leaves the file on the client's garbage list
 *                                                                      -> in use, idle, freed
 *   idle     in the cache: nothing of it is open in this process.  The file board says so, and the
 *            daemon closes it when its last link is gone, or when it stays idle (proto/file_board.h)
 *                                                                      -> in use, freed
 *
 * An open finds an idle file by its path (or the number of the caller's descriptor) and access mode.
 * Each time the kernel is asked what that names and whether this thread may open it: two system calls,
 * no open(2), no message.  If the name is another inode by now, the file leaves the cache, and its last
 * user frees it.  An op by path takes a file that is open for reading and writing, too, if this thread
 * has the right that the op needs.  A descriptor that cannot be opened anew shares the program's
 * description.  Such files and block devices are not kept.
 *
 * Closing a file can hang if its mount is dead.  So a thread closes the descriptor of no other file
 * than its own, and the daemon is asked to close others without waiting for the reply.
 *
 * While some files are idle, all files together are at most 7/8 of what the daemon grants.  The file
 * that was idle longest goes first.
 */
#ifndef DSAIO_CLIENT_LIB_IO_FILE_H
#define DSAIO_CLIENT_LIB_IO_FILE_H

#include "client/lib/io/client.h"

struct inode;

/* Whether ops between the file and GPU memory are possible: file_gpu.h. */
enum file_gpu { FILE_GPU_UNKNOWN, FILE_GPU_TAKEN, FILE_GPU_REFUSED };

/* The daemon's part of it. */
struct file_session {
	uint32_t id, store; /* the daemon's numbers, which stay */
	uint32_t number;   /* conn_session() of the last that it was opened in, or handed over to */
	_Atomic int error; /* it could not be handed over: no op can use it */
	uint32_t offset_align, memory_align; /* powers of two */
	_Atomic bool has_buffered;	     /* the daemon has the buffered description, too */
	_Atomic int gpu;		     /* enum file_gpu; changes under gpu.lock */
	/* Under gpu.lock.  FILE_GPU_REFUSED: gpu_why changes no more, and needs no lock. */
	char *gpu_why; /* a message; NULL: no error, or no memory */
	int gpu_error; /* FILE_GPU_REFUSED; or FILE_GPU_UNKNOWN: of the last answer, which may pass */
	uint64_t gpu_retry_nsec; /* gpu_error: when to ask again */
};

/* The descriptors that this process keeps.  -1: none. */
struct file_fds {
	int direct; /* the daemon has it, too, and can be asked for it */
	int second; /* for a sync across a crash of the daemon, which never gets it: file_fd.h */
};

/* A file of a RADOS store: file_named.h. */
struct file_named {
	uint64_t id;	       /* 0: it is none */
	_Atomic uint64_t size; /* 0 while it is open for writing: not known before the commit */
	uint32_t object_bytes;
	bool is_sparse, is_created;
};

struct dsaio_file {
	struct client_object object;
	struct dsaio_client *client;
	_Atomic uint32_t n_refs; /* opens and open ops; from and to 0 only under files.lock */
	struct file_session session;
	bool is_shared;
	bool can_read, is_block_device;
	_Atomic bool can_write; /* a created file: until it is committed or abandoned */
	bool is_temporary;	/* removed after a failure: messages of ops do not tell its size */
	struct inode *inode;
	struct cache_identity identity;
	char *name; /* for people; the path, if it was opened by one */
	struct file_named named;

	/* files.lock */
	struct cache_entry entry; /* its key never changes */
	uint32_t n_opens;	  /* opens that were not closed; each has a reference */
	struct file_fds fds;
	uint32_t n_fd_users; /* threads that have taken them; nobody has it open: closes them */
	bool is_settling;    /* file_settle() will come */
	struct dsaio_file *next_garbage;
};

static inline void file_add_ref(struct dsaio_file *file)
{
	/* relaxed: the caller holds one */
	(void)atomic_fetch_add_explicit(&file->n_refs, 1, memory_order_relaxed);
}
/*
 * Writes whose offset and length are multiples of it need no buffered description.  A direct write of less than a page
 * makes fsync fail for a program that writes the rest of the page through the page cache.  1 is the alignment of tmpfs.
 */
static inline uint32_t file_write_align(const struct dsaio_file *file)
{
	const uint32_t align = file->session.offset_align;

	return file->is_shared || align == 1 || align > 4096 ? align : 4096;
}
/*
 * Before a write up to byte `end`: may it end beyond the file?  Returns 0 and the entry's grow_end (0:
 * no), or -EFBIG: this process's RLIMIT_FSIZE allows no such file.
 */
int file_grow(struct dsaio_file *file, uint64_t end, uint64_t *ret_grow_end);

/* The last one leaves the file on the client's garbage list.  Any thread, any lock held. */
void file_drop_ref(struct dsaio_file *file);

/*
 * The caller removes the file after a failure.  Before its first op.  name: for messages, as the file may
 * have none of its own.
 */
void file_set_temporary(struct dsaio_file *file, const char *name);

/* ---- for file_open.c ---- */

/* The limit on cached files: the daemon's limit less room for files in use. */
uint32_t files_max(const struct dsaio_client *client);

/* Are there more than n_max files?  Then the one that is idle longest goes; false: none did. */
bool files_evict(struct dsaio_client *client, uint32_t n_max);

/*
 * The daemon had no room for one more file.  Lets an idle one go, and waits until the daemon has
 * closed some file since n_answered was read: this one, or another whose close did not hang.
 * false: there is none.
 */
bool files_make_room(struct dsaio_client *client, uint64_t n_answered);

/*
 * Ends an open of the file.  Returns whether it was the last one: that closes the descriptor, which
 * would keep the space of a deleted file.  A later file_settle() then has nothing to close.
 */
bool file_release(struct dsaio_file *file, bool may_wait);

/*
 * The file of that key, opened for the caller, if it still is what the key names; or NULL.  or_both:
 * one that is open for reading and writing will do, too.
 */
struct dsaio_file *file_cached(struct dsaio_client *client, const struct cache_key *key,
			       bool or_both);

/*
 * Takes the idle files of that name (NULL: all) off the cache, and waits until the daemon has closed them.  Returns
 * 0, -EBUSY (one of that name is in use), -ETIMEDOUT (a close hangs: the others are not waited for), or another
 * negative errno, with a message.
 */
int files_uncache(struct dsaio_client *client, const char *name);

/* ---- recovery: file_again.c ---- */

/* The daemon has gone away: files that are only cached go. */
void files_forget_idle(struct dsaio_client *client);
/*
 * Hands all files that are in use over to the session of `next`.  Those that cannot be get an error.  Returns how many
 * were, or -ENOTCONN.
 */
int files_hand_over(struct dsaio_client *client, struct dsaio_conn *next, uint32_t *n_refused);

/* A new file: from now on it is found by its key, if it can be kept and no other is there. */
void file_list(struct dsaio_file *file);

/* A file of that name, which it takes, with one open, in no list and unknown to the daemon.  NULL: there is no memory,
   or name is NULL. */
struct dsaio_file *file_alloc(struct dsaio_client *client, char *name);

/* A file that neither the daemon nor a list has: closes the descriptors, frees the rest.  NULL is fine. */
void file_free(struct dsaio_file *file);
CLEANUP_FUNCTION(struct dsaio_file, file_free)

/* The callback of its client_object. */
int file_on_disconnect(struct client_object *object);

#endif
