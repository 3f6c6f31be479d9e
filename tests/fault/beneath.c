/*
 * Changes of a file beneath running I/O: it is cut, deleted, or its file system turns read-only.  Bytes that an
 * op reports are right, errors name the file, and the next op works.
 */
#include "tests/stores.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define OP_BYTES (256 * KIB)
#define N_OPS 32u
#define FILE_BYTES (N_OPS * OP_BYTES)
#define SEED_FILE 1
#define SEED_DATA 2

struct scene {
	struct rig rig;
	struct dsaio_file *file;
	const char *path;
	uint8_t *memory; /* FILE_BYTES, pinned */
	struct dsaio_op *ops[N_OPS];
};

static void scene_deinit(struct scene *scene)
{
	rig_close(&scene->rig);
}

/* store: NULL: the daemon's own. */
static void scene_init(struct scene *scene, const struct store *store)
{
	*scene = (struct scene){ .rig = RIG_NONE };
	if (store)
		store_rig_open(&scene->rig, store);
	else
		rig_open(&scene->rig, NULL);
	scene->path = store ? store_path(store, "f") : daemon_path(scene->rig.daemon, "f");
	file_make_pattern(scene->path, FILE_BYTES, SEED_FILE);
	scene->file = rig_file(&scene->rig, scene->path, O_RDWR);
	CHECK_CALL(dsaio_alloc(scene->rig.client, FILE_BYTES, NULL, (void **)&scene->memory));
}

/* Ops over all of the file: those with even numbers read, the others write, if there are any that write. */
static bool is_write(unsigned i, bool has_writes)
{
	return has_writes && i % 2;
}

static void start_all(struct scene *scene, bool has_writes)
{
	for (unsigned i = 0; i < N_OPS; i++) {
		const uint64_t off = i * OP_BYTES;
		uint8_t *memory = scene->memory + off;

		if (is_write(i, has_writes)) {
			pattern_fill(memory, OP_BYTES, SEED_DATA, off);
			CHECK_CALL(dsaio_pwrite_async(scene->rig.handle, scene->file, memory,
						      OP_BYTES, off, &scene->ops[i]));
		} else {
			CHECK_CALL(dsaio_pread_async(scene->rig.handle, scene->file, memory,
						     OP_BYTES, off, &scene->ops[i]));
		}
	}
}

/* The bytes that a read reports are the file's; a cut while it reads may leave zeros in its last page. */
static void check_read(const struct scene *scene, unsigned i, uint64_t bytes)
{
	const uint64_t off = i * OP_BYTES;
	const int64_t wrong = pattern_compare(scene->memory + off, bytes, SEED_FILE, off);

	for (uint64_t at = wrong < 0 ? bytes : (uint64_t)wrong; at < bytes; at++)
		CHECK_MSG(scene->memory[off + at] == 0, "op %u: byte %" PRIu64 " is neither", i,
			  at);
}

TEST(cut, "a file is cut to half beneath reads: whole, or as far as it goes")
{
	_cleanup_(scene_deinit) struct scene scene;
	const uint64_t end = FILE_BYTES / 2;

	scene_init(&scene, NULL);
	for (unsigned round = 0; round < 5; round++) {
		file_make_pattern(scene.path, FILE_BYTES, SEED_FILE);
		start_all(&scene, false);
		CHECK_SYS(truncate(scene.path, (off_t)end));
		for (unsigned i = 0; i < N_OPS; i++) {
			const int64_t n = op_wait(scene.ops[i], -1);

			CHECK_CALL(n);
			CHECK(n == OP_BYTES || i * OP_BYTES >= end);
			check_read(&scene, i, (uint64_t)n);
			dsaio_op_free(scene.ops[i]);
		}
		CHECK_EQ(dsaio_pread(scene.rig.handle, scene.file, scene.memory, OP_BYTES, end), 0);
		CHECK_EQ(dsaio_pread(scene.rig.handle, scene.file, scene.memory, OP_BYTES,
				     end - 4096),
			 4096);
	}
}

TEST(deleted, "a file is deleted beneath reads and writes: they go on to what is open")
{
	_cleanup_(scene_deinit) struct scene scene;

	scene_init(&scene, NULL);
	start_all(&scene, true);
	CHECK_SYS(unlink(scene.path));
	for (unsigned i = 0; i < N_OPS; i++) {
		CHECK_EQ(op_wait(scene.ops[i], -1), OP_BYTES);
		if (!is_write(i, true))
			check_read(&scene, i, OP_BYTES);
		dsaio_op_free(scene.ops[i]);
	}
	memset(scene.memory, 0, FILE_BYTES);
	CHECK_EQ(dsaio_pread(scene.rig.handle, scene.file, scene.memory, FILE_BYTES, 0),
		 FILE_BYTES);
	for (unsigned i = 0; i < N_OPS; i++)
		pattern_check(scene.memory + i * OP_BYTES, OP_BYTES,
			      is_write(i, true) ? SEED_DATA : SEED_FILE, i * OP_BYTES, "an op");
	CHECK_FAILS(dsaio_open(scene.rig.client, scene.path, O_RDONLY, NULL, &scene.file), -ENOENT,
		    scene.path);
}

/* Has the ext4 meet an error, upon which it turns read-only. */
static void fs_error(const char *path)
{
	struct dirent *entry;
	DIR *dir = opendir("/sys/fs/ext4");
	_cleanup_(fclosep) FILE *mounts = fopen("/proc/self/mounts", "re");
	char line[1024], device[64] = "";

	while (mounts && fgets(line, sizeof(line), mounts))
		if (strstr(line, path))
			(void)sscanf(line, "/dev/%63s", device);
	if (!dir || !*device)
		test_skip("no /sys/fs/ext4, or %s is no device's", path);
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, device) == 0) {
			_cleanup_(closep) int fd = openat(dirfd(dir),
							  test_text("%s/trigger_fs_error", device),
							  O_WRONLY | O_CLOEXEC);

			if (fd < 0 || write(fd, "1", 1) != 1)
				test_skip("%s: trigger_fs_error: %s", device, strerror(errno));
		}
	(void)closedir(dir);
}

TEST(read_only, "a file system turns read-only beneath reads and writes: EROFS for what it refuses")
{
	_cleanup_(scene_deinit) struct scene scene;
	struct store store;

	test_needs_root();
	store_make(&store, STORE_EXT4, 64 * MIB);
	if (mount(NULL, store.path, NULL, MS_REMOUNT | MS_NOATIME, "errors=remount-ro") < 0)
		test_skip("errors=remount-ro: %s", strerror(errno));
	scene_init(&scene, &store);
	/* Else a read may have to write what is in the page cache. */
	CHECK_CALL(dsaio_fsync(scene.rig.handle, scene.file, 0));
	start_all(&scene, true);
	fs_error(store.path);
	for (unsigned i = 0; i < N_OPS; i++) {
		const int64_t n = op_wait(scene.ops[i], -1);

		if (n != OP_BYTES && is_write(i, true))
			check_fails("write", n, -EROFS, dsaio_op_error(scene.ops[i]), scene.path,
				    __FILE__, __LINE__);
		else
			CHECK_EQ(n, OP_BYTES);
		if (!is_write(i, true))
			check_read(&scene, i, OP_BYTES);
		dsaio_op_free(scene.ops[i]);
	}
	CHECK_FAILS(dsaio_pwrite(scene.rig.handle, scene.file, scene.memory, OP_BYTES, FILE_BYTES),
		    -EROFS, test_text("%s;Read-only", scene.path));
	CHECK_EQ(dsaio_pread(scene.rig.handle, scene.file, scene.memory, OP_BYTES, 0), OP_BYTES);
	check_read(&scene, 0, OP_BYTES);
}

TEST_MAIN
