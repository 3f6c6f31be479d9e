/*
 * Bad input on the control socket: C1 to C4 and the socket's half of C20.  A client that
 * breaks the protocol loses the session, with one log line.  An impossible request gets an errno.
 */
#include "tests/harness.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- C1 ---- */

static const struct {
	const char *what;
	uint32_t min, max;
	const char *words;
} versions[] = {
	{ "only newer ones", 1000, 1001, "1000;1001" },
	{ "only version 0", 0, 0, "0" },
	{ "the largest numbers", UINT32_MAX, UINT32_MAX, "4294967295" },
};

TEST_TABLE(c1_version, versions, "C1 wrong protocol version")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);

	beside_start(daemon);
	raw_connect(&raw, daemon);
	hello.version_min = versions[row].min;
	hello.version_max = versions[row].max;
	raw_call_fails(&raw, &request, NULL, 0, -EPROTONOSUPPORT, versions[row].words);
	raw_wait_closed(&raw);
	beside_ok();
}

FAULT(c1_range, "C1 a range of versions that has ours, and unknown features, is served")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);

	raw_connect(&raw, daemon);
	hello.version_min = 1;
	hello.version_max = 99;
	hello.features = UINT64_MAX;
	hello.name =
		(char *)(uintptr_t) "a name that is much longer than the sixty-three bytes that "
				    "the daemon keeps of it, with \x01 control bytes \n in it";
	raw_call_ok(&raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_HELLO);
	CHECK_EQ(answer.reply->hello->version, 1);
	CHECK_EQ(answer.reply->hello->features, RING_FEATURE_DSYNC | RING_FEATURE_RECOVERY |
							RING_FEATURE_UNKNOWN |
							RING_FEATURE_QUIET); /* no GPU */
}

FAULT(c1_device, "C1 GPU memory is refused with the reason, unless Hello has granted it")
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	Wire__DeviceImport import = WIRE__DEVICE_IMPORT__INIT;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import);
	uint8_t bytes[64] = { 0 };
	struct raw_slab slab;

	import.uuid = (ProtobufCBinaryData){ 16, bytes };
	import.size_bytes = 4096;
	raw_call_fails(&raw, &request, NULL, 0, -EINVAL, "IPC handle of 0 bytes;64");
	import.ipc_handle = (ProtobufCBinaryData){ sizeof(bytes), bytes };
	raw_call_fails(&raw, &request, NULL, 0, -EOPNOTSUPP, "GPU");
	raw_slab(&raw, 4096, &slab); /* the session lives */
	raw_slab_unmap(&slab);
}

FAULT(c1_backwards, "C1 a range of versions that is none")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);

	raw_connect(&raw, daemon);
	hello.version_min = 5;
	hello.version_max = 1;
	raw_call_fails(&raw, &request, NULL, 0, -EINVAL, "5;1");
}

FAULT(c1_no_hello, "C1 a first request that is no Hello is refused")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__SlabNew slab_new = WIRE__SLAB_NEW__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_NEW, slab_new, &slab_new);

	slab_new.size_bytes = 4096;
	raw_connect(&raw, daemon);
	raw_send(&raw, &request, NULL, 0);
	raw_receive(&raw, &answer);
	if (answer.reply) { /* it may say why before it closes */
		CHECK(answer.reply->error < 0);
		CHECK(strstr(answer.reply->text, "hello"));
		CHECK_EQ(answer.n_fds, 0);
	}
}

FAULT(c1_twice, "C1 a second Hello is refused")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);

	hello.version_min = hello.version_max = 1;
	raw_open(&raw, daemon);
	raw_send(&raw, &request, NULL, 0);
	raw_receive(&raw, &answer);
	if (answer.reply) {
		CHECK(answer.reply->error < 0);
		CHECK(strstr(answer.reply->text, "hello"));
	}
}

FAULT(c1_silent, "C1 a client that connects and says nothing costs nobody anything")
{
	struct raw raws[20];

	for (unsigned i = 0; i < ARRAY_SIZE(raws); i++)
		raw_connect(&raws[i], daemon);
	beside_ok();
	for (unsigned i = 0; i < ARRAY_SIZE(raws); i++)
		raw_close(&raws[i]);
}

/* ---- C2 ---- */

/* A frame around these bytes. */
static void send_body(struct raw *raw, const void *body, uint32_t len)
{
	_cleanup_(freep) uint8_t *bytes = calloc(1, FRAME_HEADER_BYTES + len);

	CHECK(bytes);
	for (unsigned i = 0; i < 4; i++)
		bytes[i] = (uint8_t)(len >> 8 * i);
	memcpy(bytes + FRAME_HEADER_BYTES, body, len);
	raw_send_bytes(raw, bytes, FRAME_HEADER_BYTES + len, NULL, 0);
}

FAULT(c2_unknown, "C2 unknown message: -EOPNOTSUPP, and the session lives")
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	/* seq = 7; a field 900 of bytes, as a later protocol may have it */
	static const uint8_t body[] = { 0x08, 7, 0xa2, 0x38, 2, 0x08, 1 };
	struct raw_slab slab;

	send_body(&raw, body, sizeof(body));
	raw_receive(&raw, &answer);
	CHECK(answer.reply);
	CHECK_EQ(answer.reply->seq, 7);
	answer_check_fails(&answer, -EOPNOTSUPP, "");
	raw_slab(&raw, 4096, &slab);
	raw_slab_unmap(&slab);
}

FAULT(c2_empty, "C2 a request without a body: -EOPNOTSUPP, and the session lives")
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	Wire__Request request = WIRE__REQUEST__INIT;
	struct raw_slab slab;

	raw_call_fails(&raw, &request, NULL, 0, -EOPNOTSUPP, "");
	raw_slab(&raw, 4096, &slab);
	raw_slab_unmap(&slab);
}

FAULT(c2_extra, "C2 unknown fields within a known message are ignored")
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	/* seq = 9; slab_new { size_bytes = 4096; field 15: 3 } */
	static const uint8_t body[] = { 0x08, 9, 0x5a, 5, 0x08, 0x80, 0x20, 0x78, 3 };

	send_body(&raw, body, sizeof(body));
	raw_receive(&raw, &answer);
	CHECK(answer.reply);
	CHECK_EQ(answer.reply->seq, 9);
	CHECK_EQ(answer.reply->error, 0);
	CHECK_EQ(answer.n_fds, 1);
}

/* ---- C3 ---- */

static const struct {
	const char *what;
	uint8_t bytes[24];
	unsigned len;
	bool after_hello;
} frames[] = {
	{ "one byte too long", { 1, 0, 2, 0, 0, 0, 0, 0 }, 8, true },
	{ "of 4 GiB", { 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0 }, 8, true },
	{ "of 4 GiB before Hello", { 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0 }, 8, false },
	{ "of no bytes", { 0, 0, 0, 0, 0, 0, 0, 0 }, 8, true },
	{ "of no bytes before Hello", { 0, 0, 0, 0, 0, 0, 0, 0 }, 8, false },
	{ "with 5 descriptors", { 2, 0, 0, 0, 5, 0, 0, 0, 8, 1 }, 10, true },
	{ "with 65535 descriptors", { 2, 0, 0, 0, 255, 255, 0, 0, 8, 1 }, 10, true },
	{ "whose zero is none", { 2, 0, 0, 0, 0, 0, 1, 0, 8, 1 }, 10, true },
	{ "of bytes that are no Request",
	  { 4, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255 },
	  12,
	  true },
	{ "cut off inside a varint", { 2, 0, 0, 0, 0, 0, 0, 0, 8, 0x80 }, 10, true },
	{ "whose submessage is longer than it",
	  { 4, 0, 0, 0, 0, 0, 0, 0, 0x5a, 100, 1, 1 },
	  12,
	  true },
	{ "as HTTP", "GET / HTTP/1.1\r\n\r\n", 18, false },
};

TEST_TABLE(c3_frame, frames, "C3 a bad frame ends the session, with a line in the log")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct daemon *daemon = daemon_start(NULL);

	beside_start(daemon);
	if (frames[row].after_hello)
		raw_open(&raw, daemon);
	else
		raw_connect(&raw, daemon);
	raw_send_bytes(&raw, frames[row].bytes, frames[row].len, NULL, 0);
	raw_receive(&raw, &answer);
	answer_check_fails(&answer, -EPROTO, "the daemon closes the connection");
	raw_wait_closed(&raw);
	daemon_log_wait(daemon, "client ");
	beside_ok();
}

TEST(c3_truncated, "C3 frames truncated at each byte by the end of the connection")
{
	struct daemon *daemon = daemon_start(NULL);
	struct usage before;
	uint8_t bytes[64] = { 9, 0, 0, 0, 0, 0, 0, 0, 0x08, 9, 0x5a, 5, 0x08, 0x80, 0x20, 0x78, 3 };

	beside_start(daemon);
	before = daemon_usage_settled(daemon);
	for (unsigned n = 1; n < FRAME_HEADER_BYTES + 9; n++) {
		_cleanup_(raw_close) struct raw raw = RAW_NONE;

		raw_open(&raw, daemon);
		raw_send_bytes(&raw, bytes, n, NULL, 0);
		CHECK_SYS(shutdown(raw.fd, SHUT_WR));
		raw_wait_closed(&raw);
	}
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
	daemon_usage_back(daemon, &before);
	beside_ok();
}

TEST(c3_bytewise, "C3 a good frame that comes byte by byte is served")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct daemon *daemon = daemon_start(NULL);
	static const uint8_t bytes[] = {
		7, 0, 0, 0, 0, 0, 0, 0, 0x08, 9, 0x5a, 3, 0x08, 0x80, 0x20
	};

	raw_open(&raw, daemon);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		raw_send_bytes(&raw, bytes + i, 1, NULL, 0);
	raw_receive(&raw, &answer);
	CHECK(answer.reply);
	CHECK_EQ(answer.reply->seq, 9);
	CHECK_EQ(answer.reply->error, 0);
}

FAULT(c3_pipelined, "C3 Hello and two thousand good frames at once are all answered, in any pieces")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	static uint8_t bytes[2048 * 64];
	const unsigned n = 2000;
	size_t len = 0, sent = 0;
	uint64_t random = test_seed();
	unsigned n_replies = 0;

	for (unsigned i = 0; i <= n; i++) {
		Wire__Hello hello = WIRE__HELLO__INIT;
		Wire__Cancel cancel = WIRE__CANCEL__INIT; /* of no channel: refused at once */
		Wire__Request request = RAW_REQUEST(CANCEL, cancel, &cancel);
		size_t body;

		if (i == 0) {
			request = RAW_REQUEST(HELLO, hello, &hello);
			hello.version_min = hello.version_max = 1;
		}
		request.seq = i + 1;
		body = wire__request__pack(&request, bytes + len + FRAME_HEADER_BYTES);
		CHECK(body < 56);
		bytes[len] = (uint8_t)body;
		len += FRAME_HEADER_BYTES + body;
	}
	raw_connect(&raw, daemon);
	while (n_replies <= n) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		/* At most so far ahead that neither side has to wait for the other. */
		while (sent < len && sent / 20 < n_replies + 100) {
			size_t piece = test_random(&random) % 40 + 1;

			if (piece > len - sent)
				piece = len - sent;
			raw_send_bytes(&raw, bytes + sent, piece, NULL, 0);
			sent += piece;
		}
		raw_receive(&raw, &answer);
		CHECK_MSG(answer.reply, "closed after %u replies", n_replies);
		CHECK_EQ(answer.reply->seq, n_replies + 1);
		n_replies++;
	}
}

TEST(c3_garbage, "C3 five hundred clients that send random bytes")
{
	struct daemon *daemon = daemon_start(NULL);
	uint64_t random = test_seed();
	struct usage before;

	beside_start(daemon);
	before = daemon_usage_settled(daemon);
	for (unsigned i = 0; i < 500; i++) {
		_cleanup_(raw_close) struct raw raw = RAW_NONE;
		uint8_t bytes[1024];
		uint32_t len = (uint32_t)(test_random(&random) % sizeof(bytes)) + 1;

		pattern_fill(bytes, len, random, 0);
		if (i % 2)
			raw_open(&raw, daemon);
		else
			raw_connect(&raw, daemon);
		if (i % 4 < 2) /* in a good frame */
			send_body(&raw, bytes, len);
		else
			raw_send_bytes(&raw, bytes, len, NULL, 0);
		CHECK_SYS(shutdown(raw.fd, SHUT_WR));
		raw_wait_closed(&raw);
	}
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
	daemon_usage_back(daemon, &before);
	beside_ok();
}

TEST(c3_mutated, "C3 two thousand good requests with random bytes changed")
{
	struct daemon *daemon = daemon_start(NULL);
	uint64_t random = test_seed() + 77;
	struct raw raw = RAW_NONE;

	beside_start(daemon);
	for (unsigned i = 0; i < 2000; i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		Wire__Entry entry = WIRE__ENTRY__INIT, *entries[1] = { &entry };
		Wire__Profile profile = WIRE__PROFILE__INIT;
		Wire__HandleOpen handle_open = WIRE__HANDLE_OPEN__INIT;
		Wire__ChannelOpen channel_open = WIRE__CHANNEL_OPEN__INIT;
		Wire__Submit submit = WIRE__SUBMIT__INIT;
		Wire__Cancel cancel = WIRE__CANCEL__INIT;
		Wire__SlabFree slab_free = WIRE__SLAB_FREE__INIT;
		Wire__Request requests[] = {
			RAW_REQUEST(HANDLE_OPEN, handle_open, &handle_open),
			RAW_REQUEST(CHANNEL_OPEN, channel_open, &channel_open),
			RAW_REQUEST(SUBMIT, submit, &submit),
			RAW_REQUEST(CANCEL, cancel, &cancel),
			RAW_REQUEST(SLAB_FREE, slab_free, &slab_free),
		};
		Wire__Request *request = &requests[i % ARRAY_SIZE(requests)];
		uint8_t body[512];
		uint32_t len;

		if (raw.fd < 0)
			raw_open(&raw, daemon);
		profile.block_size = (uint32_t)test_random(&random);
		profile.queue_depth = (uint32_t)test_random(&random);
		handle_open.profile = &profile;
		channel_open.handle = 1;
		channel_open.store = raw_store("t");
		submit.n_entries = 1;
		submit.entries = entries;
		submit.channel = cancel.channel = 65536;
		slab_free.slab = 65536;
		request->seq = i;
		len = (uint32_t)wire__request__pack(request, body);
		for (unsigned k = 0; k < 1 + i % 3; k++)
			body[test_random(&random) % len] = (uint8_t)test_random(&random);
		send_body(&raw, body, len);
		raw_receive(&raw, &answer);
		if (!answer.reply)
			raw_close(&raw);
	}
	raw_close(&raw);
	beside_ok();
}

/* ---- C4 ---- */

FAULT(c4_missing, "C4 descriptor missing: FileAdd without one is refused, the session lives")
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);
	struct raw_file file;

	file_add.name = (char *)(uintptr_t) "weights.bin";
	raw_call_refused(&raw, &request, NULL, 0, "descriptor");
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	raw_file(&raw, daemon_path(daemon, "f"), O_RDONLY, &file);
}

FAULT(c4_too_many, "C4 too many descriptors: refused, none is kept, the session lives")
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__Request add = RAW_REQUEST(FILE_ADD, file_add, &file_add);
	Wire__Request other = RAW_REQUEST(STATUS, status, &status);
	struct usage before;
	int fds[4];

	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	for (unsigned i = 0; i < 4; i++)
		fds[i] = open_direct(daemon_path(daemon, "f"), O_RDONLY);
	before = daemon_usage_settled(daemon);
	for (unsigned n = 2; n <= 4; n++)
		raw_call_refused(&raw, &add, fds, n, "descriptor");
	for (unsigned n = 1; n <= 4; n++) { /* to a message that has none */
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		raw_call(&raw, &other, fds, n, &answer);
		CHECK(answer.reply->error == 0 || answer.reply->error == -EINVAL);
	}
	daemon_usage_back(daemon, &before);
	for (unsigned i = 0; i < 4; i++)
		close(fds[i]);
}

static const struct {
	const char *what;
	unsigned announced, sent;
} fd_counts[] = {
	{ "1 announced, none sent", 1, 0 },  { "4 announced, 3 sent", 4, 3 },
	{ "none announced, 1 sent", 0, 1 },  { "none announced, 253 sent", 0, 253 },
	{ "4 announced, 253 sent", 4, 253 },
};

TEST_TABLE(c4_count, fd_counts, "C4 another number of descriptors than announced")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	uint8_t bytes[] = { 7, 0, 0, 0, 0, 0, 0, 0, 0x08, 9, 0x5a, 3, 0x08, 0x80, 0x20 };
	struct usage before;
	int fds[253];

	beside_start(daemon);
	before = daemon_usage_settled(daemon);
	raw_open(&raw, daemon);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = STDERR_FILENO;
	bytes[4] = (uint8_t)fd_counts[row].announced;
	raw_send_bytes(&raw, bytes, sizeof(bytes), fds, fd_counts[row].sent);
	CHECK_SYS(shutdown(raw.fd, SHUT_WR));
	raw_wait_closed(&raw);
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
	daemon_usage_back(daemon, &before);
	beside_ok();
}

FAULT(c4_flood, "C4 descriptors without end, with no frame that is whole, are not collected")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct usage before, after;
	int fds[100];

	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = STDERR_FILENO;
	before = daemon_usage_settled(daemon);
	raw_open(&raw, daemon);
	for (unsigned i = 0; i < 100; i++) {
		struct pollfd pollfd = { .fd = raw.fd, .events = POLLOUT };
		uint8_t byte = i == 0 ? 100 : 0;

		if (poll(&pollfd, 1, 1000) != 1 || (pollfd.revents & (POLLHUP | POLLERR)))
			break;
		raw_send_bytes(&raw, &byte, 1, fds, ARRAY_SIZE(fds));
	}
	beside_ok();
	do /* a worker thread closes them */
		after = daemon_usage(daemon);
	while (after.n_fds > before.n_fds + 20 && usleep(10000) == 0);
}

FAULT(c4_hello, "C4 Hello with descriptors that are no pidfd, or another's: hurts only its sender")
{
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);
	int fds[4] = { STDERR_FILENO, STDERR_FILENO, STDERR_FILENO, STDERR_FILENO };
	struct usage before = daemon_usage_settled(daemon);

	hello.version_min = hello.version_max = 1;
	for (unsigned n = 1; n <= 4; n++) {
		_cleanup_(raw_close) struct raw raw = RAW_NONE;
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		raw_connect(&raw, daemon);
		raw_send(&raw, &request, fds, n);
		raw_receive(&raw, &answer);
		CHECK(answer.reply);
		CHECK(answer.reply->error == 0 || *answer.reply->text);
	}
	daemon_usage_back(daemon, &before);
}

/* ---- C20, on the socket ---- */

TEST(c20_replies, "C20 a client that never reads its replies: it waits, then is served in full")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	const unsigned n_wanted = 50000;
	_cleanup_(freep) bool *seen = calloc(n_wanted + 2, sizeof(*seen));
	struct usage before, after;
	unsigned n_sent = 0, n_replies = 0;

	CHECK(seen);
	beside_start(daemon);
	raw_open(&raw, daemon);
	before = daemon_usage_settled(daemon);
	while (n_sent < n_wanted) {
		struct pollfd pollfd = { .fd = raw.fd, .events = POLLOUT };
		Wire__Status status = WIRE__STATUS__INIT;
		Wire__Request request = RAW_REQUEST(STATUS, status, &status);

		/* Full for a second: the daemon reads no more.  (A Unix socket is writable only with room
		   for more than such a frame.) */
		if (poll(&pollfd, 1, 1000) != 1 || (pollfd.revents & (POLLHUP | POLLERR)))
			break;
		raw_send(&raw, &request, NULL, 0);
		n_sent++;
	}
	beside_ok();
	after = daemon_usage(daemon);
	test_note("%u requests sent without reading a reply: the daemon's memory %" PRIu64
		  " -> %" PRIu64 " kB",
		  n_sent, before.rss_kib, after.rss_kib);
	/* The address sanitizer keeps what was freed, up to 256 MiB. */
	CHECK(after.rss_kib < before.rss_kib + (test_is_slow() ? 272u : 16u) * 1024);
	CHECK_MSG(n_sent < n_wanted, "the daemon never stops reading");

	/* Now it reads: nothing was lost. */
	while (n_replies < n_sent) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		raw_receive(&raw, &answer);
		CHECK_MSG(answer.reply, "closed after %u of %u replies", n_replies, n_sent);
		CHECK(answer.reply->seq <= n_sent + 1 && !seen[answer.reply->seq]);
		seen[answer.reply->seq] = true;
		n_replies++;
	}
	beside_ok();
}

TEST(c20_slabs, "C20 a client that asks for slabs and never takes them stays in its bounds")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	struct usage before, after;
	unsigned n_sent = 0;

	beside_start(daemon);
	before = daemon_usage_settled(daemon);
	raw_open(&raw, daemon);
	while (n_sent < 20000) {
		struct pollfd pollfd = { .fd = raw.fd, .events = POLLOUT };
		Wire__SlabNew slab_new = WIRE__SLAB_NEW__INIT;
		Wire__Request request = RAW_REQUEST(SLAB_NEW, slab_new, &slab_new);

		if (poll(&pollfd, 1, 1000) != 1 || (pollfd.revents & (POLLHUP | POLLERR)))
			break;
		slab_new.size_bytes = 4096;
		raw_send(&raw, &request, NULL, 0);
		n_sent++;
	}
	beside_ok();
	after = daemon_usage(daemon);
	test_note("%u slabs asked for: fds %u -> %u", n_sent, before.n_fds, after.n_fds);
	CHECK(after.n_fds < 10000); /* of 20,000 that it may have */
	raw_close(&raw);
	CHECK(daemon_wait_clients(daemon, 1, MIB * 64));
	beside_ok();
	daemon_usage_back(daemon, &before);
}

TEST_MAIN
