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

TEST(quiet)
{
	ck_assert(!file_board_set_quiet(board, ID)); /* no file */
	file_board_set_used(board, ID);
	ck_assert(!file_board_set_quiet(board, OLD));
	ck_assert(!file_board_set_idle(board, ID)); /* it was not */
	ck_assert(!file_board_set_quiet(board, ID));
	ck_assert(file_board_take(board, ID, FILE_BOARD_USED));

	ck_assert(file_board_set_quiet(board, ID));
	ck_assert(file_board_set_quiet(board, ID));
	ck_assert(!file_board_idle(board, ID));
	ck_assert(!file_board_take(board, ID, FILE_BOARD_USED));
	ck_assert(!file_board_take(board, ID, FILE_BOARD_GONE));
	ck_assert(file_board_set_idle(board, ID));
	ck_assert_uint_eq(file_board_idle(board, ID) >> 18, 2);
	ck_assert(file_board_take(board, ID, FILE_BOARD_USED));
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

/* A generation a round: all files as `set` makes them, both threads at the barrier, each takes what it gets. */
struct taker {
	bool (*take)(_Atomic uint32_t *words, uint32_t id);
	bool has[N_FILES];
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
		(void)pthread_barrier_wait(&barrier); /* all are set */
		for (uint32_t i = 0; i < N_FILES; i++)
			taker->has[i] = taker->take(board, round_id(round, i));
		(void)pthread_barrier_wait(&barrier); /* looked at between this and the next */
	}
	return NULL;
}

static void race(void (*set)(_Atomic uint32_t *words, uint32_t id), struct taker *one,
		 struct taker *other, bool can_both)
{
	pthread_t threads[2];
	unsigned n_wrong = 0;

	ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 3), 0);
	ck_assert_int_eq(pthread_create(&threads[0], NULL, take_all, one), 0);
	ck_assert_int_eq(pthread_create(&threads[1], NULL, take_all, other), 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < N_FILES; i++)
			set(board, round_id(round, i));
		(void)pthread_barrier_wait(&barrier);
		(void)pthread_barrier_wait(&barrier);
		for (uint32_t i = 0; i < N_FILES; i++) {
			uint32_t id = round_id(round, i);

			n_wrong += (one->has[i] == other->has[i]) != can_both ||
				   is_gone(board, id) != (!can_both && other->has[i]) ||
				   !file_board_idle(board, id) != !can_both;
		}
	}
	for (size_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_uint_eq(n_wrong, 0);
	ck_assert_int_eq(pthread_barrier_destroy(&barrier), 0);
}

static void set_idle(_Atomic uint32_t *words, uint32_t id)
{
	file_board_set_used(words, id);
	(void)file_board_set_idle(words, id);
}

static bool use(_Atomic uint32_t *words, uint32_t id)
{
	return file_board_take(words, id, FILE_BOARD_USED);
}

static bool let_go(_Atomic uint32_t *words, uint32_t id)
{
	return file_board_take(words, id, FILE_BOARD_GONE);
}

TEST(an_idle_file_is_used_or_gone)
{
	static struct taker used = { .take = use }, gone = { .take = let_go };

	race(set_idle, &used, &gone, false);
}

TEST(who_makes_a_file_idle_hears_that_it_was_quiet)
{
	static struct taker idler = { .take = file_board_set_idle },
			    quieter = { .take = file_board_set_quiet };

	race(file_board_set_used, &idler, &quieter, true);
}

TEST_MAIN
