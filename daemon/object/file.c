#include "daemon/object/file.h"

#include "daemon/base/mount.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* Used if the kernel reports no alignment: no known device has larger sectors, and pages are as large. */
#define ALIGN_SAFE 4096u

/* ---- inodes ---- */

static int inodes_take(struct inodes *inodes, dev_t dev, ino_t ino, struct store_inode **ret_inode)
{
	_cleanup_(freep) struct store_inode *inode = calloc(1, sizeof(*inode));
	struct store_inode **found;

	if (!inode)
		return -ENOMEM;
	inode->id = (struct inode_id){ dev, ino };
	found = tsearch(inode, &inodes->root, inode_id_compare);
	if (!found)
		return -ENOMEM;
	(*found)->n_files++;
	*ret_inode = *found;
	if (*found == inode)
		inode = NULL; /* the tree has it */
	return 0;
}

static void inodes_release(struct inodes *inodes, struct store_inode *inode)
{
	if (--inode->n_files)
		return;
	(void)tdelete(inode, &inodes->root, inode_id_compare); /* it is there */
	free(inode);
}

/* ---- the check ---- */

static uint64_t mount_id(int fd)
{
	struct statx stx = { 0 };

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &stx) < 0 ||
	    !(stx.stx_mask & STATX_MNT_ID))
		return 0;
	return stx.stx_mnt_id;
}

#ifndef FS_IOC_GETFSUUID /* Linux 6.9 */
struct fsuuid2 {
	uint8_t len;
	uint8_t uuid[16];
};
#define FS_IOC_GETFSUUID _IOR(0x15, 0, struct fsuuid2)
#endif

static void uuid_ask(int fd, struct file_facts *facts)
{
	static const uint8_t nil[sizeof(facts->uuid)]; /* of one that was made without */
	struct fsuuid2 uuid;

	if (ioctl(fd, FS_IOC_GETFSUUID, &uuid) < 0 || uuid.len != sizeof(facts->uuid) ||
	    memcmp(uuid.uuid, nil, sizeof(nil)) == 0)
		return;
	memcpy(facts->uuid, uuid.uuid, sizeof(facts->uuid));
	facts->has_uuid = true;
}

/* The file system and the kind (st_mode) of a descriptor. */
static int place_look(int fd, const char *name, struct file_facts *facts, mode_t *ret_mode,
		      struct error *error)
{
	_cleanup_(mount_deinit) struct mount mount = { 0 };
	struct statfs fs;
	struct stat st;

	/* First, because it finds the kind of file system, and hangs only if the file system does. */
	if (fstatfs(fd, &fs) < 0)
		return error_set(error, -errno, "file %s: fstatfs", name);
	if (fstat(fd, &st) < 0)
		return error_set(error, -errno, "file %s: fstat", name);
	facts->is_block_device = S_ISBLK(st.st_mode);
	facts->fs_type = facts->is_block_device ? &fs_type_block_device
						: fs_type_of((uint64_t)fs.f_type);
	facts->is_tmpfs = facts->fs_type->is_tmpfs;
	facts->is_foreign = !facts->fs_type->is_local;
	facts->dev = facts->ino_dev = facts->is_block_device ? st.st_rdev : st.st_dev;
	facts->ino = facts->is_block_device ? 0 : st.st_ino; /* any node of a device */
	facts->mount_id = mount_id(fd);
	/* A mount that only other namespaces have is not found: the file then has its layer's device. */
	if (facts->fs_type->has_layers && mount_find(0, facts->mount_id, facts->dev, &mount) == 0)
		facts->dev = mount.dev;
	if (facts->fs_type->has_uuid)
		uuid_ask(fd, facts);
	*ret_mode = st.st_mode;
	return 0;
}

/* An O_PATH descriptor cannot be asked for the UUID, but the root of its mount can. */
static void uuid_ask_mount(struct file_facts *facts)
{
	_cleanup_(mount_deinit) struct mount mount = { 0 };
	_cleanup_(closep) int fd = -1;
	struct stat st;

	if (mount_find(0, facts->mount_id, facts->dev, &mount) < 0)
		return;
	fd = open(mount.point, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == facts->dev)
		uuid_ask(fd, facts);
}

int file_look(int fd, const char *name, struct file_facts *ret_facts, struct error *error)
{
	struct file_facts facts = { 0 };
	mode_t mode;
	int r = place_look(fd, name, &facts, &mode, error);

	if (r < 0)
		return r;
	if (!facts.has_uuid && facts.fs_type->has_uuid)
		uuid_ask_mount(&facts);
	*ret_facts = facts;
	return 0;
}

static int kind_check(int fd, const char *name, struct file_facts *facts, struct error *error)
{
	mode_t mode;
	int r;

	r = place_look(fd, name, facts, &mode, error);
	if (r < 0)
		return r;
	if (S_ISREG(mode) || S_ISBLK(mode))
		return 0;
	return error_set_plain(error, -EOPNOTSUPP,
			       "file %s: is %s: a regular file or a block device is needed", name,
			       S_ISDIR(mode)	? "a directory"
			       : S_ISFIFO(mode) ? "a pipe"
			       : S_ISSOCK(mode) ? "a socket"
			       : S_ISCHR(mode)	? "a character device"
						: "neither file nor device");
}

static int flags_check(int fd, const char *name, struct file_facts *facts, struct error *error)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return error_set(error, -errno, "file %s: fcntl(F_GETFL)", name);
	if (flags & O_PATH)
		return error_set_plain(error, -EBADF,
				       "file %s: was opened with O_PATH, which allows neither "
				       "reading nor writing: open it with O_RDONLY or O_RDWR",
				       name);
	facts->can_read = (flags & O_ACCMODE) != O_WRONLY;
	facts->can_write = (flags & O_ACCMODE) != O_RDONLY;
	facts->is_direct = flags & O_DIRECT;
	if (facts->can_write && (flags & O_APPEND))
		return error_set_plain(
			error, -EINVAL,
			"file %s: was opened with O_APPEND: its writes would land at "
			"the end of the file, not at their offsets: open it without",
			name);
	return 0;
}

static bool is_power_of_two(uint32_t n)
{
	return n && !(n & (n - 1));
}

static int align_check(int fd, const char *name, struct file_facts *facts, struct error *error)
{
	struct statx stx = { 0 };
	int sector;

	if (facts->is_tmpfs) {
		facts->offset_align = facts->memory_align = 1;
		return 0;
	}
	if (!facts->is_direct)
		return error_set_plain(
			error, -EOPNOTSUPP,
			"file %s: was opened without O_DIRECT: open it with, so that "
			"its I/O can go past the page cache",
			name);

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
	    (stx.stx_mask & STATX_DIOALIGN)) {
		if (!is_power_of_two(stx.stx_dio_offset_align) ||
		    !is_power_of_two(stx.stx_dio_mem_align))
			return error_set_plain(error, -EOPNOTSUPP,
					       "file %s: its file system does not do direct I/O on "
					       "it (encryption, compression or data journalling "
					       "may be why)",
					       name);
		facts->offset_align = stx.stx_dio_offset_align;
		facts->memory_align = stx.stx_dio_mem_align;
		return 0;
	}
	if (facts->is_block_device && ioctl(fd, BLKSSZGET, &sector) == 0 &&
	    is_power_of_two((uint32_t)sector))
		facts->offset_align = facts->memory_align = (uint32_t)sector;
	else
		facts->offset_align = facts->memory_align = ALIGN_SAFE;
	return 0;
}

int file_check(int fd, const char *name, struct file_facts *ret_facts, struct error *error)
{
	struct file_facts facts = { 0 };
	int r;

	r = kind_check(fd, name, &facts, error);
	if (r == 0)
		r = flags_check(fd, name, &facts, error);
	if (r == 0)
		r = align_check(fd, name, &facts, error);
	if (r < 0)
		return r;
	*ret_facts = facts;
	return 0;
}

/* ---- files ---- */

static void file_checked_main(struct job *job)
{
	struct file *file = container_of(job, struct file, job);

	if (file->result == 0) {
		file->on_checked(file, 0, NULL, file->checked_arg);
		return;
	}
	quota_discharge(&file->charge);
	file->on_checked(NULL, file->result, &file->error, file->checked_arg);
	free(file);
}

static void file_check_run(struct job *job)
{
	struct file *file = container_of(job, struct file, job);

	struct target *target = &file->target;

	file->result = file_check(target->fd, file->name, &file->facts, &file->error);
	if (file->result < 0) {
		closep(&target->fd);
		return;
	}
	target->is_tmpfs = file->facts.is_tmpfs;
	target->offset_align = file->facts.offset_align;
	target->memory_align = file->facts.memory_align;
	target->about.dev = file->facts.dev;
	target->about.mount_id = file->facts.mount_id;
}

static int file_new(struct quota *quota, struct work_queue *work_queue,
		    struct mailbox *main_mailbox, const struct hung_who *who, int fd,
		    const char *name, struct file **ret_file, struct error *error)
{
	struct file *file = calloc(1, sizeof(*file));
	int r;

	if (!file)
		return error_set(error, -ENOMEM, "file %s", name);
	r = quota_charge(&file->charge, quota, QUOTA_FILES, 1, error);
	if (r < 0) {
		free(file);
		return r;
	}
	(void)snprintf(file->name, sizeof(file->name), "%s", name); /* cut is fine */
	file->target.fd = fd;
	atomic_init(&file->target.buffered_fd, -1);
	file->target.about = (struct hung_about){ .file = file->name, .fd = fd, .who = *who };
	file->work_queue = work_queue;
	atomic_init(&file->n_refs, 1);
	file->job.mailbox = main_mailbox;
	*ret_file = file;
	return 0;
}

int file_make(struct quota *quota, struct work_queue *work_queue, struct work_queue *gpu_work_queue,
	      struct mailbox *main_mailbox, const struct hung_who *who, int fd, const char *name,
	      void (*on_checked)(struct file *file, int result, const struct error *error,
				 void *arg),
	      void *arg, struct error *error)
{
	struct file *file;
	int r = file_new(quota, work_queue, main_mailbox, who, fd, name, &file, error);

	if (r < 0)
		return r;
	file->target.kind = TARGET_FILE;
	file->gpu_work_queue = gpu_work_queue;
	file->on_checked = on_checked;
	file->checked_arg = arg;
	file->job.work.about = target_about(&file->target, "check");
	job_submit(work_queue, &file->job, main_mailbox, file_check_run, file_checked_main);
	return 0;
}

int file_make_named(struct quota *quota, struct work_queue *work_queue,
		    struct mailbox *main_mailbox, const struct hung_who *who, const char *name,
		    struct file **ret_file, struct error *error)
{
	int r = file_new(quota, work_queue, main_mailbox, who, -1, name, ret_file, error);

	if (r < 0)
		return r;
	(*ret_file)->target.kind = TARGET_RADOS;
	(*ret_file)->target.offset_align = (*ret_file)->target.memory_align = 1;
	(*ret_file)->target.about.is_cluster = true;
	(*ret_file)->facts.can_read = true;
	return 0;
}

int file_attach(struct file *file, struct store *store, struct inodes *inodes, uint32_t align)
{
	struct target *target = &file->target;
	int r = inodes_take(inodes, file->facts.ino_dev, file->facts.ino, &file->inode);

	if (r < 0)
		return r;
	file->store = store;
	file->inodes = inodes;
	if (target->offset_align < align)
		target->offset_align = align;
	if (target->memory_align < align)
		target->memory_align = align;
	return 0;
}

static void file_freed_main(struct job *job)
{
	struct file *file = container_of(job, struct file, job);

	quota_discharge(&file->charge);
	quota_discharge(&file->buffered_charge);
	if (file->release)
		file->release(file);
	if (file->inode)
		inodes_release(file->inodes, file->inode);
	if (file->on_closed)
		file->on_closed(file->share);
	if (file->on_freed)
		file->on_freed(file->freed_arg);
	free(file->rados_name);
	free(file);
}

static void file_close_run(struct job *job)
{
	struct file *file = container_of(job, struct file, job);

	int buffered_fd = target_buffered_fd(&file->target);

	closep(&file->target.fd);
	closep(&buffered_fd);
}

static void file_close(struct file *file)
{
	file->job.work.about = target_about(&file->target, "close");
	job_submit(file->work_queue, &file->job, file->job.mailbox, file_close_run,
		   file_freed_main);
}

static void file_on_close_run(struct job *job)
{
	struct file *file = container_of(job, struct file, job);

	file->target.on_close(&file->target);
}

static void file_on_close_main(struct job *job)
{
	file_close(container_of(job, struct file, job));
}

void file_unref(struct file *file)
{
	/* acq_rel: the last one sees all that the others did with it. */
	if (atomic_fetch_sub_explicit(&file->n_refs, 1, memory_order_acq_rel) > 1)
		return;
	if (!file->target.on_close) {
		file_close(file);
		return;
	}
	file->job.work.about = target_about(&file->target, "GPU release");
	file->job.work.about.is_gpu = true;
	job_submit(file->gpu_work_queue, &file->job, file->job.mailbox, file_on_close_run,
		   file_on_close_main);
}

/* ---- the buffered description ---- */

/* A buffered description that the work queue checks. */
struct adding {
	struct job job;
	struct file *file;    /* held */
	struct charge charge; /* until the file has it */
	int fd;
	int result;
	struct error error;
	void (*on_added)(struct file *file, int result, const struct error *error, void *arg);
	void *arg;
};

static int buffered_check(int fd, const struct file *file, struct error *error)
{
	const struct file_facts *facts = &file->facts;
	struct statfs fs;
	struct stat st;
	bool is_same;
	int flags, want;

	/* Before anything else, as in kind_check(): another file can be on any file system. */
	if (fstatfs(fd, &fs) < 0)
		return error_set(error, -errno, "file %s: buffered description: fstatfs",
				 file->name);
	if (fstat(fd, &st) < 0)
		return error_set(error, -errno, "file %s: buffered description: fstat", file->name);
	if (facts->is_block_device)
		is_same = S_ISBLK(st.st_mode) && st.st_rdev == facts->dev;
	else
		is_same = S_ISREG(st.st_mode) && st.st_dev == facts->ino_dev &&
			  st.st_ino == facts->ino;
	if (!is_same)
		return error_set_plain(error, -EINVAL,
				       "file %s: the buffered description is of another file: "
				       "open the same one",
				       file->name);

	flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return error_set(error, -errno, "file %s: buffered description: fcntl(F_GETFL)",
				 file->name);
	want = facts->can_read && facts->can_write ? O_RDWR
	       : facts->can_write		   ? O_WRONLY
						   : O_RDONLY;
	if ((flags & O_PATH) || (flags & O_ACCMODE) != want)
		return error_set_plain(error, -EINVAL,
				       "file %s: the buffered description has another access mode: "
				       "open it with %s, as the file",
				       file->name,
				       want == O_RDWR	  ? "O_RDWR"
				       : want == O_WRONLY ? "O_WRONLY"
							  : "O_RDONLY");
	if (flags & (O_APPEND | O_DIRECT))
		return error_set_plain(error, -EINVAL,
				       "file %s: the buffered description was opened with %s: open "
				       "it without",
				       file->name, flags & O_DIRECT ? "O_DIRECT" : "O_APPEND");
	return 0;
}

static void added_main(struct job *job)
{
	struct adding *adding = container_of(job, struct adding, job);
	struct file *file = adding->file;

	if (adding->result == 0)
		file->buffered_charge = adding->charge;
	else
		quota_discharge(&adding->charge);
	adding->on_added(file, adding->result, adding->result < 0 ? &adding->error : NULL,
			 adding->arg);
	free(adding);
	file_unref(file);
}

static void add_run(struct job *job)
{
	struct adding *adding = container_of(job, struct adding, job);
	struct file *file = adding->file;
	int none = -1;

	adding->result = buffered_check(adding->fd, file, &adding->error);
	/* release: pairs with target_buffered_fd() */
	if (adding->result == 0 &&
	    !atomic_compare_exchange_strong_explicit(&file->target.buffered_fd, &none, adding->fd,
						     memory_order_release, memory_order_relaxed))
		adding->result = error_set_plain(&adding->error, -EEXIST,
						 "file %s: has a buffered description already",
						 file->name);
	if (adding->result < 0)
		closep(&adding->fd);
}

int file_add_buffered(struct file *file, int fd,
		      void (*on_added)(struct file *file, int result, const struct error *error,
				       void *arg),
		      void *arg, struct error *error)
{
	struct adding *adding = calloc(1, sizeof(*adding));
	int r;

	if (!adding)
		return error_set(error, -ENOMEM, "file %s: buffered description", file->name);
	r = quota_charge(&adding->charge, file->charge.quota, QUOTA_FILES, 1, error);
	if (r < 0) {
		free(adding);
		return r;
	}
	file_ref(file);
	adding->file = file;
	adding->fd = fd;
	adding->on_added = on_added;
	adding->arg = arg;
	adding->job.work.about = target_about(&file->target, "check");
	job_submit(file->work_queue, &adding->job, file->job.mailbox, add_run, added_main);
	return 0;
}
