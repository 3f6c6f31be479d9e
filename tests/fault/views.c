/*
 * Views, by hand: what a hostile client asks and does.
 */
#include "tests/restarting.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES (2 * MIB + 4096)

struct piece {
	uint32_t id;
	int fd;
	const uint8_t *memory;
};

static void ask(struct raw *raw, uint32_t file, uint64_t off, struct answer *ret_answer)
{
	Wire__ViewOpen open = WIRE__VIEW_OPEN__INIT;
	Wire__Request request = RAW_REQUEST(VIEW_OPEN, view_open, &open);

	open.file = file;
	open.off = off;
	raw_call(raw, &request, NULL, 0, ret_answer);
}

static struct piece piece_open(struct raw *raw, uint32_t file)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct piece piece;

	ask(raw, file, 0, &answer);
	CHECK_MSG(!answer.reply->error, "%s", answer.reply->text);
	CHECK_EQ(answer.reply->view_open->size_bytes, BYTES);
	CHECK_EQ(answer.reply->view_open->file_bytes, BYTES);
	piece = (struct piece){ .id = answer.reply->view_open->slab, .fd = TAKE_FD(answer.fds[0]) };
	piece.memory = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, piece.fd, 0);
	CHECK(piece.memory != MAP_FAILED);
	return piece;
}

static void open_fails(struct raw *raw, uint32_t file, uint64_t off, int error, const char *words)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	ask(raw, file, off, &answer);
	answer_check_fails(&answer, error, words);
}

/* The reply comes when nobody else reads the piece. */
static void wait_send(struct raw *raw, uint32_t slab)
{
	Wire__ViewWait wait = WIRE__VIEW_WAIT__INIT;
	Wire__Request request = RAW_REQUEST(VIEW_WAIT, view_wait, &wait);

	wait.slab = slab;
	wait.may_wait = true;
	raw_send(raw, &request, NULL, 0);
}

static Wire__ViewState state_of(struct raw *raw, uint32_t slab, bool may_wait)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__ViewWait wait = WIRE__VIEW_WAIT__INIT;
	Wire__Request request = RAW_REQUEST(VIEW_WAIT, view_wait, &wait);

	wait.slab = slab;
	wait.may_wait = may_wait;
	raw_call_ok(raw, &request, NULL, 0, &answer);
	return answer.reply->view_wait->state;
}

static void slab_free(struct raw *raw, uint32_t slab)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__SlabFree body = WIRE__SLAB_FREE__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_FREE, slab_free, &body);

	body.slab = slab;
	raw_call_ok(raw, &request, NULL, 0, &answer);
}

static struct ring_entry read_of(uint32_t file, uint32_t slab)
{
	return (struct ring_entry){
		.opcode = RING_OP_READ, .file = file, .slab = slab, .len = BYTES
	};
}

/* A client of the daemon with a channel to the file's store. */
struct side {
	struct raw raw;
	struct raw_file file;
	struct raw_channel channel;
};

static void side_open(struct side *side, const struct daemon *daemon, int flags)
{
	raw_open(&side->raw, daemon);
	raw_file(&side->raw, daemon_path(daemon, "w"), flags, &side->file);
	raw_channel(&side->raw, raw_handle(&side->raw), side->file.store, 16, true, &side->channel);
}

static void side_close(struct side *side)
{
	raw_channel_unmap(&side->channel);
	raw_close(&side->raw);
}

static void make(const struct daemon *daemon)
{
	file_make_pattern(daemon_path(daemon, "w"), BYTES, 7);
	file_make_pattern(daemon_path(daemon, "other"), BYTES, 8);
	CHECK_SYS(usleep(2100000));
}

FAULT(fill, "no client decides what others see in a view")
{
	_cleanup_(side_close) struct side a;
	_cleanup_(side_close) struct side b;
	struct raw_file other, writable;
	struct piece mine, yours;
	struct ring_entry entry;

	make(daemon);
	side_open(&a, daemon, O_RDONLY);
	side_open(&b, daemon, O_RDONLY);
	raw_file(&a.raw, daemon_path(daemon, "other"), O_RDONLY, &other);
	raw_file(&a.raw, daemon_path(daemon, "other"), O_RDWR, &writable);
	mine = piece_open(&a.raw, a.file.id);
	yours = piece_open(&b.raw, b.file.id);

	/* Another file's bytes, at another place, a part, a write from it, more than there is. */
	CHECK_EQ(raw_run_one(&a.channel, read_of(other.id, mine.id)), -EPERM);
	entry = read_of(a.file.id, mine.id);
	entry.off = entry.slab_off = 4096;
	entry.len -= 4096;
	CHECK_EQ(raw_run_one(&a.channel, entry), -EPERM);
	entry = read_of(a.file.id, mine.id);
	entry.len = 4096;
	CHECK_EQ(raw_run_one(&a.channel, entry), -EPERM);
	entry = read_of(writable.id, mine.id);
	entry.opcode = RING_OP_WRITE;
	CHECK_EQ(raw_run_one(&a.channel, entry), -EPERM);
	entry = read_of(a.file.id, mine.id);
	entry.len = BYTES + 1;
	CHECK_EQ(raw_run_one(&a.channel, entry), -ERANGE);
	CHECK_EQ(yours.memory[0] | yours.memory[BYTES - 1], 0);

	CHECK_EQ(state_of(&b.raw, yours.id, false), WIRE__VIEW_STATE__VIEW_FILL);
	CHECK_EQ(state_of(&a.raw, mine.id, false), WIRE__VIEW_STATE__VIEW_BUSY);
	CHECK_EQ(state_of(&a.raw, mine.id, true),
		 WIRE__VIEW_STATE__VIEW_FILL); /* b did not begin */
	CHECK_EQ(raw_run_one(&a.channel, read_of(a.file.id, mine.id)), BYTES);
	CHECK_EQ(state_of(&b.raw, yours.id, true), WIRE__VIEW_STATE__VIEW_READY);
	pattern_check(yours.memory, BYTES, 7, 0, "the other client's view");
	CHECK_EQ(raw_run_one(&a.channel, read_of(a.file.id, mine.id)), -EBUSY); /* it is full */
	side_close(&a);
	a = (struct side){ .raw = RAW_NONE };
	pattern_check(yours.memory, BYTES, 7, 0, "the view, without the first client");
}

FAULT(stale, "a piece that was not read before its file changed is never ready")
{
	_cleanup_(side_close) struct side a;
	_cleanup_(side_close) struct side b;
	_cleanup_(side_close) struct side c;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__ViewWait wait = WIRE__VIEW_WAIT__INIT;
	Wire__Request request = RAW_REQUEST(VIEW_WAIT, view_wait, &wait);
	struct piece old, waited;

	make(daemon);
	side_open(&a, daemon, O_RDONLY);
	side_open(&b, daemon, O_RDONLY);
	old = piece_open(&a.raw, a.file.id);
	waited = piece_open(&b.raw, b.file.id);
	CHECK_EQ(state_of(&a.raw, old.id, false), WIRE__VIEW_STATE__VIEW_FILL);
	make(daemon);
	side_open(&c, daemon, O_RDONLY);
	CHECK_EQ(state_of(&a.raw, old.id, false), WIRE__VIEW_STATE__VIEW_FILL);
	wait.slab = waited.id;
	wait.may_wait = true;
	raw_send(&b.raw, &request, NULL, 0);
	(void)piece_open(&c.raw, c.file.id);
	raw_receive(&b.raw, &answer);
	answer_check_fails(&answer, -ESTALE, "changed");
	wait.slab = old.id;
	raw_call_fails(&a.raw, &request, NULL, 0, -ESTALE, "changed");
}

/* The change is seen after the read, by nobody's open. */
FAULT(changed, "a piece whose file changed before the read is never ready")
{
	_cleanup_(side_close) struct side a;
	Wire__ViewWait wait = WIRE__VIEW_WAIT__INIT;
	Wire__Request request = RAW_REQUEST(VIEW_WAIT, view_wait, &wait);
	struct piece mine;
	struct stat st;

	make(daemon);
	side_open(&a, daemon, O_RDONLY);
	mine = piece_open(&a.raw, a.file.id);
	CHECK_SYS(stat(daemon_path(daemon, "w"), &st));
	file_make_pattern(daemon_path(daemon, "w"), BYTES, 9);
	CHECK_SYS(utimensat(AT_FDCWD, daemon_path(daemon, "w"), /* only the ctime tells */
			    (struct timespec[]){ st.st_atim, st.st_mtim }, 0));
	CHECK_EQ(raw_run_one(&a.channel, read_of(a.file.id, mine.id)), BYTES);
	wait.slab = mine.id;
	wait.may_wait = true;
	raw_call_fails(&a.raw, &request, NULL, 0, -ESTALE, "changed");
}

FAULT(freed, "who waits for a piece that it frees has an answer")
{
	_cleanup_(side_close) struct side a;
	Wire__ViewWait wait = WIRE__VIEW_WAIT__INIT;
	Wire__Request request = RAW_REQUEST(VIEW_WAIT, view_wait, &wait);
	Wire__SlabFree body = WIRE__SLAB_FREE__INIT;
	Wire__Request free_it = RAW_REQUEST(SLAB_FREE, slab_free, &body);
	struct piece mine;
	unsigned n_cancelled = 0;

	make(daemon);
	side_open(&a, daemon, O_RDONLY);
	mine = piece_open(&a.raw, a.file.id);
	CHECK_EQ(state_of(&a.raw, mine.id, false), WIRE__VIEW_STATE__VIEW_FILL);
	wait.slab = body.slab = mine.id;
	wait.may_wait = true;
	raw_send(&a.raw, &request, NULL, 0);
	raw_send(&a.raw, &free_it, NULL, 0);
	for (unsigned i = 0; i < 2; i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		raw_receive(&a.raw, &answer);
		if (answer.reply->error) {
			answer_check_fails(&answer, -ECANCELED, "freed");
			n_cancelled++;
		}
	}
	CHECK_EQ(n_cancelled, 1);
}

static void limit(struct raw *raw, uint64_t bytes_per_sec)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Limit bound = WIRE__LIMIT__INIT;
	Wire__LimitSet set = WIRE__LIMIT_SET__INIT;
	Wire__Request request = RAW_REQUEST(LIMIT_SET, limit_set, &set);

	bound.bytes_per_sec = bytes_per_sec;
	set.store = (char *)(uintptr_t) "t";
	set.limit = &bound;
	raw_call_ok(raw, &request, NULL, 0, &answer);
}

TEST(slow, "a read that does not end is not waited for, and may end later")
{
	struct daemon *daemon = daemon_start(NULL);
	_cleanup_(side_close) struct side a;
	_cleanup_(side_close) struct side b;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct ring_completion completion;
	struct ring_entry entry;
	struct piece mine, yours;

	make(daemon);
	side_open(&a, daemon, O_RDONLY);
	side_open(&b, daemon, O_RDONLY);
	mine = piece_open(&a.raw, a.file.id);
	yours = piece_open(&b.raw, b.file.id);
	limit(&b.raw, 64 * KIB);
	entry = read_of(a.file.id, mine.id);
	raw_put(&a.channel, &entry);
	raw_ring(&a.channel);
	CHECK_EQ(raw_reap(&a.channel, 1, &completion, 200000), false);
	wait_send(&b.raw, yours.id);
	raw_receive(&b.raw, &answer);
	answer_check_fails(&answer, -ETIMEDOUT, "too long");
	limit(&b.raw, 0);
	CHECK_EQ(raw_reap(&a.channel, 1, &completion, 60000000), true);
	CHECK_EQ(state_of(&b.raw, yours.id, true), WIRE__VIEW_STATE__VIEW_READY);
	pattern_check(yours.memory, BYTES, 7, 0, "the view");
}

/* One that began every time before the others did, and gave up, was waited for without end. */
TEST(again, "reads that are begun again and again are waited for no longer than one")
{
	struct daemon *daemon = daemon_start(NULL);
	_cleanup_(side_close) struct side a;
	_cleanup_(side_close) struct side b;
	struct ring_completion completion;
	struct piece mine, yours;
	bool is_late = false;

	make(daemon);
	side_open(&a, daemon, O_RDONLY);
	side_open(&b, daemon, O_RDONLY);
	mine = piece_open(&a.raw, a.file.id);
	yours = piece_open(&b.raw, b.file.id);
	limit(&b.raw, 64 * KIB);
	for (unsigned i = 0; i < 8 && !is_late; i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		struct ring_entry entry = read_of(a.file.id, mine.id);

		entry.timeout_msec = 3000;
		raw_put(&a.channel, &entry);
		raw_ring(&a.channel);
		CHECK_EQ(raw_reap(&a.channel, 1, &completion, 100000), false);
		wait_send(&b.raw, yours.id);
		raw_receive(&b.raw, &answer); /* and it begins too late */
		is_late = answer.reply->error == -ETIMEDOUT;
		if (!is_late) {
			CHECK_EQ(answer.reply->view_wait->state, WIRE__VIEW_STATE__VIEW_FILL);
			CHECK_EQ(raw_reap(&a.channel, 1, &completion, 10000000), true);
		}
	}
	CHECK_EQ(is_late, true);
}

/* It was charged to the last one's user, which could allocate no more. */
TEST(debt, "what one user keeps of a view is not another's debt")
{
	struct daemon *daemon = next_daemon(
		"[daemon]\nlock = auto\npool_size = 1G\nuser_pool_max = 200M\n");
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct raw raw = RAW_NONE;
	struct raw_file file, theirs;
	struct raw_slab slab;
	struct raw other = RAW_NONE;

	test_needs_root();
	file_make_sparse(daemon_path(daemon, "w"), 3 * 64 * MIB);
	CHECK_SYS(usleep(2100000));
	daemon_open_to_all(daemon);
	raw_open(&raw, daemon);
	raw_file(&raw, daemon_path(daemon, "w"), O_RDONLY, &file);
	CHECK_SYS(seteuid(60001));
	raw_open(&other, daemon);
	CHECK_SYS(seteuid(0));
	raw_file(&other, daemon_path(daemon, "w"), O_RDONLY, &theirs);
	for (unsigned i = 0; i < 3; i++) {
		_cleanup_(answer_free) struct answer mine = ANSWER_NONE;
		_cleanup_(answer_free) struct answer kept = ANSWER_NONE;

		ask(&raw, file.id, i * 64 * MIB, &mine);
		CHECK_EQ(mine.reply->error, 0);
		ask(&other, theirs.id, i * 64 * MIB, &kept);
		CHECK_EQ(kept.reply->error, 0);
		(void)TAKE_FD(kept.fds[0]); /* this keeps it */
		slab_free(&other, kept.reply->view_open->slab);
		slab_free(&raw, mine.reply->view_open->slab);
	}
	raw_close(&other);
	CHECK_SYS(usleep(1100000));
	daemon_status(daemon, &answer);
	CHECK_EQ(answer.reply->status->pool->view_left_bytes, 3 * 64 * MIB);
	raw_slab(&raw, 150 * MIB, &slab);
	raw_close(&raw);
}

#define N_MANY 12u

static void ask_many(struct raw *raw, uint32_t file)
{
	for (unsigned i = 0; i < N_MANY; i++) {
		Wire__ViewOpen open = WIRE__VIEW_OPEN__INIT;
		Wire__Request request = RAW_REQUEST(VIEW_OPEN, view_open, &open);

		open.file = file;
		open.off = i * 64 * MIB;
		raw_send(raw, &request, NULL, 0);
	}
}

/* All users' pieces were made by the same four threads, in their order. */
TEST(many, "a user that has many pieces made does not keep another waiting for one")
{
	struct daemon *daemon = next_daemon("[daemon]\nlock = auto\npool_size = 2G\n");
	_cleanup_(side_close) struct side a;
	struct raw raw = RAW_NONE;
	struct raw_file file;
	int64_t start, one_usec;

	test_needs_root();
	make(daemon);
	daemon_open_to_all(daemon);
	file_make_sparse(daemon_path(daemon, "many"), N_MANY * 64 * MIB);
	CHECK_SYS(usleep(2100000));
	side_open(&a, daemon, O_RDONLY);
	CHECK_SYS(seteuid(60001));
	raw_open(&raw, daemon);
	CHECK_SYS(seteuid(0));
	raw_file(&raw, daemon_path(daemon, "many"), O_RDONLY, &file);
	start = now_usec();
	ask_many(&raw, file.id);
	CHECK_SYS(usleep(2000));
	(void)piece_open(&a.raw, a.file.id);
	one_usec = now_usec() - start;
	for (unsigned i = 0; i < N_MANY; i++)
		raw_receive_ok(&raw);
	test_note("one after %" PRId64 " us, all of the other's after %" PRId64 " us", one_usec,
		  now_usec() - start);
	CHECK_MSG(one_usec < (now_usec() - start) / 2, "it came after half of the others");
	raw_close(&raw);
}

/* All waited for a second, for a client that nobody had asked. */
TEST(failed, "a read that fails while nobody waits for it may be begun again at once")
{
	struct daemon *daemon = daemon_start(NULL);
	_cleanup_(side_close) struct side a;
	struct ring_entry entry;
	struct piece mine;
	Wire__ViewState state;
	int64_t end;

	make(daemon);
	side_open(&a, daemon, O_RDONLY);
	mine = piece_open(&a.raw, a.file.id);
	limit(&a.raw, 64 * KIB);
	entry = read_of(a.file.id, mine.id);
	entry.timeout_msec = 100;
	CHECK(raw_run_one(&a.channel, entry) < 0);
	limit(&a.raw, 0);
	end = now_usec() + 700000;
	do {
		CHECK_MSG(now_usec() < end, "nobody may read");
		state = state_of(&a.raw, mine.id, false);
	} while (state == WIRE__VIEW_STATE__VIEW_BUSY);
	CHECK_EQ(state, WIRE__VIEW_STATE__VIEW_FILL);
	entry.timeout_msec = 0;
	CHECK_EQ(raw_run_one(&a.channel, entry), BYTES);
	CHECK_EQ(state_of(&a.raw, mine.id, true), WIRE__VIEW_STATE__VIEW_READY);
}

FAULT(memory, "the memory of a view cannot be written, punched or cut")
{
	_cleanup_(side_close) struct side a;
	struct piece piece;
	int fd;

	make(daemon);
	side_open(&a, daemon, O_RDONLY);
	piece = piece_open(&a.raw, a.file.id);
	CHECK_EQ(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, piece.fd, 0) == MAP_FAILED,
		 true);
	fd = open(test_text("/proc/self/fd/%d", piece.fd), O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	CHECK_EQ(pwrite(fd, "x", 1, 0), -1);
	CHECK_EQ(errno, EPERM);
	CHECK_EQ(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED, true);
	CHECK_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), -1);
	CHECK_EQ(ftruncate(fd, 0), -1);
	CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	CHECK_SYS(close(fd));
}

FAULT(requests, "wrong requests for views are refused")
{
	_cleanup_(side_close) struct side a;
	struct raw_slab slab;
	struct raw_file young, out;
	Wire__ViewWait wait = WIRE__VIEW_WAIT__INIT;
	Wire__ViewKeep keep = WIRE__VIEW_KEEP__INIT;
	Wire__Request request = RAW_REQUEST(VIEW_WAIT, view_wait, &wait);
	Wire__Request kept = RAW_REQUEST(VIEW_KEEP, view_keep, &keep);

	make(daemon);
	side_open(&a, daemon, O_RDONLY);
	file_make_pattern(daemon_path(daemon, "young"), BYTES, 8);
	raw_file(&a.raw, daemon_path(daemon, "young"), O_RDONLY, &young);
	raw_file(&a.raw, daemon_path(daemon, "other"), O_WRONLY, &out);
	open_fails(&a.raw, a.file.id + 77, 0, -EBADF, "file");
	open_fails(&a.raw, young.id, 0, -EAGAIN, "young;less than 2 s");
	open_fails(&a.raw, out.id, 0, -EOPNOTSUPP, "other;reading");
	open_fails(&a.raw, a.file.id, 4096, -EINVAL, "multiple");
	open_fails(&a.raw, a.file.id, 64 * MIB, -EINVAL, "before the end");
	open_fails(&a.raw, a.file.id, UINT64_MAX / (64 * MIB) * (64 * MIB), -EINVAL,
		   "before the end");
	raw_slab(&a.raw, MIB, &slab);
	wait.slab = slab.id;
	raw_call_fails(&a.raw, &request, NULL, 0, -EBADF, "view");
	wait.slab = 0;
	raw_call_fails(&a.raw, &request, NULL, 0, -EBADF, "view");
	raw_call_fails(&a.raw, &kept, NULL, 0, -EINVAL, "slab");
	keep.size_bytes = UINT64_MAX;
	raw_call_fails(&a.raw, &kept, NULL, 0, -EINVAL, "slab");
	keep.size_bytes = UINT64_C(1) << 46;
	raw_call_fails(&a.raw, &kept, NULL, 0, -ENOMEM, "client");
}

FAULT(kept, "memory of an earlier daemon's view is charged, and no op can use it")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(side_close) struct side a;
	struct ring_entry entry;
	Wire__ViewKeep keep = WIRE__VIEW_KEEP__INIT;
	Wire__Request kept = RAW_REQUEST(VIEW_KEEP, view_keep, &keep);

	make(daemon);
	side_open(&a, daemon, O_RDWR);
	keep.slab = 1u << 16 | 5;
	keep.size_bytes = 4 * MIB;
	raw_call_ok(&a.raw, &kept, NULL, 0, &answer);
	CHECK_EQ(answer.reply->view_keep->slab, keep.slab);
	entry = read_of(a.file.id, keep.slab);
	entry.len = 4096;
	CHECK_EQ(raw_run_one(&a.channel, entry), -ERANGE);
	entry.opcode = RING_OP_WRITE;
	CHECK_EQ(raw_run_one(&a.channel, entry), -ERANGE);
}

TEST_MAIN
