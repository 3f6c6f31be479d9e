/*
 * Kinds of stores, for tests that have to hold on each.
 *
 * A store is made fresh for a test.  Mounts and loop devices need root; the mounts
 * are in a namespace of the test's own and its loop devices clear themselves, so all of it goes
 * with the test's last process, however that ends.  A kind that this machine cannot have skips the
 * test with the reason.
 *
 * Any thread, but make stores before the test starts daemons or threads: those are then in the
 * namespace, too.
 */
#ifndef DSAIO_TESTS_STORES_H
#define DSAIO_TESTS_STORES_H

#include "tests/harness.h"

enum store_kind {
	STORE_EXT4,    /* the test's directory, if that is one and it need not be small */
	STORE_XFS,     /* with sectors of 4 KiB, on a loop device */
	STORE_TMPFS,   /* /dev/shm, if it need not be small */
	STORE_OVERLAY, /* on the test's directory */
	STORE_RAW,     /* a loop device, with sectors of 512 bytes */
	N_STORE_KINDS
};

struct store {
	enum store_kind kind;
	const char *path;    /* a directory, or the device */
	uint64_t size_bytes; /* of a device; 0 for the others */
};

const char *store_kind_name(enum store_kind kind);

/* Makes one; small_bytes: so much room (about, and not all kinds), 0: all that a test can want. */
void store_make(struct store *ret_store, enum store_kind kind, uint64_t small_bytes);
/* A raw device, or ext4 on one: a loop device over this file. */
void store_make_on(struct store *ret_store, bool is_raw, const char *image);
/* A small ext4 that reserves so many percent of its blocks for root. */
void store_make_reserved(struct store *ret_store, uint64_t bytes, unsigned percent);
/* The path of a file in it; the device itself if it is one. */
const char *store_path(const struct store *store, const char *name);
/* A daemon with this store, a client and a handle. */
void store_rig_open(struct rig *rig, const struct store *store);

/* The file gets this pattern up to end; a device, from byte `from` on. */
void store_make_pattern(const struct store *store, const char *name, uint64_t from, uint64_t end,
			uint64_t seed);

/* The parameters of an op. */
struct range {
	size_t len;
	uint64_t off;
	size_t misalign; /* of the address, see guarded_new() */
	bool is_pinned, is_async;
};
/*
 * One write and one read of the range, of the file name that file is: what was asked for is done,
 * byte by byte, and no byte beside it changes, neither in the file nor in memory.
 */
void store_check_range(struct rig *rig, const struct store *store, struct dsaio_file *file,
		       const char *name, const struct range *range);
/* Blocking, or async and waited for. */
int64_t range_write(struct rig *rig, struct dsaio_file *file, const void *memory,
		    const struct range *range);
int64_t range_read(struct rig *rig, struct dsaio_file *file, void *memory,
		   const struct range *range);

/* Makes later mounts private to this test; they end with it.  Skips the test if it cannot. */
void mounts_private(void);
/* A loop device over the file, with sectors of that size; it goes with the test. */
const char *loop_device(const char *image, uint32_t sector_bytes);

/*
 * One test for each kind of store and each row of a table whose rows have a member what; the body
 * sees enum store_kind kind, int row.  n_kinds: the first so many kinds.
 */
#define TEST_STORES(id, n_kinds, table, text)                                                      \
	static void id##_on(enum store_kind kind, int row);                                        \
	static void id(int n)                                                                      \
	{                                                                                          \
		id##_on((enum store_kind)(n / (int)ARRAY_SIZE(table)),                             \
			n % (int)ARRAY_SIZE(table));                                               \
	}                                                                                          \
	__attribute__((constructor)) static void id##_add(void)                                    \
	{                                                                                          \
		for (int i = 0; i < (int)(n_kinds) * (int)ARRAY_SIZE(table); i++)                  \
			test_add(test_text("%s on %s: %s", text,                                   \
					   store_kind_name(                                        \
						   (enum store_kind)(i / (int)ARRAY_SIZE(table))), \
					   (table)[i % (int)ARRAY_SIZE(table)].what),              \
				 id, i);                                                           \
	}                                                                                          \
	static void id##_on(enum store_kind kind __attribute__((unused)),                          \
			    int row __attribute__((unused)))
#define N_FILE_STORE_KINDS STORE_RAW /* those with files, that have an end and holes */

#endif
