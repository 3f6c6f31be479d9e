/*
 * A list whose members embed their node.  It is left in one step, from any place.
 *
 * Whoever owns the list also owns the nodes' fields: one thread, or under its lock.  Zeroes are an
 * empty list.
 */
#ifndef DSAIO_PROTO_UTIL_LIST_H
#define DSAIO_PROTO_UTIL_LIST_H

#include <stddef.h>

struct list_node {
	struct list_node *next, *prev;
};

struct list {
	struct list_node *first, *last;
};

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
