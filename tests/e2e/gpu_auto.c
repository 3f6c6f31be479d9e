/*
 * gpu = auto: ops on GPU memory go directly where cuFile takes the file without its compatibility mode, else they
 * are copied.  The administrator or the program may demand one of the two.
 */
#include "tests/gpu/owner.h"

#define LEN (64 * KIB)

static struct dsaio_file *client_begin(struct rig *rig, struct daemon *daemon)
{
	rig->daemon = daemon;
	rig_open(rig, NULL);
	if (access(daemon_path(daemon, "f"), F_OK) < 0)
		file_make_pattern(daemon_path(daemon, "f"), 4 * MIB, 1);
	return rig_file(rig, "f", O_RDWR);
}

/* The first client of a new daemon, with GPU memory. */
static struct dsaio_file *gpu_begin(struct rig *rig, const char *standin, const char *keys,
				    char **ret_memory)
{
	struct daemon *daemon = gpu_daemon_start(standin, keys);

	gpu_open();
	*ret_memory = program_alloc(0, MIB);
	return client_begin(rig, daemon);
}

/* Runs an op that must succeed.  Returns how its bytes went. */
static enum dsaio_path path_of(struct rig *rig, struct dsaio_file *file, char *memory,
			       char *ret_why)
{
	struct dsaio_op *op;
	int path;

	memset(program_bytes(memory), 0, LEN);
	CHECK_CALL(dsaio_pread_async(rig->handle, file, memory, LEN, 0, &op));
	CHECK_EQ(op_wait(op, -1), LEN);
	pattern_check(program_bytes(memory), LEN, 1, 0, "GPU memory");
	path = dsaio_op_path(op);
	(void)snprintf(ret_why, 256, "%s", dsaio_op_why(op));
	dsaio_op_free(op);
	return (enum dsaio_path)path;
}

static const struct {
	const char *what, *standin, *keys;
	enum dsaio_path path;
	const char *why; /* a part of the reason; "": there is none */
} hosts[] = {
	{ "auto with nvidia-fs", "nvfs=2.24", "", DSAIO_PATH_GPU, "" },
	{ "auto in compatibility mode", "", "", DSAIO_PATH_COPIED, "compatibility mode" },
	{ "direct in compatibility mode", "", "gpu = direct\n", DSAIO_PATH_GPU, "" },
	{ "copy", "nvfs=2.24", "gpu = copy\n", DSAIO_PATH_COPIED, "gpu = copy" },
};

TEST_TABLE(host, hosts, "all ops take the path that configuration and cuFile allow")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory, why[256];

	file = gpu_begin(&rig, hosts[row].standin, hosts[row].keys, &memory);
	for (unsigned i = 0; i < 20; i++) {
		CHECK_EQ(path_of(&rig, file, memory, why), hosts[row].path);
		CHECK_MSG(*hosts[row].why ? strstr(why, hosts[row].why) != NULL : !*why, "%s", why);
	}
}

TEST(probing,
     "a client that connects before the driver has answered copies in compatibility mode, too")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE, next = RIG_NONE;
	struct dsaio_file *file;
	struct daemon *daemon;
	char *memory, why[256];

	(void)gpu_begin(&rig, "", "", &memory);
	daemon = rig.daemon;
	rig_close(&rig);
	rig = (struct rig)RIG_NONE;
	daemon_stop(daemon);
	words_set("cuFileDriverOpen=hold");
	daemon = gpu_daemon_again();
	held_wait("cuFileDriverOpen", true);
	file = client_begin(&next, daemon);
	words_set("");
	CHECK_EQ(path_of(&next, file, memory, why), DSAIO_PATH_COPIED);
	CHECK_MSG(strstr(why, "compatibility mode"), "%s", why);
}

TEST(demanded, "a program that allows no copies goes through cuFile in compatibility mode")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;
	struct dsaio_client *client = NULL;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	struct dsaio_op *op;
	char *memory;

	(void)gpu_begin(&rig, "", "", &memory);
	options.flags = DSAIO_GPU_DIRECT;
	options.socket_path = rig.daemon->socket_path;
	CHECK_CALL(dsaio_connect(&options, &client));
	CHECK_CALL(dsaio_handle_open(client, NULL, &handle));
	CHECK_CALL(dsaio_open(client, daemon_path(rig.daemon, "f"), O_RDONLY, NULL, &file));
	CHECK_CALL(dsaio_pread_async(handle, file, memory, LEN, 0, &op));
	CHECK_EQ(op_wait(op, -1), LEN);
	CHECK_EQ(dsaio_op_path(op), DSAIO_PATH_GPU);
	pattern_check(program_bytes(memory), LEN, 1, 0, "GPU memory");
	dsaio_op_free(op);
	dsaio_file_close(file);
	(void)dsaio_handle_close(handle, -1);
	(void)dsaio_disconnect(client);
}

TEST(asked, "a copied op asks libcuda once whose memory it is")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	char *memory, why[256];
	uint64_t n_asked;

	file = gpu_begin(&rig, "", "", &memory);
	(void)path_of(&rig, file, memory, why);
	n_asked = gpu.look.standin_counts().n_asked;
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, LEN, 0), LEN);
	n_asked = gpu.look.standin_counts().n_asked - n_asked;
	/* Type and GPU, whether the allocation is the same, and once a second whether it is gone. */
	CHECK_MSG(n_asked <= 4, "%" PRIu64, n_asked);
}

TEST_MAIN
