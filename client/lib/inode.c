#include "client/lib/inode.h"

#include <search.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int inode_compare(const void *a, const void *b)
{
	const struct inode *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return 0;
}

int inode_hold(struct dsaio_client *client, dev_t dev, ino_t ino, struct inode **ret_inode)
{
	struct inode *fresh = calloc(1, sizeof(*fresh));
	struct inode **found;

	if (!fresh)
		return -ENOMEM;
	fresh->dev = dev;
	fresh->ino = ino;
	(void)pthread_mutex_init(&fresh->extend_lock, NULL); /* can not fail by default */
	(void)pthread_mutex_init(&fresh->lock, NULL);
	(void)pthread_mutex_lock(&client->lock);
	found = tsearch(fresh, &client->inodes, inode_compare);
	if (found) {
		*ret_inode = *found;
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
		(void)tdelete(inode, &client->inodes, inode_compare); /* it is there */
	(void)pthread_mutex_unlock(&client->lock);
	if (!is_last)
		return;
	(void)pthread_mutex_destroy(&inode->extend_lock);
	(void)pthread_mutex_destroy(&inode->lock);
	free(inode);
}

/*
 * Can none of the open ops conflict?  Told without a look at each: reads where nothing is written,
 * and what lies behind all others, as most of a file's stream does.  Under the lock.
 */
static bool is_clear_of_all(const struct inode *inode, const struct dsaio_op *op)
{
	if (op->opcode != RING_OP_WRITE && !inode->n_writing)
		return true;
	return op->len && op->off >> 12 >= inode->n_pages; /* pages: ring_ops_conflict() */
}

void inode_add(struct inode *inode, struct dsaio_op *op)
{
	(void)pthread_mutex_lock(&inode->lock); /* a plain mutex: can not fail */
	if (!inode->first)
		inode->n_pages = 0;
	op->is_clear = is_clear_of_all(inode, op);
	if (op->len && (op->off + op->len - 1) >> 12 >= inode->n_pages)
		inode->n_pages = ((op->off + op->len - 1) >> 12) + 1;
	inode->n_writing += op->opcode == RING_OP_WRITE;
	op->inode = inode;
	op->inode_next = NULL;
	op->inode_prev = inode->last;
	if (inode->last)
		inode->last->inode_next = op;
	else
		inode->first = op;
	inode->last = op;
	inode->n_off_ring += op->is_off_ring;
	(void)pthread_mutex_unlock(&inode->lock);
}

struct dsaio_op *inode_conflict(struct inode *inode, const struct dsaio_op *op, bool is_in_ring)
{
	struct dsaio_op *found = NULL;

	if (op->is_clear)
		return NULL;
	(void)pthread_mutex_lock(&inode->lock);
	if (!is_in_ring || inode->n_off_ring)
		for (struct dsaio_op *first = inode->first; first != op && !found;
		     first = first->inode_next)
			if (first->handle == op->handle && (!is_in_ring || first->is_off_ring) &&
			    ring_ops_conflict(first->opcode, first->off, first->len, op->opcode,
					      op->off, op->len))
				found = first;
	if (found) /* relaxed: it is open, so the library holds it */
		(void)atomic_fetch_add_explicit(&found->n_refs, 1, memory_order_relaxed);
	(void)pthread_mutex_unlock(&inode->lock);
	return found;
}

uint64_t inode_end_to_be(struct inode *inode, const struct dsaio_handle *handle, uint64_t off,
			 uint64_t len)
{
	uint64_t end = 0;

	(void)pthread_mutex_lock(&inode->lock);
	for (const struct dsaio_op *op = inode->first; op; op = op->inode_next)
		if (op->handle == handle && op->opcode == RING_OP_WRITE &&
		    op->off + op->len > end &&
		    ring_ops_conflict(op->opcode, op->off, op->len, RING_OP_READ, off, len))
			end = op->off + op->len;
	(void)pthread_mutex_unlock(&inode->lock);
	return end;
}

void inode_leave_ring(struct inode *inode, struct dsaio_op *op)
{
	(void)pthread_mutex_lock(&inode->lock);
	op->is_off_ring = true;
	inode->n_off_ring++;
	(void)pthread_mutex_unlock(&inode->lock);
}

int inode_put(struct inode *inode, struct dsaio_op *op, struct ring_entry *entry)
{
	int r;

	/*
	 * In one: who finds it in the ring comes behind it there.  And it can not end, and be
	 * freed, before this is done, since its end takes the lock.
	 */
	(void)pthread_mutex_lock(&inode->lock);
	r = channel_put(op->channel, op, entry);
	if (r == 0) {
		op->is_off_ring = false;
		inode->n_off_ring--;
	}
	(void)pthread_mutex_unlock(&inode->lock);
	return r;
}

static int file_length(int fd, uint64_t *ret_size)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

/* Of the coarse clock: reading it is no system call.  0 is before all ticks. */
static uint64_t tick_now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC_COARSE, &ts); /* it exists: can not fail */
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
	(void)pthread_mutex_lock(&inode->lock);
	if (inode->known_size > size) /* others cut it */
		inode->known_size = size;
	(void)pthread_mutex_unlock(&inode->lock);
	inode_saw_size(inode, size);
}

static int set_length(int fd, uint64_t size)
{
	int r;

	do
		r = ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	while (r == -EINTR);
	return r;
}

/* Makes the file reach to the op's end, with blocks for the op's range if the kernel can. */
static int reach_end(int fd, const struct dsaio_op *op)
{
	int r;

	do
		r = fallocate(fd, 0, (off_t)op->off, (off_t)op->len) < 0 ? -errno : 0;
	while (r == -EINTR);
	if (r == -EOPNOTSUPP || r == -ENOSYS)
		r = set_length(fd, op->off + op->len);
	return r;
}

/* Does an open write of the client, but this one, end behind size?  Under the lock. */
static bool others_write_beyond(const struct inode *inode, const struct dsaio_op *op, uint64_t size)
{
	for (const struct dsaio_op *other = inode->first; other; other = other->inode_next)
		if (other != op && other->opcode == RING_OP_WRITE && other->off + other->len > size)
			return true;
	return false;
}

static void know_size(struct inode *inode, uint64_t size)
{
	(void)pthread_mutex_lock(&inode->lock);
	inode->known_size = size;
	(void)pthread_mutex_unlock(&inode->lock);
}

/* Moves the size, which is `size` now, back to old.  Under extend_lock. */
static bool move_back(struct inode *inode, int fd, const struct dsaio_op *op, uint64_t old)
{
	bool may;

	(void)pthread_mutex_lock(&inode->lock);
	may = op->others_end <= old && !others_write_beyond(inode, op, old);
	if (may) /* before it is so: a write that comes now has to come to extend_lock */
		inode->known_size = old;
	(void)pthread_mutex_unlock(&inode->lock);
	inode_saw_size(inode, 0);
	return may && set_length(fd, old) == 0;
}

/*
 * From here on writes that end are noted in others_end, so before the size is looked at: one that
 * goes through the page cache may move it meanwhile, and must not be cut off again.
 */
static void begin_extending(struct inode *inode, struct dsaio_op *op)
{
	(void)pthread_mutex_lock(&inode->lock);
	inode->n_extending++;
	op->is_extending = true;
	op->others_end = 0;
	(void)pthread_mutex_unlock(&inode->lock);
}

static void stop_extending(struct inode *inode, struct dsaio_op *op)
{
	(void)pthread_mutex_lock(&inode->lock);
	inode->n_extending--;
	op->is_extending = false;
	(void)pthread_mutex_unlock(&inode->lock);
}

static int extend_locked(struct inode *inode, int fd, struct dsaio_op *op)
{
	uint64_t end = op->off + op->len, old = 0, now = 0;
	int r;

	begin_extending(inode, op);
	r = file_length(fd, &old);
	if (r < 0 || end <= old) {
		stop_extending(inode, op);
		if (r == 0)
			know_size(inode, old);
		return r;
	}
	r = reach_end(fd, op);
	if (r < 0) { /* what it did in part is undone, where nobody builds on it */
		if (file_length(fd, &now) == 0 && now > old)
			(void)move_back(inode, fd, op, old);
		stop_extending(inode, op);
		return r;
	}
	op->old_size = old;
	op->set_size = end;
	know_size(inode, end);
	return 0;
}

bool inode_is_long(struct inode *inode, uint64_t size)
{
	bool is_long;

	(void)pthread_mutex_lock(&inode->lock);
	is_long = size <= inode->known_size;
	(void)pthread_mutex_unlock(&inode->lock);
	return is_long;
}

int inode_extend(struct inode *inode, int fd, struct dsaio_op *op)
{
	int r;

	(void)pthread_mutex_lock(&inode->extend_lock);
	r = extend_locked(inode, fd, op);
	(void)pthread_mutex_unlock(&inode->extend_lock);
	return r;
}

/* An extending write failed: back to the bytes done, or say that zeros stay. */
static void shrink_back(struct inode *inode, int fd, struct dsaio_op *op)
{
	uint64_t reached = op->off + op->done, now = 0;
	uint64_t size = reached > op->old_size ? reached : op->old_size;

	(void)pthread_mutex_lock(&inode->extend_lock);
	if (file_length(fd, &now) < 0)
		op->left_zeros = op->set_size > size; /* nobody could move it back */
	else if (now > size && (now != op->set_size || !move_back(inode, fd, op, size)))
		op->left_zeros = true;
	(void)pthread_mutex_unlock(&inode->extend_lock);
}

bool inode_needs_fd(const struct dsaio_op *op)
{
	return op->is_extending && op->result < 0;
}

void inode_remove(struct inode *inode, int fd, struct dsaio_op *op)
{
	if (inode_needs_fd(op))
		shrink_back(inode, fd, op);
	(void)pthread_mutex_lock(&inode->lock);
	if (op->inode_next)
		op->inode_next->inode_prev = op->inode_prev;
	else
		inode->last = op->inode_prev;
	if (op->inode_prev)
		op->inode_prev->inode_next = op->inode_next;
	else
		inode->first = op->inode_next;
	inode->n_off_ring -= op->is_off_ring;
	inode->n_writing -= op->opcode == RING_OP_WRITE;
	inode->n_extending -= op->is_extending;
	if (inode->n_extending && op->opcode == RING_OP_WRITE && op->done)
		for (struct dsaio_op *other = inode->first; other; other = other->inode_next)
			if (other->is_extending && other->others_end < op->off + op->done)
				other->others_end = op->off + op->done;
	op->inode = NULL;
	(void)pthread_mutex_unlock(&inode->lock);
}

int inode_truncate(struct inode *inode, int fd, uint64_t size)
{
	int r;

	(void)pthread_mutex_lock(&inode->extend_lock);
	know_size(inode, 0); /* a write that comes now has to come to extend_lock */
	inode_saw_size(inode, 0);
	r = set_length(fd, size);
	(void)pthread_mutex_unlock(&inode->extend_lock);
	return r;
}
