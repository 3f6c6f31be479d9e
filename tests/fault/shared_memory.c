/*
 * Memory that a client shares with the daemon: sealed, punched away and overwritten (C22).
 */
#include "tests/kit.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- C22 ---- */

static void check_sealed(int fd, int seals, size_t size, const char *what)
{
	int got = (int)CHECK_SYS(fcntl(fd, F_GET_SEALS));

	CHECK_MSG((got & seals) == seals, "%s: seals 0x%x, not 0x%x", what, got, seals);
	CHECK_MSG(ftruncate(fd, 0) < 0 && errno == EPERM, "%s", what);
	CHECK_MSG(ftruncate(fd, (off_t)(size / 2)) < 0 && errno == EPERM, "%s", what);
	CHECK_MSG(ftruncate(fd, (off_t)(2 * size)) < 0 && errno == EPERM, "%s", what);
	CHECK_MSG(fallocate(fd, 0, (off_t)size, 4096) < 0 && errno == EPERM, "%s", what);
	CHECK_MSG(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0 && (errno == EPERM || errno == EBUSY),
		  "%s", what);
	CHECK_MSG(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 && errno == EPERM, "%s", what);
}

FAULT(c22_seals, "C22 memory of the daemon cannot be shrunk, grown or sealed by a client")
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	check_sealed(kit.slab.fd, seals, kit.slab.size, "slab");
	check_sealed(kit.channel.ring_fd, seals, ring_bytes(kit.channel.entries), "ring");
	check_sealed(kit.channel.board_fd, seals | F_SEAL_FUTURE_WRITE, 4096, "lane board");
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(c22_board, "C22 the lane board can only be read")
{
	_cleanup_(closep) int again = -1;
	uint8_t bytes[64] = { 0 };
	void *map;
	int fds[2];
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	fds[0] = kit.channel.board_fd;
	/* Another description of it, by /proc, helps nobody. */
	again = open(test_text("/proc/self/fd/%d", kit.channel.board_fd), O_RDWR | O_CLOEXEC);
	fds[1] = again;
	for (unsigned i = 0; i < 2; i++) {
		if (fds[i] < 0)
			continue;
		map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
		CHECK(map == MAP_FAILED && (errno == EPERM || errno == EACCES));
		CHECK(write(fds[i], bytes, sizeof(bytes)) < 0);
		CHECK(pwrite(fds[i], bytes, sizeof(bytes), 0) < 0);
		CHECK(fallocate(fds[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
		CHECK(ftruncate(fds[i], 0) < 0);
	}
	CHECK(mprotect(kit.channel.board, 4096, PROT_READ | PROT_WRITE) < 0);
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(c22_punch, "C22 a client that punches its slab and its ring away while ops run")
{
	const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct ring_completion completions[16];
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	for (unsigned round = 0; round < 200; round++) {
		struct ring_entry entry = kit_read(&kit);

		for (unsigned i = 0; i < 8; i++)
			raw_put(&kit.channel, &entry);
		raw_ring(&kit.channel);
		CHECK_SYS(fallocate(kit.slab.fd, punch, 0, 65536));
		CHECK(raw_reap(&kit.channel, 8, completions, 20000000));
		for (unsigned i = 0; i < 8; i++)
			CHECK(completions[i].result == 4096 ||
			      ring_result_errno(completions[i].result) > 0);
	}
	kit_check_works(&kit);
	/* The ring itself: zeros in place of its words.  The session may end. */
	CHECK_SYS(fallocate(kit.channel.ring_fd, punch, 0, (off_t)ring_bytes(kit.channel.entries)));
	raw_put(&kit.channel, &(struct ring_entry){ .opcode = RING_OP_READ });
	(void)ring_client_submit(&kit.channel.ring);
	CHECK_EQ(write(kit.channel.bell_fd, &(uint64_t){ 1 }, 8), 8);
	beside_ok();
	kit_close(&kit);
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
}

FAULT(c22_memfd, "C22 a memfd of the client's own, sealed or not, is no file of a store")
{
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);
	static const int seals[] = { 0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE,
				     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	file_add.name = (char *)(uintptr_t) "memfd";
	for (size_t i = 0; i < ARRAY_SIZE(seals); i++) {
		_cleanup_(closep) int fd = (int)CHECK_SYS(
			memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));

		CHECK_SYS(ftruncate(fd, 65536));
		if (seals[i])
			CHECK_SYS(fcntl(fd, F_ADD_SEALS, seals[i]));
		raw_call_refused(&kit.raw, &request, &fd, 1, "memfd;store");
	}
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(c22_ring_words, "C22 a client that writes the daemon's words of its ring hurts only itself")
{
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	for (unsigned round = 0; round < 100; round++) {
		struct ring_entry entry = kit_read(&kit);
		struct ring_shared *shared = kit.channel.map;
		struct ring_completion completion;

		raw_put(&kit.channel, &entry);
		raw_ring(&kit.channel);
		/* It may be parked, whatever we wrote there in the last round. */
		CHECK_SYS(eventfd_write(kit.channel.bell_fd, 1));
		atomic_store(&shared->cq_bell, (uint32_t)round * 77777);
		atomic_store(&shared->sq_park, (uint64_t)round);
		shared->magic = round;
		shared->version = round;
		shared->entries = round * 1000000;
		CHECK(raw_reap(&kit.channel, 1, &completion, 20000000));
		CHECK_EQ(completion.result, 4096);
		if (round % 8 == 7) { /* the tail: it is written anew with the next completion */
			raw_put(&kit.channel, &entry);
			raw_ring(&kit.channel);
			CHECK_SYS(eventfd_write(kit.channel.bell_fd, 1));
			CHECK(raw_reap(&kit.channel, 1, &completion, 20000000));
			CHECK_EQ(completion.result, 4096);
		}
	}
	beside_ok();
	kit_close(&kit);
}

TEST_MAIN
