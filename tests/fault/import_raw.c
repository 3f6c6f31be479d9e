/*
 * Imported memory, by hand: what is smaller than claimed (E1), on another file system (E2), and
 * what its owner shrinks or punches while ops run (E3).
 */
#include "tests/harness.h"
#include "tests/scissors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY_BYTES (4 * MIB)

static int memory_make(size_t bytes)
{
	int fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC));

	CHECK_SYS(ftruncate(fd, (off_t)bytes));
	return fd;
}

static void import_call(struct raw *raw, int fd, uint64_t off, uint64_t size_bytes,
			struct answer *ret_answer)
{
	Wire__SlabImport import = WIRE__SLAB_IMPORT__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_IMPORT, slab_import, &import);

	import.off = off;
	import.size_bytes = size_bytes;
	raw_call(raw, &request, &fd, 1, ret_answer);
}

static uint32_t import(struct raw *raw, int fd, uint64_t off, uint64_t size_bytes)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	import_call(raw, fd, off, size_bytes, &answer);
	CHECK_MSG(!answer.reply->error, "%s", answer.reply->text);
	CHECK_EQ(answer.reply->slab_import->size_bytes, size_bytes);
	CHECK_EQ(answer.n_fds, 0);
	return answer.reply->slab_import->slab;
}

static void import_fails(struct raw *raw, int fd, uint64_t off, uint64_t size_bytes, int error,
			 const char *words)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	import_call(raw, fd, off, size_bytes, &answer);
	answer_check_fails(&answer, error, words);
}

/* A session with memory of its own, and a file with a pattern. */
struct kit {
	struct raw raw;
	struct raw_file file;
	struct raw_channel channel;
	int fd;
	uint32_t slab;
};

static void kit_open(struct kit *kit, const struct daemon *daemon)
{
	*kit = (struct kit){ .raw = RAW_NONE };
	raw_open(&kit->raw, daemon);
	file_make_pattern(daemon_path(daemon, "f"), MEMORY_BYTES, 1);
	raw_file(&kit->raw, daemon_path(daemon, "f"), O_RDWR, &kit->file);
	raw_channel(&kit->raw, raw_handle(&kit->raw), kit->file.store, 16, true, &kit->channel);
	kit->fd = memory_make(MEMORY_BYTES);
	kit->slab = import(&kit->raw, kit->fd, 0, MEMORY_BYTES);
}

static void kit_close(struct kit *kit)
{
	raw_channel_unmap(&kit->channel);
	closep(&kit->fd);
	raw_close(&kit->raw);
}

static struct ring_entry kit_entry(const struct kit *kit, uint8_t opcode)
{
	return (struct ring_entry){
		.opcode = opcode, .file = kit->file.id, .slab = kit->slab, .len = MEMORY_BYTES
	};
}

/* It serves, with memory that is there. */
static void kit_check_works(struct kit *kit)
{
	static uint8_t bytes[MEMORY_BYTES];

	CHECK_SYS(ftruncate(kit->fd, MEMORY_BYTES));
	CHECK_EQ(raw_run_one(&kit->channel, kit_entry(kit, RING_OP_READ)), MEMORY_BYTES);
	CHECK_EQ(pread(kit->fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	pattern_check(bytes, sizeof(bytes), 1, 0, "imported memory");
}

FAULT(e1_small,
      "E1 imported memory smaller than claimed: refused, and the message names the difference")
{
	struct kit kit;
	struct usage before;

	kit_open(&kit, daemon);
	before = daemon_usage_settled(daemon);
	import_fails(&kit.raw, kit.fd, 0, MEMORY_BYTES + 1, -ERANGE, "4194305;4194304");
	import_fails(&kit.raw, kit.fd, MEMORY_BYTES, 1, -ERANGE, "4194304");
	import_fails(&kit.raw, kit.fd, 0, UINT64_MAX, -EINVAL, "2^63");
	import_fails(&kit.raw, kit.fd, UINT64_MAX - 4095, 8192, -EINVAL, "2^63");
	import_fails(&kit.raw, kit.fd, 0, 0, -EINVAL, "slab of 0 B");
	daemon_usage_back(daemon, &before);
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(e2_kind, "E2 imported memory on another file system, or not to be written: refused")
{
	_cleanup_(closep) int disk = -1, device = -1, sealed = -1, read_only = -1, directory = -1;
	struct kit kit;

	kit_open(&kit, daemon);
	disk = (int)CHECK_SYS(open(daemon_path(daemon, "f"), O_RDWR | O_CLOEXEC));
	device = (int)CHECK_SYS(open("/dev/zero", O_RDWR | O_CLOEXEC));
	directory = (int)CHECK_SYS(open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	read_only = (int)CHECK_SYS(
		open(test_text("/proc/self/fd/%d", kit.fd), O_RDONLY | O_CLOEXEC));
	sealed = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	CHECK_SYS(ftruncate(sealed, 4096));
	CHECK_SYS(fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE));
	import_fails(&kit.raw, disk, 0, 4096, -EOPNOTSUPP, "tmpfs;hugetlbfs");
	import_fails(&kit.raw, device, 0, 4096, -EOPNOTSUPP, "");
	import_fails(&kit.raw, directory, 0, 4096, -EOPNOTSUPP, "regular file");
	import_fails(&kit.raw, kit.channel.bell_fd, 0, 4096, -EOPNOTSUPP, "tmpfs");
	import_fails(&kit.raw, read_only, 0, 4096, -EACCES, "O_RDWR");
	import_fails(&kit.raw, sealed, 0, 4096, -EACCES, "F_SEAL_WRITE");
	/* An import gives no write access to memory that all lanes and clients read. */
	import_fails(&kit.raw, kit.channel.board_fd, 0, 4096, -EACCES, "FUTURE_WRITE");
	import_fails(&kit.raw, kit.fd, 100, 4096, -EINVAL, "100;4096");
	kit_check_works(&kit);
	kit_close(&kit);
}

/* EFAULT, or the part before the hole: nothing else can come of it. */
static void check_cut_short(int64_t result)
{
	if (result < 0)
		CHECK_EQ(ring_result_errno(result), EFAULT);
	else
		CHECK(result <= (int64_t)MEMORY_BYTES);
}

FAULT(e3_before, "E3 imported memory that is shrunk before an op: EFAULT, both ways")
{
	struct kit kit;

	kit_open(&kit, daemon);
	for (unsigned i = 0; i < 2; i++) {
		uint8_t opcode = i ? RING_OP_WRITE : RING_OP_READ;

		CHECK_SYS(ftruncate(kit.fd, 0));
		CHECK_EQ(ring_result_errno(raw_run_one(&kit.channel, kit_entry(&kit, opcode))),
			 EFAULT);
		kit_check_works(&kit);
	}
	kit_close(&kit);
}

FAULT(e3_during,
      "E3 imported memory that is shrunk and punched while ops run: only its owner sees it")
{
	struct scissors scissors;
	unsigned n_whole = 0;
	struct kit kit;

	kit_open(&kit, daemon);
	scissors_start(&scissors, kit.fd, MEMORY_BYTES);
	for (int64_t end = now_usec() + 3000000; now_usec() < end;) {
		struct ring_entry entries[8];
		int64_t results[ARRAY_SIZE(entries)];

		for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
			entries[i] = kit_entry(&kit, i % 4 == 3 ? RING_OP_WRITE : RING_OP_READ);
			entries[i].len = MEMORY_BYTES / ARRAY_SIZE(entries);
			entries[i].slab_off = entries[i].off = i * entries[i].len;
		}
		raw_run(&kit.channel, entries, ARRAY_SIZE(entries), results);
		for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
			check_cut_short(results[i]);
			n_whole += results[i] == (int64_t)entries[i].len;
		}
	}
	scissors_stop(&scissors);
	test_note("%u ops were whole", n_whole);
	beside_ok();
	file_make_pattern(daemon_path(daemon, "f"), MEMORY_BYTES, 1);
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(e3_free, "E3 imported memory is not the daemon's: freeing it, or dying, leaves every byte")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE, status = ANSWER_NONE;
	Wire__SlabFree slab_free = WIRE__SLAB_FREE__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_FREE, slab_free, &slab_free);
	static uint8_t bytes[MEMORY_BYTES];
	int fd = memory_make(MEMORY_BYTES);

	daemon_status(daemon, &status);
	pattern_fill(bytes, sizeof(bytes), 7, 0);
	CHECK_EQ(pwrite(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	for (unsigned round = 0; round < 2; round++) {
		struct raw raw = RAW_NONE;

		raw_open(&raw, daemon);
		slab_free.slab = import(&raw, fd, 0, MEMORY_BYTES);
		if (round == 0)
			raw_call_ok(&raw, &request, NULL, 0, &answer);
		raw_close(&raw);
		CHECK(daemon_wait_clients(daemon, 1, status.reply->status->pool->used_bytes));
		memset(bytes, 0, sizeof(bytes));
		CHECK_EQ(pread(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
		pattern_check(bytes, sizeof(bytes), 7, 0, "the client's own memory");
	}
	closep(&fd);
}

TEST_MAIN
