#include "daemon/lane/order.h"

#include "proto/ring.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KINDS 2 /* with ranges: ORDER_READ and ORDER_WRITE */
/* A place is a file and a page: the pages of a file have 51 bits, and the files the others. */
#define PAGE_BITS 51
static_assert((INT64_MAX >> RING_PAGE_BITS) >> PAGE_BITS == 0, "pages");
static_assert(ORDER_OPS_MAX < UINT64_C(1) << (64 - PAGE_BITS), "files");

/* The unit test counts what the order looks at. */
#ifndef ORDER_STEP
#define ORDER_STEP() ((void)0)
#endif

/* The lists of a file, of op numbers: a pointer would take four times as much of each op. */
enum list {
	QUEUE,	/* ops that wait, and are not cancelled */
	WRITES, /* open writes, and syncs that wait for those before them */
	N_LISTS
};
#define NONE UINT16_MAX

struct order_node {
	uint64_t begin, end; /* its first and last place; end before begin: none */
	struct {
		uint16_t next, prev;
	} links[N_LISTS];
	uint16_t file;
	uint8_t kind; /* enum order_kind */
	bool has_started;
};
static_assert(sizeof(struct order_node) <= 32, "each op of a full channel touches its own");

/* An inode with open ops. */
struct order_file {
	const void *key;
	struct {
		uint16_t first, last;
	} lists[N_LISTS];
	uint32_t n_nodes;
	uint16_t next; /* with the same hash; or free */
};

int order_init(struct order *order, uint32_t n_ops)
{
	uint16_t bits = 1;

	assert(n_ops && n_ops <= ORDER_OPS_MAX);
	while (1u << bits < n_ops)
		bits++;
	*order = (struct order){
		.nodes = calloc(n_ops, sizeof(*order->nodes)),
		.files = calloc(n_ops + 1, sizeof(*order->files)),
		.buckets = calloc((size_t)1 << bits, sizeof(*order->buckets)),
		.keys = calloc(4 * KINDS * (size_t)n_ops, sizeof(*order->keys)),
		.hash_shift = (uint16_t)(64 - bits),
	};
	if (!order->nodes || !order->files || !order->buckets || !order->keys) {
		order_deinit(order);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < 2 * KINDS; i++)
		order->ranges[i / KINDS][i % KINDS] = (struct order_ranges){
			.begins = &order->keys[2 * i * n_ops],
			.ends = &order->keys[(2 * i + 1) * n_ops]
		};
	return 0;
}

void order_deinit(struct order *order)
{
	free(order->nodes);
	free(order->files);
	free(order->buckets);
	free(order->keys);
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
	if (at)
		order->free_file = order->files[at].next;
	else
		at = (uint16_t)++order->n_files; /* at most as many as ops */
	order->files[at] = (struct order_file){ .key = key,
						.lists = { { NONE, NONE }, { NONE, NONE } },
						.next = *bucket };
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

/* ---- lists ---- */

static void push(struct order *order, enum list which, uint16_t op)
{
	struct order_node *nodes = order->nodes;
	struct order_file *file = &order->files[nodes[op].file];
	const uint16_t last = file->lists[which].last;

	nodes[op].links[which].prev = last;
	nodes[op].links[which].next = NONE;
	*(last == NONE ? &file->lists[which].first : &nodes[last].links[which].next) = op;
	file->lists[which].last = op;
}

static void take(struct order *order, enum list which, uint16_t op)
{
	struct order_node *nodes = order->nodes;
	struct order_file *file = &order->files[nodes[op].file];
	const uint16_t next = nodes[op].links[which].next, prev = nodes[op].links[which].prev;

	*(prev == NONE ? &file->lists[which].first : &nodes[prev].links[which].next) = next;
	*(next == NONE ? &file->lists[which].last : &nodes[next].links[which].prev) = prev;
}

/* ---- ranges ---- */

/* How many of the sorted keys are less. */
static uint32_t n_less(const uint64_t *keys, uint32_t n, uint64_t key)
{
	uint32_t less = 0;

	while (n) {
		const uint32_t half = (n + 1) / 2; /* no branch depends on the keys */

		ORDER_STEP();
		less += keys[less + half - 1] < key ? half : 0;
		n -= half;
	}
	return less;
}

static void key_add(uint64_t *keys, uint32_t n, uint64_t key)
{
	const uint32_t at = n_less(keys, n, key);

	memmove(&keys[at + 1], &keys[at], (n - at) * sizeof(*keys));
	keys[at] = key;
}

static void key_remove(uint64_t *keys, uint32_t n, uint64_t key)
{
	const uint32_t at = n_less(keys, n, key);

	assert(at < n && keys[at] == key);
	memmove(&keys[at], &keys[at + 1], (n - at - 1) * sizeof(*keys));
}

static bool has_range(const struct order_node *node)
{
	return node->begin <= node->end;
}

static void ranges_add(struct order *order, const struct order_node *node)
{
	struct order_ranges *ranges;

	if (!has_range(node))
		return;
	ranges = &order->ranges[node->has_started][node->kind];
	key_add(ranges->begins, ranges->n, node->begin);
	key_add(ranges->ends, ranges->n, node->end);
	ranges->n++;
}

static void ranges_remove(struct order *order, const struct order_node *node)
{
	struct order_ranges *ranges;

	if (!has_range(node))
		return;
	ranges = &order->ranges[node->has_started][node->kind];
	key_remove(ranges->begins, ranges->n, node->begin);
	key_remove(ranges->ends, ranges->n, node->end);
	ranges->n--;
}

static bool overlaps(const struct order_ranges *ranges, const struct order_node *node)
{
	return ranges->n && n_less(ranges->begins, ranges->n, node->end + 1) !=
				    n_less(ranges->ends, ranges->n, node->begin);
}

/* Does a read or write conflict with others of these? */
static bool conflicts(const struct order_ranges *ranges, const struct order_node *node)
{
	return has_range(node) &&
	       (overlaps(&ranges[ORDER_WRITE], node) ||
		(node->kind == ORDER_WRITE && overlaps(&ranges[ORDER_READ], node)));
}

/* ---- an op ---- */

/* It is the first of the queue, or conflicts with no other that waits. */
static bool may_start(const struct order *order, const struct order_node *node)
{
	if (node->kind == ORDER_SYNC)
		return node->links[WRITES].prev == NONE;
	return !conflicts(order->ranges[true], node);
}

static void start(struct order *order, uint16_t op)
{
	struct order_node *node = &order->nodes[op];

	node->has_started = true;
	ranges_add(order, node);
	if (node->kind == ORDER_SYNC)
		take(order, WRITES, op);
}

bool order_add(struct order *order, uint16_t op, const void *key, enum order_kind kind,
	       uint64_t off, uint64_t len)
{
	const uint16_t number = file_get(order, key);
	const uint64_t place = (uint64_t)number << PAGE_BITS;
	struct order_node *node = &order->nodes[op];

	if (kind == ORDER_SYNC)
		len = 0;
	*node = (struct order_node){
		.begin = len ? place + ring_page(off) : 1,
		.end = len ? place + ring_page(off + len - 1) : 0,
		.file = number,
		.kind = (uint8_t)kind,
	};
	order->files[number].n_nodes++;
	if (kind != ORDER_READ)
		push(order, WRITES, op);
	if (may_start(order, node) && !conflicts(order->ranges[false], node)) {
		start(order, op);
		return true;
	}
	ranges_add(order, node);
	push(order, QUEUE, op);
	return false;
}

void order_cancel(struct order *order, uint16_t op)
{
	assert(!order->nodes[op].has_started);
	take(order, QUEUE, op);
}

unsigned order_end(struct order *order, uint16_t op, uint16_t *ret_ready)
{
	const struct order_node *node = &order->nodes[op];
	const struct order_file *file = &order->files[node->file];
	unsigned n = 0;
	uint16_t next;

	ranges_remove(order, node);
	if (node->kind == ORDER_WRITE || (node->kind == ORDER_SYNC && !node->has_started))
		take(order, WRITES, op);
	while (n < ORDER_READY_MAX && (next = file->lists[QUEUE].first) != NONE) {
		if (!may_start(order, &order->nodes[next]))
			break;
		take(order, QUEUE, next);
		ranges_remove(order, &order->nodes[next]);
		start(order, next);
		ret_ready[n++] = next;
	}
	file_put(order, node->file);
	return n;
}
