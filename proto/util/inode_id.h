/*
 * The numbers that name an inode on this host, as the key of a tsearch(3) tree.
 */
#ifndef DSAIO_PROTO_UTIL_INODE_ID_H
#define DSAIO_PROTO_UTIL_INODE_ID_H

#include <sys/types.h>

/* The first member of a tree's objects. */
struct inode_id {
	dev_t dev;
	ino_t ino;
};

static inline int inode_id_compare(const void *a, const void *b)
{
	const struct inode_id *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return (x->ino > y->ino) - (x->ino < y->ino);
}

#endif
