#include "daemon/object/pool.h"

#include "proto/util/clock.h"
#include "proto/util/map.h"
#include "tests/huge_pages.h"
#include "tests/unit/slab_reports.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB (1u << 20)

static void setup(void)
{
	pool = (struct pool){ .lock = POOL_LOCK_AUTO, .is_locked = true, .main_mailbox = &mailbox };
	(void)strcpy(pool.quota.name, "the daemon");
	user = (struct quota){ .name = "user 1", .parent = &pool.quota };
	client = (struct quota){ .name = "client 1", .parent = &user };
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++)
		pool.quota.limit[i] = user.limit[i] = client.limit[i] = 64 * MIB;
	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(work_queue_new("pool", 1, &work_queue), 0);
}

static void teardown(void)
{
	work_queue_free(work_queue);
	mailbox_deinit(&mailbox);
}

static struct slab_place place; /* anywhere */
static const struct hung_who who = { .uid = 7 };

static int make(uint64_t size_bytes)
{
	struct error error;
	int r = slab_make(&pool, &client, work_queue, &who, size_bytes, &place, on_made, &client,
			  &error);

	if (r < 0) {
		made_error = error;
		return r;
	}
	run_until(&n_made);
	return made_result;
}

static void drop(void)
{
	made->on_freed = on_freed;
	made->freed_arg = &client;
	slab_unref(made);
}

static const struct {
	uint64_t asked, got;
} sizes[] = { { 1, 4096 }, { 4096, 4096 }, { 4097, 8192 }, { 5 * MIB, 5 * MIB } };

TEST_TABLE(a_slab_has_whole_pages_and_is_charged_until_it_is_free, sizes)
{
	ck_assert_int_eq(make(sizes[_i].asked), 0);
	ck_assert_uint_eq(made->size_bytes, sizes[_i].got);
	ck_assert_uint_eq(client.used[QUOTA_POOL_BYTES], sizes[_i].got);
	ck_assert_uint_eq(pool.quota.used[QUOTA_SLABS], 1);
	drop();
	run_until(&n_freed);
	ck_assert(quota_is_zero(&pool.quota));
}

/* C22: a client can neither change a slab's size nor seal it so that it cannot be punched. */
TEST(a_slab_is_sealed_against_any_change)
{
	ck_assert_int_eq(make(MIB), 0);
	ck_assert_int_eq(fcntl(made->fd, F_GET_SEALS) &
				 (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	ck_assert_int_eq(ftruncate(made->fd, 0), -1);
	ck_assert_int_eq(ftruncate(made->fd, 2 * MIB), -1);
	ck_assert_int_eq(fcntl(made->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
	ck_assert_int_eq(fcntl(made->fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	drop();
	run_until(&n_freed);
}

TEST(a_freed_slab_is_empty_also_where_somebody_maps_it)
{
	int copy;
	struct stat st;
	char *map;

	ck_assert_int_eq(make(MIB), 0);
	copy = dup(made->fd);
	map = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
	memset(map, 'x', MIB);
	drop();
	run_until(&n_freed);
	ck_assert_int_eq(map[0], 0);
	ck_assert_int_eq(map[MIB - 1], 0);
	ck_assert_int_eq(fstat(copy, &st), 0);
	ck_assert_uint_le((uint64_t)st.st_blocks * 512, 2 * 4096); /* what was just looked at */
	ck_assert_int_eq(munmap(map, MIB), 0);
	(void)close(copy);
}

TEST(a_slab_lives_as_long_as_any_holder)
{
	ck_assert_int_eq(make(4096), 0);
	slab_ref(made);
	slab_ref(made);
	drop();
	slab_unref(made);
	(void)mailbox_run(&mailbox);
	ck_assert_int_eq(n_freed, 0);
	ck_assert_uint_eq(client.used[QUOTA_SLABS], 1);
	slab_unref(made);
	run_until(&n_freed);
	ck_assert_int_eq(n_freed, 1);
}

/* C12: the pool is exhausted. */
TEST(a_full_pool_is_refused_with_who_how_much_and_what_to_do)
{
	pool.quota.limit[QUOTA_POOL_BYTES] = 2 * MIB;
	ck_assert_int_eq(make(MIB), 0);
	ck_assert_int_eq(make(MIB + 1), -ENOMEM);
	ck_assert_msg(strstr(made_error.text, "the daemon has 1 MiB of at most 2 MiB of slabs") &&
			      strstr(made_error.text, "pool_size"),
		      "%s", made_error.text);
	client.limit[QUOTA_POOL_BYTES] = MIB;
	ck_assert_int_eq(make(1), -ENOMEM);
	ck_assert_msg(strstr(made_error.text, "client 1 has 1 MiB of at most 1 MiB of slabs") &&
			      strstr(made_error.text, "client_pool_max"),
		      "%s", made_error.text);
	ck_assert_uint_eq(client.used[QUOTA_SLABS], 1); /* the refused ones are not counted */
	drop();
	run_until(&n_freed);
	ck_assert_int_eq(make(2 * MIB), -ENOMEM);
	ck_assert_int_eq(make(MIB), 0);
	drop();
	run_until(&n_freed);
}

TEST(sizes_that_can_not_be_are_refused)
{
	ck_assert_int_eq(make(0), -EINVAL);
	ck_assert_int_eq(make((UINT64_C(1) << 46) + 1), -EINVAL);
	ck_assert_int_eq(make(UINT64_MAX), -EINVAL);
	ck_assert_int_eq(n_made, 0);
}

TEST(a_slab_that_can_not_be_made_releases_its_charges)
{
	struct rlimit limit = { 16, 16 };

	while (dup(0) >= 0)
		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			ck_abort();
	ck_assert_int_eq(make(MIB), -EMFILE);
	ck_assert_ptr_null(made);
	ck_assert_msg(strstr(made_error.text, "memfd"), "%s", made_error.text);
	ck_assert(quota_is_zero(&client));
}

/* No right to lock memory without limit, and a limit of half a MiB. */
static void lose_memlock(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	struct rlimit limit = { MIB / 2, MIB / 2 };

	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
	/* Capabilities are a thread's, and the work queue's thread has others. */
	work_queue_free(work_queue);
	ck_assert_int_eq(work_queue_new("pool", 1, &work_queue), 0);
}

/* C13: RLIMIT_MEMLOCK is too low. */
TEST(what_can_not_be_locked_is_refused_with_the_limit_and_what_to_do)
{
	lose_memlock();
	pool.lock = POOL_LOCK_YES;
	ck_assert_int_eq(make(MIB), -ENOMEM);
	ck_assert_msg(strstr(made_error.text, "RLIMIT_MEMLOCK is 512 KiB") &&
			      strstr(made_error.text, "LimitMEMLOCK=infinity") &&
			      strstr(made_error.text, "lock = auto"),
		      "%s", made_error.text);
	ck_assert(quota_is_zero(&client));
	ck_assert_int_eq(make(MIB / 4), 0); /* fits */
	ck_assert(made->is_locked);
	ck_assert(pool.is_locked);
	drop();
	run_until(&n_freed);
}

TEST(with_lock_auto_it_is_served_unlocked_and_that_is_reported)
{
	lose_memlock();
	ck_assert_int_eq(make(MIB), 0);
	ck_assert(!made->is_locked);
	ck_assert(!pool.is_locked);
	ck_assert_msg(strstr(pool.why_unlocked, "RLIMIT_MEMLOCK"), "%s", pool.why_unlocked);
	drop();
	run_until(&n_freed);
}

/* Bytes of the mapping that are in transparent huge pages, as the kernel tells. */
static uint64_t huge_bytes_at(const void *memory)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	bool is_it = false;
	uint64_t kib = 0;
	char line[512];

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file)) {
		unsigned long start, end;
		char flags[8];

		if (sscanf(line, "%lx-%lx %7s", &start, &end, flags) == 3)
			is_it = start == (uintptr_t)memory;
		else if (is_it && sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1)
			break;
	}
	(void)fclose(file);
	return kib << 10;
}

TEST(what_is_not_locked_is_of_huge_pages_as_what_is)
{
	uint64_t locked;

	ck_assert_int_eq(make(4 * MIB), 0);
	locked = made->is_locked ? huge_bytes_at(made->region.base) : 0;
	drop();
	run_until(&n_freed);
	if (!locked)
		return; /* this kernel has none now */
	lose_memlock();
	ck_assert_int_eq(make(4 * MIB), 0);
	ck_assert(!made->is_locked);
	ck_assert_uint_eq(huge_bytes_at(made->region.base), locked);
	drop();
	run_until(&n_freed);
}

/* ---- imported memory ---- */

enum import_kind { MEMFD, HUGE_MEMFD, SHM, SHM_READ_ONLY, SHM_PATH, ON_DISK, DIRECTORY, PIPE };

static int shm_open_new(int flags)
{
	static const char path[] = "/dev/shm/dsaio-test-pool";
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), other;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, MIB), 0);
	other = open(path, flags | O_CLOEXEC);
	ck_assert_int_ge(other, 0);
	ck_assert_int_eq(unlink(path), 0);
	(void)close(fd);
	return other;
}

static int import_open(enum import_kind kind, int seals)
{
	int fds[2], fd = -1;

	switch (kind) {
	case MEMFD:
		fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		ck_assert_int_eq(ftruncate(fd, MIB), 0);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
		break;
	case HUGE_MEMFD:
		fd = memfd_create("test", MFD_CLOEXEC | MFD_HUGETLB);
		ck_assert(fd < 0 || ftruncate(fd, 4 * MIB) == 0);
		break;
	case SHM:
		return shm_open_new(O_RDWR);
	case SHM_READ_ONLY:
		return shm_open_new(O_RDONLY);
	case SHM_PATH:
		return shm_open_new(O_PATH);
	case ON_DISK:
		fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		ck_assert_int_eq(ftruncate(fd, MIB), 0);
		break;
	case DIRECTORY:
		fd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		break;
	case PIPE:
		ck_assert_int_eq(pipe(fds), 0);
		(void)close(fds[1]);
		fd = fds[0];
		break;
	}
	return fd;
}

static int import(int fd, uint64_t off, uint64_t size_bytes)
{
	struct error error;
	int r = slab_import(&slab_kind_imported, &pool, &client, work_queue, &who, fd, off,
			    size_bytes, on_made, &client, &error);

	if (r < 0) {
		made_error = error;
		(void)close(fd);
		return r;
	}
	run_until(&n_made);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1); /* closed, whatever came out */
	return made_result;
}

static const struct {
	const char *what;
	enum import_kind kind;
	int seals;
	uint64_t off, size_bytes;
	int want;
	const char *words;
} imports[] = {
	{ "a memfd", MEMFD, 0, 0, MIB, 0, "" },
	{ "of it a part", MEMFD, 0, 4096, 8192, 0, "" },
	{ "part of a page", MEMFD, 0, 4096, 77, 0, "" },
	{ "what can only not shrink", MEMFD, F_SEAL_SHRINK | F_SEAL_SEAL, 0, MIB, 0, "" },
	{ "a file in /dev/shm", SHM, 0, 0, MIB, 0, "" },
	{ "no byte", MEMFD, 0, 0, 0, -EINVAL, "slab of 0 B" },
	{ "in the middle of a page", MEMFD, 0, 100, 4096, -EINVAL, "offset 100" },
	{ "a sum over 2^63", MEMFD, 0, INT64_MAX - 4095, 8192, -EINVAL, "2^63" },
	{ "a sum over 2^64", MEMFD, 0, UINT64_MAX - 4095, 8192, -EINVAL, "2^63" },
	{ "a byte too much", MEMFD, 0, 0, MIB + 1, -ERANGE, "1048577 bytes from 0" },
	{ "behind the end", MEMFD, 0, 2 * MIB, 4096, -ERANGE, "has 1048576 bytes" },
	{ "sealed", MEMFD, F_SEAL_WRITE, 0, MIB, -EACCES, "F_SEAL_WRITE" },
	{ "sealed from now on", MEMFD, F_SEAL_FUTURE_WRITE, 0, MIB, -EACCES, "FUTURE_WRITE" },
	{ "open for reading", SHM_READ_ONLY, 0, 0, MIB, -EACCES, "O_RDWR" },
	{ "open as a path", SHM_PATH, 0, 0, MIB, -EACCES, "O_RDWR" },
	{ "on a disk", ON_DISK, 0, 0, MIB, -EOPNOTSUPP, "neither tmpfs nor" },
	{ "a directory", DIRECTORY, 0, 0, 4096, -EOPNOTSUPP, "no regular file" },
	{ "a pipe", PIPE, 0, 0, 4096, -EOPNOTSUPP, "neither tmpfs nor" },
};

TEST_TABLE(memory_is_imported_as_it_is_or_refused_with_what_is_wrong, imports)
{
	const int want = imports[_i].want;
	int fd = import_open(imports[_i].kind, imports[_i].seals);
	int r = import(fd, imports[_i].off, imports[_i].size_bytes);

	ck_assert_msg(r == want, "%s: %d", imports[_i].what, r);
	if (want < 0) {
		ck_assert_msg(strstr(made_error.text, imports[_i].words), "%s", made_error.text);
		ck_assert(quota_is_zero(&client));
		return;
	}
	ck_assert_uint_eq(made->size_bytes, imports[_i].size_bytes);
	ck_assert(made->is_locked);
	ck_assert_uint_eq(client.used[QUOTA_POOL_BYTES],
			  (imports[_i].size_bytes + 4095) / 4096 * 4096);
	ck_assert_uint_eq(client.used[QUOTA_SLABS], 1);
	drop();
	run_until(&n_freed);
	ck_assert(quota_is_zero(&client));
}

TEST(imported_memory_is_the_clients_own_also_when_it_is_freed)
{
	int fd = import_open(MEMFD, 0);
	int own = dup(fd);
	char bytes[4] = "";

	ck_assert_int_eq(pwrite(own, "abcd", 4, 8192), 4);
	ck_assert_int_eq(import(fd, 8192, 4096), 0);
	ck_assert_int_eq(memcmp(made->region.base, "abcd", 4), 0);
	drop();
	run_until(&n_freed);
	ck_assert_int_eq(pread(own, bytes, 4, 8192), 4); /* neither punched nor cut */
	ck_assert_int_eq(memcmp(bytes, "abcd", 4), 0);
	(void)close(own);
}

TEST(imported_memory_counts_like_the_pools)
{
	client.limit[QUOTA_POOL_BYTES] = MIB - 1;
	ck_assert_int_eq(import(import_open(MEMFD, 0), 0, MIB), -ENOMEM);
	ck_assert_msg(strstr(made_error.text, "client_pool_max"), "%s", made_error.text);
	client.limit[QUOTA_SLABS] = 0;
	ck_assert_int_eq(import(import_open(MEMFD, 0), 0, 4096), -EMFILE);
	ck_assert(quota_is_zero(&client));
}

TEST(small_pages_are_small)
{
	place.pages = SLAB_PAGES_SMALL;
	ck_assert_int_eq(make(4 * MIB), 0);
	ck_assert(!made->is_huge && !made->is_transparent);
	ck_assert_uint_eq(huge_bytes_at(made->region.base), 0);
	drop();
	run_until(&n_freed);
}

TEST(huge_pages_are_whole_or_refused)
{
	place.pages = SLAB_PAGES_HUGE;
	if (make(3 * MIB) < 0) { /* this kernel has none now */
		ck_assert_int_eq(made_result, -ENOMEM);
		ck_assert_msg(strstr(made_error.text, "vm.nr_hugepages"), "%s", made_error.text);
		ck_assert(quota_is_zero(&pool.quota));
		return;
	}
	ck_assert_uint_eq(made->size_bytes, 4 * MIB);
	ck_assert_uint_eq(client.used[QUOTA_POOL_BYTES], 4 * MIB);
	ck_assert_uint_eq(huge_bytes_at(made->region.base), 4 * MIB);
	drop();
	run_until(&n_freed);
}

/* In place of the C library's: the linker takes the first. */
static bool has_no_huge_pages, has_slow_huge_pages;
static size_t collapsed_bytes;
static unsigned n_fills;  /* steps that were filled and locked */
static unsigned n_absent; /* pages that a lock had to make, while nothing else can be mapped */

static bool has_slow_steps;
static unsigned n_steps, n_pauses;

/* A call that keeps the lock of all mappings. */
static void step_count(void)
{
	for (uint64_t end = clock_nsec() + 250000; has_slow_steps && clock_nsec() < end;)
		;
	n_steps += has_slow_steps;
}

int munmap(void *memory, size_t bytes)
{
	step_count();
	return (int)syscall(SYS_munmap, memory, bytes);
}

int nanosleep(const struct timespec *time, struct timespec *ret_left)
{
	n_pauses++;
	return (int)syscall(SYS_nanosleep, time, ret_left);
}

int madvise(void *memory, size_t bytes, int advice)
{
	if (advice == 22 || advice == 24) /* MADV_POPULATE_READ, MADV_DONTNEED_LOCKED */
		step_count();
	if (has_no_huge_pages && advice == MADV_COLLAPSE) {
		errno = ENOMEM;
		return -1;
	}
	if (advice == MADV_COLLAPSE)
		collapsed_bytes += bytes;
	/* As a kernel that has to make room for each: 12 s a GiB. */
	for (uint64_t end = clock_thread_nsec() + bytes * 12;
	     has_slow_huge_pages && advice == MADV_COLLAPSE && clock_thread_nsec() < end;)
		;
	return (int)syscall(SYS_madvise, memory, bytes, advice);
}

int mlock2(const void *memory, size_t bytes, unsigned flags)
{
	unsigned char is_there[512];

	n_fills += !flags;
	if (!flags)
		step_count();
	for (size_t at = 0; !flags && at < bytes; at += sizeof(is_there) * 4096) {
		size_t n = (bytes - at + 4095) / 4096;

		n = n < sizeof(is_there) ? n : sizeof(is_there);
		ck_assert_int_eq(mincore((char *)(uintptr_t)memory + at, n * 4096, is_there), 0);
		while (n--)
			n_absent += !(is_there[n] & 1);
	}
	return (int)syscall(SYS_mlock2, memory, bytes, flags);
}

TEST(what_lacks_huge_pages_is_refused_before_it_is_filled)
{
	place = (struct slab_place){ .pages = SLAB_PAGES_HUGE };
	has_no_huge_pages = true;
	ck_assert_int_eq(make(8 * MIB), -ENOMEM);
	ck_assert_ptr_nonnull(strstr(made_error.text, "no huge pages for it"));
	ck_assert_uint_eq(n_fills, 0);
	ck_assert(quota_is_zero(&client));
	place = (struct slab_place){ 0 };
	ck_assert_int_eq(make(8 * MIB), 0);
	ck_assert_uint_gt(n_fills, 0);
	drop();
	run_until(&n_freed);
}

static const struct {
	uint64_t bytes;
	bool has_no_huge_pages;
} fills[] = { { 5 * MIB + 4096, false }, { 16 * MIB, true }, { 16 * MIB, false } };

TEST_TABLE(a_lock_finds_all_pages_so_that_it_is_short, fills)
{
	has_no_huge_pages = fills[_i].has_no_huge_pages;
	ck_assert_int_eq(make(fills[_i].bytes), 0);
	ck_assert_int_eq(n_fills > 0, made->is_locked);
	ck_assert_uint_eq(n_absent, 0);
	drop();
	run_until(&n_freed);
}

TEST_LOOP(steps_leave_the_lock_of_all_mappings_to_others_for_a_moment, 2)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(fd, 32 * MIB), 0);
	has_slow_steps = true;
	ck_assert_int_eq(_i ? import(fd, 0, 32 * MIB) : make(32 * MIB), 0);
	ck_assert(!made->is_locked || n_steps >= 16);
	ck_assert_uint_ge(n_pauses, made->is_locked ? 15 : 0);
	n_steps = n_pauses = 0;
	drop();
	run_until(&n_freed);
	ck_assert_uint_ge(n_steps, 15);
	ck_assert_uint_ge(n_pauses, 15);
	if (!_i)
		(void)close(fd); /* else the slab has it */
}

TEST(huge_pages_that_take_longer_than_small_ones_are_not_waited_for)
{
	has_slow_huge_pages = true;
	ck_assert_int_eq(make(32 * MIB), 0);
	ck_assert(!made->is_transparent);
	ck_assert_uint_le(collapsed_bytes, 8 * MIB);
	drop();
	run_until(&n_freed);
	collapsed_bytes = 0;
	place.pages = SLAB_PAGES_HUGE; /* who asks for them waits */
	if (make(16 * MIB) < 0)
		return; /* this kernel has none now */
	ck_assert_uint_eq(collapsed_bytes, 16 * MIB);
	drop();
	run_until(&n_freed);
}

TEST(huge_pages_that_the_configuration_forbids_are_refused_at_once)
{
	pool.pages = POOL_PAGES_SMALL;
	place.pages = SLAB_PAGES_HUGE;
	ck_assert_int_eq(make(4 * MIB), -EOPNOTSUPP);
	ck_assert_msg(strstr(made_error.text, "huge_pages = no"), "%s", made_error.text);
	ck_assert_int_eq(n_made, 0);
}

TEST(a_node_that_is_not_there_leaves_nothing)
{
	place = (struct slab_place){ .has_node = true, .node = 77 };
	ck_assert_int_eq(make(4 * MIB), -EINVAL);
	ck_assert_msg(strstr(made_error.text, "node 77"), "%s", made_error.text);
	ck_assert(quota_is_zero(&pool.quota));
}

/* No other test takes or frees reserved huge pages until this process has ended. */
static void huge_lock(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = huge_pages_open();
	ck_assert(fd < 0 || flock(fd, LOCK_EX) == 0);
}

TEST(huge_pages_are_imported_whole)
{
	int fd, own;

	huge_lock();
	fd = import_open(HUGE_MEMFD, 0);
	own = dup(fd);
	if (fd < 0 ||
	    mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED) {
		printf("skip pool: huge pages: this host has none to spare\n");
		(void)fflush(stdout);
		return;
	}
	ck_assert_int_eq(import(fd, 4096, 4096), -EINVAL);
	ck_assert_msg(strstr(made_error.text, "2097152"), "%s", made_error.text);
	ck_assert_int_eq(import(dup(own), 2 * MIB, 4096), 0);
	ck_assert_uint_eq(made->size_bytes, 4096);
	drop();
	run_until(&n_freed);
	(void)close(own);
}

TEST(imported_memory_too_has_to_be_locked)
{
	lose_memlock();
	pool.lock = POOL_LOCK_YES;
	ck_assert_int_eq(import(import_open(MEMFD, 0), 0, MIB), -ENOMEM);
	ck_assert_msg(strstr(made_error.text, "RLIMIT_MEMLOCK"), "%s", made_error.text);
	pool.lock = POOL_LOCK_AUTO;
	ck_assert_int_eq(import(import_open(MEMFD, 0), 0, MIB), 0);
	ck_assert(!made->is_locked);
	drop();
	run_until(&n_freed);
}

/* Reserved ones that are free, as the kernel tells. */
static unsigned n_huge_free(void)
{
	FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "re");
	unsigned n = 0;

	if (file && fscanf(file, "%u", &n) != 1)
		n = 0;
	if (file)
		(void)fclose(file);
	return n;
}

static const struct {
	uint64_t bytes;
	bool can_be_huge;
} huge_sizes[] = { { 4 * MIB, true }, { 5 * MIB, false }, { 4096, false } };

TEST_TABLE(a_slab_of_whole_huge_pages_takes_reserved_ones_or_is_made_without, huge_sizes)
{
	unsigned n_before;
	struct stat st;

	huge_lock();
	n_before = n_huge_free();
	pool.pages = POOL_PAGES_RESERVED;
	ck_assert_int_eq(make(huge_sizes[_i].bytes), 0);
	ck_assert_uint_eq(made->size_bytes, huge_sizes[_i].bytes);
	ck_assert_int_eq(made->is_huge,
			 huge_sizes[_i].can_be_huge && n_before >= 2 && made->is_locked);
	ck_assert_uint_eq(pool.huge_bytes, made->is_huge ? made->size_bytes : 0);
	if (huge_sizes[_i].can_be_huge) /* or transparent ones could not be either */
		ck_assert_uint_eq((uintptr_t)made->region.base % (2 * MIB), 0);
	ck_assert_int_eq(fstat(made->fd, &st), 0);
	ck_assert_int_eq(st.st_size, (off_t)huge_sizes[_i].bytes);
	if (made->is_huge)
		ck_assert_uint_eq(n_huge_free(), n_before - 2);
	memset(made->region.base, 1, made->size_bytes);
	drop();
	run_until(&n_freed);
	ck_assert_uint_eq(pool.huge_bytes, 0);
	ck_assert_uint_eq(n_huge_free(), n_before);
	ck_assert(quota_is_zero(&pool.quota));
}

FIXTURE(setup, teardown)
TEST_MAIN
