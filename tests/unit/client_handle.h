/*
 * For unit tests: a handle on the channel of client_channel.h, a file of 64 KiB without a daemon, and
 * memory that ops of its ring may use.
 */
#ifndef DSAIO_TESTS_UNIT_CLIENT_HANDLE_H
#define DSAIO_TESTS_UNIT_CLIENT_HANDLE_H

#include "client/lib/io/bounce.h"
#include "client/lib/io/file.h"
#include "client/lib/io/handle.h"
#include "client/lib/io/inode.h"
#include "tests/unit/client_channel.h"

#include <sys/mman.h>

#define FILE_BYTES 65536u
#define STORE 3u
#define SLAB 5u

static _Alignas(4096) char memory[FILE_BYTES];
static _Atomic uint32_t guard = CLIENT_GUARD;
static struct dsaio_handle handle;
static struct dsaio_file file;

static inline void handle_setup(void)
{
	channel_setup();
	memset(&client, 0, sizeof(client));
	memset(&handle, 0, sizeof(handle));
	memset(&file, 0, sizeof(file));
	client.guard = &guard;
	client.conn = &conn;
	client.n_cpus = 1;
	(void)strcpy(conn.path, "test");
	buffers_init(&client.buffers, &conn, NULL);
	client.bounce = bounce_new(&client);
	ck_assert_ptr_nonnull(client.bounce);
	ck_assert_int_eq(buffers_import(&client.buffers, memory, sizeof(memory),
					&(struct slab_name){ .id = SLAB }, -1, 0),
			 0);
	channel.store = STORE;
	handle.client = &client;
	handle.epoll_fd = handle.own_doorbell_fd = handle.doorbell_fd = -1;
	ended_init(&handle.ended, &handle.pool);
	atomic_init(&handle.channels, &channel);
	file.client = &client;
	file.name = (char *)(uintptr_t) "test";
	file.can_read = true;
	file.can_write = true;
	file.session.id = 9;
	file.session.store = STORE;
	file.session.offset_align = 512;
	file.session.memory_align = 512;
	atomic_init(&file.session.has_buffered, true);
	atomic_init(&file.n_refs, 1);
	file.n_opens = 1;
	client.files.n_fds = client.files.n_fds_wanted = 1;
	file.fds.second = -1;
	file.fds.direct = memfd_create("file", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(file.fds.direct, FILE_BYTES), 0);
	ck_assert_int_eq(inode_hold(&client, 1, 2, &file.inode), 0);
}

/* No op is open, nor held. */
static inline void handle_teardown(void)
{
	ended_clear(&handle.ended);
	ck_assert_uint_eq(handle.pool.n_used, 0);
	ck_assert_uint_eq(atomic_load(&file.n_refs), 1);
	op_pool_deinit(&handle.pool);
	inode_drop(&client, file.inode);
	bounce_stop(&client);
	free(client.bounce);
	buffers_deinit(&client.buffers);
	(void)close(file.fds.direct);
	channel_teardown();
}

/* The lane's side: the next entry. */
static inline struct ring_entry take_entry(void)
{
	struct ring_entry entry;

	ck_assert_int_gt(ring_lane_ready(&lane), 0);
	ring_lane_take(&lane, &entry);
	return entry;
}

#endif
