/*
 * Bad input about stores and configuration: users that a store does not serve (E6), each kind of
 * mistake in a configuration (E11).
 */
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOBODY 65534
#define MEMBERS 4242 /* a group */

static char *config_make(const char *text)
{
	char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");

	CHECK(file);
	CHECK(fputs(text, file) >= 0);
	CHECK(fflush(file) == 0);
	return path;
}

/* ---- E6 ---- */

/* A daemon whose store t serves user 1 and the group MEMBERS, and a file there for everybody. */
static struct daemon *exclusive_daemon(char **ret_path)
{
	char *dir = test_text("%s/exclusive", test_dir());
	struct daemon *daemon;

	CHECK_SYS(mkdir(dir, 0755));
	*ret_path = test_text("%s/f", dir);
	file_make_pattern(*ret_path, 4096, 1);
	CHECK_SYS(chmod(*ret_path, 0666));
	daemon = daemon_start_with(&(struct daemon_options){
		.store_dir = "",
		.args = DAEMON_ARGS("--config",
				    config_make(test_text("[store t]\npath = %s\nusers = 1\n"
							  "groups = %d\n",
							  dir, MEMBERS))),
	});
	return daemon;
}

static void become(uid_t uid, gid_t group)
{
	CHECK_SYS(setgroups(1, &group));
	CHECK_SYS(setresgid(NOBODY, NOBODY, NOBODY));
	CHECK_SYS(setresuid(uid, uid, uid));
}

static const struct {
	const char *what;
	uid_t uid;
	gid_t group;
	bool is_allowed;
} visitors[] = {
	{ "another user is refused; the message names the administrator", NOBODY, 1, false },
	{ "a user of its list is served", 1, NOBODY, true },
	{ "a member of a group of its list is served", NOBODY, MEMBERS, true },
};

static void visit(const struct daemon *daemon, const char *path, int row)
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	Wire__ChannelOpen open = WIRE__CHANNEL_OPEN__INIT;
	Wire__Request request = RAW_REQUEST(CHANNEL_OPEN, channel_open, &open);
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	uint8_t buf[4096];

	become(visitors[row].uid, visitors[row].group);
	client = client_open(daemon);
	CHECK_CALL(dsaio_handle_open(client, NULL, &handle));
	if (visitors[row].is_allowed) {
		CHECK_CALL(dsaio_open(client, path, O_RDWR, NULL, &file));
		CHECK_EQ(dsaio_pread(handle, file, buf, 4096, 0), 4096);
		dsaio_file_close(file);
	} else {
		CHECK_FAILS(dsaio_open(client, path, O_RDWR, NULL, &file), -EACCES,
			    "store t;user 65534;users 1; groups 4242;administrator");
		/* Nor by the store's number. */
		raw_open(&raw, daemon);
		open.handle = raw_handle(&raw);
		open.store = raw_store("t");
		open.entries = 16;
		raw_call_fails(&raw, &request, NULL, 0, -EACCES, "store t;users");
	}
	(void)dsaio_handle_close(handle, -1);
	(void)dsaio_disconnect(client);
}

TEST_TABLE(e6_visitor, visitors, "E6 a store for some")
{
	struct daemon *daemon;
	char *path;
	pid_t pid;

	test_needs_root();
	daemon = exclusive_daemon(&path);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		visit(daemon, path, row);
		_exit(0);
	}
	child_wait_ok(pid);
	/* Administrators are served, and nothing was left over. */
	{
		_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
		uint8_t buf[4096];

		rig_open(&rig, NULL);
		CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, path, O_RDONLY), buf, 4096, 0),
			 4096);
	}
}

TEST(e6_profile, "E6 a user who is no administrator sets no profile")
{
	struct daemon *daemon;
	pid_t pid;

	test_needs_root();
	daemon = daemon_start(NULL);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		_cleanup_(raw_close) struct raw raw = RAW_NONE;
		Wire__ProfileSet set = WIRE__PROFILE_SET__INIT;
		Wire__Request request = RAW_REQUEST(PROFILE_SET, profile_set, &set);

		become(NOBODY, NOBODY);
		raw_open(&raw, daemon);
		set.name = (char *)(uintptr_t) "t";
		raw_call_fails(&raw, &request, NULL, 0, -EPERM, "administrator;admin_group");
		_exit(0);
	}
	child_wait_ok(pid);
}

/* ---- E11 ---- */

static const struct {
	const char *what, *text, *words;
} mistakes[] = {
	{ "no section", "pool_size = 1M\n", ":1: pool_size = 1M;[daemon]" },
	{ "an unknown section", "[tables]\nx = 1\n", ":1: [tables];[store NAME]" },
	{ "an unknown section without keys", "[tables]\n", ":1: [tables];[store NAME]" },
	{ "a section that is not closed", "[daemon\nlock = yes\n", ":1: [daemon:" },
	{ "a section given twice", "[store a]\npath = /\n[store a]\nlanes = 1\n",
	  ":3: [store a];already" },
	{ "[daemon] given twice", "[daemon]\npool_size = 1G\n[daemon]\npool_size = 2G\n",
	  ":3: [daemon];already" },
	{ "a socket that is too long",
	  "[daemon]\nsocket = /0123456789012345678901234567890123456789012345678901234567890123456789"
	  "01234567890123456789012345678901234567890\n",
	  ":2: [daemon] socket = /01;at most 107" },
	{ "a relative socket", "[daemon]\nsocket = s.sock\n",
	  ":2: [daemon] socket = s.sock;absolute" },
	{ "a relative state_dir", "[daemon]\nstate_dir = state\n",
	  ":2: [daemon] state_dir = state;absolute" },
	{ "a relative path of a store", "[store a]\npath = nvme0\n",
	  ":2: [store a] path = nvme0;absolute" },
	{ "a store without a name", "[store ]\npath = /\n", ":1: [store ];1 to 31" },
	{ "a store's name with a slash", "[store a/b]\npath = /\n", ":1: [store a/b];letters" },
	{ "a store's name that is too long", "[store a2345678901234567890123456789012]\npath = /\n",
	  ":1: [store a2;1 to 31" },
	{ "a store without a path", "[store a]\nlanes = 1\n", "[store a];path is missing" },
	{ "a store whose path is not there", "[store a]\npath = /nonexistent/d\n",
	  "store a;/nonexistent/d" },
	{ "a store whose path is a file", "[store a]\npath = /proc/version\n",
	  "store a;/proc/version;neither a directory nor a block device" },
	{ "an unknown key", "[daemon]\ncolour = red\n",
	  ":2: [daemon] colour = red;there are socket" },
	{ "a store's key for the daemon", "[daemon]\npath = /\n",
	  ":2: [daemon] path = /;no such key" },
	{ "the daemon's key for a store", "[store a]\npath = /\npool_size = 1G\n",
	  ":3: [store a] pool_size = 1G;no such key;there are path" },
	{ "a key given twice", "[daemon]\nlock = yes\nlock = auto\n",
	  ":3: [daemon] lock = auto;line 2" },
	{ "a line that is no key", "[daemon]\nhello\n", ":2: hello;KEY = VALUE" },
	{ "a key without a value", "[daemon]\nsocket =\n", ":2: [daemon] socket = ;empty" },
	{ "a size that is none", "[daemon]\npool_size = much\n",
	  ":2: [daemon] pool_size = much;1 MiB" },
	{ "a size below its limit", "[daemon]\npool_size = 1\n",
	  ":2: [daemon] pool_size = 1:;1 MiB" },
	{ "a size past 2^64", "[daemon]\npool_size = 99999999999999999999G\n", ":2: ;pool_size" },
	{ "a number above its limit", "[store a]\npath = /\nqueue_depth = 4097\n",
	  ":3: [store a] queue_depth = 4097;1 to 4096" },
	{ "a number with a unit", "[daemon]\nspin_usec = 1K\n",
	  ":2: [daemon] spin_usec = 1K;1000000" },
	{ "a number between steps", "[store a]\npath = /\nblock_size = 5000\n",
	  ":3: [store a] block_size = 5000;512" },
	{ "a yes or no that is neither", "[daemon]\nauto_stores = perhaps\n",
	  ":2: [daemon] auto_stores = perhaps;yes or no" },
	{ "a lock that is none", "[daemon]\nlock = maybe\n", ":2: [daemon] lock = maybe;auto" },
	{ "huge pages that are none", "[daemon]\nhuge_pages = 1G\n",
	  ":2: [daemon] huge_pages = 1G;auto;reserved" },
	{ "a way to GPU memory that is none", "[daemon]\ngpu = cufile\n",
	  ":2: [daemon] gpu = cufile;auto;direct;copy" },
	{ "a user that the host does not have", "[store a]\npath = /\nusers = root, no-such-user\n",
	  ":3: [store a] users = root, no-such-user;no such user;getent passwd" },
	{ "a group that the host does not have", "[store a]\npath = /\ngroups = no-such-group\n",
	  ":3: [store a] groups = no-such-group;no such group;getent group" },
	{ "an empty list of users", "[store a]\npath = /\nusers = ,\n",
	  ":3: [store a] users = ,;commas" },
	{ "administrators that the host does not have", "[daemon]\nadmin_group = no-such-group\n",
	  ":2: [daemon] admin_group = no-such-group;no such group" },
	{ "a client's memory above its user's",
	  "[daemon]\nclient_pool_max = 9M\nuser_pool_max = 8M\n",
	  ":2: [daemon] client_pool_max = 9 MiB;user_pool_max, which is 8 MiB" },
	{ "a client's memory above all", "[daemon]\npool_size = 1M\nclient_pool_max = 2M\n",
	  ":3: [daemon] client_pool_max = 2 MiB;pool_size, which is 1 MiB" },
	{ "a socket path that is too long",
	  "[daemon]\nsocket = /0123456789012345678901234567890123456789012345678901234567890123456789"
	  "01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678"
	  "901234567890123456789012345678901234567890123456789012345678901234567890123456789012345\n",
	  ":2: [daemon] socket = /0123;at most 107 bytes; it has" },
	{ "several: all are reported",
	  "[daemon]\nlock = x\nz\n[store a]\npath = /\nqueue_depth = 0\n[b]\n",
	  ":2: [daemon] lock = x;:3: z;:6: [store a] queue_depth = 0;:7: [b]" },
};

/* The message has all of the words (";" between them), and nothing was made. */
static void check_refused(int row, const char *const *args)
{
	_cleanup_(freep) char *words = strdup(mistakes[row].words);
	char *rest = words, *word, *said;
	struct stat st;
	int status = daemon_start_fails(&(struct daemon_options){ .store_dir = "", .args = args },
					&said);

	CHECK_MSG(status == 1 || status == 2, "exit status %d: %s", status, said);
	while (words && (word = strsep(&rest, ";")))
		CHECK_MSG(strstr(said, word), "it does not say \"%s\": %s", word, said);
	CHECK(stat(test_text("%s/s.sock", test_dir()), &st) < 0);
}

TEST_TABLE(e11_start, mistakes, "E11 a mistake in the configuration")
{
	char *config = config_make(mistakes[row].text);

	check_refused(row, DAEMON_ARGS("--config", config));
	check_refused(row, DAEMON_ARGS("--config", config, "--check-config"));
}

TEST(e11_unreadable, "E11 an unreadable configuration is named")
{
	char *said;
	int status = daemon_start_fails(
		&(struct daemon_options){
			.args = DAEMON_ARGS("--config", test_text("%s/missing.conf", test_dir())) },
		&said);

	CHECK_EQ(status, 2);
	CHECK_MSG(strstr(said, "missing.conf: No such file"), "%s", said);
	status = daemon_start_fails(
		&(struct daemon_options){ .args = DAEMON_ARGS("--config", test_dir()) }, &said);
	CHECK_EQ(status, 2);
	CHECK_MSG(strstr(said, "is it a file?"), "%s", said);
	/* The daemon does not wait for a file that never ends, or never begins. */
	CHECK_SYS(mkfifo(test_text("%s/fifo", test_dir()), 0600));
	status = daemon_start_fails(
		&(struct daemon_options){ .args = DAEMON_ARGS("--config", "/dev/zero") }, &said);
	CHECK_EQ(status, 2);
	CHECK_MSG(strstr(said, "/dev/zero:1: the line has more than"), "%s", said);
	status = daemon_start_fails(
		&(struct daemon_options){
			.args = DAEMON_ARGS("--config", test_text("%s/fifo", test_dir())) },
		&said);
	CHECK_EQ(status, 2);
	CHECK_MSG(strstr(said, "fifo: cannot be read"), "%s", said);
}

TEST_MAIN
