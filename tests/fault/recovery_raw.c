/*
 * Recovery, by hand: what a client keeps when its daemon ends, and what the next daemon takes over.
 */
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLAB_BYTES (4 * MIB)
#define SLAB_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define ID(generation, index) ((uint32_t)(generation) << 16 | (index))

static void slab_make(struct raw *raw, size_t bytes, Wire__Pages pages, struct raw_slab *ret_slab)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__SlabNew slab_new = WIRE__SLAB_NEW__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_NEW, slab_new, &slab_new);

	slab_new.size_bytes = bytes;
	slab_new.pages = pages;
	raw_call_ok(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.n_fds, 1);
	*ret_slab = (struct raw_slab){ .id = answer.reply->slab_new->slab,
				       .size = answer.reply->slab_new->size_bytes,
				       .fd = TAKE_FD(answer.fds[0]) };
	ret_slab->memory = mmap(NULL, ret_slab->size, PROT_READ | PROT_WRITE, MAP_SHARED,
				ret_slab->fd, 0);
	CHECK(ret_slab->memory != MAP_FAILED);
}

static void adopt_call(struct raw *raw, uint32_t id, int fd, uint64_t size_bytes,
		       struct answer *ret_answer)
{
	Wire__SlabAdopt adopt = WIRE__SLAB_ADOPT__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_ADOPT, slab_adopt, &adopt);

	adopt.slab = id;
	adopt.size_bytes = size_bytes;
	raw_call(raw, &request, &fd, 1, ret_answer);
}

static void adopt(struct raw *raw, const struct raw_slab *slab)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	adopt_call(raw, slab->id, slab->fd, slab->size, &answer);
	CHECK_MSG(!answer.reply->error, "%s", answer.reply->text);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_SLAB_ADOPT);
	CHECK_EQ(answer.reply->slab_adopt->slab, slab->id);
	CHECK_EQ(answer.reply->slab_adopt->size_bytes, slab->size);
	CHECK_EQ(answer.n_fds, 0);
}

static void adopt_fails(struct raw *raw, uint32_t id, int fd, uint64_t size_bytes, int error,
			const char *words)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	adopt_call(raw, id, fd, size_bytes, &answer);
	answer_check_fails(&answer, error, words);
}

static void slab_remove(struct raw *raw, uint32_t id)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__SlabFree slab_free = WIRE__SLAB_FREE__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_FREE, slab_free, &slab_free);

	slab_free.slab = id;
	raw_call_ok(raw, &request, NULL, 0, &answer);
}

static bool is_zero(const uint8_t *memory, size_t bytes)
{
	return memory[0] == 0 && memcmp(memory, memory + 1, bytes - 1) == 0;
}

/* ---- what a client keeps ---- */

static const struct {
	const char *what;
	Wire__Pages pages;
	bool is_reserved, is_killed;
} kept[] = {
	{ "small pages, SIGTERM", WIRE__PAGES__PAGES_SMALL, false, false },
	{ "small pages, kill -9", WIRE__PAGES__PAGES_SMALL, false, true },
	{ "any pages, SIGTERM", WIRE__PAGES__PAGES_ANY, false, false },
	{ "any pages, kill -9", WIRE__PAGES__PAGES_ANY, false, true },
	{ "reserved huge pages, SIGTERM", WIRE__PAGES__PAGES_HUGE, true, false },
	{ "reserved huge pages, kill -9", WIRE__PAGES__PAGES_HUGE, true, true },
};

static struct daemon *daemon_with(const char *huge_pages)
{
	const char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *config = fopen(path, "we");

	CHECK(config && fprintf(config, "[daemon]\nhuge_pages = %s\n", huge_pages) > 0 &&
	      fflush(config) == 0);
	return daemon_start(DAEMON_ARGS("--config", path));
}

TEST_TABLE(keeps, kept,
	   "a client's slabs were empty when its daemon had ended, or not to be handed over")
{
	const char *huge_pages = kept[row].is_reserved ? "reserved" : "auto";
	struct raw raw, next;
	struct raw_slab slab;
	struct daemon *daemon;
	struct raw_channel channel;
	struct raw_file file;
	struct usage before;

	if (kept[row].is_reserved)
		huge_pages_add(SLAB_BYTES);
	daemon = daemon_with(huge_pages);
	raw = raw_new(daemon);
	slab_make(&raw, SLAB_BYTES, kept[row].pages, &slab);
	pattern_fill(slab.memory, slab.size, 7, 0);
	if (kept[row].is_killed)
		daemon_kill(daemon);
	else
		daemon_stop(daemon);
	pattern_check(slab.memory, slab.size, 7, 0, "the slab after the daemon's end");

	daemon = daemon_with(huge_pages);
	before = daemon_usage_settled(daemon);
	next = raw_new(daemon);
	adopt(&next, &slab);
	pattern_check(slab.memory, slab.size, 7, 0, "the slab that the next daemon has");
	file_make_pattern(daemon_path(daemon, "f"), SLAB_BYTES, 1);
	raw_file(&next, daemon_path(daemon, "f"), O_RDWR, &file);
	raw_channel(&next, raw_handle(&next), file.store, 16, true, &channel);
	CHECK_EQ(raw_run_one(&channel, (struct ring_entry){ .opcode = RING_OP_WRITE,
							    .file = file.id,
							    .slab = slab.id,
							    .len = SLAB_BYTES / 2 }),
		 SLAB_BYTES / 2);
	file_check_pattern(daemon_path(daemon, "f"), 0, SLAB_BYTES / 2, 7, 0);
	CHECK_EQ(raw_run_one(&channel, (struct ring_entry){ .opcode = RING_OP_READ,
							    .file = file.id,
							    .slab = slab.id,
							    .off = SLAB_BYTES / 2,
							    .len = SLAB_BYTES / 2 }),
		 SLAB_BYTES / 2);
	pattern_check(slab.memory, SLAB_BYTES / 2, 1, SLAB_BYTES / 2, "what was read into it");
	raw_channel_unmap(&channel);

	slab_remove(&next, slab.id);
	CHECK(is_zero(slab.memory, slab.size)); /* punched, as a slab of the pool is */
	raw_close(&next);
	CHECK(daemon_wait_clients(daemon, 0, 0));
	CHECK(daemon_usage_settled(daemon).locked_kib <= before.locked_kib);
	raw_close(&raw);
	raw_slab_unmap(&slab);
}

static const struct {
	const char *what;
	bool is_stopped, is_adopted, is_early;
} dead[] = {
	{ "of its own", false, false, false },
	{ "during a stop", true, false, false },
	{ "of its own, with an adopted slab", false, true, false },
	{ "during a stop, with an adopted slab", true, true, false },
	{ "of its own, before Recovered", false, true, true },
	{ "during a stop, before Recovered", true, true, true },
};

TEST_TABLE(punches, dead,
	   "a client that had died kept its memory, or it was gone before all was handed over")
{
	struct daemon *daemon = daemon_start(NULL);
	struct raw raw = raw_new(daemon);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Recovered body = WIRE__RECOVERED__INIT;
	Wire__Request request = RAW_REQUEST(RECOVERED, recovered, &body);
	struct raw_slab slab;

	raw_slab(&raw, SLAB_BYTES, &slab);
	if (dead[row].is_adopted) {
		daemon_kill(daemon);
		raw_close(&raw);
		daemon = daemon_start(NULL);
		raw = raw_new(daemon);
		adopt(&raw, &slab);
		if (!dead[row].is_early)
			raw_call_ok(&raw, &request, NULL, 0, &answer);
	}
	pattern_fill(slab.memory, slab.size, 7, 0);
	if (dead[row].is_stopped) {
		process_stop(daemon->pid); /* so both come at once */
		CHECK_SYS(kill(daemon->pid, SIGTERM));
	}
	raw_close(&raw);
	if (dead[row].is_stopped) {
		CHECK_SYS(kill(daemon->pid, SIGCONT));
		daemon_wait_end(daemon, 0);
	} else {
		CHECK(daemon_wait_clients(daemon, 0, 0));
	}
	if (dead[row]
		    .is_early) /* as a living client, whose next try is with the daemon after this one */
		pattern_check(slab.memory, slab.size, 7, 0, "the slab");
	else
		CHECK(is_zero(slab.memory, slab.size));
	raw_slab_unmap(&slab);
}

/* ---- adoption ---- */

static int memory_make(size_t bytes, int seals)
{
	int fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));

	CHECK_SYS(ftruncate(fd, (off_t)bytes));
	CHECK_SYS(fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

static const struct {
	const char *what;
	int seals;
} sealed[] = {
	{ "no seals", 0 },
	{ "no seal against shrinking", F_SEAL_GROW | F_SEAL_SEAL },
	{ "no seal against growing", F_SEAL_SHRINK | F_SEAL_SEAL },
	{ "no seal of the seals", F_SEAL_SHRINK | F_SEAL_GROW },
	{ "a seal against writing", SLAB_SEALS | F_SEAL_WRITE },
	{ "a seal against later writing", SLAB_SEALS | F_SEAL_FUTURE_WRITE },
};

FAULT(adopt_wrong, "E2 a slab that is handed over and is none: refused, and not punched")
{
	_cleanup_(closep) int disk = -1, device = -1, read_only = -1, directory = -1, shm = -1;
	_cleanup_(closep) int path_only = -1;
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	struct raw_slab slab = { .id = ID(3, 5), .size = SLAB_BYTES };
	struct usage before;

	slab.fd = memory_make(SLAB_BYTES, SLAB_SEALS);
	slab.memory = mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, slab.fd, 0);
	CHECK(slab.memory != MAP_FAILED);
	pattern_fill(slab.memory, slab.size, 7, 0);
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	before = daemon_usage_settled(daemon);
	for (size_t i = 0; i < ARRAY_SIZE(sealed); i++) {
		_cleanup_(closep) int fd = memory_make(4096, sealed[i].seals);

		test_note("%s", sealed[i].what);
		adopt_fails(&raw, 0, fd, 4096, -EINVAL, "slab_adopt;seals 0x");
	}
	disk = (int)CHECK_SYS(open(daemon_path(daemon, "f"), O_RDWR | O_CLOEXEC));
	device = (int)CHECK_SYS(open("/dev/zero", O_RDWR | O_CLOEXEC));
	directory = (int)CHECK_SYS(open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	shm = (int)CHECK_SYS(open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	read_only = (int)CHECK_SYS(
		open(test_text("/proc/self/fd/%d", slab.fd), O_RDONLY | O_CLOEXEC));
	path_only = (int)CHECK_SYS(
		open(test_text("/proc/self/fd/%d", slab.fd), O_PATH | O_CLOEXEC));
	adopt_fails(&raw, 0, disk, 4096, -EOPNOTSUPP, "neither tmpfs nor hugetlbfs");
	adopt_fails(&raw, 0, device, 4096, -EOPNOTSUPP, "slab_adopt");
	adopt_fails(&raw, 0, directory, 4096, -EOPNOTSUPP, "regular file");
	adopt_fails(&raw, 0, shm, 4096, -EINVAL, "seals");
	adopt_fails(&raw, 0, raw.fd, 4096, -EOPNOTSUPP, "tmpfs");
	adopt_fails(&raw, 0, read_only, SLAB_BYTES, -EACCES, "reading and writing");
	adopt_fails(&raw, 0, path_only, SLAB_BYTES, -EACCES, "reading and writing");
	adopt_fails(&raw, 0, slab.fd, SLAB_BYTES - 1, -EINVAL, "4194303 bytes;has 4194304");
	adopt_fails(&raw, 0, slab.fd, SLAB_BYTES + 1, -EINVAL, "4194305 bytes;has 4194304");
	adopt_fails(&raw, 0, slab.fd, 0, -EINVAL, "slab of 0 B");
	adopt_fails(&raw, 0, slab.fd, UINT64_MAX, -EINVAL, "passes 2^63");
	adopt_fails(&raw, 0, slab.fd, UINT64_C(1) << 45, -ENOMEM, "pool");
	adopt_fails(&raw, ID(0, 5), slab.fd, SLAB_BYTES, -EINVAL, "slab: its id 5;generation");
	adopt_fails(&raw, UINT32_MAX, slab.fd, SLAB_BYTES, -EINVAL, "slab: its id;must be below");
	daemon_usage_back(daemon, &before);
	adopt(&raw, &slab);
	adopt_fails(&raw, slab.id, slab.fd, SLAB_BYTES, -EEXIST, "slab: its id 196613 is in use");
	pattern_check(slab.memory, slab.size, 7, 0, "what was refused");
	slab_remove(&raw, slab.id);
	adopt(&raw, &slab); /* its generation may come again */
	raw_slab_unmap(&slab);
}

/* ---- wanted ids ---- */

enum kind { IMPORT, FILE_ADD, HANDLE, CHANNEL, N_KINDS };

static const char *const kinds[] = { "slab", "file", "handle", "channel" };

/* Makes an object with that id. */
static void want(struct raw *raw, const struct daemon *daemon, enum kind kind, uint32_t id,
		 struct answer *ret_answer)
{
	_cleanup_(closep) int fd = -1;
	Wire__SlabImport import = WIRE__SLAB_IMPORT__INIT;
	Wire__FileAdd add = WIRE__FILE_ADD__INIT;
	Wire__HandleOpen handle = WIRE__HANDLE_OPEN__INIT;
	Wire__ChannelOpen channel = WIRE__CHANNEL_OPEN__INIT;
	Wire__Request requests[] = { RAW_REQUEST(SLAB_IMPORT, slab_import, &import),
				     RAW_REQUEST(FILE_ADD, file_add, &add),
				     RAW_REQUEST(HANDLE_OPEN, handle_open, &handle),
				     RAW_REQUEST(CHANNEL_OPEN, channel_open, &channel) };

	import.slab = add.file = handle.handle = channel.channel = id;
	import.size_bytes = 4096;
	add.name = (char *)(uintptr_t) "f";
	if (kind == IMPORT)
		fd = memory_make(4096, 0);
	if (kind == FILE_ADD)
		fd = open_direct(daemon_path(daemon, "f"), O_RDWR);
	if (kind == CHANNEL) {
		channel.handle = raw_handle(raw);
		channel.store = raw_store("t");
		channel.entries = 8;
	}
	raw_call(raw, &requests[kind], &fd, fd >= 0, ret_answer);
}

static void want_fails(struct raw *raw, const struct daemon *daemon, enum kind kind, uint32_t id,
		       int error, const char *words)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	want(raw, daemon, kind, id, &answer);
	answer_check_fails(&answer, error, test_text("%s;%s", kinds[kind], words));
}

static void want_ok(struct raw *raw, const struct daemon *daemon, enum kind kind, uint32_t id,
		    uint32_t want_id)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	uint32_t got;

	want(raw, daemon, kind, id, &answer);
	CHECK_MSG(!answer.reply->error, "%s: %s", kinds[kind], answer.reply->text);
	got = kind == IMPORT	 ? answer.reply->slab_import->slab
	      : kind == FILE_ADD ? answer.reply->file_add->file
	      : kind == HANDLE	 ? answer.reply->handle_open->handle
				 : answer.reply->channel_open->channel;
	CHECK_MSG(got == want_id, "%s: %" PRIx32 ", not %" PRIx32, kinds[kind], got, want_id);
}

FAULT(wanted, "E2 an id that a client wants: given, or refused with the reason")
{
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	for (enum kind kind = 0; kind < N_KINDS; kind++) {
		_cleanup_(raw_close) struct raw raw = raw_new(daemon);

		want_fails(&raw, daemon, kind, ID(0, 9), -EINVAL, "id 9;generation;not 0;any id");
		want_fails(&raw, daemon, kind, ID(1, UINT16_MAX), -EINVAL, "id 131071;below");
		want_fails(&raw, daemon, kind, UINT32_MAX, -EINVAL, "id 4294967295");
		want_ok(&raw, daemon, kind, ID(UINT16_MAX, 4), ID(UINT16_MAX, 4));
		want_fails(&raw, daemon, kind, ID(UINT16_MAX, 4), -EEXIST, "id 4294901764;in use");
		want_fails(&raw, daemon, kind, ID(1, 4), -EEXIST, "in use");
		want_ok(&raw, daemon, kind, ID(2, 3), ID(2, 3)); /* a slot below */
	}
	beside_ok();
}

/* ---- last words ---- */

static void last_words(struct raw *raw, int error, const char *words)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE, end = ANSWER_NONE;

	raw_receive(raw, &answer);
	CHECK(answer.reply);
	CHECK_EQ(answer.reply->seq, 0);
	answer_check_fails(&answer, error, words);
	raw_receive(raw, &end);
	CHECK(!end.reply);
}

TEST(words_stop, "a stopping daemon did not say so, or a killed one did")
{
	for (int is_killed = 0; is_killed < 2; is_killed++) {
		_cleanup_(answer_free) struct answer end = ANSWER_NONE;
		struct daemon *daemon = daemon_start(NULL);
		struct raw raw = raw_new(daemon), greeting;
		struct raw_channel channel;
		struct raw_file file;

		raw_connect(&greeting, daemon); /* without a Hello */
		file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
		raw_file(&raw, daemon_path(daemon, "f"), O_RDWR, &file);
		raw_channel(&raw, raw_handle(&raw), file.store, 16, true, &channel);
		if (is_killed) {
			daemon_kill(daemon);
			raw_receive(&raw, &end);
			CHECK(!end.reply);
		} else {
			daemon_stop(daemon);
			last_words(&raw, -ESHUTDOWN, "the daemon is stopping");
			raw_receive(&greeting, &end);
			CHECK(!end.reply);
		}
		raw_channel_unmap(&channel);
		raw_close(&raw);
		raw_close(&greeting);
	}
}

FAULT(words_fault,
      "a client whose session ends for its own fault gets the reason, not that of a stop")
{
	struct raw raw = raw_new(daemon);
	struct raw_channel channel;

	raw_channel(&raw, raw_handle(&raw), raw_store("t"), 16, true, &channel);
	atomic_store(&channel.ring.shared->sq_tail, 12345);
	CHECK_EQ(write(channel.bell_fd, &(uint64_t){ 1 }, 8), 8);
	last_words(&raw, -EPROTO, test_text("channel %u: ;closes the connection", channel.id));
	daemon_log_wait(daemon, test_text("channel %u: ", channel.id));
	raw_channel_unmap(&channel);
	raw_close(&raw);

	raw = raw_new(daemon);
	raw_send_bytes(&raw, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, NULL, 0);
	last_words(&raw, -EPROTO, "closes the connection");
	raw_close(&raw);
}

TEST(words_unread, "a client that does not read delayed a stop")
{
	struct daemon *daemon = daemon_start(NULL);
	struct raw raw = raw_new(daemon);
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__Request request = RAW_REQUEST(STATUS, status, &status);
	int64_t start;

	CHECK_SYS(fcntl(raw.fd, F_SETFL, O_NONBLOCK));
	for (bool is_full = false; !is_full;) {
		uint8_t bytes[64];
		size_t len;

		request.seq = ++raw.seq;
		len = wire__request__get_packed_size(&request);
		memset(bytes, 0, FRAME_HEADER_BYTES);
		bytes[0] = (uint8_t)len;
		(void)wire__request__pack(&request, bytes + FRAME_HEADER_BYTES);
		is_full = send(raw.fd, bytes, FRAME_HEADER_BYTES + len, MSG_NOSIGNAL) < 0 &&
			  !wait_readable(-1, 200000) &&
			  send(raw.fd, bytes, FRAME_HEADER_BYTES + len, MSG_NOSIGNAL) < 0;
	}
	start = now_usec();
	daemon_stop(daemon);
	CHECK(now_usec() - start < (int64_t)(2000000 * test_time_factor()));
	raw_close(&raw);
}

/* ---- numbers of stores, and the line of the log ---- */

TEST(numbers, "a store's number was another one with the next daemon")
{
	const char *shm = test_text("%s/f", test_dir_in("/dev/shm"));
	struct raw_file files[2][2];

	file_make_pattern(shm, 4096, 1);
	for (int i = 0; i < 2; i++) {
		struct daemon *daemon = daemon_start(NULL);
		_cleanup_(raw_close) struct raw raw = raw_new(daemon);

		file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
		raw_file(&raw, i ? daemon_path(daemon, "f") : shm, O_RDWR, &files[i][!i]);
		raw_file(&raw, i ? shm : daemon_path(daemon, "f"), O_RDWR, &files[i][i]);
		daemon_stop(daemon);
	}
	CHECK_EQ(files[0][0].store, files[1][0].store);
	CHECK_EQ(files[0][1].store, files[1][1].store);
	CHECK(files[0][0].store != files[0][1].store);
	CHECK_EQ(files[0][0].store, raw_store("t"));
}

FAULT(recovered, "a client that has gone on is logged once, whatever it says")
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Recovered recovered = WIRE__RECOVERED__INIT;
	Wire__Request request = RAW_REQUEST(RECOVERED, recovered, &recovered);
	char text[3000];

	memset(text, 'x', sizeof(text) - 1);
	memcpy(text, "a\nb\x1b\xc3", 5);
	text[sizeof(text) - 1] = '\0';
	recovered.slabs = 2;
	recovered.slab_bytes = GIB;
	recovered.files = 5;
	recovered.channels = 1;
	recovered.ops = 12;
	recovered.failed = 1;
	recovered.text = text;
	recovered.usec = 85999;
	raw_call_ok(&raw, &request, NULL, 0, &answer);
	daemon_log_wait(daemon,
			"has gone on after a restart: handed over 2 slabs of 1 GiB, 5 files, "
			"1 channel, 12 ops in 85 ms; 1 could not be: a?b??xxx");
	raw_call_fails(&raw, &request, NULL, 0, -EINVAL, "recovered: this connection has had one");
}

/* ---- how long it takes ---- */

TEST(quick, "how long a stop with memory, and its adoption, take")
{
	static const struct {
		const char *what;
		Wire__Pages pages;
	} kinds_of_pages[] = { { "any", WIRE__PAGES__PAGES_ANY },
			       { "small", WIRE__PAGES__PAGES_SMALL } };
	const size_t bytes = 256 * MIB;

	for (size_t i = 0; i < ARRAY_SIZE(kinds_of_pages); i++) {
		struct daemon *daemon = daemon_start(NULL);
		struct raw raw = raw_new(daemon);
		int64_t start, stop_usec, adopt_usec;
		struct raw_slab slab;

		slab_make(&raw, bytes, kinds_of_pages[i].pages, &slab);
		start = now_usec();
		daemon_stop(daemon);
		stop_usec = now_usec() - start;
		raw_close(&raw);
		daemon = daemon_start(NULL);
		raw = raw_new(daemon);
		start = now_usec();
		adopt(&raw, &slab);
		adopt_usec = now_usec() - start;
		start = now_usec();
		daemon_stop(daemon);
		test_note("256 MiB in %s pages: stop %" PRId64 " us, adoption %" PRId64
			  " us, stop with what was adopted %" PRId64 " us",
			  kinds_of_pages[i].what, stop_usec, adopt_usec, now_usec() - start);
		raw_close(&raw);
		raw_slab_unmap(&slab);
	}
}

TEST_MAIN
