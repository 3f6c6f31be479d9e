#include "tests/bench/matrix.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* Such an op takes longer than a slice: each process does one, however long. */
#define WHOLE_OP_BYTES (64 * MIB)
/* As tensors are read: small ones anywhere, large ones in a row. */
#define RANDOM_BYTES (256u << 10)

static int list_add(struct list *list, uint64_t value)
{
	if (list->n == MATRIX_LIST_MAX)
		return -E2BIG;
	list->values[list->n++] = value;
	return 0;
}

static int size_parse(const char *text, size_t len, uint64_t *ret_size)
{
	unsigned long long n;
	unsigned shift = 0;
	char *end;

	if (len == 0 || text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (end < text + len)
		switch (*end++) {
		case 'K':
			shift = 10;
			break;
		case 'M':
			shift = 20;
			break;
		case 'G':
			shift = 30;
			break;
		default:
			return -EINVAL;
		}
	if (end != text + len || errno != 0 || n == 0 || n > UINT64_MAX >> shift)
		return -EINVAL;
	*ret_size = (uint64_t)n << shift;
	return 0;
}

int list_parse(const char *text, struct list *ret_list)
{
	struct list list = { 0 };
	uint64_t value;
	int r = 0;

	for (const char *at = text; r == 0; at++) {
		const size_t len = strcspn(at, ",");

		r = size_parse(at, len, &value);
		if (r == 0)
			r = list_add(&list, value);
		at += len;
		if (*at == '\0')
			break;
	}
	if (r == 0)
		*ret_list = list;
	return r;
}

static int name_find(const char *name, size_t len, const char *const *names, uint64_t *ret_index)
{
	for (size_t i = 0; names[i]; i++)
		if (strlen(names[i]) == len && strncmp(names[i], name, len) == 0) {
			*ret_index = i;
			return 0;
		}
	return -EINVAL;
}

int list_parse_names(const char *text, const char *const *names, struct list *ret_list)
{
	struct list list = { 0 };
	uint64_t index;
	int r = 0;

	for (const char *at = text; r == 0; at++) {
		const size_t len = strcspn(at, ",");

		r = name_find(at, len, names, &index);
		if (r == 0)
			r = list_add(&list, index);
		at += len;
		if (*at == '\0')
			break;
	}
	if (r == 0)
		*ret_list = list;
	return r;
}

static bool is_whole(uint64_t op_bytes)
{
	return op_bytes >= WHOLE_OP_BYTES;
}

unsigned matrix_count(const struct matrix *m)
{
	return m->places.n * m->processes.n * m->writes.n * m->sizes.n * m->depths.n;
}

/* The sizes whose ops are measured in slices stand before those that are measured whole. */
static uint64_t size_at(const struct list *sizes, unsigned i)
{
	unsigned n = 0;

	for (int whole = 0; whole < 2; whole++)
		for (unsigned j = 0; j < sizes->n; j++)
			if (is_whole(sizes->values[j]) == (whole == 1) && n++ == i)
				return sizes->values[j];
	return 0; /* i is below their number */
}

void matrix_point(const struct matrix *m, unsigned i, struct point *ret_point, unsigned *ret_place)
{
	unsigned n_small = 0, n_before = 0, n_one_way, in_group, place, n_group;
	struct point p = { 0 };

	for (unsigned j = 0; j < m->sizes.n; j++)
		n_small += !is_whole(m->sizes.values[j]);

	/* place > processes > (small or whole) > direction > size > depth */
	n_group = m->writes.n * m->sizes.n * m->depths.n;
	assert(n_group > 0 && m->processes.n > 0 && m->depths.n > 0);
	in_group = i % n_group;
	p.n_processes = (unsigned)m->processes.values[i / n_group % m->processes.n];
	place = (unsigned)m->places.values[i / n_group / m->processes.n];
	n_one_way = n_small * m->depths.n;
	if (in_group >= m->writes.n * n_one_way) {
		in_group -= m->writes.n * n_one_way;
		n_one_way = (m->sizes.n - n_small) * m->depths.n;
		n_before = n_small;
	}
	assert(n_one_way > 0);
	p.op_bytes = size_at(&m->sizes, n_before + in_group % n_one_way / m->depths.n);
	assert(p.op_bytes > 0);
	p.is_write = m->writes.values[in_group / n_one_way] != 0;
	p.depth = (unsigned)m->depths.values[in_group % m->depths.n];

	p.dir = m->dirs[place];
	p.is_random = p.op_bytes < RANDOM_BYTES;
	p.file_bytes = m->file_bytes / p.op_bytes * p.op_bytes;
	if (is_whole(p.op_bytes) || p.file_bytes == 0)
		p.file_bytes = p.op_bytes;
	p.profile = point_profile(p.depth);
	p.slice_usec = m->slice_usec;
	p.slice_ops = is_whole(p.op_bytes) ? 1 : 0;
	*ret_point = p;
	*ret_place = place;
}

bool point_is_same_group(const struct point *a, const struct point *b)
{
	return a->dir == b->dir && a->n_processes == b->n_processes &&
	       a->file_bytes == b->file_bytes;
}
