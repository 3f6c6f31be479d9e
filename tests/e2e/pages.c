/*
 * Status comes in pages: all clients are shown, however many there are, and each reply is small.
 */
#include "tests/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLIENTS 700u
#define HANDLES 8u	    /* of each: more than 128 KiB of Status */
#define MANY_HANDLES 400u   /* of one more client: more than a page */
#define PAGE_MAX (20 * KIB) /* a page, and what stands on each */

static const char config[] = "[daemon]\n"
			     "user_clients = 2000\n"
			     "client_handles = 10000\n"; /* and so at least as many of a user */

/* Their connections stay until the test ends. */
static void clients_start(const struct daemon *daemon)
{
	static struct raw raws[CLIENTS + 1];
	struct raw_channel channel;
	struct raw_file file;

	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	for (unsigned i = 0; i < CLIENTS + 1; i++) {
		struct raw *raw = &raws[i];

		raw_open(raw, daemon);
		raw_file(raw, daemon_path(daemon, "f"), O_RDONLY, &file);
		for (unsigned k = 0; k < (i == CLIENTS / 2 ? MANY_HANDLES : HANDLES); k++)
			raw_channel(raw, raw_handle(raw), file.store, 4, false, &channel);
	}
}

static unsigned count(const char *text, const char *word)
{
	unsigned n = 0;

	for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
		n++;
	return n;
}

/* Output of dsaioctl, on both streams. */
static char *ctl_text(const struct daemon *daemon, const char *command)
{
	static char text[8 * MIB];
	const char *build = getenv("BUILD");
	FILE *pipe = popen(test_text("%s/dsaioctl %s --socket %s 2>&1", build ? build : "build",
				     command, daemon->socket_path),
			   "re");
	size_t n;

	CHECK(pipe);
	n = fread(text, 1, sizeof(text) - 1, pipe);
	text[n] = 0;
	CHECK_MSG(pclose(pipe) == 0, "%s", text);
	return text;
}

TEST(all_shown, "status and clients left out clients")
{
	static const char *const commands[] = { "status", "clients" };
	struct daemon *daemon = daemon_start_for_many(config);
	unsigned n_names;

	clients_start(daemon);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		/* The clients of above: dsaioctl leaves itself out. */
		const char *text = ctl_text(daemon, test_text("%s --json", commands[i]));

		CHECK_EQ(count(text, "\"client\":"), CLIENTS + 1);
		CHECK_EQ(count(text, test_text("\"clients_shown\":%u,", CLIENTS + 1)) +
				 count(text, test_text("\"clients_shown\": %u,", CLIENTS + 1)),
			 1);
		CHECK_EQ(count(text, "\"channel\":"), CLIENTS * HANDLES + MANY_HANDLES);
		text = ctl_text(daemon, commands[i]);
		n_names = CLIENTS + 1; /* clients has them also in the table of handles */
		if (strcmp(commands[i], "clients") == 0)
			n_names += CLIENTS * HANDLES + MANY_HANDLES;
		CHECK_EQ(count(text, "raw test"), n_names); /* status cuts it */
	}
}

TEST(small_pages, "one Status request packed all clients into one reply")
{
	struct daemon *daemon = daemon_start_for_many(config);
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__StatusPage page = WIRE__STATUS_PAGE__INIT;
	Wire__Request request = RAW_REQUEST(STATUS, status, &status);
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	unsigned n_clients = 0, n_handles = 0, n_pages = 0;
	uint32_t last = 0;
	bool is_last;

	clients_start(daemon);
	raw_open(&raw, daemon);
	do {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		const Wire__StatusReply *reply;

		raw_call_ok(&raw, &request, NULL, 0, &answer);
		reply = answer.reply->status;
		n_pages++;
		CHECK(wire__status_reply__get_packed_size(reply) <= PAGE_MAX);
		CHECK_EQ(reply->n_all_clients, CLIENTS + 2);
		CHECK_EQ(reply->n_stores, n_pages == 1);
		CHECK(reply->n_clients > 0);
		for (size_t i = 0; i < reply->n_clients; i++) {
			CHECK(reply->clients[i]->client >= last);
			n_clients += reply->clients[i]->client > last;
			n_handles += (unsigned)reply->clients[i]->n_handles;
			last = reply->clients[i]->client;
		}
		is_last = !reply->next;
		if (!is_last) {
			page.store = reply->next->store;
			page.client = reply->next->client;
			page.handle = reply->next->handle;
			status.page = &page;
		}
	} while (!is_last);
	test_note("%u pages", n_pages);
	CHECK_EQ(n_clients, CLIENTS + 2);
	CHECK_EQ(n_handles, CLIENTS * HANDLES + MANY_HANDLES);
}

static const struct {
	const char *what;
	uint32_t store, client, handle;
} pages[] = {
	{ "behind all clients", 0, UINT32_MAX, 0 },
	{ "behind all handles", 0, 1, UINT32_MAX },
	{ "behind all stores", UINT32_MAX, 0, 0 },
	{ "everywhere", UINT32_MAX, UINT32_MAX, UINT32_MAX },
};

TEST_TABLE(odd_pages, pages, "a page that begins where nothing is")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__StatusPage page = WIRE__STATUS_PAGE__INIT;
	Wire__Request request = RAW_REQUEST(STATUS, status, &status);

	raw_open(&raw, daemon);
	(void)raw_handle(&raw);
	page.store = pages[row].store;
	page.client = pages[row].client;
	page.handle = pages[row].handle;
	status.page = &page;
	raw_call_ok(&raw, &request, NULL, 0, &answer);
	CHECK(!answer.reply->status->next);
	CHECK_EQ(answer.reply->status->n_stores, 0);
	CHECK_EQ(answer.reply->status->n_clients, page.client != UINT32_MAX);
	for (size_t i = 0; i < answer.reply->status->n_clients; i++)
		CHECK_EQ(answer.reply->status->clients[i]->n_handles, page.handle == 0);
}

TEST_MAIN
