/*
 * The file board, by hand: who has a file is seen on both sides, what lies idle without a link is
 * let go within seconds, and nothing else is.  And what a client adds to a file or gets back of it.
 */
#include "proto/file_board.h"
#include "tests/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECONDS 1000000

/* A session, with its board mapped. */
struct client {
	struct raw raw;
	_Atomic uint32_t *board;
	size_t board_bytes;
	uint32_t max_files;
};

static void client_start_with(struct client *client, const struct daemon *daemon, uint64_t features)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);
	struct stat st;
	void *board;

	raw_connect(&client->raw, daemon);
	hello.version_min = hello.version_max = 1;
	hello.features = features;
	raw_call_ok(&client->raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.n_fds, 1);
	client->max_files = answer.reply->hello->max_files;
	CHECK(client->max_files > 0);
	CHECK_SYS(fstat(answer.fds[0], &st));
	client->board_bytes = (size_t)st.st_size;
	CHECK(client->board_bytes >= file_board_bytes(client->max_files));
	board = mmap(NULL, client->board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, answer.fds[0],
		     0);
	CHECK(board != MAP_FAILED);
	client->board = board;
}

static void client_start(struct client *client, const struct daemon *daemon)
{
	client_start_with(client, daemon, 0);
}

static void client_end(struct client *client)
{
	CHECK_SYS(munmap((void *)client->board, client->board_bytes));
	raw_close(&client->raw);
}

static uint32_t client_add(struct client *client, const struct daemon *daemon, const char *name)
{
	struct raw_file file;

	if (access(daemon_path(daemon, name), F_OK) < 0)
		file_make_pattern(daemon_path(daemon, name), MIB, 1);
	raw_file(&client->raw, daemon_path(daemon, name), O_RDWR, &file);
	CHECK(file_board_index(file.id) < client->board_bytes / sizeof(*client->board));
	return file.id;
}

static enum file_board_state client_state(const struct client *client, uint32_t id)
{
	uint32_t word = atomic_load(&client->board[file_board_index(id)]);

	CHECK(file_board_is(word, id, (enum file_board_state)(word & 3)));
	return (enum file_board_state)(word & 3);
}

/* in_use: an idle file that is used again and again meanwhile; 0: none. */
static bool wait_gone(const struct client *client, uint32_t id, uint32_t in_use,
		      int64_t timeout_usec)
{
	int64_t deadline = now_usec() + timeout_usec;

	/* Nobody tells of it: looks each 20 ms. */
	while (client_state(client, id) != FILE_BOARD_GONE) {
		if (now_usec() >= deadline)
			return false;
		if (in_use) { /* so that it is not idle for long */
			CHECK(file_board_take(client->board, in_use, FILE_BOARD_USED));
			file_board_set_idle(client->board, in_use);
		}
		(void)poll(NULL, 0, 20);
	}
	return true;
}

static void remove_file(struct client *client, uint32_t id, int wanted_error)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__FileRemove remove = WIRE__FILE_REMOVE__INIT;
	Wire__Request request = RAW_REQUEST(FILE_REMOVE, file_remove, &remove);

	remove.file = id;
	raw_call(&client->raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->error, wanted_error);
}

/* Has the daemon the file that was at this path open, so that its space stays taken? */
static bool daemon_holds(const struct daemon *daemon, const char *path)
{
	const char *wanted = test_text("%s (deleted)", path);
	DIR *dir = opendir(test_text("/proc/%d/fd", daemon->pid));
	bool is_held = false;
	struct dirent *entry;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		char target[PATH_MAX];
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		target[n < 0 ? 0 : n] = 0;
		is_held |= !strcmp(target, wanted);
	}
	(void)closedir(dir);
	return is_held;
}

TEST(gone, "an idle file without a link is let go within seconds, others after 10 s without use")
{
	struct daemon *daemon = daemon_start(NULL);
	struct client client;
	uint32_t idle, used, linked, other;
	int64_t start;

	client_start(&client, daemon);
	idle = client_add(&client, daemon, "idle");
	used = client_add(&client, daemon, "used");
	linked = client_add(&client, daemon, "linked");
	CHECK_EQ(client_state(&client, idle), FILE_BOARD_USED);

	file_board_set_idle(client.board, idle);
	file_board_set_idle(client.board, linked);
	CHECK_SYS(unlink(daemon_path(daemon, "idle")));
	CHECK_SYS(unlink(daemon_path(daemon, "used")));
	CHECK_MSG(wait_gone(&client, idle, linked, 30 * SECONDS), "it stays");
	CHECK_EQ(client_state(&client, used), FILE_BOARD_USED);
	CHECK(file_board_take(client.board, linked, FILE_BOARD_USED));
	remove_file(&client, linked, 0);
	remove_file(&client, idle, -EBADF);

	/* It is closed soon after. */
	for (int64_t end = now_usec() + 20 * SECONDS;
	     daemon_holds(daemon, daemon_path(daemon, "idle"));) {
		CHECK(now_usec() < end);
		(void)poll(NULL, 0, 50);
	}
	CHECK(daemon_holds(daemon, daemon_path(daemon, "used")));

	/* Later, when the looks have become rarer. */
	other = client_add(&client, daemon, "other");
	file_board_set_idle(client.board, other);
	file_board_set_idle(client.board, used);
	CHECK_MSG(wait_gone(&client, used, other, 30 * SECONDS), "it stays");
	CHECK(!file_board_take(client.board, used, FILE_BOARD_USED));

	/* In constant use for longer than it may be idle. */
	for (int64_t end = now_usec() + 12 * SECONDS; now_usec() < end;) {
		(void)poll(NULL, 0, 20);
		CHECK(file_board_take(client.board, other, FILE_BOARD_USED));
		file_board_set_idle(client.board, other);
	}
	start = now_usec();
	CHECK_MSG(wait_gone(&client, other, 0, 60 * SECONDS), "it stays");
	test_note("closed after %" PRId64 " ms", (now_usec() - start) / 1000);
	CHECK(now_usec() - start >= 10 * SECONDS);
	client_end(&client);
}

TEST(many, "thousands of idle files: those without a link go, the others stay")
{
	enum { N = 3000 };
	struct daemon *daemon = daemon_start(NULL);
	static uint32_t ids[N];
	struct client client;
	int64_t start;
	unsigned n;

	client_start(&client, daemon);
	n = client.max_files < N ? client.max_files : N;
	for (unsigned i = 0; i < n; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "%u", i);
		file_make_sparse(daemon_path(daemon, name), 4096);
		ids[i] = client_add(&client, daemon, name);
		if (i % 3 == 0)
			CHECK_SYS(unlink(daemon_path(daemon, name)));
	}
	start = now_usec();
	for (unsigned i = 0; i < n; i++)
		file_board_set_idle(client.board, ids[i]);
	for (unsigned i = 0; i < n; i += 3)
		CHECK(wait_gone(&client, ids[i], 0, 30 * SECONDS));
	for (unsigned i = 0; i < n; i++) /* after 10 s the others go, too */
		CHECK(i % 3 == 0 || client_state(&client, ids[i]) == FILE_BOARD_IDLE ||
		      now_usec() - start >= 10 * SECONDS);
	client_end(&client);
}

TEST(lies, "a board full of lies harms nobody, not even the liar's session")
{
	struct daemon *daemon = daemon_start(NULL);
	struct client client;
	uint64_t random = test_seed();
	uint32_t id = 0;

	beside_start(daemon);
	client_start_with(&client, daemon, RING_FEATURE_QUIET);
	CHECK(ftruncate(client.raw.fd, 0) < 0); /* a socket; the board itself is sealed */
	for (int64_t end = now_usec() + 8 * SECONDS; now_usec() < end;) {
		id = client_add(&client, daemon, "f");
		for (size_t i = 0; i < client.board_bytes / sizeof(*client.board); i++)
			atomic_store(&client.board[i], (uint32_t)test_random(&random));
		atomic_store(&client.board[file_board_index(id)],
			     file_board_word(id, FILE_BOARD_IDLE));
		CHECK_SYS(unlink(daemon_path(daemon, "f")));
		(void)poll(NULL, 0, 100);
	}
	beside_ok();
	CHECK(client_add(&client, daemon, "g") != id);
	client_end(&client);
}

static void few_descriptors(void)
{
	struct rlimit limit = { .rlim_cur = 1024, .rlim_max = 1024 };

	(void)setrlimit(RLIMIT_NOFILE, &limit); /* if it fails, the test says so */
}

TEST(reclaim, "idle files of a user's other programs go when it is near its bound on files")
{
	struct daemon *daemon = daemon_start_with(
		&(struct daemon_options){ .before_exec = few_descriptors });
	struct client clients[3];
	unsigned n_gone = 0, max;
	uint32_t ids[3][400];

	for (unsigned c = 0; c < ARRAY_SIZE(clients); c++) {
		client_start(&clients[c], daemon);
		max = clients[c].max_files;
		CHECK(max < 400);
		for (unsigned i = 0; i < max; i++) { /* each gets all that it may have */
			ids[c][i] = client_add(&clients[c], daemon, "f");
			CHECK(file_board_index(ids[c][i]) < max);
			if (i % 16 || c != 0)
				file_board_set_idle(clients[c].board, ids[c][i]);
		}
	}
	for (unsigned i = 0; i < max; i++) {
		if (i % 16)
			n_gone += client_state(&clients[0], ids[0][i]) == FILE_BOARD_GONE;
		else
			CHECK_EQ(client_state(&clients[0], ids[0][i]), FILE_BOARD_USED);
	}
	test_note("of %u files of the first client, most idle, %u are gone", max, n_gone);
	CHECK(n_gone > 0);
	for (unsigned c = 0; c < ARRAY_SIZE(clients); c++)
		client_end(&clients[c]);
}

static int get_file(struct client *client, uint32_t id)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__FileGet get = WIRE__FILE_GET__INIT;
	Wire__Request request = RAW_REQUEST(FILE_GET, file_get, &get);

	get.file = id;
	raw_call_ok(&client->raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.n_fds, 1);
	return TAKE_FD(answer.fds[0]);
}

TEST(get, "a client gets back what it handed over: the same file, by the same description")
{
	_cleanup_(closep) int fd = -1;
	struct daemon *daemon = daemon_start(NULL);
	Wire__FileGet get = WIRE__FILE_GET__INIT;
	Wire__Request request = RAW_REQUEST(FILE_GET, file_get, &get);
	struct usage before;
	struct client client;
	struct stat got, want;

	client_start(&client, daemon);
	get.file = client_add(&client, daemon, "f");
	before = daemon_usage_settled(daemon);
	fd = get_file(&client, get.file);
	CHECK_SYS(fstat(fd, &got));
	CHECK_SYS(stat(daemon_path(daemon, "f"), &want));
	CHECK(got.st_dev == want.st_dev && got.st_ino == want.st_ino);
	CHECK_EQ(fcntl(fd, F_GETFL) & (O_ACCMODE | O_DIRECT), O_RDWR | O_DIRECT);
	for (unsigned i = 0; i < 100; i++)
		CHECK_SYS(close(get_file(&client, get.file)));
	daemon_usage_back(daemon, &before);

	get.file++;
	raw_call_fails(&client.raw, &request, NULL, 0, -EBADF, "file");
	client_end(&client);
}

TEST(unread, "a client that asks for descriptors and reads no reply fills only its own socket")
{
	struct daemon *daemon = daemon_start(NULL);
	Wire__FileGet get = WIRE__FILE_GET__INIT;
	Wire__Request request = RAW_REQUEST(FILE_GET, file_get, &get);
	struct usage before;
	struct client client;

	beside_start(daemon);
	client_start(&client, daemon);
	get.file = client_add(&client, daemon, "f");
	before = daemon_usage_settled(daemon);
	CHECK_SYS(fcntl(client.raw.fd, F_SETFL, O_NONBLOCK));
	for (unsigned i = 0; i < 20000; i++) {
		size_t len = wire__request__get_packed_size(&request);
		uint8_t bytes[FRAME_HEADER_BYTES + 64] = { (uint8_t)len };

		request.seq = i;
		len = wire__request__pack(&request, bytes + FRAME_HEADER_BYTES);
		bytes[0] = (uint8_t)len;
		if (send(client.raw.fd, bytes, FRAME_HEADER_BYTES + len, MSG_NOSIGNAL) < 0)
			break;
	}
	beside_ok();
	CHECK(daemon_usage_settled(daemon).n_fds <= before.n_fds + 64);
	client_end(&client);
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
}

TEST(buffered, "a buffered description is added once, and only of the same file")
{
	_cleanup_(closep) int fd = -1, other = -1;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct daemon *daemon = daemon_start(NULL);
	Wire__FileBuffered buffered = WIRE__FILE_BUFFERED__INIT;
	Wire__Request request = RAW_REQUEST(FILE_BUFFERED, file_buffered, &buffered);
	struct usage before;
	struct client client;

	client_start(&client, daemon);
	before = daemon_usage_settled(daemon);
	buffered.file = client_add(&client, daemon, "f");
	(void)client_add(&client, daemon, "g");
	fd = (int)CHECK_SYS(open(daemon_path(daemon, "f"), O_RDWR | O_CLOEXEC));
	other = (int)CHECK_SYS(open(daemon_path(daemon, "g"), O_RDWR | O_CLOEXEC));
	raw_call_fails(&client.raw, &request, &other, 1, -EINVAL, "another file");
	raw_call_ok(&client.raw, &request, &fd, 1, &answer);
	raw_call_fails(&client.raw, &request, &fd, 1, -EEXIST, "already");
	before.n_fds += 3; /* of what was refused each is closed */
	daemon_usage_back(daemon, &before);
	remove_file(&client, buffered.file, 0);
	before.n_fds -= 2;
	daemon_usage_back(daemon, &before);
	raw_call_fails(&client.raw, &request, &fd, 1, -EBADF, "file");
	client_end(&client);
}

TEST_MAIN
