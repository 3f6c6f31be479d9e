/*
 * dsaioctl metrics: the daemon's counters as OpenMetrics text, once, or by HTTP.
 *
 * By HTTP each request makes a connection to the daemon of its own, so a restart of the daemon breaks nothing.  The
 * requests are answered one after the other, by libevent's evhttp, which bounds their headers and their time.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/openmetrics.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/json.h"
#include "proto/util/cleanup.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"
/* Far more than a scraper sends. */
#define HEADERS_BYTES_MAX 16384
/* A connection without progress ends. */
#define TIMEOUT_SEC 10

static const char *listen_text;

static const struct flag flags[] = { { "listen", FLAG_STRING, &listen_text, 0, 0 } };

static const char help[] =
	"dsaioctl metrics - the daemon's counters as OpenMetrics text, for Prometheus\n"
	"\n"
	"    dsaioctl metrics\n"
	"    dsaioctl metrics | grep errors_total\n"
	"    dsaioctl metrics --listen localhost:9469       then: curl localhost:9469/metrics\n"
	"    systemctl start dsaiod-metrics                 the same as a service\n"
	"\n"
	"Stores, their classes, users and the pool: ops, bytes, errors, open ops, histograms of\n"
	"latencies, hung calls, restarts and wear.  No series is of a client or a file, so their number\n"
	"is bounded; of users there are 65 at most.  Users are shown to administrators; others see\n"
	"themselves.  If no daemon answers, the answer by HTTP is 503, with the reason.\n"
	"\n"
	"    --listen ADDRESS:PORT  answer GET /metrics by HTTP, until it is ended; port 0: any\n"
	"    --socket PATH          the daemon's socket\n"
	"    --private              a daemon for this command alone\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers\n";

/* *ret_text: freed by the caller. */
static int metrics_text(struct ctl *ctl, char **ret_text)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	_cleanup_(freep) char *text = NULL;
	size_t size;
	FILE *out;
	int r;

	ctl->wants_histograms = true;
	r = ask_status(ctl, &client, &reply);
	if (r != CTL_OK)
		return r;
	if (reply->status->others)
		reply->status->n_all_clients += reply->status->others->clients;
	out = open_memstream(&text, &size);
	if (out)
		r = openmetrics_print(reply->status, out);
	if (!out || (fclose(out) | r))
		return ctl_fail(ctl, "out of memory");
	*ret_text = TAKE_PTR(text);
	return CTL_OK;
}

/* ---- HTTP ---- */

static void on_metrics(struct evhttp_request *request, void *arg)
{
	struct ctl ctl = *(const struct ctl *)arg; /* each asks anew */
	_cleanup_(json_putp) struct json_object *errors = json_object_new_array();
	struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
	struct evbuffer *body = evhttp_request_get_output_buffer(request);
	_cleanup_(freep) char *text = NULL;
	static bool has_failed; /* and nothing has worked since */

	ctl.errors = errors;
	ctl.is_silent = has_failed;	 /* a line for the first failure */
	ctl.is_of_all = true;		 /* --private is no advice for a scraper */
	(void)metrics_text(&ctl, &text); /* its message is in errors */
	has_failed = !text;
	/* Without memory for these, the answer lacks them. */
	(void)evhttp_add_header(headers, "Connection", "close");
	(void)evhttp_add_header(headers, "Content-Type",
				text ? CONTENT_TYPE : "text/plain; charset=utf-8");
	if (text)
		(void)evbuffer_add(body, text, strlen(text));
	for (size_t i = 0; i < json_object_array_length(errors); i++)
		(void)evbuffer_add_printf(
			body, "%s\n", json_object_get_string(json_object_array_get_idx(errors, i)));
	evhttp_send_reply(request, text ? HTTP_OK : HTTP_SERVUNAVAIL,
			  text ? "OK" : "no daemon answers", NULL);
}

/* Splits "ADDRESS:PORT", where an address with colons is in brackets. */
static int read_address(const struct ctl *ctl, char *text, const char **ret_address,
			uint16_t *ret_port)
{
	char *colon = strrchr(text, ':'), *end;
	unsigned long port;

	if (!colon || colon == text || colon[1] < '0' || colon[1] > '9')
		return ctl_usage(
			ctl,
			"--listen %s: must be ADDRESS:PORT, as in localhost:9469 or [::1]:9469",
			listen_text);
	*colon = '\0';
	port = strtoul(colon + 1, &end, 10);
	if (*end || port > UINT16_MAX)
		return ctl_usage(ctl, "--listen %s: the port must be 0 to 65535", listen_text);
	if (*text == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		text++;
	}
	*ret_address = text;
	*ret_port = (uint16_t)port;
	return CTL_OK;
}

/* The port that the kernel chose, for a test. */
static unsigned bound_port(struct evhttp_bound_socket *bound)
{
	struct sockaddr_storage any;
	socklen_t len = sizeof(any);

	if (getsockname(evhttp_bound_socket_get_fd(bound), (struct sockaddr *)&any, &len) < 0)
		return 0;
	return ntohs(any.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&any)->sin6_port
					       : ((struct sockaddr_in *)&any)->sin_port);
}

/* Until a signal ends the process; so it returns only errors. */
static int serve(struct ctl *ctl, struct evhttp *http, struct event_base *base)
{
	_cleanup_(freep) char *copy = strdup(listen_text);
	struct evhttp_bound_socket *bound;
	const char *address = NULL;
	uint16_t port = 0;
	int r;

	if (!copy || !http || evhttp_set_cb(http, "/metrics", on_metrics, ctl) < 0)
		return ctl_fail(ctl, "out of memory");
	r = read_address(ctl, copy, &address, &port);
	if (r != CTL_OK)
		return r;
	(void)signal(SIGPIPE, SIG_IGN); /* of a scraper that hangs up; it cannot fail */
	evhttp_set_allowed_methods(http, EVHTTP_REQ_GET);
	evhttp_set_max_headers_size(http, HEADERS_BYTES_MAX);
	evhttp_set_max_body_size(http, 0);
	evhttp_set_timeout(http, TIMEOUT_SEC);
	errno = 0;
	bound = evhttp_bind_socket_with_handle(http, address, port);
	if (!bound)
		return ctl_fail(ctl, "--listen %s: %s", listen_text,
				errno ? strerror(errno) : "no such address");
	ctl_note(ctl, "answering at http://%.*s:%u/metrics",
		 (int)(strrchr(listen_text, ':') - listen_text), listen_text, bound_port(bound));
	(void)event_base_dispatch(base);
	return ctl_fail(ctl, "--listen %s: no more events", listen_text);
}

static int listen_run(struct ctl *ctl)
{
	struct event_base *base = event_base_new();
	struct evhttp *http = base ? evhttp_new(base) : NULL;
	int r = serve(ctl, http, base);

	if (http)
		evhttp_free(http);
	if (base)
		event_base_free(base);
	return r;
}

static int metrics_run(struct ctl *ctl)
{
	_cleanup_(freep) char *text = NULL;
	int r = show_no_arguments(ctl);

	if (r != CTL_OK)
		return r;
	if (ctl->is_json)
		return ctl_usage(
			ctl,
			"--json: OpenMetrics has a text of its own: dsaioctl status --json has the same");
	if (listen_text && ctl->is_private)
		return ctl_usage(ctl, "--listen and --private: only one of them makes sense");
	if (listen_text)
		return listen_run(ctl);
	r = metrics_text(ctl, &text);
	if (r != CTL_OK)
		return r;
	(void)fputs(text, stdout); /* ctl_flush() looks */
	return ctl_flush(ctl);
}

const struct command command_metrics = {
	"metrics", metrics_run,	      "its counters for Prometheus, once or by HTTP",
	help,	   FLAG_TABLE(flags), NULL
};
