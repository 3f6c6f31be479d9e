/*
 * The daemon's sessions under any sequence of requests: those of a hand-over (adopted slabs, imports, files, handles
 * and channels with wanted ids, Recovered), with frees, closes and ops between, on descriptors of all kinds, pipelined
 * or one by one; and ends of the connection at any time, after which the client hands over what it kept.
 *
 * Each request that was read has one reply.  At the end nothing is charged and no descriptor is left over.  A client
 * that knows of a stop finds its bytes in the slab that it kept.
 *
 * Input: steps, as in step().
 */
#include "tests/fuzz/fuzz_unit.h"

#include "daemon/control/serve.h"
#include "proto/wire.h"
#include "tests/unit/control_parts.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define STEPS_MAX 60u
#define N_IDS 6u
#define FILE_BYTES (64u << 10)
#define BOARD_BYTES 4096u
#define MARK_OFF (FILE_BYTES - 4096u)

static struct input {
	const uint8_t *data;
	size_t size;
} in;

enum { ID_SLAB, ID_FILE, ID_HANDLE, ID_CHANNEL, ID_STORE, N_ID_KINDS };

static struct client {
	int fd; /* -1: there is none */
	struct frame_reader reader;
	bool is_pending[STEPS_MAX * 2 + 1];
	uint8_t kinds[STEPS_MAX * 2 + 1]; /* of each request */
	uint32_t n_sent, n_pending;
	bool is_garbled; /* what follows may be the body of a frame */
	bool knows_of_stop;
	_Atomic uint32_t *board; /* of its files; NULL before Hello */
	uint32_t ids[N_ID_KINDS][N_IDS];
	unsigned n_ids[N_ID_KINDS];
} client;

enum { FD_DISK, FD_DISK_BUFFERED, FD_MEMORY, FD_SEALED, FD_KEPT, FD_PIDFD, FD_TMPFS, N_FDS = 16 };
static int fds[N_FDS];
static const uint64_t mark = UINT64_C(
	0x6b72616d);	      /* at MARK_OFF of FD_KEPT, where no op writes ... */
static bool is_marked;	      /* ... if this is true */
static struct session *first; /* keeps user, stores and lanes from one input to the next */

static uint8_t take_u8(void)
{
	uint8_t value;

	take_bytes(&in.data, &in.size, &value, 1);
	return value;
}

/* ---- replies ---- */

static void note_id(int kind, uint32_t id)
{
	client.ids[kind][client.n_ids[kind]++ % N_IDS] = id;
}

static void on_reply(const Wire__Reply *reply, struct frame *frame)
{
	ck_assert_int_le(reply->error, 0);
	ck_assert(!reply->error || reply->text[0]);
	if (!reply->seq) { /* why the session ends */
		client.knows_of_stop = reply->error == -ESHUTDOWN;
		return;
	}
	ck_assert(reply->seq <= client.n_sent && client.is_pending[reply->seq]);
	client.is_pending[reply->seq] = false;
	client.n_pending--;
	if (reply->error)
		return;
	switch (reply->body_case) {
	case WIRE__REPLY__BODY_HELLO:
		ck_assert_uint_eq(frame->n_fds, 1);
		client.board = mmap(NULL, BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
				    frame->fds[0], 0);
		ck_assert_ptr_ne(client.board, MAP_FAILED);
		break;
	case WIRE__REPLY__BODY_SLAB_NEW:
		ck_assert_uint_eq(frame->n_fds, 1);
		ck_assert_int_ge(dup3(frame->fds[0], fds[FD_KEPT], O_CLOEXEC), 0);
		is_marked = reply->slab_new->size_bytes >= FILE_BYTES &&
			    pwrite(fds[FD_KEPT], &mark, sizeof(mark), MARK_OFF) > 0;
		note_id(ID_SLAB, reply->slab_new->slab);
		break;
	case WIRE__REPLY__BODY_SLAB_IMPORT:
		note_id(ID_SLAB, reply->slab_import->slab);
		break;
	case WIRE__REPLY__BODY_SLAB_ADOPT:
		note_id(ID_SLAB, reply->slab_adopt->slab);
		break;
	case WIRE__REPLY__BODY_FILE_ADD:
		note_id(ID_FILE, reply->file_add->file);
		note_id(ID_STORE, reply->file_add->store);
		break;
	case WIRE__REPLY__BODY_HANDLE_OPEN:
		note_id(ID_HANDLE, reply->handle_open->handle);
		break;
	case WIRE__REPLY__BODY_CHANNEL_OPEN:
		note_id(ID_CHANNEL, reply->channel_open->channel);
		break;
	case WIRE__REPLY__BODY_SUBMIT:
		for (size_t i = 0; i < reply->submit->n_results; i++)
			ck_assert_uint_le(ring_result_done(reply->submit->results[i]), 1u << 20);
		break;
	default:
		break;
	}
}

static void lose_connection(void)
{
	if (client.fd < 0)
		return;
	frame_reader_deinit(&client.reader);
	client.reader = (struct frame_reader){ 0 };
	(void)close(client.fd);
	client.fd = -1;
	is_marked = false; /* the memory of a dead client is punched */
	if (client.board)
		ck_assert_int_eq(munmap((void *)client.board, BOARD_BYTES), 0);
	client.board = NULL;
	client.n_pending = 0;
	memset(client.is_pending, 0, sizeof(client.is_pending));
}

static void read_replies(void)
{
	char text[200];
	bool is_marked_before;
	struct frame frame;
	uint64_t value;
	int r = -EAGAIN;

	while (client.fd >= 0 &&
	       (r = frame_read(&client.reader, client.fd, &frame, text, sizeof(text))) == 1) {
		Wire__Reply *reply = wire__reply__unpack(NULL, frame.len, frame.body);

		ck_assert_ptr_nonnull(reply);
		on_reply(reply, &frame);
		wire__reply__free_unpacked(reply, NULL);
		frame_deinit(&frame);
	}
	ck_assert_int_ne(r, -EPROTO);
	is_marked_before = is_marked;
	if (r != -EAGAIN) /* the session has ended */
		lose_connection();
	if (r == 0 && client.knows_of_stop && is_marked_before) {
		ck_assert(pread(fds[FD_KEPT], &value, sizeof(value), MARK_OFF) == sizeof(value));
		ck_assert_uint_eq(value, mark);
		is_marked = true;
	}
}

static void settle(void)
{
	(void)event_base_loop(c.base, EVLOOP_NONBLOCK);
	read_replies();
}

static void wait_for_replies(void)
{
	for (read_replies(); client.fd >= 0 && client.n_pending && !client.is_garbled;
	     read_replies())
		ck_assert_int_ge(event_base_loop(c.base, EVLOOP_ONCE), 0);
}

/* ---- requests ---- */

/* An id of a reply, one near, or any. */
static uint32_t take_id(int kind)
{
	const uint8_t which = take_u8();

	if (which < 192)
		return client.ids[kind][which % N_IDS];
	if (which < 250)
		return (uint32_t)(which >> 4 & 3) << 16 | (which & 15);
	return take_u32(&in.data, &in.size);
}

/* 0: any; else as above. */
static uint32_t take_wanted_id(int kind)
{
	return take_u8() & 1 ? take_id(kind) : 0;
}

static uint64_t take_bytes_of_memory(void)
{
	static const uint64_t sizes[] = { FILE_BYTES, 4096, 0, 1, 5000, 128u << 10, 8u << 20 };
	const uint8_t which = take_u8();

	return which < 250 ? sizes[which % 7] : UINT64_MAX - take_u32(&in.data, &in.size);
}

static struct messages {
	Wire__Hello hello;
	Wire__SlabNew slab_new;
	Wire__SlabImport slab_import;
	Wire__SlabAdopt slab_adopt;
	Wire__SlabFree slab_free;
	Wire__FileAdd file_add;
	Wire__FileRemove file_remove;
	Wire__FileBuffered file_buffered;
	Wire__FileGet file_get;
	Wire__HandleOpen handle_open;
	Wire__HandleClose handle_close;
	Wire__ChannelOpen channel_open;
	Wire__Submit submit;
	Wire__Entry entries[4], *entry_list[4];
	Wire__Cancel cancel;
	Wire__Status status;
	Wire__StoreGet store_get;
	Wire__Recovered recovered;
	Wire__Profile profile;
} m;

static void take_profile(void)
{
	const uint8_t b = take_u8();

	wire__profile__init(&m.profile);
	m.profile.block_size = 4096u << b % 4;
	m.profile.queue_depth = 1 + (b >> 2) % 4 * 3;
	m.profile.single_submit = b & 64;
	m.profile.overlap_events = b & 32;
	m.profile.intra_op_parallelism = b < 250;
	m.profile.absent = take_u8() & 31;
}

static void take_entry(Wire__Entry *entry, uint64_t id)
{
	uint8_t b[3];

	take_bytes(&in.data, &in.size, b, sizeof(b));
	wire__entry__init(entry);
	entry->id = id;
	entry->opcode = b[0] < 200 ? 1u + b[0] % 2 : b[0] % 8u;
	entry->file = take_id(ID_FILE);
	entry->off = (uint64_t)(b[1] & 15) << (b[1] & 16 ? 12 : 9);
	if (entry->opcode > 2)
		return;
	entry->slab = take_id(ID_SLAB);
	entry->len = (uint64_t)(b[1] >> 5) << (b[2] & 1 ? 12 : 9);
	entry->slab_off = (uint64_t)(b[2] >> 4) << 9;
	entry->timeout_msec = b[2] & 2 ? 1 : 0;
}

static void take_submit(Wire__Request *request)
{
	wire__submit__init(&m.submit);
	m.submit.channel = take_id(ID_CHANNEL);
	m.submit.n_entries = take_u8() % 5;
	m.submit.entries = m.entry_list;
	for (size_t i = 0; i < m.submit.n_entries; i++) {
		m.entry_list[i] = &m.entries[i];
		take_entry(&m.entries[i], i);
	}
	request->body_case = WIRE__REQUEST__BODY_SUBMIT;
	request->submit = &m.submit;
}

#define REQUEST(CASE, name)                                      \
	do {                                                     \
		request->body_case = WIRE__REQUEST__BODY_##CASE; \
		request->name = &m.name;                         \
		wire__##name##__init(&m.name);                   \
	} while (0)

/* Returns how many descriptors such a request has. */
static unsigned take_request(uint8_t what, Wire__Request *request)
{
	switch (what % 21) {
	case 0:
		REQUEST(HELLO, hello);
		m.hello.version_min = take_u8() % 4 == 3;
		m.hello.version_max = 1;
		m.hello.features = UINT64_MAX;
		m.hello.name = "fuzz";
		return take_u8() & 1;
	case 1:
		REQUEST(SLAB_NEW, slab_new);
		m.slab_new.size_bytes = take_bytes_of_memory();
		m.slab_new.pages = (Wire__Pages)(take_u8() % 4);
		return 0;
	case 2:
	case 3:
		REQUEST(SLAB_ADOPT, slab_adopt);
		m.slab_adopt.slab = take_wanted_id(ID_SLAB);
		m.slab_adopt.size_bytes = take_bytes_of_memory();
		return 1;
	case 4:
		REQUEST(SLAB_IMPORT, slab_import);
		m.slab_import.slab = take_wanted_id(ID_SLAB);
		m.slab_import.size_bytes = take_bytes_of_memory();
		m.slab_import.off = take_u8() < 200 ? 0 : take_bytes_of_memory();
		return 1;
	case 5:
		REQUEST(SLAB_FREE, slab_free);
		m.slab_free.slab = take_id(ID_SLAB);
		is_marked = false;
		return 0;
	case 6:
	case 7:
		REQUEST(FILE_ADD, file_add);
		m.file_add.file = take_wanted_id(ID_FILE);
		return 1;
	case 8:
		REQUEST(FILE_REMOVE, file_remove);
		m.file_remove.file = take_id(ID_FILE);
		return 0;
	case 9:
		REQUEST(FILE_BUFFERED, file_buffered);
		m.file_buffered.file = take_id(ID_FILE);
		return 1;
	case 10:
		REQUEST(FILE_GET, file_get);
		m.file_get.file = take_id(ID_FILE);
		return 0;
	case 11:
		REQUEST(HANDLE_OPEN, handle_open);
		m.handle_open.handle = take_wanted_id(ID_HANDLE);
		m.handle_open.weight = take_u8() % 18;
		m.handle_open.io_class = (Wire__Class)(m.handle_open.weight % 4);
		if (m.handle_open.weight & 1) {
			take_profile();
			m.handle_open.profile = &m.profile;
		}
		return 0;
	case 12:
		REQUEST(HANDLE_CLOSE, handle_close);
		m.handle_close.handle = take_id(ID_HANDLE);
		return 0;
	case 13:
	case 14:
		REQUEST(CHANNEL_OPEN, channel_open);
		m.channel_open.handle = take_id(ID_HANDLE);
		m.channel_open.store = take_id(ID_STORE);
		m.channel_open.channel = take_wanted_id(ID_CHANNEL);
		m.channel_open.entries = take_u8();
		m.channel_open.without_rings = m.channel_open.entries % 8;
		return 0;
	case 15:
	case 16:
		take_submit(request);
		return 0;
	case 17:
		REQUEST(CANCEL, cancel);
		m.cancel.channel = take_id(ID_CHANNEL);
		m.cancel.id = take_u8() % 4;
		return 0;
	case 18:
		REQUEST(STATUS, status);
		return 0;
	case 19:
		REQUEST(STORE_GET, store_get);
		m.store_get.name = take_u8() & 1 ? "vda" : "";
		return 1;
	default:
		REQUEST(RECOVERED, recovered);
		m.recovered.slabs = take_u8();
		m.recovered.failed = take_u8() % 2;
		m.recovered.text = "\x1b[2J";
		return 0;
	}
}

/* The descriptor that the request is about, or any. */
static int take_fd(const Wire__Request *request)
{
	const uint8_t which = take_u8();

	if (which >= 192)
		return fds[which % N_FDS];
	switch (request->body_case) {
	case WIRE__REQUEST__BODY_HELLO:
		return fds[FD_PIDFD];
	case WIRE__REQUEST__BODY_SLAB_ADOPT:
		return fds[which % 2 ? FD_KEPT : FD_SEALED];
	case WIRE__REQUEST__BODY_FILE_ADD:
		return fds[which % 4 ? FD_DISK : FD_TMPFS];
	case WIRE__REQUEST__BODY_STORE_GET:
	case WIRE__REQUEST__BODY_FILE_BUFFERED:
		return fds[FD_DISK_BUFFERED];
	default:
		return fds[FD_MEMORY];
	}
}

static void send_body(const void *body, size_t len, const int *sent, unsigned n_sent)
{
	struct frame_writer writer = { 0 };

	if (frame_queue(&writer, body, len, sent, n_sent) < 0 ||
	    frame_flush(&writer, client.fd) < 0)
		lose_connection(); /* the socket is full, or closed */
	frame_writer_deinit(&writer);
}

static void send_request(uint8_t what)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	unsigned n_fds = take_request(what, &request);
	uint8_t body[512];
	int sent[2];
	size_t len;

	if (take_u8() >= 250)
		n_fds = (n_fds + 1) % 3; /* not what the request has */
	for (unsigned i = 0; i < n_fds; i++)
		sent[i] = dup(take_fd(&request));
	request.seq = ++client.n_sent;
	client.is_pending[request.seq] = true;
	client.n_pending++;
	len = wire__request__pack(&request, body);
	ck_assert_uint_le(len, sizeof(body));
	send_body(body, len, sent, n_fds);
}

static void connect_client(void)
{
	(void)control_connect(&client.fd);
	client.n_sent = client.n_pending = 0;
	client.is_garbled = client.knows_of_stop = false;
}

/* The daemon ends the session, as it does when it stops, or a signal hurries it. */
static void stop_session(bool drain)
{
	struct session *session = list_entry(c.service.sessions.last, struct session, node);

	if (session != first)
		session_end(session, drain);
}

static void step(void)
{
	const uint8_t what = take_u8();
	uint8_t garbage[16];

	if (client.fd < 0) {
		connect_client();
		if (what < 250)
			send_request(0);
		settle();
	}
	if (client.fd < 0)
		return;
	if (what < 240) {
		send_request(what % 126);
		if (what < 126)
			wait_for_replies();
		return;
	}
	switch (what) {
	case 240:
		stop_session(true);
		while (client.fd >= 0) {
			ck_assert_int_ge(event_base_loop(c.base, EVLOOP_ONCE), 0);
			read_replies();
		}
		return;
	case 241:
		stop_session(take_u8() & 1);
		break;
	case 242:
	case 243:
		(void)shutdown(client.fd, what & 1 ? SHUT_WR : SHUT_RDWR);
		break;
	case 244:
	case 245:
		lose_connection();
		break;
	case 246: /* no request, and perhaps no frame */
		take_bytes(&in.data, &in.size, garbage, sizeof(garbage));
		if (garbage[0] & 1)
			send_body(garbage, sizeof(garbage), NULL, 0);
		else
			client.is_garbled = send(client.fd, garbage, sizeof(garbage),
						 MSG_NOSIGNAL) > 0;
		break;
	case 247:
	case 248: /* its file is idle, so the daemon may close it */
		if (client.board)
			file_board_set_idle(client.board, take_id(ID_FILE) & ~UINT32_C(0xfc00));
		break;
	case 249:
		if (client.board)
			atomic_store(&client.board[take_u8() % 8], take_u32(&in.data, &in.size));
		break;
	default:
		wait_for_replies();
		break;
	}
	settle();
}

/* ---- start and end ---- */

static int new_memory(unsigned flags, int seals)
{
	int fd = memfd_create("fuzz", flags | MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, FILE_BYTES), 0);
	ck_assert(!seals || fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static int open_again(int fd, int flags)
{
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static void make_fds(void)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	char path[] = "/dev/shm/dsaio-fuzz-XXXXXX";

	fds[FD_DISK] = control_open("file");
	fds[FD_DISK_BUFFERED] = openat(dir_fd, "file", O_RDWR | O_CLOEXEC);
	fds[FD_MEMORY] = new_memory(0, 0);
	fds[FD_SEALED] = new_memory(MFD_ALLOW_SEALING, seals);
	fds[FD_KEPT] = dup(fds[FD_SEALED]);
	fds[FD_PIDFD] = (int)syscall(SYS_pidfd_open, getpid(), 0);
	fds[FD_TMPFS] = mkostemp(path, O_CLOEXEC);
	ck_assert_int_ge(fds[FD_TMPFS], 0);
	ck_assert(unlink(path) == 0 && ftruncate(fds[FD_TMPFS], FILE_BYTES) == 0);
	fds[7] = new_memory(MFD_ALLOW_SEALING, seals | F_SEAL_FUTURE_WRITE);
	fds[8] = new_memory(MFD_ALLOW_SEALING, F_SEAL_SHRINK);
	fds[9] = open_again(fds[FD_SEALED], O_RDONLY);
	fds[10] = open_again(fds[FD_DISK], O_RDONLY | O_DIRECT);
	fds[11] = open_again(fds[FD_DISK], O_RDWR | O_APPEND);
	fds[12] = open_again(fds[FD_DISK], O_PATH);
	fds[13] = dup(dir_fd);
	fds[14] = open("/dev/null", O_RDWR | O_CLOEXEC);
	fds[15] = eventfd(0, EFD_CLOEXEC);
}

static void limit(enum quota_kind kind, uint64_t of_client)
{
	c.config.client_limit[kind] = of_client;
	c.config.user_limit[kind] = 2 * of_client + 1;
}

static void setup_once(void)
{
	static int fd;
	uint32_t file;

	control_setup();
	ck_assert_int_eq(atexit(remove_dir), 0);
	c.service.on_frame = serve_frame;
	c.service.on_garbage = serve_garbage;
	c.service.say_end = serve_end;
	limit(QUOTA_POOL_BYTES, 512u << 10);
	limit(QUOTA_SLABS, 5);
	limit(QUOTA_VIEWS, 5);
	limit(QUOTA_FILES, 5);
	limit(QUOTA_HANDLES, 3);
	limit(QUOTA_CHANNELS, 4);
	limit(QUOTA_ENTRIES, 512);
	limit(QUOTA_CALLS, 6);
	make_fds();
	first = control_client(&fd);
	/* Lanes of both stores. */
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(session_file_add(first, dup(fds[i ? FD_TMPFS : FD_DISK]), "file",
						  control_call(first, i, 'f'), &c.error),
				 0);
		CONTROL_UNTIL(answers[i].is_done);
		ck_assert_msg(answers[i].result == 0, "%s", answers[i].text);
		file = answers[i].id;
		ck_assert_int_eq(control_channel(first, control_handle(first)->id,
						 control_store(first, file), 4, false,
						 &(struct channel *){ 0 }),
				 0);
	}
	control_settle();
}

static int lowest_fd(void)
{
	int fd = dup(0);

	(void)close(fd);
	return fd;
}

static void check_end(const struct quota *before, int lowest)
{
	const struct quota *now = &first->user->quota;

	lose_connection();
	CONTROL_UNTIL(c.service.n_sessions == 1 && !c.service.n_closing_sockets);
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++)
		ck_assert_uint_eq(now->used[i], before->used[i]);
	ck_assert_int_eq(lowest_fd(), lowest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct quota before;
	int lowest;

	if (!first)
		setup_once();
	before = first->user->quota;
	lowest = lowest_fd();
	memset(&client, 0, sizeof(client));
	client.fd = -1;
	is_marked = false;
	in = (struct input){ data, size };
	for (unsigned n = 0; in.size && n < STEPS_MAX; n++)
		step();
	check_end(&before, lowest);
	return 0;
}
