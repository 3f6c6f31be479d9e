/*
 * Lists whose members embed their node.
 */
#include "proto/util/list.h"

#include "tests/unit/suite.h"

#include <string.h>

static struct list list;
static struct list_node nodes[4];

/* Forwards and backwards: the nodes with these numbers, up to -1, and no other. */
static void expect(const int *numbers)
{
	const struct list_node *prev = NULL;

	for (struct list_node *node = list.first; node; node = node->next) {
		ck_assert_ptr_eq(node, &nodes[*numbers++]);
		ck_assert_ptr_eq(node->prev, prev);
		prev = node;
	}
	ck_assert_int_eq(*numbers, -1);
	ck_assert_ptr_eq(list.last, prev);
}
#define EXPECT(...) expect((const int[]){ __VA_ARGS__, -1 })

static void setup(void)
{
	list = (struct list){ 0 };
	for (int i = 0; i < 4; i++)
		list_push(&list, &nodes[i]);
}

TEST(nodes_stand_in_order)
{
	setup();
	EXPECT(0, 1, 2, 3);
	list_remove(&list, &nodes[2]);
	list_push_front(&list, &nodes[2]);
	EXPECT(2, 0, 1, 3);
}

TEST(a_node_leaves_from_any_place)
{
	setup();
	list_remove(&list, &nodes[1]);
	EXPECT(0, 2, 3);
	list_remove(&list, &nodes[0]);
	EXPECT(2, 3);
	list_remove(&list, &nodes[3]);
	EXPECT(2);
	list_remove(&list, &nodes[2]);
	EXPECT(-1);
	list_push(&list, &nodes[1]);
	EXPECT(1);
}

TEST(a_list_is_emptied_from_its_front)
{
	setup();
	for (int i = 0; i < 4; i++)
		ck_assert_ptr_eq(list_pop(&list), &nodes[i]);
	ck_assert_ptr_null(list_pop(&list));
	ck_assert_ptr_null(list.last);
}

/* The list's structs have their node behind another field. */
struct item {
	int number;
	struct list_node node;
};

TEST(a_visited_item_may_leave_and_be_freed)
{
	int n = 0;

	list = (struct list){ 0 };
	for (int i = 0; i < 5; i++) {
		struct item *item = malloc(sizeof(*item));

		item->number = i;
		list_push(&list, &item->node);
	}
	LIST_EACH(struct item, item, &list, node) {
		ck_assert_int_eq(item->number, n++);
		if (item->number % 2)
			continue;
		list_remove(&list, &item->node);
		memset(item, 0xff, sizeof(*item));
		free(item);
	}
	ck_assert_int_eq(n, 5);
	n = 1;
	LIST_EACH(const struct item, item, &list, node) {
		ck_assert_int_eq(item->number, n);
		n += 2;
	}
	ck_assert_int_eq(n, 5);
	LIST_EACH(struct item, item, &list, node)
		free(item);
}

TEST(an_empty_list_has_no_entry_and_nothing_to_visit)
{
	list = (struct list){ 0 };
	ck_assert_ptr_null(list_entry(list_pop(&list), struct item, node));
	LIST_EACH(struct item, item, &list, node)
		ck_abort_msg("there is item %p", (void *)item);
}

TEST_MAIN
