/*
 * A stand-in for libcufile, loaded by path where the toolkit's would be, beside the stand-in for libcuda.
 *
 * As libcufile 1.20 does, cuFileDriverOpen() never returns where the process has no libcuda.  STANDIN
 * (standin.h) makes calls fail; nvfs=2.24 is the version of nvidia-fs, p2pdma=1 is P2PDMA.  A transfer is
 * pread(2) or pwrite(2) of the memory's bytes.  An error of it is an errno below 5000, and a
 * CUfileOpError from there on.  most=N: a transfer is of at most N bytes.  cufile_nsec_per_kib=N: its time
 * at least.  buf_imported=no: memory that
 * other processes export cannot be registered.
 *
 * It checks that the driver is open, that files and memory are registered once and as long as they are
 * used, that ranges lie in an allocation, and that a context of its GPU is current.  Misuse that no error reports
 * ends the process: a descriptor that is closed before its file is deregistered, and memory or files that end
 * under a transfer.
 */
#include "tests/gpu/libcufile.h"

#include "tests/gpu/standin.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

#define FILES_MAX 256
#define BUFFERS_MAX 256
#define PAGE 4096u
#define SECTOR 512u

/* The declarations are those of the daemon: another prototype does not compile. */
CUFILE_FUNCTIONS(STANDIN_DECLARE)
CUFILE_MOVE_FUNCTIONS(STANDIN_DECLARE)

struct file {
	bool is_there;
	int fd;
	dev_t dev;
	ino_t ino;
	unsigned n_running;
};

struct buffer {
	CUdeviceptr base; /* 0: none */
	size_t bytes;
	unsigned n_running;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static bool is_open;
static struct file files[FILES_MAX];
static struct buffer buffers[BUFFERS_MAX];
static struct standin_cufile counts;

/* Those of libcuda that are looked for when they are needed. */
struct cuda {
	CUresult (*cuDeviceGetCount)(int *);
	char *(*standin_pin)(CUdeviceptr, size_t, int *, bool *);
	void (*standin_unpin)(CUdeviceptr);
	int (*standin_current)(void);
};
#define FIND(name)                                 \
	{                                          \
#name, offsetof(struct cuda, name) \
	}
static const struct function cuda_functions[] = { FIND(cuDeviceGetCount), FIND(standin_pin),
						  FIND(standin_unpin), FIND(standin_current) };

static bool cuda_find(struct cuda *ret_cuda)
{
	return !functions_find(RTLD_DEFAULT, cuda_functions,
			       sizeof(cuda_functions) / sizeof(*cuda_functions), ret_cuda);
}

static CUfileError_t failed(int error)
{
	return (CUfileError_t){ .err = (CUfileOpError)error,
				.cu_err = error == CU_FILE_CUDA_DRIVER_ERROR ? (CUresult)999
									     : CUDA_SUCCESS };
}

static bool driver_is_open(void)
{
	bool is;

	(void)pthread_mutex_lock(&lock);
	is = is_open;
	(void)pthread_mutex_unlock(&lock);
	return is;
}

static CUfileError_t call(const char *name, bool needs_open)
{
	int error = standin_call(name);

	return failed(!error && needs_open && !driver_is_open() ? CU_FILE_DRIVER_NOT_INITIALIZED
								: error);
}

CUfileError_t cuFileDriverOpen(void)
{
	CUfileError_t error = call("cuFileDriverOpen", false);
	struct cuda cuda;
	int n = 0;

	while (!cuda_find(&cuda) || cuda.cuDeviceGetCount(&n) != CUDA_SUCCESS || n == 0)
		(void)pause();
	(void)pthread_mutex_lock(&lock);
	is_open |= error.err == CU_FILE_SUCCESS;
	(void)pthread_mutex_unlock(&lock);
	return error;
}

CUfileError_t cuFileDriverClose_v2(void)
{
	CUfileError_t error = call("cuFileDriverClose_v2", true);

	(void)pthread_mutex_lock(&lock);
	if (error.err == CU_FILE_SUCCESS && counts.n_running)
		error = failed(CU_FILE_DRIVER_CLOSING);
	if (error.err == CU_FILE_SUCCESS && (counts.n_buffers || counts.n_files))
		standin_misused("closes the driver while files or memory are registered");
	if (error.err == CU_FILE_SUCCESS)
		is_open = false;
	(void)pthread_mutex_unlock(&lock);
	return error;
}

CUfileError_t cuFileGetVersion(int *ret_version)
{
	*ret_version = 1170;
	return call("cuFileGetVersion", false);
}

CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *ret_props)
{
	CUfileError_t error = call("cuFileDriverGetProperties", true);
	const char *nvfs = standin_word("nvfs");

	if (error.err != CU_FILE_SUCCESS)
		return error;
	*ret_props = (CUfileDrvProps_t){ .max_batch_io_size = 128 };
	if (nvfs) {
		ret_props->nvfs.major_version = (unsigned)atoi(nvfs);
		ret_props->nvfs.minor_version = (unsigned)atoi(strchr(nvfs, '.') + 1);
	}
	if (standin_number("p2pdma", 0))
		ret_props->fflags |= 1u << CU_FILE_P2P_SUPPORTED;
	return error;
}

struct standin_cufile standin_cufile_counts(void)
{
	struct standin_cufile now;

	(void)pthread_mutex_lock(&lock);
	now = counts;
	(void)pthread_mutex_unlock(&lock);
	return now;
}

/* ---- files ---- */

/* Whether the descriptor is still the file that was registered. */
static bool is_same_file(const struct file *file)
{
	struct stat st;

	return fstat(file->fd, &st) == 0 && st.st_dev == file->dev && st.st_ino == file->ino;
}

/* The file of a handle; NULL: it is none. */
static struct file *file_find(CUfileHandle_t handle)
{
	for (unsigned i = 0; i < FILES_MAX; i++)
		if (files[i].is_there && handle == &files[i])
			return &files[i];
	return NULL;
}

CUfileError_t cuFileHandleRegister(CUfileHandle_t *ret_handle, CUfileDescr_t *description)
{
	CUfileError_t error = call("cuFileHandleRegister", true);
	const int fd = description->handle.fd;
	struct file *file = NULL;
	struct stat st;

	if (error.err != CU_FILE_SUCCESS)
		return error;
	if (description->type != CU_FILE_HANDLE_TYPE_OPAQUE_FD || description->fs_ops ||
	    fstat(fd, &st) < 0)
		return failed(CU_FILE_INVALID_VALUE);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return failed(CU_FILE_INVALID_FILE_TYPE);
	(void)pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < FILES_MAX; i++) {
		if (!files[i].is_there) {
			file = &files[i];
		} else if (files[i].fd == fd) {
			if (!is_same_file(&files[i]))
				standin_misused("a file is closed before it is deregistered");
			error = failed(CU_FILE_HANDLE_ALREADY_REGISTERED);
		}
	}
	if (error.err == CU_FILE_SUCCESS && !file)
		error = failed(CU_FILE_INTERNAL_ERROR);
	if (error.err == CU_FILE_SUCCESS) {
		*file = (struct file){
			.is_there = true, .fd = fd, .dev = st.st_dev, .ino = st.st_ino
		};
		counts.n_files++;
		*ret_handle = file;
	}
	(void)pthread_mutex_unlock(&lock);
	return error;
}

void cuFileHandleDeregister(CUfileHandle_t handle)
{
	struct file *file;

	(void)call("cuFileHandleDeregister", true);
	(void)pthread_mutex_lock(&lock);
	file = file_find(handle);
	if (!file)
		standin_misused("deregisters a file that is not registered");
	if (!is_same_file(file))
		standin_misused("a file is closed before it is deregistered");
	if (file->n_running)
		standin_misused("deregisters a file under a transfer");
	file->is_there = false;
	counts.n_files--;
	(void)pthread_mutex_unlock(&lock);
}

/* ---- memory ---- */

static struct buffer *buffer_find(CUdeviceptr base)
{
	for (unsigned i = 0; base && i < BUFFERS_MAX; i++)
		if (buffers[i].base == base)
			return &buffers[i];
	return NULL;
}

static struct buffer *buffer_room(void)
{
	for (unsigned i = 0; i < BUFFERS_MAX; i++)
		if (!buffers[i].base)
			return &buffers[i];
	return NULL;
}

static bool imported_is_refused(void)
{
	const char *value = standin_word("buf_imported");

	return value && strncmp(value, "no", 2) == 0;
}

CUfileError_t cuFileBufRegister(const void *base, size_t bytes, int flags)
{
	CUfileError_t error = call("cuFileBufRegister", true);
	const CUdeviceptr memory = (uintptr_t)base;
	struct buffer *buffer;
	struct cuda cuda;
	bool is_imported;
	int device;

	if (error.err != CU_FILE_SUCCESS)
		return error;
	if (!base || !bytes || flags || !cuda_find(&cuda))
		return failed(CU_FILE_INVALID_VALUE);
	if (!cuda.standin_pin(memory, bytes, &device, &is_imported))
		return failed(CU_FILE_CUDA_POINTER_INVALID);
	(void)pthread_mutex_lock(&lock);
	buffer = buffer_room();
	if (buffer_find(memory))
		error = failed(CU_FILE_MEMORY_ALREADY_REGISTERED);
	else if (device != cuda.standin_current())
		error = failed(CU_FILE_CUDA_CONTEXT_MISMATCH);
	else if (is_imported && imported_is_refused())
		error = failed(CU_FILE_CUDA_MEMORY_TYPE_INVALID);
	else if (!buffer)
		error = failed(CU_FILE_GPU_MEMORY_PINNING_FAILED);
	if (error.err == CU_FILE_SUCCESS) {
		*buffer = (struct buffer){ .base = memory, .bytes = bytes };
		counts.n_buffers++;
	}
	(void)pthread_mutex_unlock(&lock);
	if (error.err != CU_FILE_SUCCESS)
		cuda.standin_unpin(memory);
	return error;
}

CUfileError_t cuFileBufDeregister(const void *base)
{
	CUfileError_t error = call("cuFileBufDeregister", true);
	struct buffer *buffer;
	struct cuda cuda;

	if (error.err != CU_FILE_SUCCESS || !cuda_find(&cuda))
		return error;
	(void)pthread_mutex_lock(&lock);
	buffer = buffer_find((uintptr_t)base);
	if (buffer && buffer->n_running)
		standin_misused("deregisters memory under a transfer");
	if (buffer) {
		buffer->base = 0;
		counts.n_buffers--;
	}
	(void)pthread_mutex_unlock(&lock);
	if (!buffer)
		return failed(CU_FILE_INVALID_VALUE);
	cuda.standin_unpin((uintptr_t)base);
	return error;
}

/* ---- transfers ---- */

struct transfer {
	bool is_write;
	struct file *file;
	struct buffer *buffer; /* NULL: the memory is not registered */
	char *bytes;
	size_t n;
	off_t off;
};

/*
 * Whole pages around a range that is not of whole ones: the rest of them is read before, and written again,
 * whatever another has written meanwhile.
 */
static ssize_t transfer_cover(const struct transfer *transfer)
{
	const size_t lead = (size_t)transfer->off % PAGE;
	const size_t all = (lead + transfer->n + PAGE - 1) / PAGE * PAGE;
	const off_t from = transfer->off - (off_t)lead;
	ssize_t n = -1, end;
	void *pages;

	if (posix_memalign(&pages, PAGE, all)) {
		errno = ENOMEM;
		return -1;
	}
	memset(pages, 0, all);
	end = pread(transfer->file->fd, pages, all, from);
	if (end >= 0 && transfer->is_write) {
		memcpy((char *)pages + lead, transfer->bytes, transfer->n);
		n = pwrite(transfer->file->fd, pages, all, from) == (ssize_t)all
			    ? (ssize_t)transfer->n
			    : -1;
	} else if (end >= 0) {
		n = end > (ssize_t)lead ? end - (ssize_t)lead : 0;
		n = n > (ssize_t)transfer->n ? (ssize_t)transfer->n : n;
		memcpy(transfer->bytes, (char *)pages + lead, (size_t)n);
	}
	free(pages);
	return n;
}

/*
 * The calls with flags, since a race detector looks at the memory of pread(2); a program may well let two
 * transfers use the same.
 */
static ssize_t transfer_do(const struct transfer *transfer)
{
	const size_t unit = transfer->is_write ? PAGE : SECTOR;
	const struct iovec range = { transfer->bytes, transfer->n };

	if (((size_t)transfer->off | transfer->n) % unit || (uintptr_t)transfer->bytes % SECTOR)
		return transfer_cover(transfer);
	return transfer->is_write ? pwritev2(transfer->file->fd, &range, 1, transfer->off, 0)
				  : preadv2(transfer->file->fd, &range, 1, transfer->off, 0);
}

/* 0, or the error.  Under the lock. */
static int transfer_check(struct transfer *transfer, CUfileHandle_t handle, CUdeviceptr base,
			  off_t base_off)
{
	transfer->file = file_find(handle);
	transfer->buffer = buffer_find(base);
	if (!transfer->file)
		return CU_FILE_HANDLE_NOT_REGISTERED;
	if (!is_same_file(transfer->file))
		standin_misused("a file is closed before it is deregistered");
	if (base_off < 0 || transfer->off < 0 || !transfer->n)
		return CU_FILE_INVALID_VALUE;
	if (transfer->buffer && (size_t)base_off + transfer->n > transfer->buffer->bytes)
		return CU_FILE_INVALID_MAPPING_RANGE;
	return 0;
}

static void transfer_count(const struct transfer *transfer)
{
	counts.n_running++;
	counts.n_reads += !transfer->is_write;
	counts.n_writes += transfer->is_write;
	counts.n_unaligned_writes += transfer->is_write &&
				     ((size_t)transfer->off | transfer->n) % PAGE;
	counts.n_unregistered += !transfer->buffer;
	transfer->file->n_running++;
	if (transfer->buffer)
		transfer->buffer->n_running++;
}

/* The simulated time of a transfer, which takes as long at least. */
static void transfer_last(size_t bytes)
{
	const uint64_t nsec = (uint64_t)standin_number("cufile_nsec_per_kib", 0) * bytes / 1024;
	const struct timespec time = { .tv_sec = (time_t)(nsec / 1000000000),
				       .tv_nsec = (long)(nsec % 1000000000) };

	if (nsec)
		(void)nanosleep(&time, NULL); /* a signal shortens it: no test counts on that */
}

static ssize_t transfer(const char *name, struct transfer transfer, CUfileHandle_t handle,
			CUdeviceptr base, off_t base_off)
{
	const CUdeviceptr memory = base + (CUdeviceptr)base_off;
	const size_t most = (size_t)standin_number("most", 1 << 30);
	int error = 0, device;
	struct cuda cuda;
	bool is_imported;
	ssize_t n = 0;

	if (!driver_is_open() || !cuda_find(&cuda))
		return -CU_FILE_DRIVER_NOT_INITIALIZED;
	transfer.bytes = cuda.standin_pin(memory, transfer.n, &device, &is_imported);
	if (!transfer.bytes)
		return -CU_FILE_CUDA_POINTER_RANGE_ERROR;
	(void)pthread_mutex_lock(&lock);
	error = transfer_check(&transfer, handle, base, base_off);
	if (!error && device != cuda.standin_current())
		error = CU_FILE_CUDA_CONTEXT_MISMATCH;
	if (error) {
		(void)pthread_mutex_unlock(&lock);
		cuda.standin_unpin(memory);
		return -error;
	}
	transfer_count(&transfer);
	(void)pthread_mutex_unlock(&lock);

	error = standin_call(name);
	transfer.n = transfer.n < most ? transfer.n : most;
	if (!error && transfer.n && (n = transfer_do(&transfer)) < 0)
		error = errno;
	transfer_last(transfer.n);
	cuda.standin_unpin(memory);
	(void)pthread_mutex_lock(&lock);
	counts.n_running--;
	transfer.file->n_running--;
	if (transfer.buffer)
		transfer.buffer->n_running--;
	(void)pthread_mutex_unlock(&lock);
	errno = error < CU_FILE_DRIVER_NOT_INITIALIZED ? error : 0;
	return !error ? n : error < CU_FILE_DRIVER_NOT_INITIALIZED ? -1 : -error;
}

ssize_t cuFileRead(CUfileHandle_t handle, void *base, size_t bytes, off_t off, off_t base_off)
{
	return transfer("cuFileRead", (struct transfer){ .n = bytes, .off = off }, handle,
			(uintptr_t)base, base_off);
}

ssize_t cuFileWrite(CUfileHandle_t handle, const void *base, size_t bytes, off_t off,
		    off_t base_off)
{
	return transfer("cuFileWrite",
			(struct transfer){ .is_write = true, .n = bytes, .off = off }, handle,
			(uintptr_t)base, base_off);
}
