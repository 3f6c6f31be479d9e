/*
 * Two users, each at its bounds (E14): what one holds takes nothing from the other.
 *
 * A process of each takes all that the daemon gives it of a kind, one after the other, and keeps it.
 * The second must get as much as the first, and a third user's client is not disturbed.  Nor are
 * others by one that is given much at once.
 */
#include "tests/victim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_UID 60001
#define CLIENTS_MAX 1024

/* The share of one user; its process writes, then the test reads. */
struct haul {
	uint64_t clients, files, handles, channels, slabs, bytes;
	uint32_t store; /* of the files */
	pid_t pid;
	_Atomic bool is_done;
};

static void few_descriptors(void)
{
	struct rlimit limit = { .rlim_cur = 4096, .rlim_max = 4096 };

	(void)setrlimit(RLIMIT_NOFILE, &limit); /* if it fails, the bounds are others */
}

/* Sends it; true if it was granted, else the refusal has to be one of a bound. */
static bool ask(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
		struct answer *answer)
{
	raw_call(raw, request, fds, n_fds, answer);
	CHECK_MSG(!answer->reply->error || answer->reply->error == -EMFILE ||
			  answer->reply->error == -ENOMEM,
		  "%s", answer->reply->text);
	if (answer->reply->error)
		CHECK_MSG(strstr(answer->reply->text, "at most"), "%s", answer->reply->text);
	return !answer->reply->error;
}

static bool take_file(struct raw *raw, int fd, uint32_t *ret_store)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);

	if (!ask(raw, &request, &fd, 1, &answer))
		return false;
	*ret_store = answer.reply->file_add->store;
	return true;
}

static bool take_handle(struct raw *raw, uint32_t *ret_handle)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__HandleOpen handle_open = WIRE__HANDLE_OPEN__INIT;
	Wire__Request request = RAW_REQUEST(HANDLE_OPEN, handle_open, &handle_open);

	if (!ask(raw, &request, NULL, 0, &answer))
		return false;
	*ret_handle = answer.reply->handle_open->handle;
	return true;
}

static bool take_channel(struct raw *raw, uint32_t handle, uint32_t store)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__ChannelOpen open = WIRE__CHANNEL_OPEN__INIT;
	Wire__Request request = RAW_REQUEST(CHANNEL_OPEN, channel_open, &open);

	open.handle = handle;
	open.store = store;
	open.entries = 4;
	return ask(raw, &request, NULL, 0, &answer);
}

static bool take_slab(struct raw *raw, uint64_t bytes)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__SlabNew slab_new = WIRE__SLAB_NEW__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_NEW, slab_new, &slab_new);

	slab_new.size_bytes = bytes;
	return ask(raw, &request, NULL, 0, &answer);
}

/* Connections until the daemon refuses one. */
static unsigned take_clients(const struct daemon *daemon, struct raw *raws)
{
	for (unsigned n = 0; n < CLIENTS_MAX; n++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		Wire__Hello hello = WIRE__HELLO__INIT;
		Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);

		hello.version_min = hello.version_max = 1;
		raw_connect(&raws[n], daemon);
		raw_send(&raws[n], &request, NULL, 0);
		raw_receive(&raws[n], &answer);
		CHECK_MSG(answer.reply, "closed without a word after %u clients", n);
		if (answer.reply->error) {
			answer_check_fails(&answer, -EUSERS, "connections");
			return n;
		}
	}
	test_fail("connections without end");
}

static void take_objects(struct raw *raw, int fd, struct haul *haul)
{
	uint32_t handle;

	while (take_file(raw, fd, &haul->store)) /* later clients get none: it is the same */
		haul->files++;
	while (take_handle(raw, &handle)) {
		haul->handles++;
		haul->channels += take_channel(raw, handle, haul->store);
	}
}

static void take_slabs(struct raw *raw, int fd, struct haul *haul)
{
	(void)fd;
	while (take_slab(raw, 4096))
		haul->slabs++;
}

static void take_bytes(struct raw *raw, int fd, struct haul *haul)
{
	(void)fd;
	for (uint64_t bytes = 64 * MIB; bytes >= 64 * KIB; bytes /= 2)
		while (take_slab(raw, bytes))
			haul->bytes += bytes;
}

static const struct {
	const char *what;
	void (*take)(struct raw *raw, int fd, struct haul *haul);
} kinds[] = {
	{ "files, handles, channels", take_objects },
	{ "slabs", take_slabs },
	{ "bytes of the pool", take_bytes },
};

/* A process of that user, which takes all that it gets and keeps it. */
static void taker_start(const struct daemon *daemon, int row, uid_t uid, struct haul *haul)
{
	static struct raw raws[CLIENTS_MAX];
	struct rlimit limit;
	pid_t pid;

	(void)fflush(NULL); /* or the child prints it again */
	pid = (pid_t)CHECK_SYS(fork());
	if (pid > 0) {
		haul->pid = pid;
		return;
	}
	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	{
		int fd = open_direct(daemon_path(daemon, "f"), O_RDONLY);

		child_become(uid);
		haul->clients = take_clients(daemon, raws);
		for (unsigned i = 0; i < haul->clients; i++)
			kinds[row].take(&raws[i], fd, haul);
	}
	atomic_store(&haul->is_done, true);
	for (;;)
		(void)pause(); /* the test's end ends it */
}

static void taker_wait(const struct haul *haul)
{
	/* Only its process knows how far it is: looks each 10 ms, within the test's time. */
	while (!atomic_load(&haul->is_done)) {
		CHECK(waitpid(haul->pid, NULL, WNOHANG) == 0);
		(void)poll(NULL, 0, 10);
	}
}

TEST_TABLE(e14, kinds, "E14 two users at their bounds: neither takes the other's share")
{
	struct daemon *daemon;
	struct haul *hauls;
	const struct haul *a, *b;
	char *config;
	FILE *file;

	test_needs_root();
	config = test_text("%s/dsaiod.conf", test_dir());
	file = fopen(config, "we");
	CHECK(file);
	CHECK(fputs("[daemon]\npool_size = 256M\nuser_pool_max = 96M\nclient_pool_max = 32M\n",
		    file) >= 0);
	CHECK(fclose(file) == 0);
	daemon = daemon_start_with(&(struct daemon_options){
		.args = DAEMON_ARGS("--config", config), .before_exec = few_descriptors });
	CHECK_SYS(chmod(test_dir(), 0755));
	CHECK_SYS(chmod(daemon->store_dir, 0755));
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	victim_start(daemon);

	hauls = mmap(NULL, 2 * sizeof(*hauls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	CHECK(hauls != MAP_FAILED);
	for (unsigned i = 0; i < 2; i++) {
		taker_start(daemon, row, FIRST_UID + i, &hauls[i]);
		taker_wait(&hauls[i]);
	}
	a = &hauls[0];
	b = &hauls[1];
	test_note("each: %" PRIu64 " clients, %" PRIu64 " files, %" PRIu64 " handles, %" PRIu64
		  " channels, %" PRIu64 " slabs, %" PRIu64 " bytes",
		  a->clients, a->files, a->handles, a->channels, a->slabs, a->bytes);
	CHECK(a->clients > 1 && (a->handles > 1 || a->slabs > 1 || a->bytes > MIB));
	CHECK_EQ(b->clients, a->clients);
	CHECK_EQ(b->files, a->files);
	CHECK_EQ(b->handles, a->handles);
	CHECK_EQ(b->channels, a->channels);
	CHECK_EQ(b->slabs, a->slabs);
	CHECK_EQ(b->bytes, a->bytes);

	victims_check(daemon, 2); /* a newcomer is served, too */
	CHECK(!daemon_log_has(daemon, "no descriptor"));
}

/* ---- others meanwhile ---- */

/* Makes slabs of 1 GiB, one after the other, until it is killed. */
static void slabs_without_end(const struct daemon *daemon)
{
	struct dsaio_client *client = client_open(daemon);
	void *slab;

	for (;;) {
		CHECK_CALL(dsaio_alloc(client, GIB, NULL, &slab));
		CHECK_CALL(dsaio_free(client, slab));
	}
}

/* Most of making it is to lock it: a second or more of the kernel's time, in the daemon's process. */
TEST(large_slab, "a large slab is made: others come and go meanwhile")
{
	struct daemon *daemon;
	struct dsaio_client *client;
	int64_t start, usec;
	void *slab;
	pid_t pid;

	test_needs_root(); /* for what is not locked nothing is done at once */
	if (sysconf(_SC_AVPHYS_PAGES) < (3L << 30) / sysconf(_SC_PAGESIZE))
		test_skip("less than 3 GiB of memory are free");
	daemon = daemon_start(NULL);
	client = client_open(daemon);
	start = now_usec();
	CHECK_CALL(dsaio_alloc(client, GIB, NULL, &slab));
	usec = now_usec() - start;
	(void)dsaio_disconnect(client);
	test_note("made in %" PRId64 " ms", usec / 1000);

	victim_start(daemon);
	(void)fflush(NULL); /* or the child prints it again */
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0)
		slabs_without_end(daemon);
	victims_check_p99(daemon, 5, usec > 200000 ? usec / 2 : 100000);
	CHECK_SYS(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

TEST_MAIN
