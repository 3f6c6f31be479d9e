/*
 * The file board: which files of a client are in use, and which are only cached.
 *
 * The library keeps files open after the program has closed them, so opening them again costs
 * nothing.  While the daemon has a descriptor of such a file, deleting the file frees no disk space,
 * and a sleeping client does not notice the deletion.  So the daemon looks every few seconds for
 * idle files without a link and closes them.
 *
 * Each client has one memfd.  The daemon creates it, seals it SHRINK|GROW|SEAL and maps it, and so
 * does the client.  It has a word for each file that the client may have, at the index of the file's
 * id: generation << 2 | state.
 *
 *   USED    the program has it open, or an op is open on it: the daemon does not touch it
 *                             -> IDLE, a store by the client (release: all its ops have ended)
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

enum file_board_state { FILE_BOARD_USED = 1, FILE_BOARD_IDLE = 2, FILE_BOARD_GONE = 3 };

/* Bytes of a board for that many files: whole pages. */
static inline size_t file_board_bytes(uint32_t n_files)
{
	return (n_files * sizeof(uint32_t) + 4095) & ~(size_t)4095;
}

/* A file id: index in the low 16 bits, the slot's generation above. */
static inline uint32_t file_board_index(uint32_t id)
{
	return id & 0xffff;
}

static inline uint32_t file_board_word(uint32_t id, enum file_board_state state)
{
	return (id >> 16) << 2 | (uint32_t)state;
}

/* Daemon (USED), client (IDLE). */
static inline void file_board_set(_Atomic uint32_t *board, uint32_t id, enum file_board_state state)
{
	atomic_store_explicit(&board[file_board_index(id)], file_board_word(id, state),
			      memory_order_release);
}

/* From idle to used (client) or gone (daemon).  False: the other side was first, or the file is in
   use. */
static inline bool file_board_take(_Atomic uint32_t *board, uint32_t id,
				   enum file_board_state state)
{
	uint32_t idle = file_board_word(id, FILE_BOARD_IDLE);

	/* acquire: pairs with the store of IDLE, after all use */
	return atomic_compare_exchange_strong_explicit(&board[file_board_index(id)], &idle,
						       file_board_word(id, state),
						       memory_order_acq_rel, memory_order_acquire);
}

/* Is the file idle?  For the daemon, before it looks at the file. */
static inline bool file_board_is_idle(_Atomic uint32_t *board, uint32_t id)
{
	return atomic_load_explicit(&board[file_board_index(id)], memory_order_relaxed) ==
	       file_board_word(id, FILE_BOARD_IDLE);
}

/* Has the daemon closed it?  For the client, after its file_board_take() failed. */
static inline bool file_board_is_gone(_Atomic uint32_t *board, uint32_t id)
{
	return atomic_load_explicit(&board[file_board_index(id)], memory_order_relaxed) ==
	       file_board_word(id, FILE_BOARD_GONE);
}

#endif
