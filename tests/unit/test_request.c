#include "daemon/control/request.h"
#include "proto/frame.h"
#include "proto/profile.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct error error;

static Wire__Request request = WIRE__REQUEST__INIT;
static Wire__Hello hello = WIRE__HELLO__INIT;
static Wire__HandleOpen handle_open = WIRE__HANDLE_OPEN__INIT;
static Wire__Profile profile = WIRE__PROFILE__INIT;
static Wire__SlabNew slab_new = WIRE__SLAB_NEW__INIT;
static Wire__Submit submit = WIRE__SUBMIT__INIT;
static Wire__StoreDrain drain = WIRE__STORE_DRAIN__INIT;
static Wire__LimitSet limit_set = WIRE__LIMIT_SET__INIT;
static Wire__Limit limit = WIRE__LIMIT__INIT;
static uint8_t zeroes[128];
static Wire__DeviceImport device_import = WIRE__DEVICE_IMPORT__INIT;

static int check(Wire__Request__BodyCase what, void *body, unsigned n_fds)
{
	request.body_case = what;
	request.status = body; /* all are pointers of one union */
	return request_check(&request, n_fds, &error);
}

TEST(a_packed_request_is_decoded_as_it_was)
{
	Wire__Request *decoded;
	uint8_t bytes[200];
	size_t len;

	request.seq = 77;
	request.body_case = WIRE__REQUEST__BODY_HELLO;
	request.hello = &hello;
	hello.name = (char *)(uintptr_t) "a program";
	hello.version_min = hello.version_max = 1;
	len = wire__request__pack(&request, bytes);
	ck_assert_int_eq(request_decode(bytes, len, &decoded, &error), 0);
	ck_assert_uint_eq(decoded->seq, 77);
	ck_assert_int_eq(decoded->body_case, WIRE__REQUEST__BODY_HELLO);
	ck_assert_str_eq(decoded->hello->name, "a program");
	ck_assert_int_eq(request_check(decoded, 0, &error), 0);
	request_free(decoded);
	for (size_t cut = 1; cut < len; cut++) { /* cut short: an error, or a shorter request */
		if (request_decode(bytes, cut, &decoded, &error) < 0) {
			ck_assert_int_eq(error.code, -EPROTO);
			continue;
		}
		(void)request_check(decoded, 0, &error);
		request_free(decoded);
	}
}

static const struct {
	const char *what;
	uint8_t bytes[16];
	size_t len;
} garbage[] = {
	{ "all ones", { 255, 255, 255, 255 }, 4 },
	{ "a length beyond the end", { 0x52, 0x7f, 1, 2 }, 4 },
	{ "a wire type that there is not", { 0x0f }, 1 },
	{ "a number without end",
	  { 0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80 },
	  12 },
	{ "text", "GET / HTTP/1.1", 14 },
};

TEST_TABLE(garbage_is_no_request, garbage)
{
	Wire__Request *decoded;

	ck_assert_msg(request_decode(garbage[_i].bytes, garbage[_i].len, &decoded, &error) ==
			      -EPROTO,
		      "%s", garbage[_i].what);
}

/* C2: what this daemon does not know is refused, and named. */
TEST(an_unknown_request_is_named_by_its_number)
{
	static const uint8_t bytes[] = { 0x08, 5, 0x9a, 0x06, 1, 'x' }; /* seq 5, field 99 */
	Wire__Request *decoded;

	ck_assert_int_eq(request_decode(bytes, sizeof(bytes), &decoded, &error), 0);
	ck_assert_uint_eq(decoded->seq, 5);
	ck_assert_int_eq(request_check(decoded, 0, &error), -EOPNOTSUPP);
	ck_assert_msg(strstr(error.text, "request 99 is not known"), "%s", error.text);
	request_free(decoded);

	ck_assert_int_eq(request_decode(bytes, 2, &decoded, &error), 0);
	ck_assert_int_eq(request_check(decoded, 0, &error), -EOPNOTSUPP);
	ck_assert_msg(strstr(error.text, "empty"), "%s", error.text);
	request_free(decoded);
}

/* C4: descriptors are missing, or too many. */
static const struct {
	Wire__Request__BodyCase what;
	void *body;
	unsigned n_min, n_max;
} descriptors[] = {
	{ WIRE__REQUEST__BODY_SLAB_NEW, &slab_new, 0, 0 },
	{ WIRE__REQUEST__BODY_SLAB_FREE, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_FILE_ADD, NULL, 1, 1 },
	{ WIRE__REQUEST__BODY_FILE_REMOVE, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_HANDLE_OPEN, &handle_open, 0, 0 },
	{ WIRE__REQUEST__BODY_HANDLE_CLOSE, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_CHANNEL_OPEN, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_SUBMIT, &submit, 0, 0 },
	{ WIRE__REQUEST__BODY_CANCEL, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_STATUS, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_SLAB_IMPORT, NULL, 1, 1 },
	{ WIRE__REQUEST__BODY_FILE_BUFFERED, NULL, 1, 1 },
	{ WIRE__REQUEST__BODY_FILE_GET, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_STORE_GET, NULL, 0, 1 },
	{ WIRE__REQUEST__BODY_PROFILE_SET, NULL, 0, 1 },
	{ WIRE__REQUEST__BODY_STORE_DRAIN, &drain, 0, 1 },
	{ WIRE__REQUEST__BODY_RELOAD, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_SLAB_ADOPT, NULL, 1, 1 },
	{ WIRE__REQUEST__BODY_RECOVERED, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_CLIENT_KILL, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_FILE_ABANDON, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_NAME_REMOVE, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_NAME_STAT, NULL, 0, 0 },
	{ WIRE__REQUEST__BODY_HELLO, &hello, 0, 1 },
};

TEST_TABLE(the_number_of_descriptors_is_checked, descriptors)
{
	hello.version_max = 1;
	for (unsigned n = 0; n <= FRAME_FDS_MAX; n++) {
		bool is_right = n >= descriptors[_i].n_min && n <= descriptors[_i].n_max;
		int r = check(descriptors[_i].what, descriptors[_i].body, n);
		char came[40];

		ck_assert_int_eq(r, is_right ? 0 : -EINVAL);
		(void)snprintf(came, sizeof(came), "%u descriptors came", n);
		ck_assert_msg(is_right ||
				      (strstr(error.text, came) && strstr(error.text, "expected")),
			      "%s", error.text);
	}
}

#define TOO_MUCH ((UINT64_C(1) << 50) + 1)

static const struct {
	const char *what, *store;
	bool has_uid;
	uint32_t client, weight;
	bool has_limit;
	uint64_t bytes_per_sec, ops_per_sec;
	const char *why; /* NULL: fine */
} limits[] = {
	{ "a store", "t", false, 0, 0, true, 1, 0, NULL },
	{ "a user, root", "", true, 0, 0, true, 0, 1, NULL },
	{ "a client", "", false, 7, 0, true, TOO_MUCH - 1, TOO_MUCH - 1, NULL },
	{ "no limit again", "t", false, 0, 0, true, 0, 0, NULL },
	{ "a weight", "", false, 7, 16, false, 0, 0, NULL },
	{ "both", "", false, 7, 1, true, 1, 1, NULL },
	{ "nobody", "", false, 0, 0, true, 1, 1, "must name a store, a user or a client" },
	{ "two", "t", true, 0, 0, true, 1, 1, "one alone" },
	{ "two others", "", true, 7, 0, true, 1, 1, "one alone" },
	{ "nothing", "t", false, 0, 0, false, 0, 0, "neither a limit nor a weight" },
	{ "the weight of a store", "t", false, 0, 2, true, 1, 1, "only a client has a weight" },
	{ "too heavy", "", false, 7, 17, false, 0, 0, "weight 17: must be from 1 to 16" },
	{ "too many bytes", "t", false, 0, 0, true, TOO_MUCH, 0,
	  "1125899906842625 bytes/s, 0 ops/s: each must be at most 1125899906842624" },
	{ "too many ops", "t", false, 0, 0, true, 0, UINT64_MAX, "must be at most" },
};

TEST_TABLE(limits_are_checked, limits)
{
	int r;

	limit_set.store = (char *)(uintptr_t)limits[_i].store;
	limit_set.has_uid = limits[_i].has_uid;
	limit_set.client = limits[_i].client;
	limit_set.weight = limits[_i].weight;
	limit_set.limit = limits[_i].has_limit ? &limit : NULL;
	limit.bytes_per_sec = limits[_i].bytes_per_sec;
	limit.ops_per_sec = limits[_i].ops_per_sec;
	r = check(WIRE__REQUEST__BODY_LIMIT_SET, &limit_set, 0);
	ck_assert_int_eq(r, limits[_i].why ? -EINVAL : 0);
	if (limits[_i].why)
		ck_assert_msg(strstr(error.text, limits[_i].why), "%s: %s", limits[_i].what,
			      error.text);
	ck_assert_int_eq(check(WIRE__REQUEST__BODY_LIMIT_SET, &limit_set, 1), -EINVAL);
}

TEST(a_drain_has_one_of_three_modes)
{
	for (int mode = -1; mode <= 3; mode++) {
		drain.mode = (Wire__DrainMode)mode;
		ck_assert_int_eq(check(WIRE__REQUEST__BODY_STORE_DRAIN, &drain, 0),
				 mode < 0 || mode > 2 ? -EINVAL : 0);
	}
	ck_assert_msg(strstr(error.text, "mode 3: must be 0"), "%s", error.text);
}

/* C1: versions. */
static const struct {
	uint32_t min, max;
	int want;
} versions[] = {
	{ 1, 1, 0 },
	{ 0, 1, 0 },
	{ 1, 100, 0 },
	{ 0, UINT32_MAX, 0 },
	{ 2, 3, -EPROTONOSUPPORT },
	{ 0, 0, -EPROTONOSUPPORT },
	{ UINT32_MAX, UINT32_MAX, -EPROTONOSUPPORT },
	{ 2, 1, -EINVAL },
};

TEST_TABLE(versions_have_to_meet, versions)
{
	char theirs[40];

	hello.version_min = versions[_i].min;
	hello.version_max = versions[_i].max;
	ck_assert_int_eq(check(WIRE__REQUEST__BODY_HELLO, &hello, 0), versions[_i].want);
	(void)snprintf(theirs, sizeof(theirs), "%u to %u", versions[_i].min, versions[_i].max);
	if (versions[_i].want < 0)
		ck_assert_msg(strstr(error.text, theirs), "%s", error.text);
	if (versions[_i].want == -EPROTONOSUPPORT)
		ck_assert_msg(strstr(error.text, "1 to 1"), "%s", error.text);
}

/* C11: profiles and the rest of a handle out of range. */
static const struct {
	const char *what;
	uint32_t block_size, queue_depth, parallelism;
	int io_class;
	uint32_t weight;
	const char *why; /* NULL: fine */
	uint32_t absent;
} handles[] = {
	{ "fine", 4096, 1, 1, 0, 0, NULL, 0 },
	{ "the largest", 64u << 20, 4096, 64, 2, 16, NULL, 0 },
	{ "block too small", 256, 1, 1, 0, 1, "block_size 256", 0 },
	{ "block too large", (64u << 20) + 4096, 1, 1, 0, 1, "to 64 MiB", 0 },
	{ "block uneven", 4097, 1, 1, 0, 1, "multiple of 512", 0 },
	{ "no depth", 4096, 0, 1, 0, 1, "queue_depth 0", 0 },
	{ "too deep", 4096, 4097, 1, 0, 1, "from 1 to 4096", 0 },
	{ "no parts", 4096, 1, 0, 0, 1, "intra_op_parallelism 0", 0 },
	{ "too many parts", 4096, 1, 65, 0, 1, "from 1 to 64", 0 },
	{ "a class that there is not", 4096, 1, 1, 3, 1, "class 3", 0 },
	{ "a negative class", 4096, 1, 1, -1, 1, "class -1", 0 },
	{ "too heavy", 4096, 1, 1, 0, 17, "weight 17: must be from 1 to 16", 0 },
	{ "all absent", 0, 0, 0, 0, 1, NULL, PROFILE_ALL },
	{ "all absent, and bits of a later version", 0, 0, 0, 0, 1, NULL, UINT32_MAX },
	{ "the depth alone, and wrong", 0, 4097, 0, 0, 1, "from 1 to 4096",
	  PROFILE_BLOCK_SIZE | PROFILE_PARALLELISM },
	{ "the block alone is absent", 0, 0, 1, 0, 1, "queue_depth 0", PROFILE_BLOCK_SIZE },
};

TEST_TABLE(handles_are_checked_with_value_and_limit, handles)
{
	int r;

	profile.absent = handles[_i].absent;
	profile.block_size = handles[_i].block_size;
	profile.queue_depth = handles[_i].queue_depth;
	profile.intra_op_parallelism = handles[_i].parallelism;
	handle_open.profile = &profile;
	handle_open.io_class = (Wire__Class)handles[_i].io_class;
	handle_open.weight = handles[_i].weight;
	r = check(WIRE__REQUEST__BODY_HANDLE_OPEN, &handle_open, 0);
	ck_assert_msg(r == (handles[_i].why ? -EINVAL : 0), "%s", handles[_i].what);
	if (r < 0)
		ck_assert_msg(strstr(error.text, handles[_i].why), "%s: %s", handles[_i].what,
			      error.text);
}

TEST(a_handle_needs_no_profile)
{
	ck_assert_int_eq(check(WIRE__REQUEST__BODY_HANDLE_OPEN, &handle_open, 0), 0);
}

static const struct {
	int pages, result;
} slabs[] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 3, -EINVAL }, { -1, -EINVAL } };

TEST_TABLE(the_pages_of_a_slab_are_a_kind_that_there_is, slabs)
{
	slab_new.pages = (Wire__Pages)slabs[_i].pages;
	ck_assert_int_eq(check(WIRE__REQUEST__BODY_SLAB_NEW, &slab_new, 0), slabs[_i].result);
}

static const struct {
	const char *what;
	size_t uuid_bytes, handle_bytes;
	uint64_t size_bytes;
	unsigned n_fds;
	const char *why; /* NULL: fine */
} imports[] = {
	{ "an IPC handle", 16, 64, 1, 0, NULL },
	{ "a descriptor", 16, 0, UINT64_MAX, 1, NULL },
	{ "no UUID", 0, 64, 1, 0, "a UUID of 0 bytes: must have 16" },
	{ "a long UUID", 17, 64, 1, 0, "17 bytes" },
	{ "neither", 16, 0, 1, 0, "an IPC handle of 0 bytes: must have 64" },
	{ "both", 16, 64, 1, 1, "one of them" },
	{ "a short handle", 16, 63, 1, 0, "63 bytes" },
	{ "a long handle", 16, 65, 1, 0, "65 bytes" },
	{ "part of a handle and a descriptor", 16, 1, 1, 1, "one of them" },
	{ "of no bytes", 16, 64, 0, 0, "0 bytes" },
	{ "two descriptors", 16, 0, 1, 2, "2 descriptors" },
};

TEST_TABLE(gpu_memory_is_named_by_a_uuid_and_one_handle, imports)
{
	int r;

	device_import.uuid = (ProtobufCBinaryData){ imports[_i].uuid_bytes, zeroes };
	device_import.ipc_handle = (ProtobufCBinaryData){ imports[_i].handle_bytes, zeroes };
	device_import.size_bytes = imports[_i].size_bytes;
	r = check(WIRE__REQUEST__BODY_DEVICE_IMPORT, &device_import, imports[_i].n_fds);
	ck_assert_msg(r == (imports[_i].why ? -EINVAL : 0), "%s", imports[_i].what);
	if (r < 0)
		ck_assert_msg(strstr(error.text, imports[_i].why), "%s: %s", imports[_i].what,
			      error.text);
}

TEST(a_question_about_a_file_has_a_uuid)
{
	static Wire__FileGpu file_gpu = WIRE__FILE_GPU__INIT;

	for (size_t bytes = 0; bytes <= 17; bytes++) {
		file_gpu.uuid = (ProtobufCBinaryData){ bytes, zeroes };
		ck_assert_int_eq(check(WIRE__REQUEST__BODY_FILE_GPU, &file_gpu, 0),
				 bytes == 16 ? 0 : -EINVAL);
	}
	ck_assert_msg(strstr(error.text, "file_gpu: a UUID of 17 bytes: must have 16"), "%s",
		      error.text);
	ck_assert_int_eq(check(WIRE__REQUEST__BODY_FILE_GPU, &file_gpu, 1), -EINVAL);
}

TEST(a_submit_has_no_more_entries_than_a_ring)
{
	submit.n_entries = RING_ENTRIES_MAX;
	ck_assert_int_eq(check(WIRE__REQUEST__BODY_SUBMIT, &submit, 0), 0);
	submit.n_entries = RING_ENTRIES_MAX + 1;
	ck_assert_int_eq(check(WIRE__REQUEST__BODY_SUBMIT, &submit, 0), -EINVAL);
	ck_assert_msg(strstr(error.text, "4097 entries: at most 4096"), "%s", error.text);
}

TEST(entries_are_those_of_a_ring)
{
	static Wire__Entry one = WIRE__ENTRY__INIT, *wire[] = { &one, &one };
	struct ring_entry entries[2];

	one.id = UINT64_MAX;
	one.opcode = RING_OP_WRITE;
	one.file = 1;
	one.slab = 2;
	one.slab_off = 3;
	one.off = 4;
	one.len = 5;
	one.timeout_msec = 6;
	submit.n_entries = 2;
	submit.entries = wire;
	memset(entries, 0xff, sizeof(entries));
	request_entries(&submit, entries);
	for (int i = 0; i < 2; i++) {
		const struct ring_entry expected = { .id = UINT64_MAX,
						     .opcode = RING_OP_WRITE,
						     .file = 1,
						     .slab = 2,
						     .slab_off = 3,
						     .off = 4,
						     .len = 5,
						     .timeout_msec = 6 };

		ck_assert_int_eq(memcmp(&entries[i], &expected, sizeof(expected)), 0);
	}
}

TEST(an_opcode_beyond_a_byte_is_no_other_opcode)
{
	static Wire__Entry one = WIRE__ENTRY__INIT, *wire[] = { &one };
	struct ring_entry entry;

	one.opcode = 256 + RING_OP_READ;
	submit.n_entries = 1;
	submit.entries = wire;
	request_entries(&submit, &entry);
	ck_assert_uint_eq(entry.opcode, 0);
}

static const struct {
	int mode;
	uint64_t size;
	uint32_t object_bytes;
	int want;
} file_opens[] = {
	{ WIRE__OPEN_MODE__OPEN_READ, 0, 0, 0 },
	{ WIRE__OPEN_MODE__OPEN_CREATE, INT64_MAX, 0, 0 },
	{ WIRE__OPEN_MODE__OPEN_CREATE, UINT64_C(1) << 63, 0, -EINVAL },
	{ WIRE__OPEN_MODE__OPEN_AGAIN, 0, 64 << 10, 0 },
	{ WIRE__OPEN_MODE__OPEN_AGAIN, 0, 32 << 20, 0 },
	{ WIRE__OPEN_MODE__OPEN_AGAIN, 0, 0, -EINVAL },
	{ WIRE__OPEN_MODE__OPEN_AGAIN, 0, 32 << 10, -EINVAL },
	{ WIRE__OPEN_MODE__OPEN_AGAIN, 0, 64 << 20, -EINVAL },
	{ WIRE__OPEN_MODE__OPEN_AGAIN, 0, 3 << 20, -EINVAL },
	{ WIRE__OPEN_MODE__OPEN_AGAIN, UINT64_C(1) << 63, 1 << 20, -EINVAL },
	{ 4, 0, 0, -EINVAL },
	{ -1, 0, 0, -EINVAL },
};

/* Where the cluster is silent, what a client says of a file that it had before must be possible. */
TEST_TABLE(a_file_of_a_rados_store_is_possible, file_opens)
{
	Wire__FileOpen open = WIRE__FILE_OPEN__INIT;

	open.mode = (Wire__OpenMode)file_opens[_i].mode;
	open.size = file_opens[_i].size;
	open.object_bytes = file_opens[_i].object_bytes;
	open.id = 1;
	ck_assert_int_eq(check(WIRE__REQUEST__BODY_FILE_OPEN, &open, 0), file_opens[_i].want);
	open.id = 0;
	if (open.mode == WIRE__OPEN_MODE__OPEN_AGAIN)
		ck_assert_int_eq(check(WIRE__REQUEST__BODY_FILE_OPEN, &open, 0), -EINVAL);
}

TEST(the_size_of_a_commit_is_bounded)
{
	Wire__FileEnd commit = WIRE__FILE_END__INIT;

	commit.size = UINT64_C(1) << 63;
	ck_assert_int_eq(check(WIRE__REQUEST__BODY_FILE_COMMIT, &commit, 0), -EINVAL);
	commit.size--;
	ck_assert_int_eq(check(WIRE__REQUEST__BODY_FILE_COMMIT, &commit, 0), 0);
}

TEST_MAIN
