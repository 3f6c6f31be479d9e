/*
 * Two clients with long queues on one store: when the first is done, how far is the other?  That
 * depends on class and weight alone, not on the device's speed.
 */
#include "tests/harness.h"

#include <fcntl.h>
#include <unistd.h>

#define N_OPS 64
#define OP_BYTES MIB

static const struct {
	const char *what;
	enum dsaio_class io_class[2];
	uint32_t weight[2];
	int at_least, at_most; /* ops of the second that have ended by then */
} pairs[] = {
	{ "equals get equal shares",
	  { DSAIO_CLASS_NORMAL, DSAIO_CLASS_NORMAL },
	  { 1, 1 },
	  N_OPS / 2,
	  N_OPS },
	{ "a weight of four gets about four times as much",
	  { DSAIO_CLASS_NORMAL, DSAIO_CLASS_NORMAL },
	  { 4, 1 },
	  N_OPS / 10,
	  N_OPS / 2 },
	{ "demand goes before normal",
	  { DSAIO_CLASS_DEMAND, DSAIO_CLASS_NORMAL },
	  { 1, 1 },
	  0,
	  N_OPS / 3 },
	{ "normal goes before background",
	  { DSAIO_CLASS_NORMAL, DSAIO_CLASS_BACKGROUND },
	  { 1, 1 },
	  0,
	  N_OPS / 3 },
};

struct side {
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	struct dsaio_op *ops[N_OPS];
	char *memory;
};

static void side_open(struct side *side, const struct daemon *daemon, int row, int i)
{
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	void *memory;

	options.io_class = pairs[row].io_class[i];
	options.weight = pairs[row].weight[i];
	side->client = client_open(daemon);
	CHECK_CALL(dsaio_handle_open_with(side->client, &options, &side->handle));
	CHECK_CALL(dsaio_file_open(side->client, daemon_path(daemon, "f"), O_RDONLY, &side->file));
	CHECK_CALL(dsaio_alloc(side->client, N_OPS * OP_BYTES, &memory));
	side->memory = memory;
	CHECK_EQ(dsaio_pread(side->handle, side->file, memory, 4096, 0),
		 4096); /* makes the channel */
}

static void side_submit(struct side *side)
{
	for (size_t n = 0; n < N_OPS; n++)
		CHECK_CALL(dsaio_pread_async(side->handle, side->file, side->memory + n * OP_BYTES,
					     OP_BYTES, n * OP_BYTES, &side->ops[n]));
}

static int side_count_ended(struct side *side)
{
	int n_ended = 0;

	for (size_t n = 0; n < N_OPS; n++)
		n_ended += dsaio_op_test(side->ops[n]) == 1;
	return n_ended;
}

TEST_TABLE(shares, pairs, "two clients")
{
	struct daemon *daemon = daemon_start(NULL);
	struct side sides[2];
	int n_ended, fd;

	file_make_pattern(daemon_path(daemon, "f"), N_OPS * OP_BYTES, 1);
	/* With dirty pages in the cache helper threads would have to read it, in no order. */
	fd = (int)CHECK_SYS(open(daemon_path(daemon, "f"), O_RDONLY));
	CHECK_SYS(fdatasync(fd));
	(void)close(fd);
	for (int i = 0; i < 2; i++)
		side_open(&sides[i], daemon, row, i);

	/* Both are active from here on, so the store is shared before the first large op. */
	for (int i = 0; i < 4; i++)
		CHECK_EQ(dsaio_pread(sides[i % 2].handle, sides[i % 2].file, sides[i % 2].memory,
				     4096, 0),
			 4096);
	side_submit(&sides[1]); /* the one that has to wait comes first */
	side_submit(&sides[0]);
	CHECK_EQ(dsaio_wait(sides[0].handle, -1), N_OPS);
	n_ended = side_count_ended(&sides[1]);
	test_note("%s: %d of %d", pairs[row].what, n_ended, N_OPS);
	CHECK_MSG(n_ended >= pairs[row].at_least && n_ended <= pairs[row].at_most, "%d ended",
		  n_ended);

	/* And none starves. */
	CHECK_EQ(dsaio_wait(sides[1].handle, -1), N_OPS);
	for (int i = 0; i < 2; i++) {
		pattern_check(sides[i].memory, N_OPS * OP_BYTES, 1, 0, "what was read");
		dsaio_disconnect(sides[i].client);
	}
}

TEST_MAIN
