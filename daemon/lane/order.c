/*
 * A node moves through the order in this way:
 *
 *     add      its predecessors are found; it enters the list of its kind
 *     plant    a later op may conflict with it: it enters the tree of its kind
 *     release  it waits for nothing any more: its op may start; an abandoned node leaves at once
 *     leave    its op has ended: it leaves the tree and the list, and releases others
 *
 * Most nodes never enter a tree: those of files that are only read, of writes that follow each other
 * through a file, and of small ops without conflicts.  Each list knows the range in which all its nodes
 * outside of the tree lie, and counts of pages tell that a small op overlaps none (page_counts.h).
 *
 * Each node waits only for nodes with lower sequence numbers, so no nodes wait for each other.
 */
#include "daemon/lane/order.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define PAGE_SHIFT 12	   /* ranges that touch the same page overlap */
#define NONE ((uint16_t)0) /* no node, no edge, no file */
/* Nodes that one op plants: bounds the work for it.  A guess: as many as take a few microseconds. */
#define PLANT_MAX 64u
#define SEQ_MASK ((UINT64_C(1) << 55) - 1)
#define KINDS 2 /* with a tree and a list: ORDER_READ and ORDER_WRITE */

/* The unit test counts what the order looks at. */
#ifndef ORDER_STEP
#define ORDER_STEP() ((void)0)
#endif

/* The part that every op needs. */
struct order_node {
	uint64_t first, end;  /* pages; equal: none */
	uint64_t seq : 55;    /* a million ops in each second need 1100 years */
	uint64_t kind : 2;    /* enum order_kind */
	uint64_t n_waits : 4; /* for predecessors and for kinds */
	uint64_t is_in_tree : 1;
	uint64_t is_abandoned : 1;
	uint64_t has_followers : 1; /* edges lead to it */
	uint16_t next, prev;	    /* in the list of its kind; next: free */
	uint16_t op;
	uint16_t file;
};
static_assert(sizeof(struct order_node) == 32, "each op of a full channel has touched its own");

/*
 * The links of a node in a tree, or while it waits or others wait for it.  Most nodes never do, so the
 * memory for these is apart, and most of it is never touched.
 *
 * The edges of a node lead to its predecessors.  Edge i of node n has the number n * 8 + i, and lies in
 * the list of edges that lead to the same predecessor.
 */
struct order_links {
	uint64_t max_end;		/* of the subtree */
	uint16_t left, right;		/* in the tree */
	uint16_t next_waiter[KINDS];	/* of those that wait for all earlier nodes of the kind;
					   the first: of those that leave */
	uint16_t first_edge, last_edge; /* that lead to it, if has_followers */
	uint16_t edges[ORDER_PREDECESSORS_MAX]; /* the next with the same predecessor */
	uint8_t height;				/* of the subtree */
};
static_assert(sizeof(struct order_links) <= 40, "a channel of ops that conflict touches all");
static_assert(ORDER_PREDECESSORS_MAX + KINDS < 16, "n_waits has 4 bits");
static_assert((ORDER_OPS_MAX + ORDER_OPS_MAX / 2 + 1) * ORDER_PREDECESSORS_MAX <= UINT16_MAX,
	      "edges have 16-bit numbers");

/* Nodes of one inode. */
struct order_file {
	const void *key;
	uint32_t n_nodes;
	uint16_t next; /* with the same hash; or free */
	struct order_list {
		uint16_t root;			    /* of the tree */
		uint16_t first, last;		    /* in order of their sequence numbers */
		uint16_t first_bare;		    /* it and those behind it are not in the tree */
		uint16_t n_bare;		    /* these */
		uint16_t first_waiter, last_waiter; /* for all earlier ones; in the same order */
		uint64_t bare_first, bare_end; /* the range of those not in the tree, at least */
	} kinds[KINDS];
};
static_assert((ORDER_OPS_MAX + ORDER_OPS_MAX / 2 + 1) * PAGE_COUNTS_MAX <= UINT16_MAX,
	      "page_counts.h has 16-bit counts");

int order_init(struct order *order, uint32_t n_ops)
{
	uint16_t bits = 1;

	assert(n_ops && n_ops <= ORDER_OPS_MAX);
	while (1u << bits < n_ops)
		bits++;
	*order = (struct order){
		.n_nodes = n_ops + n_ops / 2 + 1,
		.n_fresh = 1,
		.n_files = n_ops + n_ops / 2 + 1,
		.n_files_fresh = 1,
		.hash_shift = (uint16_t)(64 - bits),
		.n_abandoned_max = (uint16_t)(n_ops / 2),
	};
	order->nodes = calloc(order->n_nodes, sizeof(*order->nodes));
	order->links = calloc(order->n_nodes, sizeof(*order->links));
	order->files = calloc(order->n_files, sizeof(*order->files));
	order->buckets = calloc((size_t)1 << bits, sizeof(*order->buckets));
	for (int kind = 0; kind < KINDS; kind++)
		if (!page_counts_init(&order->touched[kind], bits)) {
			order_deinit(order);
			return -ENOMEM;
		}
	if (!order->nodes || !order->links || !order->files || !order->buckets) {
		order_deinit(order);
		return -ENOMEM;
	}
	return 0;
}

void order_deinit(struct order *order)
{
	free(order->nodes);
	free(order->links);
	free(order->files);
	free(order->buckets);
	for (int kind = 0; kind < KINDS; kind++)
		page_counts_deinit(&order->touched[kind]);
	*order = (struct order){ 0 };
}

/* ---- files ---- */

static uint16_t *file_bucket(struct order *order, const void *key)
{
	/* The address of an inode is not the client's choice; the multiplier spreads them. */
	return &order->buckets[(uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15) >> order->hash_shift];
}

static uint16_t file_get(struct order *order, const void *key)
{
	uint16_t *bucket = file_bucket(order, key);
	uint16_t at = *bucket;

	for (; at; at = order->files[at].next) {
		ORDER_STEP();
		if (order->files[at].key == key)
			return at;
	}
	at = order->free_file;
	if (at) {
		order->free_file = order->files[at].next;
	} else {
		assert(order->n_files_fresh < order->n_files);
		at = (uint16_t)order->n_files_fresh++;
	}
	order->files[at] = (struct order_file){ .key = key, .next = *bucket };
	*bucket = at;
	return at;
}

static void file_put(struct order *order, uint16_t file)
{
	uint16_t *at;

	if (--order->files[file].n_nodes)
		return;
	for (at = file_bucket(order, order->files[file].key); *at != file;
	     at = &order->files[*at].next)
		ORDER_STEP();
	*at = order->files[file].next;
	order->files[file].next = order->free_file;
	order->free_file = file;
}

/* ---- trees: AVL, each node knows where the ranges of its subtree end ---- */

static void tree_update(struct order *order, uint16_t at)
{
	struct order_links *links = &order->links[at];
	const struct order_links *left = &order->links[links->left];
	const struct order_links *right = &order->links[links->right];

	/* Node 0 is all zeroes. */
	links->height = (uint8_t)((left->height > right->height ? left->height : right->height) +
				  1);
	links->max_end = order->nodes[at].end;
	if (left->max_end > links->max_end)
		links->max_end = left->max_end;
	if (right->max_end > links->max_end)
		links->max_end = right->max_end;
}

static uint16_t rotate_right(struct order *order, uint16_t at)
{
	struct order_links *links = order->links;
	uint16_t left = links[at].left;

	links[at].left = links[left].right;
	links[left].right = at;
	tree_update(order, at);
	tree_update(order, left);
	return left;
}

static uint16_t rotate_left(struct order *order, uint16_t at)
{
	struct order_links *links = order->links;
	uint16_t right = links[at].right;

	links[at].right = links[right].left;
	links[right].left = at;
	tree_update(order, at);
	tree_update(order, right);
	return right;
}

/* Returns the new root of a subtree in which the heights below the root differ by 2 at most. */
static uint16_t tree_balance(struct order *order, uint16_t at)
{
	struct order_links *links = order->links, *top = &links[at];
	int tilt = links[top->left].height - links[top->right].height;

	ORDER_STEP();
	if (tilt > 1) {
		const struct order_links *left = &links[top->left];

		if (links[left->left].height < links[left->right].height)
			top->left = rotate_left(order, top->left);
		return rotate_right(order, at);
	}
	if (tilt < -1) {
		const struct order_links *right = &links[top->right];

		if (links[right->right].height < links[right->left].height)
			top->right = rotate_right(order, top->right);
		return rotate_left(order, at);
	}
	tree_update(order, at);
	return at;
}

/* By their beginnings; by their numbers where these are equal. */
static bool is_left_of(const struct order_node *nodes, uint16_t a, uint16_t b)
{
	return nodes[a].first != nodes[b].first ? nodes[a].first < nodes[b].first : a < b;
}

/* Each of these returns the new root.  They recurse at most 1.44 log2(n) deep, which is 19. */

static uint16_t tree_insert(struct order *order, uint16_t at, uint16_t node)
{
	struct order_links *links = order->links;

	if (!at) {
		links[node].left = links[node].right = NONE;
		at = node;
	} else if (is_left_of(order->nodes, node, at)) {
		links[at].left = tree_insert(order, links[at].left, node);
	} else {
		links[at].right = tree_insert(order, links[at].right, node);
	}
	return tree_balance(order, at);
}

static uint16_t tree_remove_leftmost(struct order *order, uint16_t at, uint16_t *ret_leftmost)
{
	struct order_links *links = &order->links[at];

	if (!links->left) {
		*ret_leftmost = at;
		return links->right;
	}
	links->left = tree_remove_leftmost(order, links->left, ret_leftmost);
	return tree_balance(order, at);
}

static uint16_t tree_remove(struct order *order, uint16_t at, uint16_t node)
{
	struct order_links *links = order->links;

	if (at != node) {
		if (is_left_of(order->nodes, node, at))
			links[at].left = tree_remove(order, links[at].left, node);
		else
			links[at].right = tree_remove(order, links[at].right, node);
	} else if (!links[node].right) {
		return links[node].left;
	} else {
		uint16_t right = tree_remove_leftmost(order, links[node].right, &at);

		links[at].left = links[node].left;
		links[at].right = right;
	}
	return tree_balance(order, at);
}

/* The nodes that overlap a range: as many as there is room for, and whether there are more. */
struct found {
	uint64_t first, end;
	uint16_t nodes[ORDER_PREDECESSORS_MAX];
	uint32_t n;
	bool has_more;
};

static void tree_find(const struct order *order, uint16_t at, struct found *found)
{
	const struct order_node *nodes = order->nodes;

	while (order->links[at].max_end > found->first && !found->has_more) {
		ORDER_STEP();
		tree_find(order, order->links[at].left, found);
		if (nodes[at].first >= found->end || found->has_more)
			return;
		if (nodes[at].end > found->first) {
			if (found->n < ORDER_PREDECESSORS_MAX)
				found->nodes[found->n++] = at;
			else
				found->has_more = true;
		}
		at = order->links[at].right;
	}
}

static void tree_leave(struct order *order, uint16_t node)
{
	struct order_node *n = &order->nodes[node];
	uint16_t *root = &order->files[n->file].kinds[n->kind].root;

	if (!n->is_in_tree)
		return;
	*root = tree_remove(order, *root, node);
	n->is_in_tree = false;
}

/* ---- add ---- */

static void wait_for_node(struct order *order, uint16_t node, uint16_t predecessor,
			  uint32_t n_before)
{
	struct order_links *links = order->links, *p = &links[predecessor];
	uint16_t edge = (uint16_t)(node * ORDER_PREDECESSORS_MAX + n_before);

	links[node].edges[n_before] = NONE;
	if (order->nodes[predecessor].has_followers)
		links[p->last_edge / ORDER_PREDECESSORS_MAX]
			.edges[p->last_edge % ORDER_PREDECESSORS_MAX] = edge;
	else
		p->first_edge = edge;
	order->nodes[predecessor].has_followers = true;
	p->last_edge = edge;
	order->nodes[node].n_waits++;
}

/* For all earlier nodes of the kind in the file. */
static void wait_for_kind(struct order *order, uint16_t node, enum order_kind kind)
{
	struct order_list *list = &order->files[order->nodes[node].file].kinds[kind];

	if (!list->first)
		return;
	order->links[node].next_waiter[kind] = NONE;
	if (list->last_waiter)
		order->links[list->last_waiter].next_waiter[kind] = node;
	else
		list->first_waiter = node;
	list->last_waiter = node;
	order->nodes[node].n_waits++;
}

/* Puts nodes that may overlap a range into the tree.  False: there are too many. */
static bool plant_overlap(struct order *order, struct order_list *list, uint64_t first,
			  uint64_t end)
{
	struct order_node *nodes = order->nodes;

	if (!list->first_bare || end <= list->bare_first || first >= list->bare_end)
		return true;
	for (unsigned i = 0; i < PLANT_MAX && list->first_bare; i++) {
		uint16_t node = list->first_bare;

		list->first_bare = nodes[node].next;
		list->n_bare--;
		if (nodes[node].first == nodes[node].end)
			continue;
		list->root = tree_insert(order, list->root, node);
		nodes[node].is_in_tree = true;
	}
	return !list->first_bare;
}

/* Makes the node wait for nodes of the kind that overlap it.  Returns how many predecessors it has. */
static uint32_t wait_for_overlap(struct order *order, uint16_t node, enum order_kind kind,
				 uint32_t n_before)
{
	struct order_node *n = &order->nodes[node];
	struct order_list *list = &order->files[n->file].kinds[kind];
	struct found found;
	bool is_all;

	/* With more outside of the tree, a later op could not plant them all. */
	if (!list->first ||
	    (list->n_bare < PLANT_MAX &&
	     !page_counts_may_overlap(&order->touched[kind], n->file, n->first, n->end)))
		return n_before;
	is_all = !plant_overlap(order, list, n->first, n->end);
	found = (struct found){ .first = n->first, .end = n->end };
	tree_find(order, list->root, &found);
	is_all = is_all || found.has_more || n_before + found.n > ORDER_PREDECESSORS_MAX;
	if (is_all)
		wait_for_kind(order, node, kind);
	for (uint32_t i = 0; i < found.n; i++) {
		const struct order_node *other = &order->nodes[found.nodes[i]];

		if (!is_all)
			wait_for_node(order, node, found.nodes[i], n_before++);
		if (n->kind == ORDER_WRITE && other->first >= n->first && other->end <= n->end)
			tree_leave(order, found.nodes[i]);
	}
	return n_before;
}

static void list_append(struct order *order, struct order_list *list, uint16_t node)
{
	struct order_node *n = &order->nodes[node];

	n->next = NONE;
	n->prev = list->last;
	if (list->last)
		order->nodes[list->last].next = node;
	else
		list->first = node;
	list->last = node;

	if (!list->first_bare) {
		list->first_bare = node;
		list->bare_first = n->first;
		list->bare_end = n->end;
	}
	if (n->first < list->bare_first)
		list->bare_first = n->first;
	if (n->end > list->bare_end)
		list->bare_end = n->end;
	list->n_bare++;
}

static uint16_t node_take(struct order *order)
{
	uint16_t node = order->free_node;

	if (node) {
		order->free_node = order->nodes[node].next;
		return node;
	}
	assert(order->n_fresh < order->n_nodes);
	return (uint16_t)order->n_fresh++;
}

uint16_t order_add(struct order *order, const void *file, enum order_kind kind, uint64_t off,
		   uint64_t len, uint16_t op)
{
	uint16_t node = node_take(order);
	struct order_node *n = &order->nodes[node];
	uint32_t n_before;

	n->seq = ++order->seq & SEQ_MASK;
	n->op = op;
	n->kind = kind & 3u;
	n->n_waits = 0;
	n->is_in_tree = n->is_abandoned = n->has_followers = false;
	n->first = off >> PAGE_SHIFT;
	n->end = len ? ((off + len - 1) >> PAGE_SHIFT) + 1 : n->first;
	n->file = file_get(order, file);
	order->files[n->file].n_nodes++;
	if (kind == ORDER_SYNC) {
		wait_for_kind(order, node, ORDER_WRITE);
		return node;
	}

	if (len) {
		n_before = wait_for_overlap(order, node, ORDER_WRITE, 0);
		if (kind == ORDER_WRITE)
			(void)wait_for_overlap(order, node, ORDER_READ, n_before);
	}
	list_append(order, &order->files[n->file].kinds[kind], node);
	page_counts_add(&order->touched[kind], n->file, n->first, n->end, 1);
	return node;
}

bool order_may_start(const struct order *order, uint16_t node)
{
	return order->nodes[node].n_waits == 0;
}

bool order_abandon(struct order *order, uint16_t node)
{
	assert(order->nodes[node].n_waits && !order->nodes[node].is_abandoned);
	if (order->n_abandoned == order->n_abandoned_max)
		return false;
	order->n_abandoned++;
	order->nodes[node].is_abandoned = true;
	return true;
}

/* ---- end ---- */

/* Those that leave, one after the other: a chain of abandoned nodes may be long. */
struct leaving {
	struct order *order;
	uint16_t first;
	void (*ready)(uint16_t op, void *arg);
	void *arg;
};

/* One wait of the node is over. */
static void release(struct leaving *leaving, uint16_t node)
{
	struct order_node *n = &leaving->order->nodes[node];

	ORDER_STEP();
	if (--n->n_waits)
		return;
	if (!n->is_abandoned) {
		leaving->ready(n->op, leaving->arg);
		return;
	}
	leaving->order->n_abandoned--;
	leaving->order->links[node].next_waiter[0] = leaving->first;
	leaving->first = node;
}

static void list_leave(struct order *order, uint16_t node)
{
	const struct order_node *n = &order->nodes[node];
	struct order_list *list = &order->files[n->file].kinds[n->kind];

	if (list->first_bare && n->seq >= order->nodes[list->first_bare].seq)
		list->n_bare--;
	page_counts_add(&order->touched[n->kind], n->file, n->first, n->end, -1);
	if (n->prev)
		order->nodes[n->prev].next = n->next;
	else
		list->first = n->next;
	if (n->next)
		order->nodes[n->next].prev = n->prev;
	else
		list->last = n->prev;
	if (list->first_bare == node)
		list->first_bare = n->next;
}

/* Releases those that waited for all earlier nodes of the kind, which are gone. */
static void release_waiters(struct leaving *leaving, struct order_list *list, enum order_kind kind)
{
	struct order_node *nodes = leaving->order->nodes;
	uint16_t waiter;

	while ((waiter = list->first_waiter) &&
	       (!list->first || nodes[list->first].seq >= nodes[waiter].seq)) {
		list->first_waiter = leaving->order->links[waiter].next_waiter[kind];
		if (!list->first_waiter)
			list->last_waiter = NONE;
		release(leaving, waiter);
	}
}

static void leave(struct leaving *leaving, uint16_t node)
{
	struct order *order = leaving->order;
	struct order_node *n = &order->nodes[node];

	tree_leave(order, node);
	for (uint16_t edge = n->has_followers ? order->links[node].first_edge : NONE, next; edge;
	     edge = next) {
		uint16_t follower = edge / ORDER_PREDECESSORS_MAX;

		next = order->links[follower].edges[edge % ORDER_PREDECESSORS_MAX];
		release(leaving, follower);
	}
	if (n->kind != ORDER_SYNC) {
		list_leave(order, node);
		release_waiters(leaving, &order->files[n->file].kinds[n->kind],
				(enum order_kind)n->kind);
	}
	file_put(order, n->file);
	n->next = order->free_node;
	order->free_node = node;
}

void order_end(struct order *order, uint16_t node, void (*ready)(uint16_t op, void *arg), void *arg)
{
	struct leaving leaving = { .order = order, .ready = ready, .arg = arg };

	assert(!order->nodes[node].n_waits && !order->nodes[node].is_abandoned);
	leave(&leaving, node);
	while ((node = leaving.first)) {
		leaving.first = order->links[node].next_waiter[0];
		leave(&leaving, node);
	}
}
