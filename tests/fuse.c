#include "tests/fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SERVER_SECONDS 3600 /* a test ends before, or hangs */
#define WRITE_BYTES_MAX (64 * KIB)

struct request {
	struct fuse_in_header in;
	uint64_t off;
	uint32_t size;
	const void *bytes; /* of a write */
};

struct server {
	int fd, answer_fd;
	uint8_t *disk; /* NULL: none */
	struct fuse_control *control;
	struct request gathered[FUSE_GATHER_MAX], hung[FUSE_GATHER_MAX];
	uint32_t n_gathered, n_hung;
};

static void answer(const struct server *server, const struct fuse_in_header *in, int error,
		   const void *body, size_t len)
{
	struct fuse_out_header out = { .len = (uint32_t)(sizeof(out) + len),
				       .error = -error,
				       .unique = in->unique };
	struct iovec iov[2] = { { &out, sizeof(out) }, { (void *)(uintptr_t)body, len } };

	/* Interrupted requests have gone meanwhile. */
	if (writev(server->fd, iov, 2) < 0 && errno != ENOENT && errno != ENODEV)
		_exit(1);
}

static struct fuse_attr attr_of(uint64_t node)
{
	return (struct fuse_attr){
		.ino = node,
		.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0666,
		.nlink = 1,
		.size = node == FUSE_ROOT_ID ? 0 : FUSE_FILE_BYTES,
		.blksize = 4096,
	};
}

static uint64_t node_of(char name)
{
	return FUSE_ROOT_ID + 1 + (uint8_t)name;
}

static struct fuse_entry_out entry_of(char name)
{
	return (struct fuse_entry_out){ .nodeid = node_of(name),
					.generation = 1,
					.entry_valid = name == '.' ? SERVER_SECONDS : 0,
					.attr = attr_of(node_of(name)) };
}

static void answer_io(const struct server *server, const struct request *request)
{
	static uint8_t bytes[FUSE_FILE_BYTES];
	struct fuse_write_out written = { .size = request->size };

	if (server->disk && request->in.nodeid == node_of(FUSE_DISK)) {
		if (request->off + request->size > FUSE_FILE_BYTES)
			_exit(1);
		if (request->in.opcode == FUSE_READ) {
			answer(server, &request->in, 0, server->disk + request->off, request->size);
			return;
		}
		memcpy(server->disk + request->off, request->bytes, request->size);
		answer(server, &request->in, 0, &written, sizeof(written));
	} else if (request->in.opcode == FUSE_READ) {
		pattern_fill(bytes, request->size, FUSE_SEED, request->off);
		answer(server, &request->in, 0, bytes, request->size);
	} else if (atomic_load(&server->control->write_error)) {
		answer(server, &request->in, atomic_load(&server->control->write_error), NULL, 0);
	} else {
		answer(server, &request->in, 0, &written, sizeof(written));
	}
}

static void hang(struct server *server, const struct request *request)
{
	struct request *hung = &server->hung[server->n_hung++];

	if (server->n_hung == FUSE_GATHER_MAX)
		_exit(1);
	*hung = *request;
	if (request->bytes) { /* until the next request */
		hung->bytes = malloc(request->size);
		if (!hung->bytes)
			_exit(1);
		memcpy((void *)(uintptr_t)hung->bytes, request->bytes, request->size);
	}
	(void)atomic_fetch_add(&server->control->n_hung, 1);
}

static void serve_disk(struct server *server, const struct request *request)
{
	const void *bytes = request->bytes ? request->bytes : server->disk + request->off;
	uint64_t held = atomic_load(&server->control->held), first;

	memcpy(&first, bytes, sizeof(first));
	if (held && first == held && !atomic_exchange(&server->control->is_held, true))
		hang(server, request);
	else
		answer_io(server, request);
}

static void serve_io(struct server *server, const struct request *request)
{
	struct fuse_control *control = server->control;
	char hung = atomic_load(&control->hung_file);
	uint32_t delay = atomic_load(&control->delay_usec);
	bool is_answered = request->in.opcode == FUSE_WRITE &&
			   atomic_load(&control->only_reads_hang);

	if (atomic_load(&control->is_io_hung) ||
	    (hung && request->in.nodeid == node_of(hung) && !is_answered)) {
		hang(server, request);
		return;
	}
	if (delay)
		(void)usleep(delay);
	if (server->disk && request->in.nodeid == node_of(FUSE_DISK)) {
		serve_disk(server, request);
		return;
	}
	if (request->in.nodeid == node_of('.')) { /* not a test's own */
		answer_io(server, request);
		return;
	}
	server->gathered[server->n_gathered++] = *request;
	if (server->n_gathered > atomic_load(&control->max_together))
		atomic_store(&control->max_together, server->n_gathered);
	if (server->n_gathered < atomic_load(&control->n_gather) &&
	    server->n_gathered < FUSE_GATHER_MAX)
		return;
	for (uint32_t i = 0; i < server->n_gathered; i++)
		answer_io(server, &server->gathered[i]);
	server->n_gathered = 0;
}

static void serve_hung(struct server *server)
{
	eventfd_t count;

	(void)eventfd_read(server->answer_fd, &count); /* it is readable */
	for (uint32_t i = 0; i < server->n_hung; i++) {
		answer_io(server, &server->hung[i]);
		free((void *)(uintptr_t)server->hung[i].bytes);
	}
	server->n_hung = 0;
}

static void serve_one(struct server *server, const struct fuse_in_header *in, const void *body)
{
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION,
				      .minor = 31,
				      .max_write = WRITE_BYTES_MAX,
				      .max_background = 16,
				      .congestion_threshold = 12,
				      .time_gran = 1 };
	const char *name = body;
	struct request io = { .in = *in };
	struct fuse_attr_out attr = { .attr = attr_of(in->nodeid) };
	struct fuse_statfs_out statfs = { .st = { .bsize = 4096, .frsize = 4096, .namelen = 255 } };
	struct fuse_open_out open = { .fh = in->nodeid };
	struct fuse_entry_out entry;
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} created = { entry_of('.'), { 0 } };

	switch (in->opcode) {
	case FUSE_INIT:
		if (server->disk)
			init.flags = FUSE_ASYNC_DIO;
		answer(server, in, 0, &init, sizeof(init));
		return;
	case FUSE_LOOKUP:
		entry = entry_of(name[0]);
		if (name[0] == '.')
			answer(server, in, ENOENT, NULL, 0);
		else
			answer(server, in, 0, &entry, sizeof(entry));
		return;
	case FUSE_CREATE:
		answer(server, in, 0, &created, sizeof(created));
		return;
	case FUSE_GETATTR:
		answer(server, in, 0, &attr, sizeof(attr));
		return;
	case FUSE_STATFS:
		answer(server, in, 0, &statfs, sizeof(statfs));
		return;
	case FUSE_OPEN:
		answer(server, in, 0, &open, sizeof(open));
		return;
	case FUSE_READ:
		io.off = ((const struct fuse_read_in *)body)->offset;
		io.size = ((const struct fuse_read_in *)body)->size;
		serve_io(server, &io);
		return;
	case FUSE_WRITE:
		io.off = ((const struct fuse_write_in *)body)->offset;
		io.size = ((const struct fuse_write_in *)body)->size;
		io.bytes = (const struct fuse_write_in *)body + 1;
		serve_io(server, &io);
		return;
	case FUSE_FLUSH:
		if (atomic_load(&server->control->is_flush_hung)) {
			(void)atomic_fetch_add(&server->control->n_hung, 1);
			return;
		}
		answer(server, in, 0, NULL, 0);
		return;
	case FUSE_FSYNC:
	case FUSE_RELEASE:
	case FUSE_UNLINK:
		answer(server, in, 0, NULL, 0);
		return;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return; /* are not answered */
	default:
		answer(server, in, ENOSYS, NULL, 0);
	}
}

/* Whether a thread of the process that hangs asks; requests name the thread. */
static bool is_of_hung_process(struct server *server, const struct fuse_in_header *in)
{
	pid_t pid = atomic_load(&server->control->hung_pid);
	char path[64];

	if (!pid || in->opcode == FUSE_INTERRUPT)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/task/%u", pid, in->pid); /* fits */
	if (access(path, F_OK) < 0)
		return false;
	(void)atomic_fetch_add(&server->control->n_hung, 1);
	return true;
}

static void serve(struct server *server)
{
	static uint64_t request[(WRITE_BYTES_MAX + 8192) / sizeof(uint64_t)];

	for (;;) {
		struct pollfd fds[] = { { .fd = server->fd, .events = POLLIN },
					{ .fd = server->answer_fd, .events = POLLIN } };
		ssize_t n;

		if (poll(fds, 2, -1) < 0)
			return;
		if (fds[1].revents)
			serve_hung(server);
		if (!fds[0].revents)
			continue;
		n = read(server->fd, request, sizeof(request));
		if (n < 0 && (errno == EINTR || errno == ENOENT))
			continue;
		if (n < (ssize_t)sizeof(struct fuse_in_header))
			return; /* the connection was aborted */
		if (!atomic_load(&server->control->is_hung) &&
		    !is_of_hung_process(server, (const void *)request))
			serve_one(server, (const void *)request,
				  (const char *)request + sizeof(struct fuse_in_header));
	}
}

static void start(struct fuse *fs, unsigned long flags, bool has_disk)
{
	static struct server server; /* the child's */
	static uint8_t disk[FUSE_FILE_BYTES];
	void *shared;

	fs->dir = test_text("%s/fuse", test_dir());
	CHECK_SYS(mkdir(fs->dir, 0755));
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	server.disk = has_disk ? disk : NULL;
	fs->control = server.control = shared;
	fs->answer_fd = server.answer_fd = (int)CHECK_SYS(eventfd(0, EFD_CLOEXEC));

	server.fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (server.fd < 0)
		test_skip("/dev/fuse: %s", strerror(errno));
	mounts_private();
	if (mount("test", fs->dir, "fuse.test", MS_NOSUID | MS_NODEV | flags,
		  test_text("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", server.fd)) <
	    0)
		test_skip("mounting FUSE: %s", strerror(errno));
	/* private, or in a chroot the host would see it */
	if (mount(NULL, "/sys", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    (mount("none", "/sys/fs/fuse/connections", "fusectl", 0, NULL) < 0 && errno != EBUSY))
		test_skip("mounting fusectl: %s", strerror(errno));
	(void)fflush(NULL); /* or the child prints it again */
	fs->pid = (pid_t)CHECK_SYS(fork());
	if (fs->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)alarm(SERVER_SECONDS);
		/* Later mounts are not the server's, or its exit would unmount them and wait for itself. */
		(void)unshare(CLONE_NEWNS);
		serve(&server);
		_exit(0);
	}
	(void)close(server.fd); /* the server's end is the file system's */
}

void fuse_start(struct fuse *fs, unsigned long flags)
{
	start(fs, flags, false);
}

void fuse_start_disk(struct fuse *fs)
{
	start(fs, 0, true);
}

char *fuse_path(const struct fuse *fs, char name)
{
	return test_text("%s/%c", fs->dir, name);
}

void fuse_answer_hung(const struct fuse *fs)
{
	atomic_store(&fs->control->is_io_hung, false);
	atomic_store(&fs->control->hung_file, 0);
	atomic_store(&fs->control->held, 0);
	CHECK_SYS(eventfd_write(fs->answer_fd, 1));
}

/* Not by a shell: a process that starts closes what it inherits. */
void fuse_free_as_reported(const struct daemon *daemon)
{
	static const char words[] = "echo 1 > /sys/fs/fuse/";
	_cleanup_(fclosep) FILE *log = fopen(daemon->log_path, "re");
	_cleanup_(closep) int fd = -1;
	char line[1024] = "";
	char *command = NULL;

	CHECK(log);
	while (!command && fgets(line, sizeof(line), log))
		command = strstr(line, words);
	CHECK_MSG(command, "the log names no command");
	command[strcspn(command, "\n")] = 0;
	fd = (int)CHECK_SYS(open(strchr(command, '/'), O_WRONLY | O_CLOEXEC));
	CHECK_EQ(write(fd, "1\n", 2), 2);
}
