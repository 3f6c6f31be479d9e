/*
 * A list whose members embed their node.  It is left in one step, from any place.
 *
 * The owner of the list also owns the nodes' fields: one thread, or the holder of its lock.  Zeroes
 * are an empty list.
 *
 * Links of other kinds remain for stacks (free blocks and ops), for queues that are emptied whole (the
 * messages of a mailbox), for lists that other threads read without a lock (a handle's channels), for the
 * buckets of hash tables, and for the scheduler's rings, which have no first member.
 */
#ifndef DSAIO_PROTO_UTIL_LIST_H
#define DSAIO_PROTO_UTIL_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct list_node {
	struct list_node *next, *prev;
};

struct list {
	struct list_node *first, *last;
};

/* The struct of the given type whose member the node is.  NULL: NULL. */
#define list_entry(node, type, member) ((type *)list_container(node, offsetof(type, member)))
static inline void *list_container(const struct list_node *node, size_t offset)
{
	return node ? (void *)((uintptr_t)node - offset) : NULL;
}

/* Visits the structs of a list, as type *item.  The item may leave the list, and be freed. */
#define LIST_EACH(type, item, list, member)                                             \
	for (type *item = list_entry((list)->first, type, member), *item##_next;        \
	     item && (item##_next = list_entry(item->member.next, type, member), true); \
	     item = item##_next)

/* The node is in no list. */
static inline void list_push(struct list *list, struct list_node *node)
{
	node->next = NULL;
	node->prev = list->last;
	if (list->last)
		list->last->next = node;
	else
		list->first = node;
	list->last = node;
}

static inline void list_push_front(struct list *list, struct list_node *node)
{
	node->next = list->first;
	node->prev = NULL;
	if (list->first)
		list->first->prev = node;
	else
		list->last = node;
	list->first = node;
}

/* The node is in this list. */
static inline void list_remove(struct list *list, struct list_node *node)
{
	if (node->prev)
		node->prev->next = node->next;
	else
		list->first = node->next;
	if (node->next)
		node->next->prev = node->prev;
	else
		list->last = node->prev;
}

/* The first node, taken out; NULL if there is none. */
static inline struct list_node *list_pop(struct list *list)
{
	struct list_node *node = list->first;

	if (node)
		list_remove(list, node);
	return node;
}

#endif
