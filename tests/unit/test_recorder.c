/*
 * The files of the flight recorder, from start to crash or end, and what a lane writes there.
 */
#include "daemon/account/recorder.h"
#include "tests/unit/parts.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char dir[] = "/dev/shm/dsaio-unit-XXXXXX";
static char socket_path[64];

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void setup_dir(void)
{
	memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(socket_path, sizeof(socket_path), "%s/s.sock", dir);
}

static void teardown_dir(void)
{
	recorder_end();
	ck_assert_int_eq(nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}
FIXTURE(setup_dir, teardown_dir)

static const char *path_of(const char *kind, unsigned number)
{
	static char path[128];

	(void)snprintf(path, sizeof(path), "%s.%s.%u", socket_path, kind, number);
	return path;
}

static bool is_there(const char *kind, unsigned number)
{
	return access(path_of(kind, number), F_OK) == 0;
}

/* A daemon with so many lanes, each with one event of this id, that is killed. */
static void crash(unsigned n_lanes, uint64_t id)
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		recorder_start(socket_path);
		for (unsigned i = 0; i < n_lanes; i++)
			recorder_add(recorder_new("t"), &(struct recording_event){ .id = id });
		(void)raise(SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* The id of its first event. */
static uint64_t first_id(const char *path)
{
	FILE *file = fopen(path, "re");
	struct recording header;
	struct recording_event event;

	ck_assert_msg(file != NULL, "%s", path);
	ck_assert_uint_eq(fread(&header, sizeof(header), 1, file), 1);
	ck_assert_uint_eq(fread(&event, sizeof(event), 1, file), 1);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_mem_eq(header.magic, RECORDING_MAGIC, 8);
	ck_assert_uint_eq(atomic_load(&header.n_written), 1);
	return event.id;
}

TEST(a_crash_leaves_the_files_and_an_orderly_end_leaves_none)
{
	struct recording *recording;
	struct stat st;

	crash(2, 7);
	ck_assert(is_there(RECORDING_NOW, 0) && is_there(RECORDING_NOW, 1));
	recorder_start(socket_path);
	ck_assert(!is_there(RECORDING_NOW, 0));
	ck_assert_uint_eq(first_id(path_of(RECORDING_CRASH, 1)), 7);

	recording = recorder_new("nvme0");
	ck_assert_ptr_nonnull(recording);
	ck_assert_str_eq(recording->store, "nvme0");
	ck_assert_uint_eq(recording->pid, (uint32_t)getpid());
	ck_assert_int_eq(stat(path_of(RECORDING_NOW, 0), &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_uint_eq((uint64_t)st.st_size, RECORDING_BYTES(RECORDING_EVENTS));
	ck_assert_uint_ge((uint64_t)st.st_blocks * 512, (uint64_t)st.st_size); /* no SIGBUS later */
	recorder_free(recording);
	recorder_end();
	ck_assert(!is_there(RECORDING_NOW, 0));
	ck_assert(is_there(RECORDING_CRASH, 0));
}

TEST(only_the_last_crash_is_kept)
{
	crash(3, 1);
	crash(1, 2);
	recorder_start(socket_path);
	ck_assert_uint_eq(first_id(path_of(RECORDING_CRASH, 0)), 2);
	ck_assert(!is_there(RECORDING_CRASH, 1) && !is_there(RECORDING_CRASH, 2));
}

TEST(the_file_of_a_lane_that_has_ended_stays_until_another_takes_its_number)
{
	struct recording *recording;

	recorder_start(socket_path);
	recording = recorder_new("a");
	recorder_add(recording, &(struct recording_event){ .id = 5 });
	recorder_free(recording);
	ck_assert_uint_eq(first_id(path_of(RECORDING_NOW, 0)), 5);
	recording = recorder_new("b");
	ck_assert_uint_eq(atomic_load(&recording->n_written), 0);
	ck_assert(!is_there(RECORDING_NOW, 1));
	recorder_free(recording);
}

TEST(a_signal_that_ends_the_daemon_is_noted_in_each_file)
{
	struct recording *a, *b;

	recorder_start(socket_path);
	a = recorder_new("a");
	b = recorder_new("b");
	recorder_free(a);
	recorder_note_crash(SIGSEGV);
	ck_assert_uint_eq(b->crash_signal, SIGSEGV);
	ck_assert_uint_ge(b->crash_nsec, b->start_nsec);
	recorder_free(b);
}

/* A link of somebody else would lead the daemon to write elsewhere. */
TEST(without_a_file_there_is_no_recorder)
{
	char other[128];

	recorder_start("/var/tmp/dsaio-none.sock"); /* tests run on a disk there, mostly */
	recorder_end();
	recorder_start(socket_path);
	ck_assert_int_eq(mkdir(path_of(RECORDING_NOW, 0), 0700), 0);
	ck_assert_ptr_null(recorder_new("a"));
	ck_assert_int_eq(rmdir(path_of(RECORDING_NOW, 0)), 0);
	(void)snprintf(other, sizeof(other), "%s/other", dir);
	ck_assert_int_eq(symlink(other, path_of(RECORDING_NOW, 0)), 0);
	recorder_free(recorder_new("a"));
	ck_assert_int_ne(access(other, F_OK), 0);
}

static uint64_t n_written(const struct recording *recording)
{
	return atomic_load(&recording->n_written);
}

TEST(the_ring_has_the_last_events)
{
	struct recording *recording;

	recorder_start(socket_path);
	recording = recorder_new("a");
	for (uint64_t i = 0; i < RECORDING_EVENTS + 3; i++)
		recorder_add(recording, &(struct recording_event){ .id = i });
	ck_assert_uint_eq(n_written(recording), RECORDING_EVENTS + 3);
	ck_assert_uint_eq(recording->events[2].id, RECORDING_EVENTS + 2);
	ck_assert_uint_eq(recording->events[3].id, 3);
	recorder_free(recording);
}

struct wanted {
	uint8_t kind;
	int64_t result;
};

static void check_events(const struct recording *recording, const struct wanted *wanted, unsigned n)
{
	ck_assert_uint_eq(n_written(recording), n);
	for (unsigned i = 0; i < n; i++) {
		ck_assert_uint_eq(recording->events[i].kind, wanted[i].kind);
		ck_assert_int_eq(recording->events[i].result, wanted[i].result);
		ck_assert_uint_eq(recording->events[i].id, 9);
	}
}

TEST(an_op_is_recorded_from_its_entry_to_its_end)
{
	static const struct wanted wanted[] = { { RECORDING_TAKEN, 0 },
						{ RECORDING_BLOCK_STARTED, 0 },
						{ RECORDING_BLOCK_DONE, 0 },
						{ RECORDING_ENDED, 4096 } };
	struct recording *recording;

	parts_setup();
	p.channel.who = (struct hung_who){ .pid = 12, .client = 3 };
	p.channel.id = 4;
	recorder_start(socket_path);
	recording = p.turn.recording = recorder_new("a");
	parts_put(9, RING_OP_READ, 8192, 4096);
	parts_turn();
	parts_end_block(4096);
	parts_turn();
	ck_assert_int_eq(parts_get().result, 4096);
	check_events(recording, wanted, N_ROWS(wanted));
	ck_assert_uint_eq(recording->events[0].off, 8192);
	ck_assert_uint_eq(recording->events[0].len, 4096);
	ck_assert_uint_eq(recording->events[0].opcode, RING_OP_READ);
	for (int i = 0; i < N_ROWS(wanted); i++) {
		const struct recording_event *event = &recording->events[i];

		ck_assert_uint_eq(event->client, 3);
		ck_assert_uint_eq(event->pid, 12);
		ck_assert_uint_eq(event->channel, 4);
	}
	p.turn.recording = NULL;
	recorder_free(recording);
	parts_teardown();
}

/* The entry is as the client wrote it, whatever is wrong with it. */
TEST(a_refused_op_is_recorded)
{
	static const struct wanted wanted[] = { { RECORDING_TAKEN, 0 }, { RECORDING_ENDED, 0 } };
	struct recording *recording;

	parts_setup();
	recorder_start(socket_path);
	recording = p.turn.recording = recorder_new("a");
	ring_client_put(&p.ring,
			&(struct ring_entry){ .id = 9, .opcode = 99, .file = 77, .off = 5 });
	(void)ring_client_submit(&p.ring);
	parts_turn();
	ck_assert_int_lt(parts_get().result, 0);
	ck_assert_uint_eq(n_written(recording), N_ROWS(wanted));
	ck_assert_uint_eq(recording->events[0].opcode, 99);
	ck_assert_uint_eq(recording->events[0].file, 77);
	ck_assert_uint_eq(recording->events[0].off, 5);
	ck_assert_int_eq(ring_result_errno(recording->events[1].result), EOPNOTSUPP);
	p.turn.recording = NULL;
	recorder_free(recording);
	parts_teardown();
}

TEST(a_failed_op_is_recorded)
{
	const struct wanted wanted[] = { { RECORDING_TAKEN, 0 },
					 { RECORDING_BLOCK_STARTED, 0 },
					 { RECORDING_BLOCK_DONE, 0 },
					 { RECORDING_ENDED, ring_result_failed(EIO, 0) } };
	struct recording *recording;

	parts_setup();
	recorder_start(socket_path);
	recording = p.turn.recording = recorder_new("a");
	parts_put(9, RING_OP_READ, 0, 4096);
	parts_turn();
	parts_end_block(-EIO);
	parts_turn();
	(void)parts_get();
	check_events(recording, wanted, N_ROWS(wanted));
	p.turn.recording = NULL;
	recorder_free(recording);
	parts_teardown();
}

TEST_MAIN
