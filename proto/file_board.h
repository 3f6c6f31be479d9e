/*
 * The file board: which of a client's files it has in use, and which only lie in its cache.
 *
 * The library keeps files that the program closed, so that opening them again costs nothing.  Such
 * a file's inode stays although its last name goes, and with it the disk space, for as long as the
 * daemon holds the descriptor; and nobody may be awake in the client to notice.  So the daemon looks,
 * every few seconds, for idle files without a link, and lets them go.
 *
 * One memfd for each client, made by the daemon, sealed SHRINK|GROW|SEAL, mapped by both: a word for
 * each file that it may have, found by its id's index: generation << 2 | state.
 *
 *   USED    the program has it open, or an op is open on it: the daemon leaves it alone
 *                             -> IDLE, a store by the client (release: all its ops have ended)
 *   IDLE    in the cache      -> USED, by the client; -> GONE, by the daemon: each a compare and
 *                             exchange, so exactly one of them has it
 *   GONE    the daemon has let it go; its id names nothing any more
 *
 * The daemon sets USED before it replies to FileAdd.  The generation keeps a client that remembers
 * an old id from taking the new file at its place for it.  A client that writes something else harms
 * its own files only: what an id names is in the daemon's own table.
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

/* From idle to used (client) or gone (daemon); false: the other was first, or it is in use. */
static inline bool file_board_take(_Atomic uint32_t *board, uint32_t id,
				   enum file_board_state state)
{
	uint32_t idle = file_board_word(id, FILE_BOARD_IDLE);

	/* acquire: pairs with the store of IDLE, after all use */
	return atomic_compare_exchange_strong_explicit(&board[file_board_index(id)], &idle,
						       file_board_word(id, state),
						       memory_order_acq_rel, memory_order_acquire);
}

/* Worth a look by the daemon? */
static inline bool file_board_is_idle(_Atomic uint32_t *board, uint32_t id)
{
	return atomic_load_explicit(&board[file_board_index(id)], memory_order_relaxed) ==
	       file_board_word(id, FILE_BOARD_IDLE);
}

/* Has the daemon let it go?  To the client, whose file_board_take() failed. */
static inline bool file_board_is_gone(_Atomic uint32_t *board, uint32_t id)
{
	return atomic_load_explicit(&board[file_board_index(id)], memory_order_relaxed) ==
	       file_board_word(id, FILE_BOARD_GONE);
}

#endif
