/*
 * Stalls: calls in which a page fault put the calling thread to sleep for more than STALL_NSEC.
 *
 * A lane touches a client's memory only by system calls.  Such a call faults if the client has punched the
 * memory, and sleeps as long as a punch of that range lasts.
 *
 * Time alone does not tell: the scheduler may have preempted the thread, or the file system may have read
 * metadata.  So a long call is a stall only if the thread's counts of voluntary switches and of page faults
 * have both changed within it.  A fault that fails is not counted, but then the call fails.
 *
 * To read the counts takes 0.3 us.  So they are read before a call only if a call of the thread was long
 * within the last STALLS_WITHIN_NSEC: the first long call is never a stall.
 *
 * Memory that stalls STALLS_MAX times within that time is banned from the lanes: worker threads do the blocks on
 * it.  A program that shares memory with another one which punches it so keeps its other memory in the lanes.  Memory
 * is known by its device and inode, since a client imports it again at will; all slabs of a user are one memory.
 * The first ban is short, because the reason may be gone.  Each further ban is twice as long as the last, until
 * the memory has been clean for the longest.  A user with stalls of STALL_USER_MEMORIES memories within that time is
 * banned with all of its memory.
 */
#ifndef DSAIO_DAEMON_BASE_STALL_H
#define DSAIO_DAEMON_BASE_STALL_H

#include "proto/util/inode_id.h"

#include <stdbool.h>
#include <stdint.h>

/* Far above the 5 to 200 us that a call takes, also to touch new pages; far below what a client notices. */
#define STALL_NSEC 2000000u
/* Guesses: few enough for the other users of the store, enough not to ban for a coincidence. */
#define STALLS_MAX 3u
#define STALLS_WITHIN_NSEC (60 * UINT64_C(1000000000))
#define STALLS_BAN_NSEC (10 * UINT64_C(1000000000))
#define STALLS_BAN_MAX_NSEC (32 * STALLS_BAN_NSEC)

/* Brackets each call: stall_begin() returns the start time for stall_end(), which returns whether it was a
   stall.  has_failed: the call may have failed with EFAULT.  Each thread has its own state. */
uint64_t stall_begin(void);
/* Whether the call that stall_begin() has begun can be a stall. */
bool stall_is_watched(void);
bool stall_end(uint64_t since_nsec, bool has_failed);

/*
 * A call that changes the daemon's mappings of a client's memory waits for walks over all mappings of the memory,
 * and all threads that map memory wait for it.  It takes some us.  So it is a stall if it lasts for
 * STALL_STEP_NSEC, less the time for which the thread waited for a processor, and it slept or used so much CPU
 * time.
 */
#define STALL_STEP_NSEC 20000000u
struct stall_step {
	uint64_t since_nsec, cpu_nsec, waited_nsec;
	long n_switches;
};
void stall_step_begin(struct stall_step *step);
/* Returns how long it lasted so if it was a stall, else 0. */
uint64_t stall_step_end(const struct stall_step *step);

/* The stalls of a memory.  Zeroes: none so far. */
struct stalls {
	uint64_t since_nsec; /* the first of the n below; 0: never any */
	unsigned n;	     /* within STALLS_WITHIN_NSEC, and not followed by a ban */
	uint64_t banned_nsec, banned_until_nsec; /* the last ban */
};

/* Counts a stall.  Returns whether it begins a ban. */
bool stalls_note(struct stalls *stalls, uint64_t now_nsec);

static inline bool stalls_is_banned(const struct stalls *stalls, uint64_t now_nsec)
{
	return now_nsec < stalls->banned_until_nsec;
}

/* Guesses: more than a program shares with others that attack it; enough for some users that attack. */
#define STALL_USER_MEMORIES 4u
#define STALL_MEMORIES_MAX 64u

/* Memory that has stalled.  One thread; zeroes: none so far. */
struct stall_table {
	struct stall_memory {
		struct inode_id id; /* dev 0: all slabs of the user that ino is */
		uid_t uid;	    /* the user for which it stalled first */
		struct stalls stalls;
	} memories[STALL_MEMORIES_MAX];
	unsigned n;
	uint64_t until_nsec; /* all bans are over then, and no stall counts any more */
};

/* Counts a stall of this memory for this user.  Returns its stalls if a ban begins, else NULL. */
const struct stalls *stall_table_note(struct stall_table *table, const struct inode_id *id,
				      uid_t uid, uint64_t now_nsec);
bool stall_table_bans(const struct stall_table *table, const struct inode_id *id, uid_t uid,
		      uint64_t now_nsec);

#endif
