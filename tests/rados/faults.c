/*
 * A RADOS store, with ops under way, when something happens to its cluster or its daemon.
 */
#include "tests/rados/load.h"
#include "tests/restarting.h"

#include <signal.h>
#include <sys/stat.h>

enum { MSEC = 1000 };

static const char bounded[] = "op_timeout = 3\ntrash_after = 60\n";

static struct rig open_rig(const char *keys)
{
	struct rig rig = RIG_NONE;

	rig.daemon = ceph_daemon(0, keys);
	reconnecting(&rig);
	return rig;
}

/* The store "c" in status. */
static Wire__Store *store_of(const struct answer *answer)
{
	for (size_t i = 0; i < answer->reply->status->n_stores; i++)
		if (strcmp(answer->reply->status->stores[i]->name, "c") == 0)
			return answer->reply->status->stores[i];
	test_fail("no store c in status");
}

static bool is_offline(const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	daemon_status(daemon, &answer);
	return store_of(&answer)->is_offline;
}

static void await_state(const struct daemon *daemon, bool offline)
{
	while (is_offline(daemon) != offline)
		(void)usleep(50 * MSEC);
}

static struct load reads(const struct rig *rig)
{
	return (struct load){
		.client = rig->client, .name = "r", .block = 64 * KIB, .size = 8 * MIB, .depth = 4
	};
}

static struct load writes(const struct rig *rig)
{
	return (struct load){ .client = rig->client,
			      .name = "w",
			      .block = 64 * KIB,
			      .size = 8 * MIB,
			      .depth = 4,
			      .is_write = true };
}

TEST(one_osd, "an osd that is killed pauses ops, and status says so")
{
	_cleanup_(rig_close) struct rig rig = open_rig(NULL);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct load r = reads(&rig), w = writes(&rig);

	load_start(&r);
	load_start(&w);
	load_await(&w, 100);
	cluster("kill", "osd.1");
	load_await(&w, 200);
	cluster("start", "osd.1");
	load_await(&w, 200);
	load_stop(&r);
	load_stop(&w);
	test_note("longest read %" PRId64 " ms, write %" PRId64 " ms", r.longest_usec / MSEC,
		  w.longest_usec / MSEC);
	CHECK_EQ(r.n_failed, 0);
	CHECK_EQ(w.n_failed, 0);
	daemon_status(rig.daemon, &answer);
	if (r.longest_usec > 600 * MSEC && w.longest_usec > 600 * MSEC)
		CHECK(store_of(&answer)->pauses);
}

TEST(two_osds, "each op ends within op_timeout when two osds are gone, and writes are unknown")
{
	_cleanup_(rig_close) struct rig rig = open_rig(bounded);
	struct load w = writes(&rig);

	load_start(&w);
	load_await(&w, 50);
	cluster("kill", "osd.1");
	cluster("kill", "osd.2");
	while (w.n_failed < 4)
		(void)usleep(10 * MSEC);
	cluster("start", "osd.1");
	cluster("start", "osd.2");
	while (w.n_failed == w.n_ended)
		(void)usleep(10 * MSEC);
	w.must_stop = true;
	load_stop(&w);
	test_note("longest %" PRId64 " ms, %u of %u failed", w.longest_usec / MSEC, w.n_failed,
		  w.n_ended);
	CHECK_EQ(w.first_error, -ETIMEDOUT);
	CHECK(w.n_unknown); /* those that were not submitted any more have surely failed */
	CHECK(w.longest_usec < (int64_t)(4500 * MSEC * test_time_factor()));
}

TEST(daemon_killed, "a daemon that is killed under load loses no op, and the next one fences it")
{
	_cleanup_(rig_close) struct rig rig = open_rig(NULL);
	const char *conf = test_text("%s/0.conf", test_dir());
	struct load r = reads(&rig), w = writes(&rig);

	load_start(&r);
	load_start(&w);
	for (unsigned i = 0; i < 3; i++) {
		load_await(&w, 50);
		daemon_kill(rig.daemon);
		daemon_again(rig.daemon, DAEMON_ARGS("--config", conf));
	}
	load_await(&w, 50);
	load_await(&r, 50);
	load_stop(&r);
	load_stop(&w);
	CHECK_EQ(r.n_failed, 0);
	CHECK_EQ(w.n_failed, 0);
	test_note("longest read %" PRId64 " ms, write %" PRId64 " ms", r.longest_usec / MSEC,
		  w.longest_usec / MSEC);
	CHECK(atoi(ceph_run("timeout 20 ceph osd blocklist ls 2>/dev/null | grep -c 127.0.0.1")) >=
	      3);
}

TEST(silent, "while the cluster is silent the store is offline, and ops that wait end soon")
{
	enum { N_WRITES = 200 };
	_cleanup_(rig_close) struct rig rig = open_rig(bounded);
	struct dsaio_file *file = ceph_create(rig.client, "a", N_WRITES * MIB, DSAIO_CREATE_SPARSE);
	int64_t since = now_usec(), result;
	void *memory;

	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &memory));
	memset(memory, 1, MIB);
	cluster("freeze", "osd.0");
	cluster("freeze", "osd.1");
	cluster("freeze", "osd.2");
	for (unsigned i = 0; i < N_WRITES; i++)
		CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory, MIB, i * MIB, NULL));
	CHECK_CALL(dsaio_handle_wait(rig.handle, -1, &result));
	test_note("%d writes ended after %" PRId64 " ms", N_WRITES, (now_usec() - since) / MSEC);
	CHECK_EQ(result, -ETIMEDOUT);
	CHECK(now_usec() - since < (int64_t)(6000 * MSEC * test_time_factor()));
	CHECK(is_offline(rig.daemon));
	CHECK_FAILS(dsaio_file_commit(file, 0), -EHOSTDOWN, "offline");
	cluster("thaw", "osd.0");
	cluster("thaw", "osd.1");
	cluster("thaw", "osd.2");
	await_state(rig.daemon, false);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, MIB, 0), MIB);
	CHECK_CALL(dsaio_file_commit(file, 0));
	dsaio_file_close(file);
}

TEST(blocklisted, "a daemon that is blocklisted by hand heals")
{
	_cleanup_(rig_close) struct rig rig = open_rig(NULL);
	struct load w = writes(&rig);

	load_start(&w);
	load_await(&w, 20);
	(void)ceph_run(test_text(
		"a=$(grep -oE '127.0.0.1:[0-9]+/[0-9]+' %s/state0/* | head -n 1 | cut -d: -f2-); "
		"timeout 20 ceph osd blocklist add 127.0.0.1:${a#*:} >&2",
		test_dir()));
	load_await(&w, 200);
	load_stop(&w);
	test_note("longest write %" PRId64 " ms, %u failed", w.longest_usec / MSEC, w.n_failed);
	CHECK_EQ(w.n_failed, 0);
}

TEST(no_monitor, "without a monitor the daemon starts, the store is offline, and heals")
{
	struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct load w;

	cluster("kill", "mon.a");
	rig.daemon = ceph_daemon(0, bounded);
	rig_open(&rig, NULL);
	CHECK(is_offline(rig.daemon));
	CHECK_FAILS(dsaio_create(rig.client, ceph_name("a"), NULL, &file), -EHOSTDOWN, "");
	cluster("start", "mon.a");
	await_state(rig.daemon, false);
	w = writes(&rig);
	load_start(&w);
	load_await(&w, 20);
	load_stop(&w);
	CHECK_EQ(w.n_failed, 0);
	rig_close(&rig);
}

enum { N_QUEUED = 256, N_ROUNDS = 5, N_TIMES = 20000 };

/* The p99 of 4 KiB reads of the other store for a second, usec. */
static int64_t p99_of_other(struct load *load)
{
	static int64_t times[N_TIMES];
	const unsigned before = load->n_ended;
	const int64_t until = now_usec() + USEC_PER_SEC;
	size_t n;

	while (now_usec() < until)
		(void)usleep(1000);
	n = load->n_ended - before;
	for (size_t i = 0; i < n && i < N_TIMES; i++)
		times[i] = load->times[(before + i) % load->n_times];
	return percentile(times, n < N_TIMES ? n : N_TIMES, 99);
}

/* 1 GiB of writes; they are cancelled before the osds go on. */
static int64_t p99_beside_frozen(const struct rig *rig, struct dsaio_file *file, void *memory,
				 struct load *load)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	int64_t result, p99;

	cluster("freeze", "osd.0");
	cluster("freeze", "osd.1");
	cluster("freeze", "osd.2");
	for (unsigned i = 0; i < N_QUEUED; i++)
		CHECK_CALL(
			dsaio_pwrite_async(rig->handle, file, memory, 4 * MIB, i * 4 * MIB, NULL));
	p99 = p99_of_other(load);
	daemon_status(rig->daemon, &answer);
	CHECK(store_of(&answer)->pause_usec);
	CHECK_CALL(dsaio_handle_cancel(rig->handle));
	cluster("thaw", "osd.0");
	cluster("thaw", "osd.1");
	cluster("thaw", "osd.2");
	CHECK_CALL(dsaio_handle_wait(rig->handle, -1, &result));
	CHECK_EQ(result, -ECANCELED);
	return p99;
}

TEST(frozen, "a cluster that is frozen with 1 GiB queued delays no other cluster's store")
{
	const char *other = test_text("%s-2", getenv("CEPH_DIR"));
	struct load load = { .name = "r", .block = 4 * KIB, .size = MIB, .depth = 1 };
	int64_t alone[N_ROUNDS], beside[N_ROUNDS];
	struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	void *memory;

	(void)ceph_run(test_text("$CEPH_TOOL up %s osds=1 store=memstore mgr=0 >&2", other));
	rig = open_rig(test_text(
		"[store d]\npath = rados://dsaio/other%d\nceph_user = dsaio\nceph_conf = %s/ceph.conf\n",
		(int)getpid(), other));
	CHECK_CALL(dsaio_alloc(rig.client, 4 * MIB, NULL, &memory));
	memset(memory, 1, 4 * MIB);
	file = ceph_create(rig.client, "queued", GIB, DSAIO_CREATE_SPARSE);
	load.client = rig.client;
	load.full_name = test_text("rados://dsaio/other%d/r", (int)getpid());
	load.n_times = N_TIMES;
	load.times = calloc(N_TIMES, sizeof(*load.times));
	CHECK(load.times);
	load_start(&load);
	for (unsigned i = 0; i < N_ROUNDS; i++) {
		alone[i] = p99_of_other(&load);
		beside[i] = p99_beside_frozen(&rig, file, memory, &load);
		test_note("p99 alone %" PRId64 " us, beside %" PRId64 " us", alone[i], beside[i]);
	}
	load_stop(&load);
	free(load.times);
	CHECK_EQ(load.n_failed, 0);
	test_note("medians: %" PRId64 " and %" PRId64 " us", percentile(alone, N_ROUNDS, 50),
		  percentile(beside, N_ROUNDS, 50));
	/* The bar is 1.2; the bench's machine has more to do than these. */
	CHECK(percentile(beside, N_ROUNDS, 50) < 3 * percentile(alone, N_ROUNDS, 50));
	dsaio_file_close(file);
	rig_close(&rig);
	(void)ceph_run(test_text("$CEPH_TOOL down %s >&2", other));
}

TEST(quota, "a pool's quota is -EDQUOT for those that write, and readers go on")
{
	_cleanup_(rig_close) struct rig rig = open_rig(NULL);
	struct load r = reads(&rig), w = writes(&rig);
	struct dsaio_file *file = NULL;

	load_start(&r);
	cluster("quota", "dsaio 1000000");
	w.size = 256 * MIB; /* each write grows an object, or makes one */
	load_start(&w);
	while (!w.n_failed && w.n_ended < 4000)
		(void)usleep(50 * MSEC);
	load_await(&r, 50);
	load_stop(&r);
	load_stop(&w);
	CHECK_EQ(w.first_error, -EDQUOT);
	CHECK_EQ(r.n_failed, 0);
	/* A full pool can be emptied, and is of use then. */
	CHECK_CALL(dsaio_remove(rig.client, ceph_name("r")));
	cluster("quota", "dsaio 0");
	while (dsaio_create(rig.client, ceph_name("new"), NULL, &file) == -EDQUOT)
		(void)usleep(200 * MSEC);
	dsaio_file_close(file);
}

TEST_MAIN
