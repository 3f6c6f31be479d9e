/*
 * dsaioctl top: the stores and clients live, and what an administrator does to a client.
 *
 * One loop draws the screen, waits for a key up to the next look, and asks the daemon for its status.  An
 * answer is awaited for at most TIMEOUT_NSEC, so that a stopped daemon does not stop the keys.  A connection that has
 * ended is closed, and each further look connects anew.
 *
 * Errors of requests are no messages of their own: ctl->message takes them, for the last line of the screen.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/overview.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/memory.h"
#include "client/lib/api/client.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/size.h"

#include <curses.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_NSEC 1000000000u
#define INTERVAL_MAX_MSEC 60000u
#define ANSWER_BYTES 64u
#define STOP_MSEC 200 /* until a signal is seen, which does not end getch() */
#define WEIGHT_MAX 16u
#define WEIGHT_TEXT "1 to 16"
#define LIMIT_TEXT "bytes, or bytes and ops, per second (100M 500; 0: none)"

static const char help[] =
	"dsaioctl top - who uses the disks, live\n"
	"\n"
	"    dsaioctl top\n"
	"    dsaioctl top --interval 5000                  a look each five seconds\n"
	"    ssh -t host dsaioctl top\n"
	"\n"
	"The columns are those of dsaioctl status.  Keys:\n"
	"\n"
	"    b i p e        sort clients by bandwidth, IOPS, P99 or errors\n"
	"    /              show only clients whose user or command has a text\n"
	"    up, down       select a client\n"
	"    w              set the weight of its channels\n"
	"    l              limit it (100M 500: bytes and ops per second; 0: none)\n"
	"    k              kill it: its session ends, and it does not reconnect\n"
	"    q              quit\n"
	"\n"
	"Setting and killing is for administrators; others see their own clients.\n"
	"\n"
	"    --interval N   milliseconds between looks: 1000, and 100 at least\n" HELP_SOCKET
		HELP_EXIT;

static uint32_t interval_msec = 1000;
static const struct flag flags[] = {
	{ "interval", FLAG_COUNT, &interval_msec, 100, INTERVAL_MAX_MSEC },
};

struct top {
	struct ctl *ctl;
	Wire__Reply *before, *now;	 /* the last two looks; NULL: none of this daemon */
	struct overview_client *clients; /* of now: those that the filter leaves, sorted */
	size_t n_clients;
	enum overview_key key;
	char filter[ANSWER_BYTES];
	uint32_t selected;		 /* a client's number; 0: none */
	char message[CTL_MESSAGE_BYTES]; /* of the last request that failed */
	char note[OVERVIEW_LINE_BYTES];	 /* the last line */
	char answer[ANSWER_BYTES];	 /* to the last question */
	bool is_over;
};

static const Wire__StatusReply *status_of(const Wire__Reply *reply)
{
	return reply ? reply->status : NULL;
}

/* ---- the daemon ---- */

/* The selected client's place; of none, or one that has gone, the first. */
static size_t selected_place(const struct top *top)
{
	for (size_t i = 0; i < top->n_clients; i++)
		if (top->clients[i].client->client == top->selected)
			return i;
	return 0;
}

/* The rows anew, from the looks. */
static void arrange(struct top *top)
{
	const Wire__StatusReply *now = status_of(top->now);

	free(top->clients);
	top->clients = NULL;
	top->n_clients = 0;
	if (!now)
		return;
	top->clients = NEW_ARRAY(struct overview_client, now->n_clients);
	top->n_clients = overview_clients(status_of(top->before), now, top->key, top->filter,
					  top->clients);
}

static void forget(struct top *top)
{
	wire_replyp(&top->before);
	wire_replyp(&top->now);
	top->before = top->now = NULL;
}

/* Returns as ask_status(). */
static int look(struct top *top)
{
	Wire__Reply *reply = NULL;
	int r = ask_status(top->ctl, &reply);

	if (r == CTL_OK) {
		wire_replyp(&top->before);
		top->before = top->now;
		top->now = reply;
		top->message[0] = '\0';
	} else if (!top->ctl->client || conn_is_gone(client_conn(top->ctl->client))) {
		ctl_disconnect(top->ctl);
		forget(top);
	}
	arrange(top);
	return r;
}

/* Sends the request, and notes its result. */
static void act(struct top *top, Wire__Request__BodyCase kind, void *body, const char *done)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	char what[ANSWER_BYTES];

	(void)snprintf(what, sizeof(what), "client %" PRIu32, top->selected);
	if (ask(top->ctl, what, kind, body, &reply) != CTL_OK)
		(void)snprintf(top->note, sizeof(top->note), "%.500s", top->message);
	else
		(void)snprintf(top->note, sizeof(top->note), "%s: %s %s%s%s", what, done,
			       top->answer, reply->text[0] ? "; " : "", reply->text);
}

/* ---- the screen ---- */

/* As wide as the screen, and of printable ASCII: the terminal executes nothing of it. */
static void draw_line(int row, chtype attributes, const char *text)
{
	char line[OVERVIEW_LINE_BYTES];

	(void)overview_text(line, (size_t)COLS, text);
	(void)move(row, 0);
	(void)attrset((int)attributes);
	(void)addnstr(line, COLS); /* fails where the screen is too small */
	if (attributes & A_REVERSE)
		(void)hline(' ' | attributes, COLS);
	(void)attrset(A_NORMAL);
}

static void draw_head(const struct top *top)
{
	static const char *const sorts[] = { "bandwidth", "IOPS", "P99", "errors" };
	const Wire__StatusReply *now = status_of(top->now);
	char line[OVERVIEW_LINE_BYTES], verdict[OVERVIEW_LINE_BYTES];
	bool is_healthy;

	if (!now) {
		(void)snprintf(line, sizeof(line), "no daemon: %.400s", top->message);
		draw_line(0, A_BOLD, line);
		return;
	}
	is_healthy = overview_verdict(verdict, now);
	(void)snprintf(line, sizeof(line), "%.200s%s%.250s", top->message,
		       top->message[0] ? "; before that: " : "", verdict);
	draw_line(0, is_healthy && !top->message[0] ? A_NORMAL : A_BOLD, line);
	(void)snprintf(line, sizeof(line), "%" PRIu32 " clients, by %s%s%s",
		       now->n_all_clients + (now->others ? now->others->clients : 0),
		       sorts[top->key], top->filter[0] ? ", only: " : "", top->filter);
	draw_line(1, A_NORMAL, line);
}

/* Returns the row behind them. */
static int draw_stores(const struct top *top, int row, size_t n_max)
{
	const Wire__StatusReply *now = status_of(top->now);
	char line[OVERVIEW_LINE_BYTES];

	draw_line(row++, A_REVERSE, OVERVIEW_STORE_TITLES);
	for (size_t i = 0; i < now->n_stores && i < n_max; i++) {
		const struct rates rates = rates_of_store(status_of(top->before), now,
							  now->stores[i]);

		(void)overview_store_line(line, now->stores[i], &rates);
		if (i == n_max - 1 && now->n_stores > n_max)
			(void)snprintf(line, sizeof(line), "and %zu more stores",
				       now->n_stores - i);
		draw_line(row++, A_NORMAL, line);
	}
	return row;
}

static void draw_clients(const struct top *top, int row, int end)
{
	const size_t place = selected_place(top);
	char line[OVERVIEW_LINE_BYTES];
	size_t n_rows, first;

	draw_line(row++, A_REVERSE, OVERVIEW_CLIENT_TITLES);
	n_rows = end > row ? (size_t)(end - row) : 1;
	first = place < n_rows ? 0 : place - n_rows + 1;
	for (size_t i = first; i < top->n_clients && row < end; i++)
		draw_line(row++, i == place ? A_STANDOUT | A_BOLD : A_NORMAL,
			  overview_client_line(line, &top->clients[i]));
}

static void draw(const struct top *top)
{
	(void)erase();
	draw_head(top);
	if (top->now)
		draw_clients(top,
			     1 + draw_stores(top, 2, LINES > 16 ? (size_t)(LINES - 10) / 2 : 2),
			     LINES - 1);
	draw_line(LINES - 1, A_BOLD,
		  top->note[0] ? top->note
			       : "q quit  b/i/p/e sort  / filter  up/down select  w weight  "
				 "l limit  k kill");
	(void)refresh();
}

/* ---- keys ---- */

/* The screen stands still meanwhile.  A signal, or a terminal that has gone, makes the answer empty. */
static void ask_user(struct top *top, const char *question)
{
	char line[ANSWER_BYTES + 2];
	size_t n = 0;
	int key;

	timeout(STOP_MSEC);
	(void)curs_set(1);
	do {
		top->answer[n] = '\0';
		(void)snprintf(line, sizeof(line), "> %s", top->answer);
		(void)move(LINES - 1, 0);
		(void)clrtoeol();
		draw_line(LINES - 2, A_REVERSE, question);
		draw_line(LINES - 1, A_BOLD, line);
		key = getch();
		if ((key == KEY_BACKSPACE || key == '\b' || key == 0x7f) && n)
			n--;
		else if (key >= ' ' && key <= '~' && n + 1 < ANSWER_BYTES)
			top->answer[n++] = (char)key;
		if (stop_signal() || !isatty(STDIN_FILENO)) {
			top->answer[0] = '\0';
			break;
		}
	} while (key != '\r' && key != '\n' && key != KEY_ENTER);
	(void)curs_set(0);
}

/* A weight, or "100M 500": bytes and ops per second. */
static void set_limit(struct top *top, bool is_weight)
{
	Wire__LimitSet set = WIRE__LIMIT_SET__INIT;
	Wire__Limit limit = WIRE__LIMIT__INIT;
	const size_t n = strcspn(top->answer, " ");
	const char *ops = top->answer[n] ? top->answer + n + 1 : "0";
	char first[ANSWER_BYTES];
	uint64_t number;

	(void)snprintf(first, sizeof(first), "%.*s", (int)n, top->answer);
	if (size_parse(first, &number) < 0 || size_parse(ops, &limit.ops_per_sec) < 0 ||
	    (is_weight && (number < 1 || number > WEIGHT_MAX))) {
		(void)snprintf(top->note, sizeof(top->note), "%s: must be %s", top->answer,
			       is_weight ? WEIGHT_TEXT : LIMIT_TEXT);
		return;
	}
	set.client = top->selected;
	if (is_weight) {
		set.weight = (uint32_t)number;
	} else {
		limit.bytes_per_sec = number;
		set.limit = &limit;
	}
	act(top, WIRE__REQUEST__BODY_LIMIT_SET, &set, is_weight ? "weight" : "limit");
}

static void kill_client(struct top *top)
{
	Wire__ClientKill kill = WIRE__CLIENT_KILL__INIT;

	if (strcmp(top->answer, "yes") != 0) {
		(void)snprintf(top->note, sizeof(top->note), "nothing was killed");
		return;
	}
	top->answer[0] = '\0';
	kill.client = top->selected;
	kill.reason = (char *)"by dsaioctl top";
	act(top, WIRE__REQUEST__BODY_CLIENT_KILL, &kill, "killed");
}

static void on_client_key(struct top *top, int key)
{
	const size_t place = selected_place(top);
	char question[OVERVIEW_LINE_BYTES];
	const Wire__Client *client;

	if (place >= top->n_clients)
		return;
	client = top->clients[place].client;
	top->selected = client->client;
	(void)snprintf(question, sizeof(question),
		       "client %" PRIu32 ", process %" PRIu32 ", %.20s: %s", client->client,
		       client->pid, client->name,
		       key == 'w'   ? "weight: " WEIGHT_TEXT
		       : key == 'l' ? "limit: " LIMIT_TEXT
				    : "kill? (yes)");
	ask_user(top, question);
	if (!top->answer[0])
		return;
	if (key == 'k')
		kill_client(top);
	else
		set_limit(top, key == 'w');
}

static void select_by(struct top *top, int step)
{
	const size_t place = selected_place(top) + (size_t)step; /* (size_t)-1 is none, too */

	if (place < top->n_clients)
		top->selected = top->clients[place].client->client;
}

static void on_key(struct top *top, int key)
{
	static const char sort_keys[] = "bipe"; /* in the order of enum overview_key */
	const char *sort = key > 0 && key < 0x7f ? strchr(sort_keys, key) : NULL;

	if (key == ERR || key == KEY_RESIZE)
		return;
	top->note[0] = '\0';
	if (sort) {
		top->key = (enum overview_key)(sort - sort_keys);
	} else if (key == '/') {
		ask_user(top, "show only clients whose user or command has");
		(void)strcpy(top->filter, top->answer);
	} else if (key == 'q') {
		top->is_over = true;
	} else if (key == KEY_UP || key == KEY_DOWN) {
		select_by(top, key == KEY_UP ? -1 : 1);
	} else if (key == 'w' || key == 'l' || key == 'k') {
		on_client_key(top, key);
	}
	arrange(top);
}

/* ---- the loop ---- */

static void run(struct top *top)
{
	const uint64_t interval_nsec = interval_msec * UINT64_C(1000000);
	uint64_t next = clock_nsec() + interval_nsec, now;

	while (!top->is_over && !stop_signal()) {
		draw(top);
		now = clock_nsec();
		timeout(next > now ? (int)((next - now) / 1000000) + 1 : 0);
		on_key(top, getch());
		if (!isatty(STDIN_FILENO)) /* it has gone, and getch() waits no more */
			return;
		if (clock_nsec() < next)
			continue;
		(void)look(top); /* the screen has the reason of a failure */
		next = clock_nsec() + interval_nsec;
	}
}

static int run_on_screen(struct top *top)
{
	SCREEN *screen;

	if (stop_catch(0) < 0)
		return ctl_fail(top->ctl, "signals: %s", strerror(errno));
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return ctl_fail(top->ctl, "TERM=%s: no such terminal is known here: try TERM=xterm",
				getenv("TERM") ? getenv("TERM") : "");
	top->ctl->message = top->message;
	(void)cbreak(); /* these do not fail on a screen */
	(void)noecho();
	(void)keypad(stdscr, true);
	(void)curs_set(0); /* not every terminal hides it */
	run(top);
	(void)endwin();
	delscreen(screen);
	top->ctl->message = NULL;
	return CTL_OK;
}

static int top_run(struct ctl *ctl)
{
	struct top top = { .ctl = ctl };
	int r;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return ctl_fail(ctl, "standard input and output must be a terminal (ssh -t makes "
				     "one): dsaioctl status prints the same once");
	ctl->wants_histograms = true;
	r = look(&top);
	if (r == CTL_OK) {
		ctl->timeout_nsec = TIMEOUT_NSEC;
		r = run_on_screen(&top);
	}
	forget(&top);
	free(top.clients);
	return r == CTL_OK && stop_signal() ? stop_status() : r;
}

const struct command command_top = COMMAND(
	"top", top_run, "who uses the disks, live", help, .flags = FLAG_TABLE(flags),
	.no_arguments = true, .of_all = true,
	.no_json = "top is for a terminal: dsaioctl status --json has the same numbers");
