/*
 * The file board: a word names one generation of one file, and an idle file goes to one of those
 * who want it, never to both.
 */
#include "proto/file_board.h"
#include "tests/unit/suite.h"

#include <pthread.h>

#define INDEX 5u
#define OLD (INDEX | 6u << 16)
#define ID (INDEX | 7u << 16)
#define N_FILES 1024u
#define ROUNDS 500

static _Atomic uint32_t board[N_FILES];

static bool is_gone(_Atomic uint32_t *words, uint32_t id)
{
	return file_board_is(words[file_board_index(id)], id, FILE_BOARD_GONE);
}

TEST(bytes_whole_pages)
{
	ck_assert_uint_eq(file_board_bytes(1), 4096);
	ck_assert_uint_eq(file_board_bytes(1024), 4096);
	ck_assert_uint_eq(file_board_bytes(1025), 8192);
	ck_assert_uint_eq(file_board_bytes(65536), 262144);
}

TEST(states)
{
	file_board_set_used(board, ID);
	ck_assert(!file_board_idle(board, ID));
	ck_assert(!file_board_take(board, ID, FILE_BOARD_GONE));

	file_board_set_idle(board, ID);
	ck_assert(file_board_idle(board, ID));
	ck_assert(file_board_take(board, ID, FILE_BOARD_USED));
	ck_assert(!file_board_idle(board, ID));
	ck_assert(!file_board_take(board, ID, FILE_BOARD_USED));

	file_board_set_idle(board, ID);
	ck_assert(file_board_take(board, ID, FILE_BOARD_GONE));
	ck_assert(is_gone(board, ID));
	ck_assert(!file_board_take(board, ID, FILE_BOARD_USED));
}

TEST(old_generation)
{
	file_board_set_idle(board, ID);
	ck_assert(!file_board_idle(board, OLD));
	ck_assert(!file_board_take(board, OLD, FILE_BOARD_USED));
	ck_assert(!file_board_take(board, OLD, FILE_BOARD_GONE));
	ck_assert(file_board_idle(board, ID));
	ck_assert(file_board_take(board, ID, FILE_BOARD_GONE));
	ck_assert(!is_gone(board, OLD));
}

TEST(a_word_that_is_idle_again_differs)
{
	uint32_t first, word;

	file_board_set_used(board, ID);
	file_board_set_idle(board, ID);
	first = file_board_idle(board, ID);
	ck_assert_uint_eq(file_board_idle(board, ID), first);
	for (unsigned n = 1; n < 16384; n++) {
		ck_assert(file_board_take(board, ID, FILE_BOARD_USED));
		ck_assert_uint_eq(file_board_idle(board, ID), 0);
		file_board_set_idle(board, ID);
		word = file_board_idle(board, ID);
		ck_assert(word && word != first);
		ck_assert_uint_eq(file_board_idle(board, OLD), 0);
	}
	ck_assert(file_board_take(board, ID, FILE_BOARD_GONE));
	ck_assert(is_gone(board, ID));
}

/* ---- two who want the same ---- */

/* A generation a round: all files idle, both threads at the barrier, each takes what it gets. */
struct taker {
	enum file_board_state state;
	bool has[N_FILES];
	unsigned n;
};

static pthread_barrier_t barrier;

static uint32_t round_id(unsigned round, uint32_t index)
{
	return (round + 1) << 16 | index;
}

static void *take_all(void *arg)
{
	struct taker *taker = arg;

	for (unsigned round = 0; round < ROUNDS; round++) {
		(void)pthread_barrier_wait(&barrier); /* all are idle */
		for (uint32_t i = 0; i < N_FILES; i++) {
			taker->has[i] = file_board_take(board, round_id(round, i), taker->state);
			taker->n += taker->has[i];
		}
		(void)pthread_barrier_wait(&barrier); /* looked at between this and the next */
	}
	return NULL;
}

TEST(race)
{
	static struct taker used = { .state = FILE_BOARD_USED },
			    gone = { .state = FILE_BOARD_GONE };
	pthread_t threads[2];
	unsigned n_wrong = 0;

	ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 3), 0);
	ck_assert_int_eq(pthread_create(&threads[0], NULL, take_all, &used), 0);
	ck_assert_int_eq(pthread_create(&threads[1], NULL, take_all, &gone), 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < N_FILES; i++)
			file_board_set_idle(board, round_id(round, i));
		(void)pthread_barrier_wait(&barrier);
		(void)pthread_barrier_wait(&barrier);
		for (uint32_t i = 0; i < N_FILES; i++) {
			uint32_t id = round_id(round, i);

			n_wrong += used.has[i] == gone.has[i] ||
				   is_gone(board, id) != gone.has[i] || file_board_idle(board, id);
		}
	}
	for (size_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_uint_eq(n_wrong, 0);
	ck_assert_uint_eq(used.n + gone.n, ROUNDS * N_FILES);
	ck_assert_int_eq(pthread_barrier_destroy(&barrier), 0);
}

TEST_MAIN
