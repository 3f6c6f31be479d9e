/*
 * The file board: which files of a client are in use, and which are only cached.
 *
 * The library keeps files open after the program has closed them, so opening them again costs
 * nothing.  While the daemon has a descriptor of such a file, its file system cannot be unmounted, and
 * deleting the file frees no disk space, which a sleeping client does not notice.  So the daemon looks
 * every few seconds for idle files and closes those without a link, and those that nobody has used for
 * a while.  It does not look at a client whose files are all in use: QUIET words have the client tell it.
 *
 * Each client has one memfd.  The daemon creates it, seals it SHRINK|GROW|SEAL and maps it, and so
 * does the client.  It has a word for each file that the client may have, at the index of the file's
 * id: n_idle << 18 | generation << 2 | state.  The client counts in n_idle how often the file became
 * idle.  So two looks that find the same word with IDLE show that the file was not used between them,
 * unless it was a multiple of 16384 times: then it is only closed sooner.
 *
 *   USED    the program has it open, or an op is open on it: the daemon does not touch it
 *                             -> IDLE, by the client (release: all its ops have ended); -> QUIET, by the
 *                             daemon: each a compare and exchange
 *   QUIET   as USED, but the daemon does not look
 *                             -> IDLE, by the client, which then sends a request, of whatever kind
 *   IDLE    cached            -> USED, by the client; -> GONE, by the daemon: each a compare and
 *                             exchange, so exactly one of them succeeds
 *   GONE    the daemon has closed it; its id names nothing any more
 *
 * The daemon sets USED before it replies to FileAdd.  The generation prevents a client with an old
 * id from using the new file at the same index.  A client that writes other words harms only its own
 * files: the daemon finds files by a table of its own.
 */
#ifndef DSAIO_PROTO_FILE_BOARD_H
#define DSAIO_PROTO_FILE_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum file_board_state {
	FILE_BOARD_QUIET = 0,
	FILE_BOARD_USED = 1,
	FILE_BOARD_IDLE = 2,
	FILE_BOARD_GONE = 3
};

/* Bytes of a board for that many files: whole pages. */
static inline size_t file_board_bytes(uint32_t n_files)
{
	return (n_files * sizeof(uint32_t) + 4095) & ~(size_t)4095;
}

#define FILE_BOARD_N_IDLE_ONE (UINT32_C(1) << 18)

/* A file id: index in the low 16 bits, the slot's generation above. */
static inline uint32_t file_board_index(uint32_t id)
{
	return id & 0xffff;
}

/* A word with n_idle 0. */
static inline uint32_t file_board_word(uint32_t id, enum file_board_state state)
{
	return (id >> 16) << 2 | (uint32_t)state;
}

static inline bool file_board_is(uint32_t word, uint32_t id, enum file_board_state state)
{
	return (word & (FILE_BOARD_N_IDLE_ONE - 1)) == file_board_word(id, state);
}

/* The word that the daemon has to see again to know that the file was not used meanwhile; 0: the file is not
   idle. */
static inline uint32_t file_board_idle(_Atomic uint32_t *board, uint32_t id)
{
	uint32_t word = atomic_load_explicit(&board[file_board_index(id)], memory_order_relaxed);

	return file_board_is(word, id, FILE_BOARD_IDLE) ? word : 0;
}

/* Daemon, before its reply to FileAdd. */
static inline void file_board_set_used(_Atomic uint32_t *board, uint32_t id)
{
	atomic_store_explicit(&board[file_board_index(id)], file_board_word(id, FILE_BOARD_USED),
			      memory_order_release);
}

/* Client: a file that it uses becomes idle.  Returns whether it was QUIET: a request has to follow. */
static inline bool file_board_set_idle(_Atomic uint32_t *board, uint32_t id)
{
	uint32_t word = atomic_load_explicit(&board[file_board_index(id)], memory_order_relaxed);
	uint32_t idle;

	do { /* again: the daemon has made it QUIET meanwhile */
		idle = ((word & ~(FILE_BOARD_N_IDLE_ONE - 1)) + FILE_BOARD_N_IDLE_ONE) |
		       file_board_word(id, FILE_BOARD_IDLE);
	} while (!atomic_compare_exchange_weak_explicit(&board[file_board_index(id)], &word, idle,
							memory_order_release,
							memory_order_relaxed));
	return file_board_is(word, id, FILE_BOARD_QUIET);
}

/* Daemon: a file in use becomes QUIET.  False: it is in another state. */
static inline bool file_board_set_quiet(_Atomic uint32_t *board, uint32_t id)
{
	uint32_t word = atomic_load_explicit(&board[file_board_index(id)], memory_order_relaxed);

	if (file_board_is(word, id, FILE_BOARD_QUIET))
		return true;
	/* relaxed: it orders nothing */
	return file_board_is(word, id, FILE_BOARD_USED) &&
	       atomic_compare_exchange_strong_explicit(&board[file_board_index(id)], &word,
						       word ^ FILE_BOARD_USED ^ FILE_BOARD_QUIET,
						       memory_order_relaxed, memory_order_relaxed);
}

/* From idle to used (client) or gone (daemon).  False for the client: the daemon has closed the file, and may
   have another one at its index by now.  False for the daemon: the file is in use. */
static inline bool file_board_take(_Atomic uint32_t *board, uint32_t id,
				   enum file_board_state state)
{
	uint32_t idle = file_board_idle(board, id);

	/* acquire: pairs with the store of IDLE, after all use */
	return idle &&
	       atomic_compare_exchange_strong_explicit(&board[file_board_index(id)], &idle,
						       idle ^ FILE_BOARD_IDLE ^ (uint32_t)state,
						       memory_order_acq_rel, memory_order_acquire);
}

#endif
