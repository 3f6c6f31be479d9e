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
#include "client/ctl/ui/memory.h"
#include "proto/util/cleanup.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"
/* Far more than a scraper sends. */
#define HEADERS_BYTES_MAX 16384
/* A connection without progress ends; scrapers send at once. */
#define TIMEOUT_SEC 5
/* Without free descriptors accept() fails at once, again and again. */
#define PAUSE_SEC 1
/* A daemon that is stopped; scrapers wait 10 s. */
#define DAEMON_TIMEOUT_NSEC 2000000000u

static const char *listen_text;

static const struct flag flags[] = { { "listen", FLAG_STRING, &listen_text, 0, 0 } };

static const char help[] =
	"dsaioctl metrics - the daemon's counters as OpenMetrics text, for Prometheus\n"
	"\n"
	"    dsaioctl metrics\n"
	"    dsaioctl metrics | grep errors_total\n"
	"    dsaioctl metrics --listen 127.0.0.1:9469       then: curl localhost:9469/metrics\n"
	"    systemctl start dsaiod-metrics                 the same as a service\n"
	"\n"
	"No series is of a client or a file, so their number is bounded; of users there are 65 at\n"
	"most.  Users are shown to administrators; others see themselves.  If no daemon answers\n"
	"within 2 s, the answer by HTTP is 503, with the reason.\n"
	"\n"
	"    --listen ADDRESS:PORT  answer GET /metrics by HTTP, until it is ended\n" HELP_SOCKET
		HELP_PRIVATE HELP_EXIT;

/* *ret_text: freed by the caller. */
static int metrics_text(struct ctl *ctl, char **ret_text)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	size_t size;
	FILE *out;
	int r;

	ctl->wants_histograms = true;
	r = ask_status(ctl, &reply);
	if (r != CTL_OK)
		return r;
	if (reply->status->others)
		reply->status->n_all_clients += reply->status->others->clients;
	out = need_memory(open_memstream(ret_text, &size));
	openmetrics_print(reply->status, out);
	(void)need_memory(fclose(out) ? NULL : *ret_text);
	return CTL_OK;
}

/* ---- HTTP ---- */

static void on_metrics(struct evhttp_request *request, void *arg)
{
	struct ctl ctl = *(const struct ctl *)arg; /* each connects anew */
	char message[CTL_MESSAGE_BYTES] = "";
	struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
	struct evbuffer *body = evhttp_request_get_output_buffer(request);
	_cleanup_(freep) char *text = NULL;

	ctl.message = message;
	ctl.timeout_nsec = DAEMON_TIMEOUT_NSEC;
	ctl.is_of_all = true;		 /* --private is no advice for a scraper */
	(void)metrics_text(&ctl, &text); /* else its message is there */
	ctl_disconnect(&ctl);
	/* Without memory for these, the answer lacks them. */
	(void)evhttp_add_header(headers, "Connection", "close");
	(void)evhttp_add_header(headers, "Content-Type",
				text ? CONTENT_TYPE : "text/plain; charset=utf-8");
	(void)evbuffer_add_printf(body, text ? "%s" : "%s\n", text ? text : message);
	evhttp_send_reply(request, text ? HTTP_OK : HTTP_SERVUNAVAIL,
			  text ? "OK" : "no daemon answers", NULL);
}

static void on_pause_end(evutil_socket_t fd, short what, void *listener)
{
	(void)fd;
	(void)what;
	(void)evconnlistener_enable(listener); /* epoll has it: it cannot fail */
}

/* Connections wait in the kernel meanwhile.  http: evhttp's. */
static void on_accept_error(struct evconnlistener *listener, void *http)
{
	static bool is_reported;

	(void)http;
	if (!is_reported)
		(void)fprintf(stderr, "--listen %s: accept: %s: it waits for others to end\n",
			      listen_text, strerror(errno));
	is_reported = true;
	(void)evconnlistener_disable(listener);
	if (event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, on_pause_end,
			    listener, &(struct timeval){ .tv_sec = PAUSE_SEC }) < 0)
		(void)evconnlistener_enable(listener); /* without memory it tries again at once */
}

/* Until a signal ends the process; so it returns only errors. */
static int serve(struct ctl *ctl, struct evhttp *http, struct event_base *base)
{
	struct sockaddr_storage any;
	struct sockaddr *address = (struct sockaddr *)&any;
	struct evconnlistener *listener;
	int size = sizeof(any);
	socklen_t len = sizeof(any);

	if (evutil_parse_sockaddr_port(listen_text, address, &size) < 0)
		return ctl_usage(ctl,
				 "--listen %s: must be ADDRESS:PORT, as in 127.0.0.1:9469 or "
				 "[::1]:9469",
				 listen_text);
	(void)need_memory(evhttp_set_cb(http, "/metrics", on_metrics, ctl) < 0 ? NULL : http);
	(void)signal(SIGPIPE, SIG_IGN); /* of a scraper that hangs up; it cannot fail */
	evhttp_set_allowed_methods(http, EVHTTP_REQ_GET);
	evhttp_set_max_headers_size(http, HEADERS_BYTES_MAX);
	evhttp_set_max_body_size(http, 0);
	evhttp_set_timeout(http, TIMEOUT_SEC);
	listener = evconnlistener_new_bind(
		base, NULL, NULL, LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_CLOSE_ON_FREE,
		-1, address, size);
	if (!listener || !evhttp_bind_listener(http, listener))
		return ctl_fail(ctl, "--listen %s: %s", listen_text, strerror(errno));
	evconnlistener_set_error_cb(listener, on_accept_error);
	/* The kernel may have chosen the port; it is at the same place in all addresses. */
	(void)getsockname(evconnlistener_get_fd(listener), address, &len);
	ctl_note(ctl, "--listen %s: answers GET /metrics at port %u", listen_text,
		 ntohs(((struct sockaddr_in *)&any)->sin_port));
	(void)event_base_dispatch(base);
	return ctl_fail(ctl, "--listen %s: no more events", listen_text);
}

static int listen_run(struct ctl *ctl)
{
	struct event_base *base = need_memory(event_base_new());
	struct evhttp *http = need_memory(evhttp_new(base));
	int r = serve(ctl, http, base);

	evhttp_free(http);
	event_base_free(base);
	return r;
}

static int metrics_run(struct ctl *ctl)
{
	_cleanup_(freep) char *text = NULL;
	int r;

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

const struct command command_metrics = COMMAND(
	"metrics", metrics_run, "its counters for Prometheus, once or by HTTP", help,
	.flags = FLAG_TABLE(flags), .no_arguments = true,
	.no_json = "OpenMetrics has a text of its own: dsaioctl status --json has the same");
