/*
 * A session by hand (struct raw) with a slab, a file and a channel, for attacks.
 */
#ifndef DSAIO_TESTS_KIT_H
#define DSAIO_TESTS_KIT_H

#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* Everything that a session by hand needs for ops. */
struct kit {
	struct raw raw;
	struct raw_slab slab;
	struct raw_file file;
	struct raw_channel channel;
	uint32_t handle;
	const char *path;
};

static inline void kit_open(struct kit *kit, const struct daemon *daemon, const char *name,
			    bool rings)
{
	*kit = (struct kit){ .raw = RAW_NONE };
	raw_open(&kit->raw, daemon);
	kit->path = daemon_path(daemon, name);
	file_make_pattern(kit->path, 65536, 1);
	raw_slab(&kit->raw, 65536, &kit->slab);
	raw_file(&kit->raw, kit->path, O_RDWR, &kit->file);
	kit->handle = raw_handle(&kit->raw);
	raw_channel(&kit->raw, kit->handle, kit->file.store, 16, rings, &kit->channel);
}

static inline void kit_close(struct kit *kit)
{
	raw_slab_unmap(&kit->slab);
	raw_channel_unmap(&kit->channel);
	raw_close(&kit->raw);
}

static inline struct ring_entry kit_read(const struct kit *kit)
{
	return (struct ring_entry){
		.opcode = RING_OP_READ, .file = kit->file.id, .slab = kit->slab.id, .len = 4096
	};
}

static inline void kit_check_works(struct kit *kit)
{
	memset(kit->slab.memory, 0, 4096);
	CHECK_EQ(raw_run_one(&kit->channel, kit_read(kit)), 4096);
	pattern_check(kit->slab.memory, 4096, 1, 0, "the session works");
}

/* An op that names a slab that is not there. */
static inline void check_no_slab(int64_t result)
{
	int error = ring_result_errno(result);

	CHECK_MSG(error == EBADF || error == EFAULT, "%" PRId64, result);
	CHECK_EQ(ring_result_done(result), 0);
}

#endif
