#include "tests/stores.h"

#include <errno.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define IMAGE_BYTES GIB /* sparse: what is not written takes no room */
/* mkfs.xfs takes no less; who wants less room fills the rest. */
#define IMAGE_BYTES_MIN (320 * MIB)
/* Two tests at a time may find the same free loop device. */
#define LOOP_TRIES 64

static const char *const kind_names[N_STORE_KINDS] = {
	[STORE_EXT4] = "ext4",	       [STORE_XFS] = "XFS (4 KiB sectors)", [STORE_TMPFS] = "tmpfs",
	[STORE_OVERLAY] = "overlayfs", [STORE_RAW] = "a raw device",
};

const char *store_kind_name(enum store_kind kind)
{
	return kind_names[kind];
}

/* ---- loop devices ---- */

/* The descriptor is held to the test's end: its last close clears the device. */
static int loop_try(int control, const char *image, uint32_t sector_bytes, const char **ret_path)
{
	_cleanup_(closep) int file = (int)CHECK_SYS(open(image, O_RDWR | O_CLOEXEC));
	struct loop_config config = { .fd = (uint32_t)file,
				      .block_size = sector_bytes,
				      .info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO };
	_cleanup_(closep) int fd = -1;
	int n = ioctl(control, LOOP_CTL_GET_FREE);

	if (n < 0)
		return -errno;
	*ret_path = test_text("/dev/loop%d", n);
	fd = open(*ret_path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (ioctl(fd, LOOP_CONFIGURE, &config) < 0) {
		if (errno != EINVAL)
			return -errno;
		config.info.lo_flags = LO_FLAGS_AUTOCLEAR; /* no direct I/O on the image's side */
		if (ioctl(fd, LOOP_CONFIGURE, &config) < 0)
			return -errno;
	}
	(void)TAKE_FD(fd);
	return 0;
}

const char *loop_device(const char *image, uint32_t sector_bytes)
{
	_cleanup_(closep) int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	const char *path = "/dev/loop-control";
	int r = -EBUSY;

	test_needs_root();
	if (control < 0)
		test_skip("needs /dev/loop-control");
	for (unsigned i = 0; r == -EBUSY && i < LOOP_TRIES; i++)
		r = loop_try(control, image, sector_bytes, &path);
	if (r < 0)
		test_skip("needs a loop device: %s: %s", path, strerror(-r));
	return path;
}

static const char *image_device(uint64_t size, uint32_t sector_bytes)
{
	const char *image = test_text("%s/image", test_dir());

	file_make_sparse(image, size);
	return loop_device(image, sector_bytes);
}

/* ---- file systems ---- */

void mounts_private(void)
{
	static bool is_done;

	test_needs_root();
	if (is_done)
		return;
	if (unshare(CLONE_NEWNS) < 0)
		test_skip("needs a mount namespace: %s", strerror(errno));
	/* In a chroot "/" is no mount: then ours begins at the test's own directory. */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		CHECK_SYS(mount(test_dir(), test_dir(), NULL, MS_BIND, NULL));
		CHECK_SYS(mount(NULL, test_dir(), NULL, MS_PRIVATE, NULL));
	}
	is_done = true;
}

static void mount_at(const char *what, const char *dir, const char *type, const char *options)
{
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		test_fail("%s: %s", dir, strerror(errno));
	if (mount(what, dir, type, MS_NOATIME, options) < 0)
		test_skip("needs to mount %s: %s", type, strerror(errno));
	CHECK_SYS(chmod(dir, 0777)); /* a daemon or client of another user gets in */
}

/* Runs mkfs; argv[0] may lie where only root looks. */
static void mkfs(const char *const argv[])
{
	const char *path = getenv("PATH");
	pid_t pid;
	int status;

	(void)fflush(NULL); /* or the child prints it again */
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		(void)setenv("PATH", test_text("%s:/usr/sbin:/sbin", path ? path : "/usr/bin"), 1);
		(void)dup2(STDERR_FILENO, STDOUT_FILENO);
		(void)execvp(argv[0], (char **)(uintptr_t)argv);
		_exit(errno == ENOENT ? 126 : 127);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 126)
		test_skip("needs %s", argv[0]);
	CHECK_MSG(status == 0, "%s: wait status 0x%x", argv[0], status);
}

#define MKFS(...) mkfs((const char *const[]){ __VA_ARGS__, NULL })

static const char *make_ext4_on(const char *device, const char *dir, unsigned reserved_percent)
{
	MKFS("mkfs.ext4", "-q", "-F", "-m", test_text("%u", reserved_percent), "-E", "nodiscard",
	     device);
	/* The kernel would write its inode tables in the background. */
	mount_at(device, dir, "ext4", "noinit_itable");
	return dir;
}

static const char *make_ext4_image(const char *dir, uint64_t bytes, unsigned reserved_percent)
{
	mounts_private();
	return make_ext4_on(image_device(bytes, 512), dir, reserved_percent);
}

static const char *make_ext4(uint64_t small_bytes)
{
	const char *dir = test_text("%s/ext4", test_dir());
	struct statfs fs;

	CHECK_SYS(statfs(test_dir(), &fs));
	if (!small_bytes && fs.f_type == EXT4_SUPER_MAGIC) {
		CHECK_SYS(mkdir(dir, 0777));
		return dir;
	}
	return make_ext4_image(dir, small_bytes ? small_bytes : IMAGE_BYTES, 0);
}

static const char *make_xfs(uint64_t small_bytes)
{
	const char *dir = test_text("%s/xfs", test_dir()), *device;

	mounts_private();
	device = image_device(small_bytes ? IMAGE_BYTES_MIN : IMAGE_BYTES, 4096);
	MKFS("mkfs.xfs", "-q", "-f", "-K", "-s", "size=4096", device);
	mount_at(device, dir, "xfs", NULL);
	return dir;
}

static const char *make_tmpfs(uint64_t small_bytes)
{
	const char *dir;
	struct statfs fs;

	if (small_bytes) {
		dir = test_text("%s/tmpfs", test_dir());
		mounts_private();
		mount_at("none", dir, "tmpfs", test_text("size=%" PRIu64, small_bytes));
		return dir;
	}
	dir = test_dir_in("/dev/shm");
	CHECK_SYS(statfs(dir, &fs));
	if ((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < GIB)
		test_skip("/dev/shm has less than 1 GiB free");
	return dir;
}

static const char *make_overlay(void)
{
	const char *base = test_dir(), *dir = test_text("%s/overlay", base);

	mounts_private();
	CHECK_SYS(mkdir(test_text("%s/lower", base), 0755));
	CHECK_SYS(mkdir(test_text("%s/upper", base), 0755));
	CHECK_SYS(mkdir(test_text("%s/work", base), 0755));
	mount_at(
		"none", dir, "overlay",
		test_text("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", base, base, base));
	return dir;
}

void store_make(struct store *ret_store, enum store_kind kind, uint64_t small_bytes)
{
	*ret_store = (struct store){ .kind = kind };
	switch (kind) {
	case STORE_EXT4:
		ret_store->path = make_ext4(small_bytes);
		break;
	case STORE_XFS:
		ret_store->path = make_xfs(small_bytes);
		break;
	case STORE_TMPFS:
		ret_store->path = make_tmpfs(small_bytes);
		break;
	case STORE_OVERLAY:
		ret_store->path = make_overlay();
		break;
	case STORE_RAW:
		ret_store->size_bytes = small_bytes ? small_bytes : IMAGE_BYTES;
		ret_store->path = image_device(ret_store->size_bytes, 512);
		break;
	case N_STORE_KINDS:
		break;
	}
	CHECK(ret_store->path);
}

void store_make_on(struct store *ret_store, bool is_raw, const char *image)
{
	const char *device = loop_device(image, 512);

	mounts_private();
	if (is_raw)
		*ret_store = (struct store){ STORE_RAW, device, file_size(image) };
	else
		*ret_store = (struct store){
			STORE_EXT4, make_ext4_on(device, test_text("%s/ext4", test_dir()), 0), 0
		};
}

void store_make_reserved(struct store *ret_store, uint64_t bytes, unsigned percent)
{
	*ret_store = (struct store){ .kind = STORE_EXT4 };
	ret_store->path = make_ext4_image(test_text("%s/reserved", test_dir()), bytes, percent);
}

const char *store_path(const struct store *store, const char *name)
{
	return store->kind == STORE_RAW ? store->path : test_text("%s/%s", store->path, name);
}

void store_rig_open(struct rig *rig, const struct store *store)
{
	rig->daemon = daemon_start_with(&(struct daemon_options){ .store_dir = store->path });
	rig_open(rig, NULL);
}

/* ---- ranges ---- */

#define SEED_FILE 11
#define SEED_DATA 22
#define FILE_GUARD (64 * KIB) /* of the file, before and behind the range */

void store_make_pattern(const struct store *store, const char *name, uint64_t from, uint64_t end,
			uint64_t seed)
{
	_cleanup_(freep) uint8_t *buf = NULL;
	_cleanup_(closep) int fd = -1;

	if (store->kind != STORE_RAW) {
		file_make_pattern(store_path(store, name), end, seed);
		return;
	}
	CHECK(end <= store->size_bytes);
	buf = malloc(MIB);
	CHECK(buf);
	fd = (int)CHECK_SYS(open(store->path, O_WRONLY | O_CLOEXEC));
	for (uint64_t off = from; off < end;) {
		size_t n = end - off < MIB ? (size_t)(end - off) : MIB;

		pattern_fill(buf, n, seed, off);
		CHECK_EQ(pwrite(fd, buf, n, (off_t)off), n);
		off += n;
	}
}

static int64_t end_op(struct dsaio_op *op)
{
	int64_t result = op_wait(op, -1);

	CHECK_EQ(op_is_done(op), 1);
	CHECK_EQ(dsaio_op_result(op), result);
	dsaio_op_free(op);
	return result;
}

int64_t range_write(struct rig *rig, struct dsaio_file *file, const void *memory,
		    const struct range *range)
{
	struct dsaio_op *op = NULL;

	if (!range->is_async)
		return dsaio_pwrite(rig->handle, file, memory, range->len, range->off);
	CHECK_CALL(dsaio_pwrite_async(rig->handle, file, memory, range->len, range->off, &op));
	return end_op(op);
}

int64_t range_read(struct rig *rig, struct dsaio_file *file, void *memory,
		   const struct range *range)
{
	struct dsaio_op *op = NULL;

	if (!range->is_async)
		return dsaio_pread(rig->handle, file, memory, range->len, range->off);
	CHECK_CALL(dsaio_pread_async(rig->handle, file, memory, range->len, range->off, &op));
	return end_op(op);
}

void store_check_range(struct rig *rig, const struct store *store, struct dsaio_file *file,
		       const char *name, const struct range *range)
{
	_cleanup_(guarded_free) struct guarded g = { 0 };
	const char *what = test_text("%zu bytes at %" PRIu64 ", address + %zu, %s, %s", range->len,
				     range->off, range->misalign,
				     range->is_pinned ? "pinned" : "private",
				     range->is_async ? "async" : "blocking");
	const char *path = store_path(store, name);
	const uint64_t off = range->off, end = off + range->len;
	const uint64_t before = off < FILE_GUARD ? off : FILE_GUARD;

	store_make_pattern(store, name, off - before, end + FILE_GUARD, SEED_FILE);
	guarded_new(&g, range->is_pinned ? rig->client : NULL, range->len, range->misalign);

	pattern_fill(g.memory, range->len, SEED_DATA, off);
	CHECK_EQ(range_write(rig, file, g.memory, range), range->len);
	guarded_check(&g, what);
	pattern_check(g.memory, range->len, SEED_DATA, off, what);
	file_check_pattern(path, off - before, before, SEED_FILE, off - before);
	file_check_pattern(path, off, range->len, SEED_DATA, off);
	file_check_pattern(path, end, FILE_GUARD, SEED_FILE, end);
	if (store->kind != STORE_RAW)
		CHECK_EQ(file_size(path), end + FILE_GUARD);

	memset(g.memory, 0xee, range->len);
	CHECK_EQ(range_read(rig, file, g.memory, range), range->len);
	guarded_check(&g, what);
	pattern_check(g.memory, range->len, SEED_DATA, off, what);
}
