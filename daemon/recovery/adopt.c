#include "daemon/recovery/adopt.h"

#include "daemon/base/fs_type.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define NO_SEALS (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)

#define ADVICE "hand over the memfd that the daemon sent with the slab"

/* On the work queue.  Sets memory and is_huge. */
static int adopt_check(struct slab *slab, struct error *error)
{
	const struct fs_type *type;
	struct statfs fs;
	struct stat st;
	int flags, seals;

	/* First, because it finds the kind of file system, and hangs only if the file system does. */
	if (fstatfs(slab->fd, &fs) < 0)
		return error_set(error, -errno, "slab_adopt: fstatfs");
	type = fs_type_of((uint64_t)fs.f_type);
	if (!type->is_memory)
		return error_set_plain(error, -EINVAL,
				       "slab_adopt: the descriptor is on neither tmpfs nor "
				       "hugetlbfs (file-system type 0x%lx): " ADVICE,
				       (unsigned long)fs.f_type);
	if (fstat(slab->fd, &st) < 0)
		return error_set(error, -errno, "slab_adopt: fstat");
	if (!S_ISREG(st.st_mode))
		return error_set_plain(error, -EINVAL,
				       "slab_adopt: the descriptor is of no regular file: " ADVICE);
	flags = fcntl(slab->fd, F_GETFL);
	if (flags < 0)
		return error_set(error, -errno, "slab_adopt: fcntl(F_GETFL)");
	if ((flags & O_PATH) || (flags & O_ACCMODE) != O_RDWR)
		return error_set_plain(
			error, -EINVAL,
			"slab_adopt: the descriptor is not open for reading and writing: " ADVICE);
	seals = fcntl(slab->fd, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS) != SEALS || (seals & NO_SEALS))
		return error_set_plain(
			error, -EINVAL,
			"slab_adopt: the file has the seals 0x%x: a slab has SHRINK, "
			"GROW and SEAL (0x%x), and neither WRITE nor FUTURE_WRITE "
			"(0x%x): " ADVICE,
			seals < 0 ? 0 : seals, SEALS, NO_SEALS);
	if ((uint64_t)st.st_size != slab->size_bytes)
		return error_set_plain(error, -EINVAL,
				       "slab_adopt: %" PRIu64
				       " bytes: the memfd has %jd: name its whole size",
				       slab->size_bytes, (intmax_t)st.st_size);
	slab->memory = (struct inode_id){ .dev = st.st_dev, .ino = st.st_ino };
	slab->is_huge = !type->is_tmpfs;
	return 0;
}

static int adopt_make(struct slab *slab)
{
	int r = adopt_check(slab, &slab->error);

	return r < 0 ? r : slab_map_import(slab);
}

static void adopt_unmake(struct slab *slab)
{
	slab_punch(slab); /* the seals allow it */
	slab_unmap_import(slab);
}

static const struct slab_kind kind_adopted = {
	.struct_bytes = sizeof(struct slab),
	.quota = QUOTA_POOL_BYTES,
	.making = "slab adoption",
	.freeing = "slab free",
	.make = adopt_make,
	.unmake = adopt_unmake,
};

int slab_adopt(struct pool *pool, struct quota *quota, struct work_queue *work_queue,
	       const struct hung_who *who, int fd, uint64_t size_bytes,
	       void (*on_made)(struct slab *slab, int result, const struct error *error, void *arg),
	       void *arg, struct error *error)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const uint64_t rest = size_bytes % page;
	struct slab *slab;
	int r;

	r = slab_new_of(&kind_adopted, pool, quota, work_queue, size_bytes,
			size_bytes + (rest ? page - rest : 0), &slab, error);
	if (r < 0)
		return r;
	slab->fd = fd;
	slab->keeps_bytes = true;
	slab->job.work.about = (struct hung_about){ .file = "a slab", .fd = fd, .who = *who };
	slab_start(slab, on_made, arg);
	return 0;
}
