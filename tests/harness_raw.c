/*
 * Clients by hand: frames, requests and rings without the library.
 */
#include "tests/harness_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

void answer_free(struct answer *answer)
{
	if (answer->reply)
		wire__reply__free_unpacked(answer->reply, NULL);
	for (unsigned i = 0; i < answer->n_fds; i++)
		closep(&answer->fds[i]);
	*answer = (struct answer)ANSWER_NONE;
}

void raw_connect(struct raw *raw, const struct daemon *daemon)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	*raw = (struct raw)RAW_NONE;
	memcpy(address.sun_path, daemon->socket_path, sizeof(daemon->socket_path));
	raw->fd = (int)CHECK_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	CHECK_SYS(connect(raw->fd, (struct sockaddr *)&address, sizeof(address)));
}

void raw_close(struct raw *raw)
{
	frame_reader_deinit(&raw->reader);
	closep(&raw->fd);
	*raw = (struct raw)RAW_NONE;
}

void raw_send_bytes(struct raw *raw, const void *bytes, size_t len, const int *fds, unsigned n_fds)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = len };
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(256 * sizeof(int))];
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds) {
		struct cmsghdr *cmsg;

		CHECK(n_fds <= 253); /* SCM_MAX_FD */
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&message);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, n_fds * sizeof(int));
	}
	while (iov.iov_len) {
		ssize_t n = sendmsg(raw->fd, &message, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
			return; /* a test that cares reads the end of file next */
		if (n < 0 && errno == ETOOMANYREFS)
			return; /* an ordinary user may not have more descriptors on their way */
		CHECK_SYS(n);
		iov.iov_base = (char *)iov.iov_base + n;
		iov.iov_len -= (size_t)n;
		message.msg_control = NULL;
		message.msg_controllen = 0;
	}
}

void raw_send(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds)
{
	size_t len;
	_cleanup_(freep) uint8_t *bytes = NULL;

	request->seq = ++raw->seq;
	len = wire__request__get_packed_size(request);
	bytes = malloc(FRAME_HEADER_BYTES + len);
	CHECK(bytes);
	bytes[0] = (uint8_t)len;
	bytes[1] = (uint8_t)(len >> 8);
	bytes[2] = (uint8_t)(len >> 16);
	bytes[3] = (uint8_t)(len >> 24);
	bytes[4] = (uint8_t)n_fds;
	bytes[5] = bytes[6] = bytes[7] = 0;
	(void)wire__request__pack(request, bytes + FRAME_HEADER_BYTES);
	raw_send_bytes(raw, bytes, FRAME_HEADER_BYTES + len, fds, n_fds);
}

void raw_receive(struct raw *raw, struct answer *ret_answer)
{
	int64_t deadline = deadline_after(ANSWER_USEC);
	struct frame frame = { 0 };
	char text[256] = "";
	int r;

	*ret_answer = (struct answer)ANSWER_NONE;
	for (;;) {
		int flags = fcntl(raw->fd, F_GETFL);

		CHECK_SYS(flags);
		CHECK_SYS(fcntl(raw->fd, F_SETFL, flags | O_NONBLOCK));
		r = frame_read(&raw->reader, raw->fd, &frame, text, sizeof(text));
		CHECK_SYS(fcntl(raw->fd, F_SETFL, flags));
		if (r != -EAGAIN)
			break;
		if (now_usec() >= deadline || !wait_readable(raw->fd, ANSWER_USEC))
			test_fail("the daemon neither answers nor closes the connection");
	}
	if (r == 0 || r == -ECONNRESET)
		return; /* ECONNRESET: it closed without reading all that we sent */
	CHECK_MSG(r == 1, "frame_read: %d: %s", r, text);
	ret_answer->reply = wire__reply__unpack(NULL, frame.len, frame.body);
	CHECK_MSG(ret_answer->reply, "a reply of %zu bytes is none", frame.len);
	ret_answer->n_fds = frame.n_fds;
	for (unsigned i = 0; i < frame.n_fds; i++)
		ret_answer->fds[i] = TAKE_FD(frame.fds[i]);
	frame_deinit(&frame);
}

void raw_receive_ok(struct raw *raw)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	raw_receive(raw, &answer);
	CHECK_MSG(answer.reply && !answer.reply->error, "%s",
		  answer.reply ? answer.reply->text : "closed");
}

void raw_call(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
	      struct answer *ret_answer)
{
	raw_send(raw, request, fds, n_fds);
	raw_receive(raw, ret_answer);
	CHECK_MSG(ret_answer->reply, "the daemon closed the connection instead of an answer to %d",
		  (int)request->body_case);
	CHECK_EQ(ret_answer->reply->seq, request->seq);
}

void answer_check_fails(const struct answer *answer, int error, const char *words)
{
	CHECK_MSG(answer->reply, "the daemon closed the connection without a word");
	check_fails("the reply's error", answer->reply->error, error, answer->reply->text, words,
		    __FILE__, __LINE__);
	CHECK_MSG(*answer->reply->text, "error %d has no message", error);
	CHECK_EQ(answer->n_fds, 0);
}

void raw_call_fails(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
		    int error, const char *words)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	raw_call(raw, request, fds, n_fds, &answer);
	answer_check_fails(&answer, error, words);
}

void raw_call_refused(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
		      const char *words)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	int error;

	raw_call(raw, request, fds, n_fds, &answer);
	error = answer.reply->error;
	if (error != -EBADF && error != -EINVAL && error != -ENOENT && error != -ENXIO)
		error = -EBADF; /* what the check below then asks for */
	answer_check_fails(&answer, error, words);
}

void raw_wait_closed(struct raw *raw)
{
	for (;;) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		raw_receive(raw, &answer);
		if (!answer.reply)
			return;
	}
}

void raw_call_ok(struct raw *raw, Wire__Request *request, const int *fds, unsigned n_fds,
		 struct answer *ret_answer)
{
	raw_call(raw, request, fds, n_fds, ret_answer);
	CHECK_MSG(ret_answer->reply->error == 0, "request %d: %s (%s)", (int)request->body_case,
		  strerror(-ret_answer->reply->error), ret_answer->reply->text);
}

void raw_open(struct raw *raw, const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);

	raw_connect(raw, daemon);
	hello.version_min = hello.version_max = 1;
	hello.name = (char *)(uintptr_t) "raw test client";
	hello.pid = (uint32_t)getpid();
	raw_call_ok(raw, &request, NULL, 0, &answer);
}

struct raw raw_new(const struct daemon *daemon)
{
	struct raw raw = RAW_NONE;

	raw_open(&raw, daemon);
	return raw;
}

void raw_slab(struct raw *raw, size_t bytes, struct raw_slab *ret_slab)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__SlabNew slab_new = WIRE__SLAB_NEW__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_NEW, slab_new, &slab_new);
	void *memory;

	slab_new.size_bytes = bytes;
	raw_call_ok(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_SLAB_NEW);
	CHECK_EQ(answer.n_fds, 1);
	ret_slab->id = answer.reply->slab_new->slab;
	ret_slab->size = answer.reply->slab_new->size_bytes;
	ret_slab->fd = TAKE_FD(answer.fds[0]);
	memory = mmap(NULL, ret_slab->size, PROT_READ | PROT_WRITE, MAP_SHARED, ret_slab->fd, 0);
	CHECK(memory != MAP_FAILED);
	ret_slab->memory = memory;
}

void raw_slab_unmap(struct raw_slab *slab)
{
	CHECK_SYS(munmap(slab->memory, slab->size));
	closep(&slab->fd);
	*slab = (struct raw_slab){ .fd = -1 };
}

void raw_file(struct raw *raw, const char *path, int flags, struct raw_file *ret_file)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(closep) int fd = open_direct(path, flags);
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);

	file_add.name = (char *)(uintptr_t)path;
	raw_call_ok(raw, &request, &fd, 1, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_FILE_ADD);
	*ret_file = (struct raw_file){ .id = answer.reply->file_add->file,
				       .store = answer.reply->file_add->store,
				       .offset_align = answer.reply->file_add->offset_align,
				       .memory_align = answer.reply->file_add->memory_align };
}

uint32_t raw_store(const char *name)
{
	uint32_t key = 2166136261u; /* FNV-1a */

	for (const char *c = name; *c; c++)
		key = (key ^ (uint8_t)*c) * 16777619u;
	return key;
}

uint32_t raw_handle_with_bell(struct raw *raw, int *ret_bell_fd)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__HandleOpen handle_open = WIRE__HANDLE_OPEN__INIT;
	Wire__Request request = RAW_REQUEST(HANDLE_OPEN, handle_open, &handle_open);

	raw_call_ok(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_HANDLE_OPEN);
	CHECK_EQ(answer.n_fds, 1);
	*ret_bell_fd = TAKE_FD(answer.fds[0]);
	return answer.reply->handle_open->handle;
}

uint32_t raw_handle(struct raw *raw)
{
	_cleanup_(closep) int bell_fd = -1;

	return raw_handle_with_bell(raw, &bell_fd);
}

void raw_channel(struct raw *raw, uint32_t handle, uint32_t store, uint32_t entries, bool rings,
		 struct raw_channel *ret_channel)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__ChannelOpen open = WIRE__CHANNEL_OPEN__INIT;
	Wire__Request request = RAW_REQUEST(CHANNEL_OPEN, channel_open, &open);
	struct raw_channel *channel = ret_channel;

	open.handle = handle;
	open.store = store;
	open.entries = entries;
	open.without_rings = !rings;
	raw_call_ok(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_CHANNEL_OPEN);
	CHECK_EQ(answer.n_fds, rings ? 3 : 0);
	*channel = (struct raw_channel){ .raw = raw,
					 .id = answer.reply->channel_open->channel,
					 .entries = answer.reply->channel_open->entries,
					 .has_rings = rings,
					 .ring_fd = -1,
					 .bell_fd = -1,
					 .board_fd = -1,
					 .next_id = 1 };
	if (!rings)
		return;
	channel->ring_fd = TAKE_FD(answer.fds[0]);
	channel->bell_fd = TAKE_FD(answer.fds[1]);
	channel->board_fd = TAKE_FD(answer.fds[2]);
	channel->map = mmap(NULL, ring_bytes(channel->entries), PROT_READ | PROT_WRITE, MAP_SHARED,
			    channel->ring_fd, 0);
	CHECK(channel->map != MAP_FAILED);
	channel->board = mmap(NULL, 4096, PROT_READ, MAP_SHARED, channel->board_fd, 0);
	CHECK(channel->board != MAP_FAILED);
	CHECK_EQ(ring_client_init(&channel->ring, channel->map, channel->board, channel->entries),
		 0);
}

void raw_channel_unmap(struct raw_channel *channel)
{
	if (channel->has_rings) {
		CHECK_SYS(munmap(channel->map, ring_bytes(channel->entries)));
		CHECK_SYS(munmap(channel->board, 4096));
		closep(&channel->ring_fd);
		closep(&channel->bell_fd);
		closep(&channel->board_fd);
	}
	*channel = (struct raw_channel){ .ring_fd = -1, .bell_fd = -1, .board_fd = -1 };
}

void raw_put(struct raw_channel *channel, struct ring_entry *entry)
{
	CHECK(ring_client_room(&channel->ring) > 0);
	entry->id = channel->next_id++;
	ring_client_put(&channel->ring, entry);
}

void raw_ring(struct raw_channel *channel)
{
	uint64_t one = 1;

	if (ring_client_submit(&channel->ring))
		CHECK_EQ(write(channel->bell_fd, &one, sizeof(one)), sizeof(one));
}

bool raw_reap(struct raw_channel *channel, unsigned n, struct ring_completion *ret_completions,
	      int64_t timeout_usec)
{
	int64_t deadline = deadline_after(timeout_usec);
	struct ring_client *ring = &channel->ring;

	for (unsigned done = 0; done < n;) {
		uint32_t ready = ring_client_ready(ring);
		uint32_t bell;

		CHECK_MSG(ready <= ring->entries, "%u completions in a ring of %u", ready,
			  ring->entries);
		if (ready) {
			uint32_t take = ready < n - done ? ready : n - done;

			for (uint32_t i = 0; i < take; i++)
				ret_completions[done + i] = ring_client_peek(ring, i);
			ring_client_consume(ring, take);
			done += take;
			continue;
		}
		if (now_usec() >= deadline)
			return false;
		bell = ring_client_bell(ring);
		if (ring_client_arm(ring, false)) {
			struct timespec timeout = { .tv_nsec = 100000000 };

			(void)syscall(SYS_futex, &ring->shared->cq_bell, FUTEX_WAIT, bell, &timeout,
				      NULL, 0); /* woken or not: look again */
		}
		ring_client_disarm(ring);
	}
	return true;
}

static void run_by_ring(struct raw_channel *channel, struct ring_entry *entries, unsigned n,
			int64_t *ret_results)
{
	_cleanup_(freep) struct ring_completion *completions = calloc(n, sizeof(*completions));
	_cleanup_(freep) bool *seen = calloc(n, sizeof(*seen));

	CHECK(completions && seen);
	for (unsigned i = 0; i < n; i++)
		raw_put(channel, &entries[i]);
	raw_ring(channel);
	/* The device may be slow, or busy with what the test does beside: its time limit ends it. */
	CHECK_MSG(raw_reap(channel, n, completions, 3600000000), "of %u", n);
	for (unsigned i = 0; i < n; i++) {
		uint64_t k = completions[i].id - entries[0].id;

		CHECK_MSG(k < n && !seen[k], "a completion for id %" PRIu64, completions[i].id);
		seen[k] = true;
		ret_results[k] = completions[i].result;
	}
}

static void run_by_submit(struct raw_channel *channel, struct ring_entry *entries, unsigned n,
			  int64_t *ret_results)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(freep) Wire__Entry *wire = calloc(n, sizeof(*wire));
	_cleanup_(freep) Wire__Entry **list = calloc(n, sizeof(*list));
	Wire__Submit submit = WIRE__SUBMIT__INIT;
	Wire__Request request = RAW_REQUEST(SUBMIT, submit, &submit);

	CHECK(wire && list);
	for (unsigned i = 0; i < n; i++) {
		entries[i].id = channel->next_id++;
		wire__entry__init(&wire[i]);
		wire[i].id = entries[i].id;
		wire[i].opcode = entries[i].opcode;
		wire[i].file = entries[i].file;
		wire[i].slab = entries[i].slab;
		wire[i].slab_off = entries[i].slab_off;
		wire[i].off = entries[i].off;
		wire[i].len = entries[i].len;
		wire[i].timeout_msec = entries[i].timeout_msec;
		list[i] = &wire[i];
	}
	submit.channel = channel->id;
	submit.n_entries = n;
	submit.entries = list;
	raw_call_ok(channel->raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_SUBMIT);
	CHECK_EQ(answer.reply->submit->n_results, n);
	memcpy(ret_results, answer.reply->submit->results, n * sizeof(*ret_results));
}

void raw_run(struct raw_channel *channel, struct ring_entry *entries, unsigned n,
	     int64_t *ret_results)
{
	if (channel->has_rings)
		run_by_ring(channel, entries, n, ret_results);
	else
		run_by_submit(channel, entries, n, ret_results);
}

int64_t raw_run_one(struct raw_channel *channel, struct ring_entry entry)
{
	int64_t result = 0;

	raw_run(channel, &entry, 1, &result);
	return result;
}

void daemon_status(const struct daemon *daemon, struct answer *ret_answer)
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__Request request = RAW_REQUEST(STATUS, status, &status);

	raw_open(&raw, daemon);
	raw_call_ok(&raw, &request, NULL, 0, ret_answer);
	CHECK_EQ(ret_answer->reply->body_case, WIRE__REPLY__BODY_STATUS);
	CHECK(ret_answer->reply->status->pool);
}

bool daemon_wait_clients(const struct daemon *daemon, unsigned n_clients, uint64_t pool_bytes)
{
	int64_t deadline = deadline_after(ANSWER_USEC);

	/* Status is a snapshot: ask again each 10 ms. */
	while (now_usec() < deadline) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		const Wire__StatusReply *status;

		daemon_status(daemon, &answer);
		status = answer.reply->status;
		if (status->n_all_clients <= n_clients + 1 &&
		    status->pool->used_bytes <= pool_bytes)
			return true;
		(void)poll(NULL, 0, 10);
	}
	return false;
}
