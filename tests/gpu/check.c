/*
 * make check-gpu: ops on the memory of a real GPU, how fast they are, and what its driver does.
 *
 *     CUDA_LIBRARY, CUFILE_LIBRARY   their paths; without them those that the loader finds
 *     CHECK_GPU_MIB                  bytes for the large test (16384)
 *
 * tests/e2e/gpu_check.sh runs it on the stand-ins, so that it works at once where there is a GPU.  Lines
 * that begin with # are results.
 */
#include "tests/gpu/check_parts.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROUNDS 9
#define PCI_VENDOR_NVIDIA 0x10de
#define PCI_CLASS_DISPLAY 0x03

/* ---- facts ---- */

/* No document says whether cuFile moves bytes without it: so the results tell who had it. */
static void note_capability(const char *who, pid_t pid)
{
	_cleanup_(fclosep) FILE *file = fopen(test_text("/proc/%d/status", (int)pid), "re");
	unsigned long long effective = 0;
	char line[256];

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	test_note("%s: %s CAP_SYS_RAWIO", who, effective >> CAP_SYS_RAWIO & 1 ? "has" : "lacks");
}

static unsigned long file_number(const char *path)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	unsigned long number = 0;

	return file && fscanf(file, "%lx", &number) == 1 ? number : 0;
}

/* The window to the memory of a GPU is its largest one on the bus. */
static void note_bars(void)
{
	DIR *dir = opendir("/sys/bus/pci/devices");

	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		const char *base = test_text("/sys/bus/pci/devices/%s", entry->d_name);
		_cleanup_(fclosep) FILE *file = NULL;
		unsigned long long from, to, flags, largest = 0;

		if (file_number(test_text("%s/vendor", base)) != PCI_VENDOR_NVIDIA ||
		    file_number(test_text("%s/class", base)) >> 16 != PCI_CLASS_DISPLAY)
			continue;
		file = fopen(test_text("%s/resource", base), "re");
		while (file && fscanf(file, "%llx %llx %llx", &from, &to, &flags) == 3)
			if (to > from && to - from >= largest)
				largest = to - from + 1;
		test_note("PCI %s: BAR1 has %llu MiB", entry->d_name, largest / MIB);
	}
	if (dir)
		(void)closedir(dir); /* it was only read */
}

/* The daemon does not call it: its header calls it experimental. */
static void note_batches(void)
{
	static const char *const names[] = { "cuFileBatchIOSetUp", "cuFileBatchIOSubmit",
					     "cuFileBatchIOGetStatus", "cuFileBatchIODestroy" };
	void *cufile = dlopen(env_path("CUFILE_LIBRARY", CUFILE_LIBRARY), RTLD_NOW);
	const char *missing = NULL;

	CHECK(cufile);
	for (unsigned i = 0; i < ARRAY_SIZE(names) && !missing; i++)
		missing = dlsym(cufile, names[i]) ? NULL : names[i];
	test_note("libcufile's batch API: %s%s", missing ? "no " : "there", missing ? missing : "");
}

TEST(facts, "the GPUs of this host")
{
	struct daemon *daemon;
	CUfileDrvProps_t props = { .fflags = 0 };
	char name[256];
	size_t bytes;
	int n, version;

	gpu_open();
	CHECK_EQ(gpu.find.cuDriverGetVersion(&version), CUDA_SUCCESS);
	CHECK_EQ(gpu.find.cuDeviceGetCount(&n), CUDA_SUCCESS);
	for (int i = 0; i < n; i++) {
		CHECK_EQ(gpu.find.cuDeviceGetName(name, sizeof(name), i), CUDA_SUCCESS);
		CHECK_EQ(gpu.find.cuDeviceTotalMem_v2(&bytes, i), CUDA_SUCCESS);
		test_note("GPU %d: %s, %zu MiB, CUDA %d.%d", i, name, bytes / MIB, version / 1000,
			  version % 1000 / 10);
	}
	cufile_open();
	CHECK_EQ(gpu.driver.cuFileGetVersion(&version).err, CU_FILE_SUCCESS);
	CHECK_EQ(gpu.driver.cuFileDriverGetProperties(&props).err, CU_FILE_SUCCESS);
	test_note("libcufile %d.%d, nvidia-fs %u.%u, status flags %#x, feature flags %#x",
		  version / 1000, version % 1000 / 10, props.nvfs.major_version,
		  props.nvfs.minor_version, props.nvfs.dstatusflags, props.fflags);
	note_batches();
	note_bars();
	daemon = daemon_start(DAEMON_ARGS("--config", config_make("auto")));
	note_capability("this program", getpid());
	note_capability("the daemon", daemon->pid);
}

/* ---- bytes ---- */

static const struct {
	uint64_t off, len, misalign;
} ranges[] = {
	{ 0, 1, 0 },	     { 4096, 4096, 0 },	      { 12345, 54321, 7 },
	{ 511, MIB + 1, 3 }, { 1, 40 * MIB + 13, 5 },
};

static void round_trips(struct rig *rig, const char *name, const char *mode)
{
	for (unsigned i = 0; i < ARRAY_SIZE(ranges); i++) {
		const uint64_t off = ranges[i].off, len = ranges[i].len;
		char *from = gpu_alloc(len + 64), *to = gpu_alloc(len + 64);
		const char *path = daemon_path(rig->daemon, test_text("%s.%u", name, i));
		struct dsaio_file *file;

		file_make_pattern(path, off + len + 100, 1);
		file = rig_file(rig, test_text("%s.%u", name, i), O_RDWR);
		gpu_fill(from, len + 64, 2, 0);
		gpu_fill(to, len + 64, 3, 0);
		check_op(dsaio_pwrite(rig->handle, file, from + ranges[i].misalign, len, off), len,
			 mode);
		file_check_pattern(path, 0, off, 1, 0);
		file_check_pattern(path, off, len, 2, ranges[i].misalign);
		file_check_pattern(path, off + len, 100, 1, off + len);
		check_op(dsaio_pread(rig->handle, file, to + ranges[i].misalign, len, off), len,
			 mode);
		gpu_check(to, ranges[i].misalign, 3, 0);
		gpu_check(to + ranges[i].misalign, len, 2, ranges[i].misalign);
		gpu_check(to + ranges[i].misalign + len, 64 - ranges[i].misalign, 3,
			  ranges[i].misalign + len);
		CHECK_EQ(gpu.own.cuMemFree_v2(address(from)), CUDA_SUCCESS);
		CHECK_EQ(gpu.own.cuMemFree_v2(address(to)), CUDA_SUCCESS);
	}
}

TEST_TABLE(odd, modes, "bytes at odd offsets, lengths and addresses: gpu =")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;

	test_time_limit(300);
	gpu_open();
	rig_mode(&rig, modes[row].what);
	round_trips(&rig, "f", modes[row].what);
}

TEST(two, "two clients use one GPU at a time")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	pid_t pids[2];

	test_time_limit(300);
	needs_gpu();
	rig_mode(&rig, "auto");
	for (int i = 0; i < 2; i++) {
		pids[i] = (pid_t)CHECK_SYS(fork());
		if (pids[i] == 0) {
			struct rig mine = { .daemon = rig.daemon };

			gpu_open();
			rig_open(&mine, NULL);
			for (int j = 0; j < 3; j++) {
				mine.n_files = 0;
				round_trips(&mine, test_text("f%d", i), "auto");
			}
			_exit(0);
		}
	}
	for (int i = 0; i < 2; i++)
		child_wait_ok(pids[i]);
}

/* ---- another process's memory ---- */

#define EXPORTED_BYTES ((size_t)(2 * MIB))

struct exporter {
	pid_t pid;
	int ask, answer; /* a byte each: go on; done */
};

/* A process that exports memory with pattern 4; asked once, it frees it; then it ends. */
static struct exporter exporter_start(CUipcMemHandle *ret_handle)
{
	int ask[2], answer[2];
	struct exporter exporter;
	char byte = 0;

	CHECK_SYS(pipe(ask));
	CHECK_SYS(pipe(answer));
	exporter = (struct exporter){ (pid_t)CHECK_SYS(fork()), ask[1], answer[0] };
	if (exporter.pid == 0) {
		char *memory;

		gpu_open();
		memory = gpu_alloc(EXPORTED_BYTES);
		gpu_fill(memory, EXPORTED_BYTES, 4, 0);
		CHECK_EQ(gpu.export.cuIpcGetMemHandle(ret_handle, address(memory)), CUDA_SUCCESS);
		CHECK_EQ(write(answer[1], ret_handle, sizeof(*ret_handle)), sizeof(*ret_handle));
		CHECK_EQ(read(ask[0], &byte, 1), 1);
		CHECK_EQ(gpu.own.cuMemFree_v2(address(memory)), CUDA_SUCCESS);
		CHECK_EQ(write(answer[1], &byte, 1), 1);
		CHECK_EQ(read(ask[0], &byte, 1), 1);
		_exit(0);
	}
	CHECK_EQ(read(answer[0], ret_handle, sizeof(*ret_handle)), sizeof(*ret_handle));
	return exporter;
}

static void exporter_go_on(const struct exporter *exporter, bool has_answer)
{
	char byte = 0;

	CHECK_EQ(write(exporter->ask, &byte, 1), 1);
	if (has_answer)
		CHECK_EQ(read(exporter->answer, &byte, 1), 1);
}

static char *import_open(CUipcMemHandle handle)
{
	CUdeviceptr memory = 0;

	CHECK_EQ(gpu.map.cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		 CUDA_SUCCESS);
	return (char *)(uintptr_t)memory;
}

TEST(ipc, "ops on the memory of another process")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct exporter exporter;
	CUipcMemHandle handle;
	char *memory;

	needs_gpu();
	exporter = exporter_start(&handle);
	gpu_open();
	rig_mode(&rig, "auto");
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	memory = import_open(handle);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory + 77, MIB, 5), MIB);
	file_check_pattern(daemon_path(rig.daemon, "f"), 5, MIB, 4, 77);
	gpu_fill(memory, EXPORTED_BYTES, 0, 0);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory + 77, MIB, 5), MIB);
	gpu_check(memory + 77, MIB, 4, 77);
	rig_close(&rig);
	CHECK_EQ(gpu.map.cuIpcCloseMemHandle(address(memory)), CUDA_SUCCESS);
	exporter_go_on(&exporter, true);
	exporter_go_on(&exporter, false);
	child_wait_ok(exporter.pid);
}

/* ---- many bytes ---- */

static uint64_t volume(void)
{
	return strtoull(env_path("CHECK_GPU_MIB", "16384"), NULL, 10) * MIB;
}

TEST_TABLE(large, modes, "many bytes, in 400 MiB: gpu =")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const uint64_t all = volume(), len = all < 400 * MIB ? all : 400 * MIB;
	struct dsaio_file *file;
	char *from, *to;

	test_time_limit(1200);
	gpu_open();
	rig_mode(&rig, modes[row].what);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	from = gpu_alloc(len);
	to = gpu_alloc(len);
	for (uint64_t done = 0, seed = 1; done < all; done += len, seed++) {
		gpu_fill(from, len, seed, 0);
		check_op(dsaio_pwrite(rig.handle, file, from, len, 0), len, modes[row].what);
		check_op(dsaio_pread(rig.handle, file, to, len, 0), len, modes[row].what);
		gpu_check(to, len, seed, 0);
	}
	test_note("gpu = %s: %" PRIu64 " MiB written and read", modes[row].what, all / MIB);
}

/* ---- speed ---- */

struct speed {
	struct rig rigs[ARRAY_SIZE(modes)];
	CUfileHandle_t handle; /* NULL: no libcufile */
	char *memory, *host;
	int fd;
	uint64_t len;
	bool is_write;
};

static int64_t by_dsaio(struct speed *s, unsigned i)
{
	struct rig *rig = &s->rigs[i];

	return s->is_write ? dsaio_pwrite(rig->handle, rig->files[0], s->memory, s->len, 0)
			   : dsaio_pread(rig->handle, rig->files[0], s->memory, s->len, 0);
}

static int64_t by_cufile(struct speed *s, unsigned i)
{
	(void)i;
	return s->is_write ? gpu.move.cuFileWrite(s->handle, s->memory, s->len, 0, 0)
			   : gpu.move.cuFileRead(s->handle, s->memory, s->len, 0, 0);
}

static int64_t by_pread(struct speed *s, unsigned i)
{
	int64_t n;

	(void)i;
	if (s->is_write) {
		CHECK_EQ(gpu.map.cuMemcpyDtoH_v2(s->host, address(s->memory), s->len),
			 CUDA_SUCCESS);
		return pwrite(s->fd, s->host, s->len, 0);
	}
	n = pread(s->fd, s->host, s->len, 0);
	CHECK_EQ(gpu.own.cuMemcpyHtoD_v2(address(s->memory), s->host, s->len), CUDA_SUCCESS);
	return n;
}

static struct {
	const char *name;
	int64_t (*run)(struct speed *s, unsigned i);
	bool is_missing;
} sides[] = {
	{ "dsaio", by_dsaio, false },
	{ "dsaio, gpu = copy", by_dsaio, false },
	{ "dsaio, gpu = direct", by_dsaio, false },
	{ "cuFile in the process", by_cufile, false },
	{ "pread and cuMemcpy", by_pread, false },
};

/* Rounds in which the sides take turns; MB/s of each side's median. */
static void measure(struct speed *s)
{
	const char *what = test_text("%" PRIu64 " MiB %s", (uint64_t)(s->len / MIB),
				     s->is_write ? "write" : "read");
	int64_t usec[ARRAY_SIZE(sides)][ROUNDS];
	double ours = 0, best = 0;

	for (unsigned round = 0; round <= ROUNDS; round++)
		for (unsigned j = 0; j < ARRAY_SIZE(sides); j++) {
			unsigned i = (round + j) % ARRAY_SIZE(sides);
			int64_t start = now_usec();

			if (sides[i].is_missing)
				continue;
			CHECK_EQ(sides[i].run(s, i), s->len);
			if (round) /* the first one warms up */
				usec[i][round - 1] = now_usec() - start + 1;
		}
	for (unsigned i = 0; i < ARRAY_SIZE(sides); i++) {
		double speed;

		if (sides[i].is_missing)
			continue;
		speed = (double)s->len / (double)percentile(usec[i], ROUNDS, 50);
		test_note("%s: %7.0f MB/s: %s", what, speed, sides[i].name);
		if (i == 0)
			ours = speed;
		else if (sides[i].run != by_dsaio && speed > best)
			best = speed;
	}
	test_note("%s: dsaio beside the better of cuFile and pread: %.3f (bar 0.98)", what,
		  ours / best);
}

/* A daemon for each mode on the same files. */
static void speed_open(struct speed *s, unsigned i)
{
	static const char *const paths[] = { "none", "shared memory", "GPU memory", "copied" };
	struct rig *rig = &s->rigs[i];
	struct dsaio_op *op = NULL;
	int64_t result;

	if (i == 0)
		rig->daemon = daemon_start(DAEMON_ARGS("--config", config_make(modes[0].what)));
	else
		rig->daemon = daemon_start_with(&(struct daemon_options){
			.args = DAEMON_ARGS("--config", config_make(modes[i].what)),
			.socket_path = test_text("%s/%u.sock", test_dir(), i),
			.store_dir = s->rigs[0].daemon->store_dir });
	wait_probe(rig->daemon);
	rig_open(rig, NULL);
	if (i == 0)
		file_make_pattern(daemon_path(rig->daemon, "f"), s->len, 1);
	(void)rig_file(rig, "f", O_RDWR);
	result = dsaio_pread_async(rig->handle, rig->files[0], s->memory, MIB, 0, &op);
	if (result == 0)
		result = op_wait(op, -1);
	sides[i].is_missing = result < 0;
	CHECK(i == 2 || result == (int64_t)MIB);
	test_note("gpu = %s: %s %s", modes[i].what,
		  result < 0 ? dsaio_error() : paths[dsaio_op_path(op)],
		  result < 0 ? "" : dsaio_op_why(op));
	dsaio_op_free(op);
}

TEST(speed, "speed beside cuFile in the process, and beside pread and a copy")
{
	static const uint64_t sizes[] = { MIB, 16 * MIB, 400 * MIB };
	const uint64_t len = volume() < 400 * MIB ? 16 * MIB : 400 * MIB;
	struct speed s = { .len = len };
	CUfileDescr_t description = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	const char *missing;

	test_time_limit(1200);
	gpu_open();
	missing = load(false);
	if (missing && getenv("CUFILE_LIBRARY"))
		missing_library("CUFILE_LIBRARY", "libcufile", missing);
	s.memory = gpu_alloc(len);
	for (unsigned i = 0; i < ARRAY_SIZE(modes); i++)
		speed_open(&s, i);
	s.fd = open_direct(daemon_path(s.rigs[0].daemon, "f"), O_RDWR);
	s.host = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(s.host != MAP_FAILED);
	CHECK_EQ(gpu.copy.cuMemHostRegister_v2(s.host, len, CU_MEMHOSTREGISTER_PORTABLE),
		 CUDA_SUCCESS);
	description.handle.fd = s.fd;
	if (!missing && gpu.driver.cuFileDriverOpen().err == CU_FILE_SUCCESS &&
	    gpu.move.cuFileHandleRegister(&s.handle, &description).err == CU_FILE_SUCCESS)
		CHECK_EQ(gpu.move.cuFileBufRegister(s.memory, len, 0).err, CU_FILE_SUCCESS);
	sides[3].is_missing = !s.handle;
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
		for (int is_write = 0; is_write < 2; is_write++) {
			s.len = sizes[i];
			s.is_write = is_write;
			if (s.len <= len)
				measure(&s);
		}
	if (s.handle) {
		CHECK_EQ(gpu.move.cuFileBufDeregister(s.memory).err, CU_FILE_SUCCESS);
		gpu.move.cuFileHandleDeregister(s.handle);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(modes); i++)
		rig_close(&s.rigs[i]);
}

/* ---- questions that the documentation leaves open ---- */

static const char *cuda_name(CUresult result)
{
	return test_text("%s (%d)",
			 result == CUDA_SUCCESS ? "yes"
						: cuda_error_name(gpu.find.cuGetErrorName, result),
			 (int)result);
}

static const char *register_memfd(unsigned flags)
{
	const size_t len = 4 * MIB;
	int fd = memfd_create("check", MFD_CLOEXEC | flags);
	void *map;
	CUresult result;

	if (fd < 0 || ftruncate(fd, (off_t)len) < 0)
		return strerror(errno);
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return strerror(errno);
	result = gpu.copy.cuMemHostRegister_v2(map, len, CU_MEMHOSTREGISTER_PORTABLE);
	if (result == CUDA_SUCCESS)
		CHECK_EQ(gpu.copy.cuMemHostUnregister(map), CUDA_SUCCESS);
	return cuda_name(result);
}

TEST(cuda_questions, "what libcuda does")
{
	CUcontext context;
	CUipcMemHandle handle;
	CUdeviceptr again;
	unsigned type = 0;
	char *memory;

	gpu_open();
	memory = gpu_alloc(2 * MIB);
	test_note("cuMemHostRegister of a memfd, PORTABLE: %s", register_memfd(0));
	test_note("cuMemHostRegister of a memfd of huge pages: %s", register_memfd(MFD_HUGETLB));
	CHECK_EQ(gpu.export.cuIpcGetMemHandle(&handle, address(memory)), CUDA_SUCCESS);
	test_note("cuIpcOpenMemHandle in the process that exports: %s",
		  cuda_name(gpu.map.cuIpcOpenMemHandle_v2(&again, handle,
							  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)));
	CHECK_EQ(gpu.copy.cuCtxPopCurrent_v2(&context), CUDA_SUCCESS);
	test_note("cuPointerGetAttribute without a current context: %s",
		  cuda_name(gpu.copy.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
							   address(memory))));
}

TEST(import_questions, "what libcufile does with memory that another process exports")
{
	CUfileDescr_t description = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	const char *path = test_text("%s/f", test_dir());
	struct exporter exporter;
	CUipcMemHandle handle;
	CUfileHandle_t file;
	CUfileError_t result;
	char byte, *memory;

	needs_gpu();
	exporter = exporter_start(&handle);
	gpu_open();
	memory = import_open(handle);
	cufile_open();
	file_make_pattern(path, EXPORTED_BYTES, 1);
	description.handle.fd = open_direct(path, O_RDWR);
	CHECK_EQ(gpu.move.cuFileHandleRegister(&file, &description).err, CU_FILE_SUCCESS);
	test_note("cuFileRead into unregistered memory of cuIpcOpenMemHandle: %zd",
		  gpu.move.cuFileRead(file, memory, MIB, 0, 0));
	result = gpu.move.cuFileBufRegister(memory, EXPORTED_BYTES, 0);
	test_note("cuFileBufRegister of memory of cuIpcOpenMemHandle: error %d, of CUDA's %d",
		  (int)result.err, (int)result.cu_err);
	if (result.err == CU_FILE_SUCCESS) {
		test_note("cuFileRead into it: %zd", gpu.move.cuFileRead(file, memory, MIB, 0, 0));
		gpu_check(memory, MIB, 1, 0);
		test_note("cuFileWrite from it, odd: %zd",
			  gpu.move.cuFileWrite(file, memory, 1001, 511, 7));
		CHECK_EQ(gpu.move.cuFileBufDeregister(memory).err, CU_FILE_SUCCESS);
	}
	gpu.move.cuFileHandleDeregister(file);
	exporter_go_on(&exporter, true);
	test_note("cuMemcpyDtoH of memory that its process has freed: %s",
		  cuda_name(gpu.map.cuMemcpyDtoH_v2(&byte, address(memory), 1)));
	test_note("cuIpcCloseMemHandle of it: %s",
		  cuda_name(gpu.map.cuIpcCloseMemHandle(address(memory))));
	exporter_go_on(&exporter, false);
	child_wait_ok(exporter.pid);
}

TEST_MAIN
