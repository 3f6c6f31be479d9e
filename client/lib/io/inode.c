#include "client/lib/io/inode.h"

#include "client/lib/io/file.h"

#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int inode_hold(struct dsaio_client *client, dev_t dev, ino_t ino, struct inode **ret_inode)
{
	struct inode *fresh = calloc(1, sizeof(*fresh));
	struct inode **found;

	if (!fresh)
		return -ENOMEM;
	fresh->id = (struct inode_id){ dev, ino };
	(void)pthread_mutex_init(&fresh->lock, NULL); /* cannot fail by default */
	(void)pthread_mutex_lock(&client->lock);
	found = tsearch(fresh, &client->inodes, inode_id_compare);
	if (found) {
		*ret_inode = *found;
		if (*ret_inode == fresh) /* perhaps it is one that was forgotten */
			fresh->failed = client->forgotten_failed;
		(*found)->n_files++;
	}
	(void)pthread_mutex_unlock(&client->lock);
	if (!found || *ret_inode != fresh)
		free(fresh);
	return found ? 0 : -ENOMEM;
}

void inode_drop(struct dsaio_client *client, struct inode *inode)
{
	bool is_last;

	if (!inode)
		return;
	(void)pthread_mutex_lock(&client->lock);
	is_last = --inode->n_files == 0;
	if (is_last)
		(void)tdelete(inode, &client->inodes, inode_id_compare); /* it is there */
	if (is_last && client->forgotten_failed < inode->failed)
		client->forgotten_failed = inode->failed;
	(void)pthread_mutex_unlock(&client->lock);
	if (!is_last)
		return;
	(void)pthread_mutex_destroy(&inode->lock);
	free(inode);
}

/*
 * Is there surely no conflict with an open op?  Decides without looking at each op: a read
 * conflicts with nothing if no write is open, and an op behind all open ops, as in a sequential
 * stream, conflicts with none.  Under the lock.
 */
static bool is_clear_of_all(const struct inode *inode, const struct dsaio_op *op)
{
	if (op->opcode != RING_OP_WRITE && !inode->n_writing)
		return true;
	return op->len && ring_page(op->off) >= inode->n_pages;
}

static struct dsaio_op *op_of(struct list_node *node)
{
	return node ? container_of(node, struct dsaio_op, inode_node) : NULL;
}

void inode_add(struct inode *inode, struct dsaio_op *op)
{
	LOCKED(&inode->lock);

	if (!inode->ops.first)
		inode->n_pages = 0;
	op->is_in_inode = true;
	op->is_clear = is_clear_of_all(inode, op);
	if (op->len && ring_page(op->off + op->len - 1) >= inode->n_pages)
		inode->n_pages = ring_page(op->off + op->len - 1) + 1;
	inode->n_writing += op->opcode == RING_OP_WRITE;
	inode->n_off_ring += op_is_off_ring(op);
	list_push(&inode->ops, &op->inode_node);
}

struct dsaio_op *inode_conflict(struct inode *inode, const struct dsaio_op *op, bool is_in_ring)
{
	struct dsaio_op *earlier = NULL, *found = NULL;

	if (op->is_clear)
		return NULL;
	LOCKED(&inode->lock);
	if (!is_in_ring || inode->n_off_ring)
		earlier = op_of(inode->ops.first);
	for (; earlier && earlier != op && !found; earlier = op_of(earlier->inode_node.next))
		if (earlier->handle == op->handle && (!is_in_ring || op_is_off_ring(earlier)) &&
		    ring_ops_conflict(earlier->opcode, earlier->off, earlier->len, op->opcode,
				      op->off, op->len))
			found = earlier;
	if (found)
		op_ref(found);
	return found;
}

uint64_t inode_end_to_be(struct inode *inode, const struct dsaio_handle *handle, uint64_t off,
			 uint64_t len)
{
	uint64_t end = 0;
	LOCKED(&inode->lock);

	for (const struct dsaio_op *op = op_of(inode->ops.first); op;
	     op = op_of(op->inode_node.next))
		if (op->handle == handle && op->opcode == RING_OP_WRITE &&
		    op->off + op->len > end &&
		    ring_ops_conflict(op->opcode, op->off, op->len, RING_OP_READ, off, len))
			end = op->off + op->len;
	return end;
}

void inode_leave_ring(struct inode *inode, struct dsaio_op *op)
{
	LOCKED(&inode->lock);

	op_change_state(op, OP_WAITING);
	inode->n_off_ring++;
}

int inode_put(struct inode *inode, struct dsaio_op *op)
{
	int r;

	/*
	 * Under one lock: an op that finds it in the ring comes behind it there.  It cannot end, and
	 * be freed, before this is done, since its end takes the lock.
	 */
	LOCKED(&inode->lock);
	r = channel_put(op, false);
	if (r == 0)
		inode->n_off_ring--;
	return r;
}

/* A tick of the coarse clock, which is read without a system call.  0 is before all ticks. */
static uint64_t tick_now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC_COARSE, &ts); /* it exists: cannot fail */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Relaxed throughout: any mixture of two looks is of this tick, or is not used. */
bool inode_reached(const struct inode *inode, uint64_t size)
{
	return size <= atomic_load_explicit(&inode->seen_size, memory_order_relaxed) &&
	       atomic_load_explicit(&inode->seen_tick, memory_order_relaxed) == tick_now();
}

void inode_saw_size(struct inode *inode, uint64_t size)
{
	atomic_store_explicit(&inode->seen_size, size, memory_order_relaxed);
	atomic_store_explicit(&inode->seen_tick, tick_now(), memory_order_relaxed);
}

void inode_opened(struct inode *inode, uint64_t size)
{
	LOCKED(&inode->lock);

	if (inode->known_size > size) /* others cut it */
		inode->known_size = size;
	inode_saw_size(inode, size);
}

bool inode_is_long(struct inode *inode, uint64_t size)
{
	LOCKED(&inode->lock);

	return size <= inode->known_size;
}

bool inode_has_ops(struct inode *inode)
{
	LOCKED(&inode->lock);

	return inode->ops.first;
}

void inode_know_size(struct inode *inode, uint64_t size)
{
	LOCKED(&inode->lock);

	if (inode->known_size < size)
		inode->known_size = size;
}

/* A write that is done has made the file that long; 0: not longer. */
static uint64_t grown_end(const struct dsaio_op *op)
{
	if (op->opcode == RING_OP_WRITE && op->file->named.id) /* nobody extends it before */
		return op->off + op->len;
	return op->grow_end;
}

void inode_remove(struct inode *inode, struct dsaio_op *op)
{
	LOCKED(&inode->lock);

	list_remove(&inode->ops, &op->inode_node);
	inode->n_off_ring -= op_is_off_ring(op);
	inode->n_writing -= op->opcode == RING_OP_WRITE;
	if (op->result >= 0 && inode->known_size < grown_end(op))
		inode->known_size = grown_end(op);
	op->is_in_inode = false;
}

void inode_note_failed(struct inode *inode, struct dsaio_client *client)
{
	LOCKED(&inode->lock);

	inode->failed = client_count_failed(client);
}

bool inode_has_failed(struct inode *inode, uint64_t n_failed)
{
	LOCKED(&inode->lock);

	return inode->failed > n_failed;
}

int inode_truncate(struct inode *inode, int fd, uint64_t size)
{
	int r;

	do
		r = ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	while (r == -EINTR);
	if (r == 0)
		inode_opened(inode, size);
	return r;
}

int inode_allocate(struct inode *inode, int fd, uint64_t off, uint64_t len)
{
	int r;

	do
		r = fallocate(fd, 0, (off_t)off, (off_t)len) < 0 ? -errno : 0;
	while (r == -EINTR);
	if (r == 0)
		inode_know_size(inode, off + len);
	return r;
}
