#include "daemon/object/view.h"

#include "daemon/object/file.h"
#include "tests/unit/main_mailbox.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES 12288u /* of the file: three pages */
#define N 3	     /* clients, each of a user of its own */

static struct pool pool;
static struct quota users[N], clients[N];
static struct work_queue *work_queue;
static struct views views;
static struct file file;
static struct view_version version;
static int n_reports; /* uses that are made or freed, and pieces that are freed */

static void on_left(struct views *of)
{
	ck_assert_ptr_eq(of, &views);
	n_reports++;
}

/* As the daemon finds the file now. */
static void look(void)
{
	struct error error;

	(void)view_look(&file, &version, &error); /* it is too young, but that comes last */
}

static void setup(void)
{
	struct stat st;

	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(work_queue_new("users", 1, &work_queue), 0);
	pool = (struct pool){ .lock = POOL_LOCK_AUTO, .main_mailbox = &mailbox };
	pool.quota.n_descriptors = 1024;
	for (unsigned i = 0; i < N; i++) {
		users[i] = (struct quota){ .name = "a user", .parent = &pool.quota };
		clients[i] = (struct quota){ .name = "a client", .parent = &users[i] };
		for (unsigned kind = 0; kind < N_QUOTA_KINDS; kind++)
			pool.quota.limit[kind] = users[i].limit[kind] = clients[i].limit[kind] =
				64u * BYTES;
	}
	ck_assert_int_eq(views_init(&views, &pool), 0);
	views.on_left = on_left;
	file.target.fd = memfd_create("file", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(file.target.fd, BYTES), 0);
	ck_assert_int_eq(fstat(file.target.fd, &st), 0);
	atomic_init(&file.target.buffered_fd, -1);
	atomic_init(&file.n_refs, 1); /* this test's */
	file.facts.ino_dev = st.st_dev;
	file.facts.ino = st.st_ino;
	file.facts.can_read = true;
	file.work_queue = work_queue;
	look();
}

static void teardown(void)
{
	for (unsigned i = 0; i < 100 && (views_tick(&views) || views.n_made); i++) {
		(void)mailbox_run(&mailbox);
		ck_assert_int_eq(usleep(10000), 0);
	}
	views_deinit(&views);
	work_queue_free(work_queue);
	ck_assert(quota_is_zero(&pool.quota));
	ck_assert_uint_eq(file.n_refs, 1);
	mailbox_deinit(&mailbox);
	(void)close(file.target.fd);
}

FIXTURE(setup, teardown)

/* ---- uses ---- */

struct opened {
	struct view_opener opener;
	unsigned client;
	struct slab *use;
	int result; /* 1: not yet */
};

static void on_use_made(struct slab *slab, int result, const struct error *error, void *arg)
{
	(void)arg;
	(void)error;
	ck_assert_int_eq(result, 0);
	ck_assert(slab_is_view(slab));
	n_reports++;
}

static void on_use_freed(void *arg)
{
	(void)arg;
	n_reports++;
}

static void on_made(struct view_opener *opener, struct view_piece *view, int result,
		    const struct error *made_error)
{
	struct opened *opened = (struct opened *)opener;
	struct error error;

	ck_assert_msg(result == 0, "%s", made_error ? made_error->text : "");
	opened->result = view_join(view, &clients[opened->client], work_queue, &opened->use,
				   &error);
	if (opened->result == 0)
		slab_start(opened->use, on_use_made, NULL);
}

static void open_begin(struct opened *opened, unsigned client)
{
	struct error error;

	*opened = (struct opened){ .opener.on_made = on_made, .client = client, .result = 1 };
	ck_assert_int_eq(views_open(&views, &file, &version, 0, &clients[client], work_queue,
				    &opened->opener, &error),
			 0);
}

/* The piece of that version of the file, for that client. */
static struct slab *use_new(unsigned client)
{
	struct opened opened;

	open_begin(&opened, client);
	run_until(&n_reports);
	ck_assert_int_eq(opened.result, 0);
	return opened.use;
}

static void use_free(struct slab *use)
{
	use->on_freed = on_use_freed;
	slab_unref(use);
	run_until(&n_reports);
}

static uint64_t charged(const struct quota *quota)
{
	return quota->used[QUOTA_POOL_BYTES];
}

TEST(uses_are_charged_equal_shares_and_the_pool_what_is_still_mapped)
{
	struct slab *a = use_new(0), *b, *c;
	struct opened opened;
	struct error error;
	int other;

	ck_assert_uint_eq(charged(&clients[0]), BYTES);
	b = use_new(1);
	c = use_new(2);
	ck_assert_ptr_eq(a->view, b->view);
	ck_assert_ptr_eq(a->view, c->view);
	for (unsigned i = 0; i < N; i++)
		ck_assert_uint_eq(charged(&clients[i]), BYTES / 3);
	use_free(a);
	ck_assert_uint_eq(charged(&clients[1]), BYTES / 2);
	use_free(b);
	ck_assert_uint_eq(charged(&clients[2]), BYTES);
	other = dup(c->fd); /* as a child of the client has it */
	use_free(c);
	while (views.n_made)
		run_until(&n_reports);
	ck_assert(views_tick(&views));
	ck_assert_uint_eq(charged(&clients[2]), 0);
	ck_assert_uint_eq(charged(&users[2]), 0);
	ck_assert_uint_eq(charged(&pool.quota), BYTES);
	ck_assert_uint_eq(views.left_bytes, BYTES);
	pool.quota.n_descriptors = 8;
	ck_assert_int_eq(views_open(&views, &file, &version, 0, &clients[0], work_queue,
				    &opened.opener, &error),
			 -ENOMEM); /* an eighth of the descriptors are left ones' */
	pool.quota.n_descriptors = 16;
	use_free(use_new(0));
	while (views.n_made)
		run_until(&n_reports);
	(void)close(other);
	ck_assert(!views_tick(&views));
	run_until(&n_reports);
	ck_assert_uint_eq(charged(&pool.quota), 0);
}

TEST(a_tick_looks_at_1024_of_the_pieces_that_are_left)
{
	static void *maps[1024 + 1];
	const size_t n = sizeof(maps) / sizeof(maps[0]);
	const struct rlimit files = { 2 * n, 2 * n };

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files),
			 0); /* the process is this test's alone */
	pool.quota.n_descriptors = 16 * n;
	pool.quota.limit[QUOTA_POOL_BYTES] = 8 * n * BYTES;
	version.size = 1; /* so that each takes a page */
	for (size_t i = 0; i < n; i++) {
		struct slab *use;

		version.ctime.tv_nsec = (long)i;
		use = use_new(0);
		maps[i] = mmap(NULL, 1, PROT_READ, MAP_SHARED, use->fd, 0);
		ck_assert_ptr_ne(maps[i], MAP_FAILED);
		use_free(use);
		while (views.n_made)
			run_until(&n_reports);
	}
	ck_assert_uint_eq(views.n_left, n);
	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(munmap(maps[i], 1), 0);
	ck_assert(views_tick(&views));
	ck_assert_uint_eq(views.n_left, 1);
	ck_assert(!views_tick(&views));
}

TEST(a_client_that_may_not_have_its_share_changes_none)
{
	struct slab *a = use_new(0);
	struct opened opened;

	clients[1].limit[QUOTA_POOL_BYTES] = BYTES / 2 - 1;
	open_begin(&opened, 1);
	ck_assert_int_eq(opened.result, -ENOMEM);
	ck_assert_uint_eq(charged(&clients[0]), BYTES);
	ck_assert_uint_eq(charged(&clients[1]), 0);
	use_free(a);
}

TEST(clients_that_open_it_while_it_is_made_get_the_same_piece)
{
	struct opened opened[N];

	for (unsigned i = 0; i < N; i++)
		open_begin(&opened[i], i);
	ck_assert_uint_eq(charged(&pool.quota), BYTES);
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(opened[i].result, 1);
	while (n_reports < N)
		run_until(&n_reports);
	for (unsigned i = 0; i < N; i++) {
		ck_assert_int_eq(opened[i].result, 0);
		ck_assert_ptr_eq(opened[i].use->view, opened[0].use->view);
	}
	for (unsigned i = 0; i < N; i++)
		use_free(opened[i].use);
}

TEST(a_piece_that_no_client_can_join_is_freed)
{
	struct opened opened;

	open_begin(&opened, 0);
	clients[0].limit[QUOTA_VIEWS] = 0;
	run_until(&n_reports);
	ck_assert_int_eq(opened.result, -EMFILE);
	ck_assert_uint_eq(views_sum(&views).n, 0);
}

/* ---- the read ---- */

static const struct {
	const char *what;
	uint8_t opcode;
	uint64_t off, slab_off;
	uint32_t len;
	int ino, dev, want;
} entries[] = {
	{ "a write", RING_OP_WRITE, 0, 0, BYTES, 0, 0, EPERM },
	{ "of other bytes", RING_OP_READ, 4096, 0, BYTES, 0, 0, EPERM },
	{ "to another place", RING_OP_READ, 0, 4096, BYTES, 0, 0, EPERM },
	{ "of a part", RING_OP_READ, 0, 0, BYTES - 1, 0, 0, EPERM },
	{ "of another file", RING_OP_READ, 0, 0, BYTES, 1, 0, EPERM },
	{ "on another device", RING_OP_READ, 0, 0, BYTES, 0, 1, EPERM },
	{ "the read", RING_OP_READ, 0, 0, BYTES, 0, 0, 0 },
};

static const struct ring_entry the_read = { .opcode = RING_OP_READ, .len = BYTES };

TEST_TABLE(only_the_read_of_the_piece_fills_it_and_one_at_a_time, entries)
{
	struct slab *use = use_new(0);
	struct file other = { .facts.ino = file.facts.ino + (ino_t)entries[_i].ino,
			      .facts.ino_dev = file.facts.ino_dev + (dev_t)entries[_i].dev };
	struct ring_entry entry = { .opcode = entries[_i].opcode,
				    .off = entries[_i].off,
				    .slab_off = entries[_i].slab_off,
				    .len = entries[_i].len };

	ck_assert_msg(view_fill_begin(use, &other, &entry) == entries[_i].want, "%s",
		      entries[_i].what);
	if (entries[_i].want)
		ck_assert_int_eq(view_fill_begin(use, &file, &the_read), 0);
	ck_assert_int_eq(view_fill_begin(use, &file, &the_read), EBUSY);
	view_fill_end(use, &file, -EIO);
	use_free(use);
}

struct waiting {
	struct view_waiter waiter;
	int result, n_calls;
	bool fills;
};

static void on_state(struct view_waiter *waiter, int result, bool fills, const struct error *error)
{
	struct waiting *waiting = (struct waiting *)waiter;

	ck_assert(result == 0 || error->code == result);
	waiting->result = result;
	waiting->fills = fills;
	waiting->n_calls++;
}

static const struct {
	const char *what;
	int64_t done;
	bool is_changed;
	int want; /* of view_ask(): 0: ready, 1: to be read again */
} ends[] = {
	{ "it failed", -EIO, false, 1 },
	{ "the file was cut", BYTES - 1, false, -ESTALE },
	{ "the file was changed", BYTES, true, -ESTALE },
	{ "it failed, and the file was changed", -EIO, true, 1 },
	{ "it has all bytes", BYTES, false, 0 },
};

TEST_TABLE(waiting_clients_get_the_result_of_the_read, ends)
{
	struct waiting waiting = { .waiter.on_state = on_state };
	struct slab *reader = use_new(0), *other = use_new(1);
	struct error error;

	ck_assert_int_eq(view_fill_begin(reader, &file, &the_read), 0);
	ck_assert_int_eq(view_ask(other, &error), -EBUSY);
	view_wait(other, &waiting.waiter);
	if (ends[_i].is_changed)
		ck_assert_int_eq(ftruncate(file.target.fd, BYTES + 1), 0);
	view_fill_end(reader, &file, ends[_i].done);
	run_until(&waiting.n_calls);
	ck_assert_msg(waiting.result == (ends[_i].want < 0 ? ends[_i].want : 0), "%s",
		      ends[_i].what);
	ck_assert_int_eq(waiting.fills, ends[_i].want == 1);
	/* A client that was asked to read is awaited. */
	ck_assert_int_eq(view_ask(reader, &error), ends[_i].want == 1 ? -EBUSY : ends[_i].want);
	ck_assert_int_eq(view_fill_begin(reader, &file, &the_read), ends[_i].want == 1 ? 0 : EBUSY);
	/* Saved is what another has not read: both know that it is ready. */
	ck_assert_uint_eq(views.saved_bytes, ends[_i].want ? 0 : BYTES);
	if (ends[_i].want == 1)
		view_fill_end(reader, &file, -EIO);
	use_free(reader);
	use_free(other);
}

TEST(a_use_that_is_freed_ends_only_its_own_wait)
{
	struct waiting first = { .waiter.on_state = on_state }, second = first;
	struct slab *reader = use_new(0), *a = use_new(1), *b = use_new(2);

	ck_assert_int_eq(view_fill_begin(reader, &file, &the_read), 0);
	view_wait(a, &first.waiter);
	view_wait(b, &second.waiter);
	use_free(a);
	ck_assert_int_eq(first.result, -ECANCELED);
	ck_assert_int_eq(second.n_calls, 0);
	view_fill_end(reader, &file, BYTES);
	run_until(&second.n_calls);
	ck_assert_int_eq(second.result, 0);
	use_free(reader);
	use_free(b);
}

/* ---- versions ---- */

TEST(another_version_makes_only_what_is_not_filled_stale_and_another_file_nothing)
{
	struct waiting waiting = { .waiter.on_state = on_state };
	struct slab *filled = use_new(0), *old, *new, *other;
	struct error error;

	ck_assert_int_eq(view_fill_begin(filled, &file, &the_read), 0);
	view_wait(filled, &waiting.waiter);
	view_fill_end(filled, &file, BYTES);
	run_until(&waiting.n_calls);
	version.ctime.tv_nsec ^= 1;
	old = use_new(0);
	version.inode.ino++;
	other = use_new(1);
	version.inode.ino--;
	version.ctime.tv_nsec ^= 2;
	new = use_new(2);
	ck_assert_ptr_ne(filled->view, old->view);
	ck_assert_ptr_ne(old->view, new->view);
	ck_assert_int_eq(view_ask(filled, &error), 0);
	ck_assert_int_eq(view_ask(old, &error), -ESTALE);
	ck_assert_int_eq(view_ask(other, &error), 1);
	ck_assert_int_eq(view_ask(new, &error), 1);
	use_free(filled);
	use_free(old);
	use_free(other);
	use_free(new);
}

TEST_MAIN
