/*
 * For unit tests: a channel of the library over private memory, with a lane of the test's own.
 */
#ifndef DSAIO_TESTS_UNIT_CLIENT_CHANNEL_H
#define DSAIO_TESTS_UNIT_CLIENT_CHANNEL_H

#include "client/lib/io/channel.h"
#include "tests/unit/suite.h"

#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENTRIES 8u

static _Alignas(4096) char map[4096], board[4096];
static struct channel_row rows[ENTRIES];
static uint32_t free_rows[ENTRIES];
static struct dsaio_conn conn;
static struct dsaio_client client;
static struct handle_channel channel;
static struct ring_lane lane;
static int sockets[2];

static inline void channel_setup(void)
{
	struct lane_board *b = (struct lane_board *)board;

	memset(map, 0, sizeof(map)); /* without a fork for each test they follow one another */
	memset(&conn, 0, sizeof(conn));
	memset(&channel, 0, sizeof(channel));
	memset(rows, 0, sizeof(rows));
	ck_assert_int_eq(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
	conn.fd = sockets[0];
	client.conn = &conn;
	b->magic = LANE_BOARD_MAGIC;
	b->version = RING_VERSION;
	ring_lane_init(&lane, map, ENTRIES);
	ck_assert_int_eq(ring_client_init(&channel.ring, map, board, ENTRIES), 0);
	channel.client = &client;
	channel.rows = rows;
	channel.free_rows = free_rows;
	channel.doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	for (uint32_t i = 0; i < ENTRIES; i++) {
		rows[i].id = i;
		free_rows[i] = i;
	}
	(void)pthread_mutex_init(&channel.submit_lock, NULL);
}

static inline void channel_teardown(void)
{
	(void)close(sockets[0]);
	(void)close(sockets[1]);
	(void)close(channel.doorbell_fd);
}

/* The lane's side: the id of the next entry. */
static inline uint64_t take(void)
{
	struct ring_entry entry;

	ck_assert_int_gt(ring_lane_ready(&lane), 0);
	ring_lane_take(&lane, &entry);
	return entry.id;
}

static inline void complete(uint64_t id, int64_t result)
{
	ring_lane_complete(&lane, id, result);
	(void)ring_lane_publish(&lane);
}

#endif
