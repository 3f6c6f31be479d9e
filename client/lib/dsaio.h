/*
 * dsaio.h - tensors to and from NVMe through dsaiod
 *
 *     struct dsaio_client *c;  struct dsaio_handle *h;  struct dsaio_file *f;  struct dsaio_op *op;
 *     void *t;
 *
 *     dsaio_connect(NULL, &c);
 *     dsaio_handle_open(c, NULL, &h);                      each store's own profile
 *     dsaio_alloc(c, bytes, NULL, &t);                     pinned, shared: no copy later
 *     dsaio_open(c, "/nvme/w0.bin", O_RDONLY, NULL, &f);
 *     dsaio_pread_async(h, f, t, bytes, 0, &op);           order of pread(2)
 *     ... compute ...
 *     dsaio_op_wait(op, -1, &n);                           n: bytes, or a negative errno
 *     dsaio_op_free(op);
 *
 * dsaio(3) has what does not belong to one function: memory of a GPU, forks, signals, time-outs.
 *
 * Results.  Functions return 0, a count or bytes on success and a negative errno on failure;
 * then dsaio_error() has a message that says what failed, on what, why, and what to do.
 * A read at the end of the file returns the bytes before it (0 behind it) and leaves the rest
 * of the buffer alone.  A write is whole, or fails; dsaio_op_bytes() says how many bytes were
 * done before an error.  -ENOTCONN, -EPERM after a fork, -EINVAL for a NULL object and -ENOMEM can come
 * from every function and are not repeated below.
 *
 * Zero is the default of every field and option.  A timeout of a wait is in microseconds: -1 is
 * forever, and 0 only looks.
 *
 * Memory.  Any buffer, offset and length work.  Memory of dsaio_alloc() or dsaio_memory_register() goes to
 * the device without a copy where offset, length and address are multiples of dsaio_file_alignment();
 * the ends that are not are copied, or written through the page cache.  Private memory, and a
 * buffer at another distance from an aligned address than its bytes in the file, are copied through
 * at most 32 MiB of the pool; -ENOMEM if the pool has none.  A wrong address is -EFAULT.  A buffer belongs
 * to its op from the call until the op's end, whatever a wait in between says.
 *
 * Order.  Ops of one handle that touch the same bytes of one file, one of them writing, take
 * effect in the order in which they were submitted; a sync covers all writes of its file
 * submitted before it on that handle.  All else runs and ends in any order.
 *
 * Threads.  Every function may be called from any thread at any time, unless its comment says
 * otherwise; an object must not be freed while another thread is in a call with it.  A call that hangs
 * because a file system does not answer delays no call on other files, handles or memory.
 *
 * Sleeps.  "Sleeps for" in a comment says what a call may sleep for; without it, a call never sleeps.
 * "The daemon" is its answer (a daemon that is stopped answers when it goes on), "the file system" the
 * same of a system call, and "the loader" the loader of libraries, where the program has opened libcuda
 * and another thread is in dlopen(3).  No call returns -EINTR, none is a cancellation point, and a signal
 * handler may make none.
 *
 * The daemon goes away: it crashed, or is restarted or updated.  The library connects again, hands over
 * memory, files and handles, and submits each open op again, once no block of the old daemon can still touch
 * memory or file.  Ops, waits and calls only take longer, up to reconnect_timeout_usec.  An op may so take effect
 * twice before its end, which is why its memory must stay as it is.  Some ops cannot go on, and end with an errno and a
 * message that names the restart: one that was in flight at two crashes in a row, ops on memory that the next
 * daemon has no room for, on a file that cannot be opened again, on a store that is gone, on GPU memory by the
 * direct path, and all where the next daemon is too old.  If there is none in time, or the daemon has ended this
 * session on purpose (dsaioctl kill), open ops end with -ECONNRESET, once, and later calls return -ENOTCONN.
 *
 * The library never exits, aborts, prints, or installs a signal handler.
 */
#ifndef DSAIO_H
#define DSAIO_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The exported functions; all others are built hidden. */
#pragma GCC visibility push(default)

/*
 * For the compiler: the arguments that must not be NULL, and the results that must be looked at.
 * Passing NULL nevertheless is -EINVAL.  DSAIO_NO_ATTRIBUTES leaves both out.
 */
#if defined(__GNUC__) && !defined(DSAIO_NO_ATTRIBUTES)
#define DSAIO_NONNULL(...) __attribute__((nonnull(__VA_ARGS__)))
#define DSAIO_CHECKED __attribute__((warn_unused_result))
#else
#define DSAIO_NONNULL(...)
#define DSAIO_CHECKED
#endif

struct dsaio_client; /* a connection to the daemon */
struct dsaio_handle; /* what a program opens to do I/O */
struct dsaio_file;   /* an open file that the daemon may read or write for us */
struct dsaio_op;     /* one read, write or sync */

/*
 * Version of this header.  The functions below report the library's, which may be another one.  A
 * newer version has a larger number; programs can compare it in #if.
 */
#define DSAIO_VERSION "0.1.0"
#define DSAIO_VERSION_MAJOR 0
#define DSAIO_VERSION_MINOR 1
#define DSAIO_VERSION_PATCH 0
#define DSAIO_VERSION_NUMBER \
	(DSAIO_VERSION_MAJOR * 1000000 + DSAIO_VERSION_MINOR * 1000 + DSAIO_VERSION_PATCH)

/*
 * dsaio_version - the library's version, "major.minor.patch"
 * dsaio_version_number - the same as DSAIO_VERSION_NUMBER
 *
 * Never fail.  Threads: any.
 */
const char *dsaio_version(void);
uint32_t dsaio_version_number(void);

/*
 * dsaio_error - the message for the last call of this thread that failed
 *
 * Never NULL; "" if none has failed yet.  Valid until this thread's next failing call.
 */
const char *dsaio_error(void);

/*
 * Structs that begin with their size get further fields at their end in later versions.  Start from the
 * struct's _INIT, or zero it, set size to its sizeof and fill in the rest.  dsaio_submit() and
 * dsaio_handle_reap() take the size of an element of their arrays.  Then program and library can be of
 * different versions:
 *   a smaller size, of an older program: the fields that it lacks have their defaults
 *   a larger size, of a newer program: what the library does not know must be zero, else -E2BIG
 *   a size smaller than the struct's in the first version: -EINVAL
 */

/* ---- connection ---- */

/* How to connect. */
struct dsaio_connect_options {
	size_t size;
	const char *socket_path; /* where; NULL: see dsaio_connect() */
	const char *name;	 /* of this client, in status and logs, up to 63 bytes; NULL: the
				    program's */
	/* How long ops and calls wait for another daemon when the daemon goes away; 0: the default, 60 s.  Each
	   piece of memory keeps a descriptor for that (RLIMIT_NOFILE). */
	int64_t reconnect_timeout_usec;
	uint64_t flags; /* DSAIO_GPU_DIRECT, DSAIO_NO_RECONNECT */
};
#define DSAIO_CONNECT_OPTIONS_INIT                                     \
	{                                                              \
		sizeof(struct dsaio_connect_options), NULL, NULL, 0, 0 \
	}

/* This client's ops on GPU memory are never copied: they fail where copies would be needed.  (Not yet run
   on a GPU.) */
#define DSAIO_GPU_DIRECT UINT64_C(1)
/* When the daemon goes away, ops end with -ECONNRESET at once, and calls return -ENOTCONN. */
#define DSAIO_NO_RECONNECT UINT64_C(2)

/*
 * dsaio_connect - connect to the daemon (options NULL: DSAIO_CONNECT_OPTIONS_INIT)
 *
 * Without a socket_path: $DSAIO_SOCKET if it is set and not empty, else the system's
 * /run/dsaiod/dsaiod.sock, else the user's own $XDG_RUNTIME_DIR/dsaiod/dsaiod.sock or, without that
 * directory, /tmp/dsaiod-UID/dsaiod.sock.  If none is there, a daemon for all programs of this
 * user is started, unless DSAIO_AUTOSTART is 0, no or false; it ends 60 s after its last client.
 * A socket that is there and refuses is an error, never a reason to start another.
 * The program started is $DSAIOD, else dsaiod beside the library, else in the configured sbindir.
 * $DSAIO_RECONNECT has the seconds of reconnect_timeout_usec (0: DSAIO_NO_RECONNECT) for programs that set neither.
 * Set-user-id programs obey none of these variables and start nothing.
 * $DSAIO_DEBUG=FILE logs each place that was tried, and more.  A file that cannot be written is no
 * error: its lines are lost, and dsaioctl says so.
 * Returns 0, or
 *   -EINVAL                  socket_path or name is "", flags has an unknown bit, reconnect_timeout_usec is
 *                            negative, or set with DSAIO_NO_RECONNECT; or DSAIO_AUTOSTART is none of 0, no,
 *                            false, 1, yes, true, or DSAIO_RECONNECT no number
 *   -E2BIG                   a field is set that this version of the library does not know
 *   -ENOENT, -ECONNREFUSED   no daemon there, or one that is stopping, or no dsaiod to start; the
 *                            message says what to do
 *   -ENOTSOCK                something else than a socket is there
 *   -EACCES                  the socket does not let this user in
 *   -EPERM, -ENOTDIR         the user's own directory is not safe to use: another user's, open to
 *                            others, or a symbolic link
 *   -ECHILD                  the daemon that was started ended at once, or the service cannot start:
 *                            the message has the last line of its log, or says how to read it
 *   -ETIMEDOUT               what listens there does not answer, or does not end
 *   -EMFILE                  this process has no descriptor left (RLIMIT_NOFILE)
 *   -ENAMETOOLONG            a socket path has at most 107 bytes
 *   -EPROTONOSUPPORT         library and daemon have no protocol version in common
 *   -EPROTO                  what listens there is not dsaiod
 *   -EUSERS                  too many clients (of this user)
 *   -EAGAIN                  the daemon can start no more threads
 * and what the kernel says of the user's own directory (-EROFS, -ENOSPC) or of a new process.
 * Ownership: *ret_client is the caller's, for dsaio_disconnect().
 * Sleeps for: the daemon, and its start.  Threads: any; a daemon is started without fork() and without a
 * SIGCHLD.
 */
int dsaio_connect(const struct dsaio_connect_options *options,
		  struct dsaio_client **ret_client) DSAIO_CHECKED DSAIO_NONNULL(2);

enum dsaio_state {
	DSAIO_LOST = 0,		/* the daemon has gone away, for good */
	DSAIO_CONNECTED = 1,	/* it was there at the last look */
	DSAIO_RECONNECTING = 2, /* it has gone away, and ops wait for another */
};

/*
 * dsaio_client_state - is the daemon there?
 *
 * Makes dsaio_client_fd() unreadable until the state changes.
 * Returns an enum dsaio_state.  Threads: any.
 */
int dsaio_client_state(struct dsaio_client *client) DSAIO_NONNULL(1);

/*
 * dsaio_client_fd - a descriptor that becomes readable when the daemon goes away, is lost, or is back
 *
 * For poll(2), epoll(7) and event loops.  dsaio_client_state() then says which, and makes it
 * unreadable.
 * Returns it (the library's, until dsaio_disconnect(); it never changes), or -EMFILE.  Threads: any.
 */
int dsaio_client_fd(struct dsaio_client *client) DSAIO_NONNULL(1);

/*
 * dsaio_disconnect - close everything of this client, then the connection
 *
 * All ops are awaited, as dsaio_handle_close() does without a timeout, and the first error that was not
 * reported is returned; then the session has ended, and the daemon has nothing of this client any more.
 * Handles, files, ops and memory that were not closed or freed before may be so after, in any order and
 * from any thread; nothing else may be done with them.  Memory of dsaio_alloc() stays mapped until
 * dsaio_free(), its content undefined, so a thread that still looks at it does not crash.  Memory that is
 * not freed stays until the program ends.  Children of a fork do not keep the session.  NULL is fine.
 * A daemon that answers nothing for 30 s, since it is stopped, is given up, with the connection, but
 * for ops on private or registered memory: they are awaited without limit, as is a daemon that
 * answers but whose device hangs.
 * Sleeps for: the end of all ops, the daemon.
 * Threads: no other call with anything of this client may be running; only those that close and free
 *   may follow (dsaio_free() and dsaio_memory_unregister() with this client).
 */
int dsaio_disconnect(struct dsaio_client *client);

/* ---- handles ---- */

/* A field of a profile that is yes or no, or inherited. */
enum dsaio_choice { DSAIO_INHERIT = 0, DSAIO_YES = 1, DSAIO_NO = 2 };

/*
 * The five tuning numbers, with DeepNVMe's meanings.  A field that is 0 is inherited: on each store the
 * handle uses the one of the store's own profile, as it is when the handle first uses that store.
 */
struct dsaio_profile {
	size_t size;
	uint32_t block_size;	 /* bytes of an iocb: 512 to 64 MiB in steps of 512;
					  the daemon transfers at least the file's alignment */
	uint32_t queue_depth;	 /* blocks in flight, 1 to 4096 */
	uint32_t single_submit;	 /* enum dsaio_choice: one io_submit call per block */
	uint32_t overlap_events; /* the same: refill as completions come; no: fill, wait for all */
	uint32_t intra_op_parallelism; /* 1 to 64: multiplies queue_depth */
	uint32_t zero;
};
#define DSAIO_PROFILE_INIT                                                             \
	{                                                                              \
		sizeof(struct dsaio_profile), 0, 0, DSAIO_INHERIT, DSAIO_INHERIT, 0, 0 \
	}

/* Demand takes precedence over normal, normal over background; none starves: see dsaio(3). */
enum dsaio_class { DSAIO_CLASS_NORMAL = 0, DSAIO_CLASS_DEMAND = 1, DSAIO_CLASS_BACKGROUND = 2 };

/* How a handle is opened. */
struct dsaio_handle_options {
	size_t size;
	const struct dsaio_profile *profile; /* NULL: all of it is inherited */
	uint32_t io_class;		     /* enum dsaio_class */
	uint32_t weight;		     /* share within the class, 1 to 16; 0: 1 */
	uint32_t entries;	 /* ops submitted and not consumed, 4 to 4096; 0: 1024 */
	uint32_t flags;		 /* none is defined: 0 */
	int64_t op_timeout_usec; /* an op that takes longer ends with -ETIMEDOUT; 0 and -1: never */
	int64_t spin_usec; /* how long a wait may spin before it sleeps; 0: the default, -1: never */
};
#define DSAIO_HANDLE_OPTIONS_INIT                                                            \
	{                                                                                    \
		sizeof(struct dsaio_handle_options), NULL, DSAIO_CLASS_NORMAL, 0, 0, 0, 0, 0 \
	}

/*
 * dsaio_handle_open - open a handle (options NULL: DSAIO_HANDLE_OPTIONS_INIT)
 *
 * Returns 0, or
 *   -EINVAL   a value is out of range; the message names value and limit
 *   -E2BIG    options or profile set a field that this version of the library does not know
 *   -EMFILE   the client, or its user, has as many handles as it may have, or this process
 *             as many descriptors (RLIMIT_NOFILE)
 * Ownership: *ret_handle is the caller's, for dsaio_handle_close().
 * Sleeps for: the daemon.  Threads: any.  DeepNVMe: aio_handle().
 */
int dsaio_handle_open(struct dsaio_client *client, const struct dsaio_handle_options *options,
		      struct dsaio_handle **ret_handle) DSAIO_CHECKED DSAIO_NONNULL(1, 3);

/*
 * dsaio_handle_close - wait for all ops of a handle, and close it
 *
 * No op is lost: those that were submitted are awaited, and an error that no other call has reported
 * is returned, also one of an op without ret_op.  timeout_usec of that wait: -1: forever; 0, or less
 * than -1: only look.  Where all have ended, the call sleeps for the daemon's answer.  Returns
 *   0             the handle is closed; all ops were done, or their errors reported
 *   -EINPROGRESS  ops have not ended in that time: the handle stays open, and they go on
 *   another       the handle is closed, and this is the first error of an op, which has its message
 * Ops that the caller still holds stay readable until dsaio_op_free().  NULL is fine.
 * A daemon that answers nothing for 30 s is given up as in dsaio_disconnect(): later calls of the
 * client return -ENOTCONN, and the handle's open ops have ended with -ECONNRESET.  A device may
 * still read or write their dsaio_alloc() memory and their range of the file until the daemon ends.
 * So dsaio_free() of that memory returns -EBUSY until dsaio_disconnect().
 * Sleeps for: the end of ops, the daemon.
 * Threads: no other call with this handle may be running, or follow unless it stays open.
 */
int dsaio_handle_close(struct dsaio_handle *handle, int64_t timeout_usec);

/*
 * dsaio_handle_cancel - ask for the end of all open ops of a handle
 *
 * As dsaio_op_cancel() does for one, but it waits for nothing: their ends are seen as those of other ops
 * are.  Returns 0, -EINVAL (NULL) or -EPERM (a fork).  Threads: any.
 */
int dsaio_handle_cancel(struct dsaio_handle *handle) DSAIO_NONNULL(1);

/* The part of a profile that a store grants.  (Blocks may be smaller while it has other clients, too.) */
struct dsaio_granted {
	size_t size;
	uint32_t block_size; /* at most what the device takes in one request */
	uint32_t
		queue_depth; /* as in the profile; with intra_op_parallelism the blocks in flight */
};
#define DSAIO_GRANTED_INIT                         \
	{                                          \
		sizeof(struct dsaio_granted), 0, 0 \
	}

/*
 * dsaio_handle_profile - what a handle asked for, or what the store of a file uses for it
 *
 * Without a file, *ret_profile is what the handle was opened with; inherited fields are 0.
 * With one, it has the inherited fields filled in from the file's store, and *ret_granted says how much
 * of it the store grants.  Both may be NULL, and are filled in up to their size, which the caller has set;
 * fields that the library does not know become 0.
 * Returns 0, or -EINVAL (a size smaller than the first version's; ret_granted without a file), -EBADF (file
 *   belongs to another client), or as the first op of a handle on a store: -EAGAIN, -EMFILE.
 * Sleeps for: the daemon, with a file on whose store the handle has had no op.  Threads: any.
 */
int dsaio_handle_profile(struct dsaio_handle *handle, struct dsaio_file *file,
			 struct dsaio_profile *ret_profile, struct dsaio_granted *ret_granted)
	DSAIO_NONNULL(1);

/* ---- memory ---- */

/*
 * Flags of dsaio_alloc().  Without HUGE and SMALL the memory is on huge pages (2 MiB) as far as the
 * daemon's configuration (huge_pages) allows it and the host has some, else on ordinary ones.
 */
#define DSAIO_ALLOC_NO_ZERO 1u /* undefined content, which spares the time to zero used memory */
#define DSAIO_ALLOC_HUGE 2u    /* on huge pages, all of it, or the call fails */
#define DSAIO_ALLOC_SMALL 4u   /* not on huge pages */
#define DSAIO_ALLOC_NODE 8u    /* numa_node is set */

/* How to allocate. */
struct dsaio_alloc_options {
	size_t size;
	uint32_t flags; /* DSAIO_ALLOC_... */
	/* With DSAIO_ALLOC_NODE: the node whose memory is taken while it has free memory, else that of
	   others.  A host without NUMA has node 0 alone. */
	uint32_t numa_node;
	/* How long to wait for room in the pool instead of returning -ENOMEM; -1: forever.  Free room
	   goes to the next request that fits, so a large request can starve beside small ones. */
	int64_t wait_usec;
};
#define DSAIO_ALLOC_OPTIONS_INIT                            \
	{                                                   \
		sizeof(struct dsaio_alloc_options), 0, 0, 0 \
	}

/*
 * dsaio_alloc - pinned memory that the daemon shares; page aligned, zeroed (options NULL:
 * DSAIO_ALLOC_OPTIONS_INIT)
 *
 * Costs no round trip while an earlier slab has room.  Memory with flags is cut from slabs of its own: small
 * buffers of many kinds cost more of the pool.
 * Returns 0, or
 *   -EINVAL   bytes is 0; wait_usec is less than -1; flags exclude each other; the host has no such node, or
 *             it has no memory: the message names those that have
 *   -ENOMEM   the pool, or this client's share of it, is exhausted, or the daemon cannot lock so
 *             much memory and its configuration says lock = yes; the message tells which.  With HUGE, also
 *             where the host has not enough huge pages: the message says how many are free, and how to get
 *             more (vm.nr_hugepages).  Transparent ones need Linux 6.1 here.
 *   -EMFILE   a new slab needs a descriptor, and this process may open no more (RLIMIT_NOFILE)
 *   -E2BIG    a flag or field is set that this version of the library does not know
 *   -EOPNOTSUPP  the daemon is configured to use no huge pages, or is not allowed to choose a node (in a
 *             container)
 * Ownership: *ret_memory is the caller's, for dsaio_free(); dsaio_disconnect() takes all.
 * Sleeps for: the daemon, where a new slab is needed; room in the pool, up to wait_usec.
 * Threads: any.  DeepNVMe: new_cpu_locked_tensor().
 */
int dsaio_alloc(struct dsaio_client *client, size_t bytes,
		const struct dsaio_alloc_options *options, void **ret_memory) DSAIO_CHECKED
	DSAIO_NONNULL(1, 4);

/*
 * dsaio_client_pool_max - how much memory of the pool this client may have
 *
 * Other clients may have so much of the pool that there is less.
 * Returns bytes, or INT64_MAX if the daemon did not say.  Threads: any.
 */
int64_t dsaio_client_pool_max(struct dsaio_client *client) DSAIO_NONNULL(1);

/*
 * dsaio_client_is_locked - is all memory that this client has got from the pool locked in RAM?
 *
 * Returns 1, or 0: the daemon could not lock some of it, which may be swapped out, so that ops on it are
 * slower.  Raise the daemon's RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=); dsaioctl status has the reason.
 * Threads: any.
 */
int dsaio_client_is_locked(struct dsaio_client *client) DSAIO_NONNULL(1);

/*
 * dsaio_free - give memory of dsaio_alloc() back
 *
 * Returns 0, or
 *   -EINVAL   memory is not the start of such memory
 *   -EBUSY    an open op uses it
 * NULL is fine.  Sleeps for: the daemon, with the last buffer of a slab.
 * Threads: any.  DeepNVMe: free_cpu_locked_tensor().
 */
int dsaio_free(struct dsaio_client *client, void *memory) DSAIO_NONNULL(1);

enum dsaio_memory_kind {
	DSAIO_MEMORY_NONE = 0,	  /* not registered: ops copy it */
	DSAIO_MEMORY_POOL = 1,	  /* of dsaio_alloc() */
	DSAIO_MEMORY_FD = 2,	  /* shared memory that has a descriptor */
	DSAIO_MEMORY_PRIVATE = 3, /* private memory: cannot be registered, and need not be */
	DSAIO_MEMORY_CUDA = 4,	  /* GPU memory (not yet run on a GPU) */
	DSAIO_MEMORY_VIEW = 5,	  /* read-only memory that several clients map: later */
};

/* Memory to register.  Start from DSAIO_MEMORY_INIT: descriptor 0 is one. */
struct dsaio_memory {
	size_t size;
	uint32_t kind; /* enum dsaio_memory_kind */
	int32_t fd;    /* DSAIO_MEMORY_FD: open for reading and writing; may be closed after */
	void *start;   /* where the memory is mapped; a GPU's: its address */
	uint64_t bytes;
	uint64_t fd_off; /* DSAIO_MEMORY_FD: where in fd start is mapped */
};
#define DSAIO_MEMORY_INIT                                                      \
	{                                                                      \
		sizeof(struct dsaio_memory), DSAIO_MEMORY_NONE, -1, NULL, 0, 0 \
	}

/*
 * dsaio_memory_register - let ops use memory of the caller's without a copy
 *
 * DSAIO_MEMORY_FD: start is where the caller has mapped (MAP_SHARED) bytes of fd from fd_off on: a memfd, a
 * file in /dev/shm (as PyTorch's shared tensors are), or on hugetlbfs.  It counts towards client_pool_max.
 * An op on memory that was since cut off the file, or unmapped, ends with -EFAULT.
 * DSAIO_MEMORY_CUDA: the range lies within one allocation of a GPU.  Ops take GPU memory also without
 * that, but this has the daemon import it at once, where they would, and for longer than other GPU memory:
 * that is given up for memory that is used more often.
 * Returns 0, or
 *   -EINVAL      bytes is 0; fd_off or start is not at a page; start is not that mapping, or not GPU memory
 *                of this process
 *   -ERANGE      the file is shorter than fd_off + bytes; the range passes the end of its allocation
 *   -EEXIST      part of it is registered, or of dsaio_alloc(), already
 *   -EACCES      fd is not open for reading and writing, or is sealed against writing
 *   -EOPNOTSUPP  fd is on neither tmpfs nor hugetlbfs; this version cannot register that kind; the daemon cannot
 *                use it, and it may not be copied (DSAIO_GPU_DIRECT, or the daemon's configuration).  To
 *                register private memory would gain nothing: an op on it costs the copy of its bytes, and at
 *                most 5 us more (measured).  Only memory of dsaio_alloc(), or shared memory, goes without it.
 *   -ENOMEM      this client's share of the pool is exhausted, or it cannot be locked
 *   -EAGAIN      it has kept the daemon from mapping memory, as programs can that map it very often
 *                and punch it: the daemon refuses it for a while
 *   -E2BIG       a field is set that this version of the library does not know
 * Ownership: the memory stays the caller's; dsaio_memory_unregister() before it is unmapped.
 * Sleeps for: the daemon.  Threads: any.
 */
int dsaio_memory_register(struct dsaio_client *client, const struct dsaio_memory *memory)
	DSAIO_NONNULL(1, 2);

/*
 * dsaio_memory_unregister - forget registered memory, by its start
 *
 * GPU memory may have been freed before, and open ops on it go on.  Without such, and with no other
 * registered range in its allocation, the daemon has let go of it when the call returns.
 * Returns 0, -EINVAL (memory is not the start of such memory) or -EBUSY (an open op uses it).
 * NULL is fine.  Sleeps for: the daemon.  Threads: any.
 */
int dsaio_memory_unregister(struct dsaio_client *client, void *memory) DSAIO_NONNULL(1);

/*
 * dsaio_memory_kind - the kind of memory that the whole range is
 *
 * Returns an enum dsaio_memory_kind; DSAIO_MEMORY_NONE also where parts of it are of other kinds, and
 * for GPU memory that is not registered, or was freed since.
 * Threads: any.  DeepNVMe: is_pinned().
 */
int dsaio_memory_kind(struct dsaio_client *client, const void *memory, size_t bytes)
	DSAIO_NONNULL(1);

/*
 * dsaio_memory_gpu - the number of the GPU whose memory this is, registered or not
 *
 * Returns it, as CUDA numbers the GPUs of this process, or -ENOENT: it is the host's memory, or
 * none.  Sleeps for: the loader.  Threads: any.
 */
int dsaio_memory_gpu(struct dsaio_client *client, const void *memory) DSAIO_NONNULL(1);

/* ---- files ---- */

/* How to open. */
struct dsaio_open_options {
	size_t size;
	uint32_t flags; /* DSAIO_OPEN_URI */
	uint32_t mode;	/* permissions of a file that is made, less the umask; 0: 0666 */
};
#define DSAIO_OPEN_OPTIONS_INIT                          \
	{                                                \
		sizeof(struct dsaio_open_options), 0, 0, \
	}

/* The name may be a URI: file:///x/y, where %20 stands for a space, or rados://POOL/NAMESPACE/FILE (see "files of RADOS
   stores").  Else it is a path, whatever it looks like. */
#define DSAIO_OPEN_URI 1u

/*
 * dsaio_open - open a file, with this process's rights, and hand it to the daemon (options NULL:
 * DSAIO_OPEN_OPTIONS_INIT)
 *
 * flags: O_RDONLY, O_WRONLY or O_RDWR, and O_CREAT, O_EXCL, O_TRUNC; O_CLOEXEC and O_DIRECT go without saying.
 * A file that was made stays, empty, if the daemon then refuses it.
 * Files are cached: one that was open before, by the same path and access mode, is had again
 * without open(2) or a message.  Each time the kernel is asked whether the path still names that
 * file and this process may still open it so; if not, it is opened anew.  While it is open, the
 * same *ret_file may be returned again, to be closed as often: then dsaio_file_close() ends one of
 * these opens, and the file stays valid for the threads that hold the others.
 * Returns 0, or what open(2) says, or
 *   -EINVAL      other flags (O_APPEND: its writes would land at the end, not at their offset), a mode of more
 *                than 07777, or a URI with a host or a wrong escape
 *   -EACCES      also where the store does not serve this user; the message says which it serves
 *   -ENXIO       the file lies on no store of the daemon; the message names the stores
 *   -ENOMEDIUM   an administrator has drained the store: it refuses new files, and reads and writes
 *   -EOPNOTSUPP  neither a regular file nor a block device, or no direct I/O there
 *   -EMFILE      the client, or its user, has as many files as it may have
 *   -EPROTONOSUPPORT  a URI of another scheme than file and rados
 *   -E2BIG       a flag or field of options is set that this version of the library does not know
 * Ownership: *ret_file is the caller's, for dsaio_file_close().
 * Sleeps for: the file system, and the daemon where the cache does not have the file.
 * Threads: any.
 */
int dsaio_open(struct dsaio_client *client, const char *name, int flags,
	       const struct dsaio_open_options *options, struct dsaio_file **ret_file) DSAIO_CHECKED
	DSAIO_NONNULL(1, 2, 5);

/*
 * Files of RADOS stores: rados://POOL/NAMESPACE/FILE, on a Ceph cluster, for all hosts that reach it.
 *
 * A file is made whole: dsaio_create(), writes, dsaio_file_commit().  Before the commit nobody sees it, then everybody
 * does; a reader has the old bytes or the new ones, never a mixture.  A committed file never changes, so dsaio_open()
 * takes O_RDONLY alone.  Closing never commits.  Several clients, on several hosts, write one file by its token, and
 * one of them commits after all have awaited their ops.  A write that has ended is stable on all replicas, so a sync
 * only waits for earlier ops.
 *
 * FILE has 1 to 255 bytes of UTF-8, where %20 stands for a space, without control characters; slashes are plain
 * characters, but no part between them is empty, "." or "..".
 *
 * Each call below takes such a URI, and sleeps for the daemon and for the cluster, up to the store's op_timeout.  It
 * returns as described, or
 *   -EINVAL      the name is none, or not of such a file (a path, file://: use the system's calls)
 *   -ENXIO       this daemon serves no such store; the message names the socket where one may
 *   -EACCES      the store does not serve this user
 *   -EHOSTDOWN   the cluster cannot be reached
 *   -ETIMEDOUT   the cluster has not answered: what was asked may still happen
 *   -EDQUOT, -ENOSPC   the pool's quota, or the cluster, is full
 * Threads: any.
 */

struct dsaio_create_options {
	size_t size;
	uint64_t file_size; /* bytes; 0: dsaio_file_commit() says it */
	/* of dsaio_file_token(): the file that another client has created, with the size, not 0, and flags that it had
	   then; 0: a new one */
	uint64_t token;
	uint32_t flags; /* DSAIO_CREATE_SPARSE */
	uint32_t zero;
};
#define DSAIO_CREATE_OPTIONS_INIT                               \
	{                                                       \
		sizeof(struct dsaio_create_options), 0, 0, 0, 0 \
	}

/* Ranges that nobody writes read as zeroes.  Without it, reads there fail with -ESTALE, as those of lost bytes. */
#define DSAIO_CREATE_SPARSE 1u

/*
 * dsaio_create - begin a file (options NULL: DSAIO_CREATE_OPTIONS_INIT)
 *
 * It is open for reading and writing.  While some client has it open it lives; nobody having it open, the store's
 * trash_after later it is abandoned.
 * Returns 0, or also -ESTALE (the token's file was committed, abandoned or forgotten, or has another name), -EINVAL
 * (the token's file was created without a size), -EMFILE (the client, or its user, has as many files as it may have),
 * -ENOMEDIUM (an administrator has drained the store).
 * Ownership: *ret_file is the caller's, for dsaio_file_close().
 */
int dsaio_create(struct dsaio_client *client, const char *name,
		 const struct dsaio_create_options *options,
		 struct dsaio_file **ret_file) DSAIO_CHECKED DSAIO_NONNULL(1, 2, 4);

/*
 * dsaio_file_token - the number by which other clients open a created file; 0: it was not created
 *
 * Never fails, sleeps for nothing.
 */
uint64_t dsaio_file_token(const struct dsaio_file *file) DSAIO_NONNULL(1);

/*
 * dsaio_file_commit - make a created file the one that has its name
 *
 * The file that had the name before is removed after the store's trash_after; readers that have it open go on until
 * then.  The file stays open, for reading.  size: 0: that of the creation or, if it had none, the end of the last byte
 * that this client has written.
 * Returns 0, or also -EBUSY (ops of this client on it are open: await them), -EBADF (it was not created), -EINVAL
 * (another size than that of the creation), -ESTALE (it was abandoned or forgotten).  When several
 * commit one name at once, the last one wins, as with rename(2).
 */
int dsaio_file_commit(struct dsaio_file *file, uint64_t size) DSAIO_CHECKED DSAIO_NONNULL(1);

/*
 * dsaio_file_abandon - remove the bytes of a created file that is not committed
 *
 * Close it then.  Returns 0, or also -EBUSY, -EBADF and -ESTALE, as dsaio_file_commit().
 */
int dsaio_file_abandon(struct dsaio_file *file) DSAIO_NONNULL(1);

/* A file, as it was committed. */
struct dsaio_stat {
	size_t size;
	const char *name; /* FILE, with %25 for %; in a callback, until it returns; else NULL */
	uint64_t file_size;
	int64_t mtime_sec; /* of its commit: seconds since 1970, by the clock of the host that committed it */
	uint64_t id; /* another file of this name has another one */
	uint32_t object_size;
	uint32_t zero;
};
#define DSAIO_STAT_INIT                                         \
	{                                                       \
		sizeof(struct dsaio_stat), NULL, 0, 0, 0, 0, 0, \
	}

/*
 * dsaio_stat - what a name means now; set ret_stat->size first
 *
 * Returns 0, or also -ENOENT.
 */
int dsaio_stat(struct dsaio_client *client, const char *name, struct dsaio_stat *ret_stat)
	DSAIO_NONNULL(1, 2, 3);

/*
 * dsaio_list - call each() for all committed files whose names begin with that of name
 *
 * name: rados://POOL/NAMESPACE/ and the start of a FILE, or none of it.  In no order; a file that is committed or
 * removed meanwhile may be missing.  each() returns 0, or a value that ends the call with it; it may make calls.
 * Returns 0, or what each() has returned.
 */
int dsaio_list(struct dsaio_client *client, const char *name,
	       int (*each)(const struct dsaio_stat *file, void *arg), void *arg)
	DSAIO_NONNULL(1, 2, 3);

/*
 * dsaio_remove - remove a name; readers that have it open go on until the store's trash_after is over
 *
 * Returns 0, or also -ENOENT.
 */
int dsaio_remove(struct dsaio_client *client, const char *name) DSAIO_NONNULL(1, 2);

/*
 * dsaio_file_from_fd - dsaio_open() for a file that the caller has open
 *
 * The descriptor stays the caller's and may be closed at once; its access mode holds.  Cached by
 * its number; that the number is another file's by now is noticed.
 * Returns as dsaio_open(), or -EBADF.  Sleeps as dsaio_open().  Threads: any.
 */
int dsaio_file_from_fd(struct dsaio_client *client, int fd,
		       struct dsaio_file **ret_file) DSAIO_CHECKED DSAIO_NONNULL(1, 3);

/*
 * dsaio_file_close - give a file back; ops on it that are open go on.  NULL is fine.
 *
 * It stays in the cache, and so open in the daemon, until it was not opened again for 10 to 20 s, many
 * others were opened since, its last link is gone (then its space is free within seconds), or
 * dsaio_file_drop(): till then its file system cannot be unmounted.  Block devices are closed at once.
 * Sleeps for: the daemon, with a file that is not cached.
 * Threads: no other call by way of this open may be running or follow.  Where the same file was
 *   returned for several opens, calls by way of the others may.
 */
void dsaio_file_close(struct dsaio_file *file);

/*
 * dsaio_file_drop - take the closed file of this path out of the cache now (NULL: all closed files)
 *
 * So its file system can be unmounted, if nothing else is open there, and a file that was open for
 * writing can be executed.  path: in the spelling in which it was opened (a URI's path), whatever it
 * names by now; of a file that came as a descriptor, as the kernel names it.  All access modes of it
 * leave.  With NULL files in use stay.
 * Returns 0: the daemon has closed it, is closing it for another call or by itself, or there was none; or
 *   -EBUSY     a file of this path is open, or has ops that have not ended: close it and await them
 *   -ETIMEDOUT the daemon has not closed a file for 10 s: its file system hangs, or the daemon is stopped.
 *              It is closed when they go on; the message says how to see which
 *   -ENOTCONN  the daemon has gone, and has nothing open
 * Sleeps for: the daemon, at most 10 s for a file.  Threads: any.
 */
int dsaio_file_drop(struct dsaio_client *client, const char *path) DSAIO_NONNULL(1);

/*
 * dsaio_file_alignment - offsets, lengths and addresses that are multiples of it go without a copy
 *
 * Returns bytes, a power of two.  At least 4096 for a file that can be written, but on tmpfs and where the
 *   file came as a descriptor that cannot be opened anew: a direct write of less than a page would make fsync
 *   fail for programs that write the rest of the page.  Reads need the device's sectors alone, as the same file
 *   opened for reading tells.  DeepNVMe: get_alignment().
 */
size_t dsaio_file_alignment(const struct dsaio_file *file) DSAIO_NONNULL(1);

/*
 * dsaio_file_size - the file's size now (a block device's too), or a negative errno
 *
 * Sleeps for: the file system, and the daemon where the file's descriptor is not kept here.
 */
int64_t dsaio_file_size(const struct dsaio_file *file) DSAIO_NONNULL(1);

/*
 * dsaio_file_truncate - set the file's size
 *
 * Ops on the range that goes must have ended.  Returns 0, -EBADF (not open for writing), -EFBIG (longer than
 * this process's RLIMIT_FSIZE), or what ftruncate(2) says.
 * Sleeps as dsaio_file_size().
 */
int dsaio_file_truncate(struct dsaio_file *file, uint64_t size) DSAIO_CHECKED DSAIO_NONNULL(1);

/*
 * dsaio_file_allocate - take space for len bytes at byte off of a file (fallocate(2))
 *
 * Later writes there do not fail for want of space.  A file that ends before becomes longer, and what nothing
 * was written to reads as zeros.  flags: none is defined: 0 (else -E2BIG).
 * Returns 0 or what fallocate(2) says: -ENOSPC, -EBADF (not open for writing), -EOPNOTSUPP (not by this file
 * system), -EINVAL (len is 0, or off + len passes 2^63), -EFBIG (beyond this process's RLIMIT_FSIZE).
 * Sleeps as dsaio_file_size().
 */
int dsaio_file_allocate(struct dsaio_file *file, uint64_t off, uint64_t len,
			unsigned flags) DSAIO_CHECKED DSAIO_NONNULL(1);

/* ---- views: what many processes of a host read ---- */

/* The memory can be written, and this process alone sees that: a page is copied when it is written first. */
#define DSAIO_VIEW_WRITABLE 1u

/*
 * dsaio_view - memory that holds len bytes of a file from byte off on, shared with all other processes that have a view
 *
 * The daemon keeps one copy for all of them: pinned, of its pool, read once, and charged to each with an equal share.
 * Nothing is read yet: dsaio_view_wait() waits for a part of it.  Until then the memory must not be touched.  It can be
 * read, and with DSAIO_VIEW_WRITABLE written; on reserved huge pages only while the kernel has free ones for the
 * copies: else a write raises SIGBUS.  Without the flag it raises SIGSEGV.  The file may be closed; the view goes on.
 *
 * All bytes are of the version that the file has now: of a file that another process replaces, cuts or writes to after
 * this call, they are either of before, or dsaio_view_wait() returns -ESTALE.  Writes through a mapping cannot be seen.
 * Where the daemon makes no view (of a device, on a network file system, of a file that was changed in the last 2 s,
 * where this client may have no more memory, or on RADOS) the bytes are read into memory of this process alone, 64 MiB
 * by 64 MiB.  `dsaioctl status` shows what is shared.
 *
 * Returns 0, or -EINVAL (len is 0, or the range passes the file's end), -EBADF (not open for reading), -E2BIG (a
 * flag that this library does not know), -ENOMEM, or as dsaio_file_size().
 * Ownership: *ret_memory is the caller's, for dsaio_view_free(); dsaio_disconnect() leaves it.
 * Sleeps as dsaio_file_size().  Threads: any.
 */
int dsaio_view(struct dsaio_client *client, struct dsaio_file *file, uint64_t off, size_t len,
	       unsigned flags, void **ret_memory) DSAIO_CHECKED DSAIO_NONNULL(1, 2, 6);

/*
 * dsaio_view_wait - wait until len bytes from memory on, of a view, are there
 *
 * If no other process reads them, this one does, by ops of the handle, in pieces of 64 MiB, and begins with the two
 * pieces after them.
 * Returns 0, -EINVAL (they lie in no view), -ESTALE (the file was changed meanwhile: open it again), -ENOMEM (the
 * process may not have as much writable memory: RLIMIT_DATA, vm.overcommit_memory), or as an op.
 * Sleeps for: other processes that read the same, and the ops.  Threads: any; one view is read by one thread at a time.
 */
int dsaio_view_wait(struct dsaio_handle *handle, const void *memory, size_t len) DSAIO_CHECKED
	DSAIO_NONNULL(1);

/*
 * dsaio_view_free - give a view back (NULL is fine)
 *
 * Its memory is unmapped; the daemon frees it when no process maps it any more, children of fork(2) included.
 * Returns 0, or -EINVAL: no view begins there.  Sleeps for: reads that have begun.  Threads: any, once.
 */
int dsaio_view_free(struct dsaio_client *client, void *memory) DSAIO_NONNULL(1);

/* ---- ops ---- */

/*
 * dsaio_pread - read len bytes at byte off of file into buf, and wait
 * dsaio_pwrite - write len bytes of buf at byte off of file, and wait
 *
 * A write beyond the end extends the file while it runs, by at most 64 MiB ahead of its data and never
 * beyond its own last byte.  If it fails, is cancelled or times out, the file stays as long as it
 * is: what lies between the bytes done and the end reads as zeros, or is what others wrote there.
 * The message says how long the file is then.  Only dsaio_file_truncate() and O_TRUNC shorten a file.
 * Returns bytes done, or
 *   -EBADF      the file is not open for that, or belongs to another client
 *   -EINVAL     off + len passes 2^63
 *   -EFAULT     buf is not memory of this process
 *   -EAGAIN     the first op of a handle on a store, whose lane cannot start since fs.aio-max-nr is
 *               used up; the message says what to raise.  Or buf is GPU memory that is copied, as
 *               dsaio_pread_async()
 *   -ETIMEDOUT  the handle's op_timeout_usec is over
 *   -EACCES     a write that is not aligned, of a file that came as a descriptor which cannot be
 *               opened anew
 *   -EMFILE     the handle's first op on a store needs three descriptors, and this process may
 *               not open as many (RLIMIT_NOFILE); it can be tried again
 *   -EFBIG      a write ends beyond this process's RLIMIT_FSIZE, or what the file system allows
 *   -EOPNOTSUPP buf is GPU memory that the daemon cannot use, and is configured not to have copied
 *   -ENOMEDIUM  an administrator has drained the store
 *   what the device or file system says (-EIO, -ENOSPC, ...)
 * Ownership: all arguments are borrowed until it returns.
 * Sleeps for: the op's end; the daemon, with the first op of a handle on a store, the first write of a file
 *   that is not aligned, and the first op on an allocation of GPU memory, or of a file on such; the file
 *   system, with a read that may end behind the file's end, or a write that may extend it; the loader.
 * Threads: any.  DeepNVMe: aio_handle.sync_pread(), sync_pwrite().
 */
int64_t dsaio_pread(struct dsaio_handle *handle, struct dsaio_file *file, void *buf, size_t len,
		    uint64_t off) DSAIO_CHECKED DSAIO_NONNULL(1, 2);
int64_t dsaio_pwrite(struct dsaio_handle *handle, struct dsaio_file *file, const void *buf,
		     size_t len, uint64_t off) DSAIO_CHECKED DSAIO_NONNULL(1, 2);

/*
 * dsaio_pread_path, dsaio_pwrite_path - the same for a file that is named by its path
 *
 * The file is opened and closed in this call: for reading; or for writing, with O_CREAT.  A file that
 * this process may read and write is opened for both, so that its reads and writes share what the
 * cache keeps.
 * Returns as dsaio_pread() and dsaio_open().  Sleeps as they do.
 * Threads: any.  DeepNVMe: aio_handle.sync_pread(), sync_pwrite().
 */
int64_t dsaio_pread_path(struct dsaio_handle *handle, const char *path, void *buf, size_t len,
			 uint64_t off) DSAIO_CHECKED DSAIO_NONNULL(1, 2);
int64_t dsaio_pwrite_path(struct dsaio_handle *handle, const char *path, const void *buf,
			  size_t len, uint64_t off) DSAIO_CHECKED DSAIO_NONNULL(1, 2);

/* A flag of a sync: without metadata that reading does not need (fdatasync(2)). */
#define DSAIO_DATASYNC 1u

/*
 * dsaio_fsync - wait until the file's data and metadata are on the device (fsync(2))
 *
 * flags: 0 or DSAIO_DATASYNC.  Covers all writes of this handle to this file that were submitted before, and
 * what had ended on others.
 * Returns 0, or what fsync(2) says, or -EMFILE as dsaio_pread(), or -EINVAL: other flags.
 * Sleeps for: the op's end; the daemon as dsaio_pread().  Threads: any.
 */
int dsaio_fsync(struct dsaio_handle *handle, struct dsaio_file *file, unsigned flags) DSAIO_CHECKED
	DSAIO_NONNULL(1, 2);

/*
 * dsaio_pread_async - start reading len bytes at byte off of file into buf
 * dsaio_pwrite_async - start writing len bytes of buf at byte off of file
 * dsaio_fsync_async - start a sync; flags as of dsaio_fsync()
 *
 * Never fails for want of room: it consumes completions, or sleeps until there is some.  It does
 * not copy: what has to be copied is, by the library's thread.
 * Returns 0 (what the device says is the op's result), or
 *   -EBADF   the file is not open for that, or belongs to another client
 *   -EINVAL  off + len passes 2^63
 *   -EMFILE  as dsaio_pread(); an op on private memory needs a handle and its descriptors once more,
 *            and so does a blocking one on GPU memory that is copied
 *   -EAGAIN  the library's thread cannot be started (RLIMIT_NPROC)
 *   -EOPNOTSUPP  as dsaio_pread()
 * Ownership: *ret_op is the caller's, for dsaio_op_free().  ret_op may be NULL: the op is then detached, as
 *   with DSAIO_DETACHED.  file and buf are borrowed until the op ends.
 * Sleeps for: room in the ring; else as dsaio_pread(), but not for the op's end.
 * Threads: any.  DeepNVMe: aio_handle.async_pread(), async_pwrite().
 */
int dsaio_pread_async(struct dsaio_handle *handle, struct dsaio_file *file, void *buf, size_t len,
		      uint64_t off, struct dsaio_op **ret_op) DSAIO_CHECKED DSAIO_NONNULL(1, 2);
int dsaio_pwrite_async(struct dsaio_handle *handle, struct dsaio_file *file, const void *buf,
		       size_t len, uint64_t off, struct dsaio_op **ret_op) DSAIO_CHECKED
	DSAIO_NONNULL(1, 2);
int dsaio_fsync_async(struct dsaio_handle *handle, struct dsaio_file *file, unsigned flags,
		      struct dsaio_op **ret_op) DSAIO_CHECKED DSAIO_NONNULL(1, 2);

/*
 * dsaio_pread_path_async, dsaio_pwrite_path_async - the same by path, as dsaio_pread_path()
 *
 * Returns 0, or as dsaio_pread_async() and dsaio_open().  Sleeps as they do.
 * Ownership: as dsaio_pread_async(); path is borrowed until the call returns.
 * Threads: any.  DeepNVMe: aio_handle.async_pread(), async_pwrite().
 */
int dsaio_pread_path_async(struct dsaio_handle *handle, const char *path, void *buf, size_t len,
			   uint64_t off, struct dsaio_op **ret_op) DSAIO_CHECKED
	DSAIO_NONNULL(1, 2);
int dsaio_pwrite_path_async(struct dsaio_handle *handle, const char *path, const void *buf,
			    size_t len, uint64_t off, struct dsaio_op **ret_op) DSAIO_CHECKED
	DSAIO_NONNULL(1, 2);

enum dsaio_opcode { DSAIO_READ = 1, DSAIO_WRITE = 2, DSAIO_FSYNC = 3 };

/* Flags of an op of dsaio_submit(); with a sync also DSAIO_DATASYNC. */

/*
 * Nobody holds the op: there is nothing to free, unless dsaio_handle_reap() returns it since it failed.  Its
 * result is kept (0.2 KB) until dsaio_handle_reap() or dsaio_handle_wait() reports it.
 */
#define DSAIO_DETACHED 2u
/*
 * A sync: it starts when all writes of its file before it have ended, and ends with -ECANCELED, without a
 * sync, if one of that file has failed since this dsaio_submit() was called.  So it goes with its writes in one
 * call: failures of earlier calls do not count, nor do those of a call that started only a part of its ops when
 * the rest is submitted by another.
 */
#define DSAIO_LINKED 4u
/* A write: at its end its bytes are on the device, and what is needed to read them there (O_DSYNC). */
#define DSAIO_DSYNC 8u

/* An op for dsaio_submit().  Zero it, then fill it in.  Times are rounded up to milliseconds. */
struct dsaio_io {
	uint32_t opcode;	 /* enum dsaio_opcode */
	uint32_t flags;		 /* DSAIO_DATASYNC, DSAIO_DETACHED, ... */
	struct dsaio_file *file; /* or NULL, and path */
	const char *path;	 /* opened and closed as by dsaio_pread_path_async(), and its sister
				    for a write; a sync: O_RDONLY */
	void *buf;		 /* a write only reads it */
	uint64_t len;		 /* a sync: 0 */
	uint64_t off;		 /* a sync: 0 */
	void *user_data;	 /* for its completion */
	int64_t timeout_usec;	 /* the op ends with -ETIMEDOUT if it takes longer; 0: the handle's
				    op_timeout_usec; -1: never; at most 4294967295000 */
	const struct iovec *iov; /* or NULL; n_iov buffers instead of buf and len, for one op */
	uint32_t n_iov;		 /* with iov: 1 to IOV_MAX */
	uint32_t zero;
};

/* A flag of dsaio_submit(): it does not sleep for room in a ring. */
#define DSAIO_NOWAIT 16u

/*
 * dsaio_submit - start n ops at once
 *
 * As n calls of dsaio_pread_async() and the like, in the order of ios, but the ops of a store ring
 * its lane's doorbell once (once for each 64 ops).
 * io_size: sizeof(struct dsaio_io).  ret_ops: room for n, or NULL: all are detached.  The place of a
 * detached op is set to NULL.
 * Returns how many ops were started.  Those are the first in ios; if they are fewer than n, dsaio_error()
 *   says why the next one was not.  If that is the first, returns its errno:
 *   as dsaio_pread_async() and, for a path, dsaio_open(), and
 *   -EAGAIN  with DSAIO_NOWAIT in flags: its ring has no room.  Without it the call sleeps until
 *            there is some.  DSAIO_NOWAIT concerns nothing else that the call waits for.
 *   -E2BIG   a flag or field of the io is set that this version of the library does not know
 *   -EINVAL  a value is out of range, file and path are set, or a flag is not of this opcode
 *   -EOPNOTSUPP  DSAIO_DSYNC, and the daemon is older than this library
 * An op with iov transfers one range of the file: its buffers follow one another there.  Each takes an
 *   entry of the ring, and may be any memory; those whose lengths are multiples of dsaio_file_alignment() go
 *   to the device without a copy.
 * Ownership: *ret_ops[i] are the caller's, for dsaio_op_free().  file and the buffers are borrowed
 *   until the op ends, ios, iov and path until the call returns.
 * Sleeps as dsaio_pread_async(), and for a path as dsaio_open().  Threads: any.
 */
int dsaio_submit(struct dsaio_handle *handle, const struct dsaio_io *ios, size_t io_size, int n,
		 unsigned flags, struct dsaio_op **ret_ops) DSAIO_CHECKED DSAIO_NONNULL(1);

/*
 * dsaio_op_wait - wait until the op has ended
 *
 * timeout_usec: -1 forever, 0 to look only; less than -1 is -EINVAL.
 * Returns the outcome of the wait alone: 0 when the op has ended, or -ETIMEDOUT when the time is
 *   over.  That ends the wait, not the op, whose buffer stays taken.
 * *ret_result (ret_result may be NULL) is set if the wait returns 0: the op's result, as
 *   dsaio_op_result() returns it.  If the op failed, dsaio_error() has its message.
 * Sleeps for: the op's end.  Threads: any, several at once.
 */
int dsaio_op_wait(struct dsaio_op *op, int64_t timeout_usec, int64_t *ret_result) DSAIO_NONNULL(1);

/*
 * dsaio_op_wait_many - wait until all of n ops have ended
 *
 * As dsaio_op_wait() of each, in one call, except that dsaio_error() stays: dsaio_op_error() has the
 *   messages.
 * ret_results: room for n results, or NULL; all are set if the wait returns 0, else some may be.
 * -EINVAL, too, for a negative n.
 * Sleeps for: the ops' ends.  Threads: any, several at once.
 */
int dsaio_op_wait_many(struct dsaio_op *const *ops, int n, int64_t timeout_usec,
		       int64_t *ret_results);

/*
 * dsaio_op_result - bytes done (0 for a sync), or the negative errno it failed with
 *
 * -EINPROGRESS while it is open, -ECANCELED if dsaio_op_cancel() was in time.
 */
int64_t dsaio_op_result(const struct dsaio_op *op) DSAIO_NONNULL(1);

/* dsaio_op_bytes - bytes done from the op's start, also when it failed */
uint64_t dsaio_op_bytes(const struct dsaio_op *op) DSAIO_NONNULL(1);

/*
 * dsaio_op_error - the message for an op that failed, "" for others
 *
 * Valid until dsaio_op_free().
 */
const char *dsaio_op_error(struct dsaio_op *op) DSAIO_NONNULL(1);

/* How the bytes of an op go. */
enum dsaio_path {
	DSAIO_PATH_NONE = 0,   /* there are none: a sync, or a read behind the end of the file */
	DSAIO_PATH_SHARED = 1, /* between device and memory that the daemon shares */
	DSAIO_PATH_GPU = 2,    /* by the daemon's cuFile to or from GPU memory, which it has mapped;
				 in its compatibility mode (dsaioctl status) cuFile copies */
	DSAIO_PATH_COPIED =
		3, /* through the pool, from or to which the library or the GPU copies */
};

/*
 * dsaio_op_is_unknown - may the bytes of a write that failed still reach the store?
 *
 * Only writes to a RADOS store that ended with -ETIMEDOUT, -ECANCELED or -ESHUTDOWN, or were given to a daemon that
 * went away.  The same write may be repeated; its range holds either bytes until the repetition has ended.  Returns
 * false for all other ops.
 */
bool dsaio_op_is_unknown(const struct dsaio_op *op) DSAIO_NONNULL(1);

/*
 * dsaio_op_path - how the bytes of an op that has ended went
 *
 * An op with several buffers has the last of the paths above that one of them took.
 * Returns an enum dsaio_path, or -EINPROGRESS while the op is open.
 */
int dsaio_op_path(const struct dsaio_op *op) DSAIO_NONNULL(1);

/*
 * dsaio_op_why - why an op that has ended copied GPU memory; "" for others
 *
 * The reason of the daemon or the driver, for the memory or the file.
 * Valid until dsaio_op_free().
 */
const char *dsaio_op_why(const struct dsaio_op *op) DSAIO_NONNULL(1);

/*
 * dsaio_op_cancel - ask that the op ends soon
 *
 * It still ends once: with -ECANCELED (the range's content is then undefined), or with its
 * result if all was done.  Its buffer is taken until then.
 * Returns 0, also when it has ended already.  Sleeps for: the daemon.
 */
int dsaio_op_cancel(struct dsaio_op *op) DSAIO_NONNULL(1);

/* dsaio_op_free - let go of an op; one that is open goes on.  NULL is fine. */
void dsaio_op_free(struct dsaio_op *op);

/* dsaio_op_free_many - let go of n ops */
void dsaio_op_free_many(struct dsaio_op *const *ops, int n);

/* ---- all ops of a handle ---- */

/*
 * dsaio_handle_wait - wait until every async op of the handle has ended
 *
 * Returns the outcome of the wait alone: 0, or -ETIMEDOUT when timeout_usec (-1: forever) is over,
 *   which changes nothing; -EINVAL: timeout_usec is less than -1.
 * *ret_result (ret_result may be NULL) is set if the wait returns 0: how many ops ended since the
 *   last dsaio_handle_wait() and were not reported by dsaio_handle_reap(), or the negative errno of the first of
 *   them that failed.  Then dsaio_error() has its message, and the count starts anew.  0 if there
 *   was none.  Ops of blocking calls are not counted.
 * Sleeps for: the end of ops.  Threads: any.  DeepNVMe: aio_handle.wait().
 */
int dsaio_handle_wait(struct dsaio_handle *handle, int64_t timeout_usec, int64_t *ret_result)
	DSAIO_NONNULL(1);

/* An async op that has ended. */
struct dsaio_completion {
	struct dsaio_op *op; /* NULL: a detached one that was done */
	void *user_data;     /* of its dsaio_io; NULL for ops of other calls */
	int64_t result;	     /* as dsaio_op_result() */
	uint64_t bytes;	     /* as dsaio_op_bytes() */
	uint32_t flags;	     /* DSAIO_COMPLETION_FREE */
	uint32_t zero;
};

/* A detached op that failed: dsaio_op_error() has its message, and the caller frees it. */
#define DSAIO_COMPLETION_FREE 1u

/*
 * dsaio_handle_reap - take async ops that have ended, and wait for at least min of them
 *
 * Fills in up to max completions, each op once, in the order of their ends.  element_size:
 * sizeof(struct dsaio_completion).  min: 0 to max; 0 does not wait, and if there is none,
 * dsaio_handle_fd() will become readable when there is one.  Ops that their owner freed are left out.
 * Returns how many.  That is fewer than min, or 0, if no async op of the handle is open any more:
 *   ops that their owner freed are left out, and other threads may have taken some.  It is also
 *   fewer than min if timeout_usec (-1: forever, 0: do not sleep) is over; if it would be 0
 *   then, -ETIMEDOUT.  -EINVAL: timeout_usec is less than -1, min is not from 0 to max, or max is 0.
 * Ownership: of the ops as before, except with DSAIO_COMPLETION_FREE.
 * Sleeps for: the end of ops.  Threads: any, several at once; one of them should own the descriptor.
 */
int dsaio_handle_reap(struct dsaio_handle *handle, struct dsaio_completion *completions,
		      size_t element_size, int min, int max, int64_t timeout_usec) DSAIO_CHECKED
	DSAIO_NONNULL(1, 2);

/*
 * dsaio_handle_fd - a descriptor that becomes readable when dsaio_handle_reap() has something
 *
 * For poll(2), epoll(7) and event loops.  It is armed by dsaio_handle_reap() with min 0 that returns 0, and
 * readable too when the daemon has gone away or is back.  The wake-up for an op that was reported by other means may
 * still come: then dsaio_handle_reap() returns 0, and arms it again.  Returns it (the library's; it never
 * changes) or a negative errno.
 */
int dsaio_handle_fd(struct dsaio_handle *handle) DSAIO_NONNULL(1);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
