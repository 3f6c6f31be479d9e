#include "client/ctl/ui/ctl.h"

#include "client/ctl/ui/json.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/stop.h"
#include "client/lib/api/client.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/uri.h"
#include "client/lib/link/conn.h"
#include "client/lib/link/discover.h"
#include "proto/util/cleanup.h"
#include "proto/util/escape.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names in a message may have control characters, which must not reach the terminal. */
static void say(const struct ctl *ctl, const char *raw)
{
	_cleanup_(freep) char *message = need_memory(escape_new(raw));

	/* A failure of standard error cannot be reported. */
	if (ctl->message)
		(void)snprintf(ctl->message, CTL_MESSAGE_BYTES, "%s", message);
	else if (ctl->command)
		(void)fprintf(stderr, "dsaioctl: %s: %s\n", ctl->command, message);
	else
		(void)fprintf(stderr, "dsaioctl: %s\n", message);
}

static void say_error(const struct ctl *ctl, const char *format, va_list args)
{
	_cleanup_(freep) char *text = text_vnew(format, args);

	say(ctl, text);
	if (ctl->is_json && !ctl->message) {
		struct json_object *object = json_object_new_object();

		json_object_object_add(object, "error", json_object_new_string(text));
		(void)ctl_print_json(ctl, object); /* an error is being reported already */
	}
}

int ctl_fail(const struct ctl *ctl, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say_error(ctl, format, args);
	va_end(args);
	return CTL_FAILED;
}

int ctl_usage(const struct ctl *ctl, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say_error(ctl, format, args);
	va_end(args);
	return CTL_USAGE;
}

void ctl_note(const struct ctl *ctl, const char *format, ...)
{
	_cleanup_(freep) char *text = NULL;
	va_list args;

	va_start(args, format);
	text = text_vnew(format, args);
	va_end(args);
	say(ctl, text);
}

static int start_private(struct ctl *ctl, const char *const *paths, size_t n_paths)
{
	char text[1024];
	int r;

	if (!ctl->is_private || ctl->private_daemon.keeper > 0)
		return CTL_OK;
	r = private_start(paths, n_paths, &ctl->private_daemon, text, sizeof(text));
	if (r < 0) {
		(void)ctl_fail(ctl, "--private: %s", text);
		/* One that was started and ended refused something of the command's, as a directory. */
		return r == -ENOENT ? CTL_NO_DAEMON : CTL_FAILED;
	}
	ctl->socket_path = ctl->private_daemon.socket_path;
	return CTL_OK;
}

/* NULL: where every daemon is looked for. */
static const char *rados_socket(void)
{
	static const char second[] = "/run/dsaiod-rados/dsaiod.sock";
	const char *named = getenv("DSAIO_RADOS_SOCKET");

	if (named && *named)
		return named;
	return access(second, F_OK) == 0 ? second : NULL;
}

static const char *absent_advice(const struct ctl *ctl, bool is_rados)
{
	if (is_rados)
		return "; stores on RADOS may have a daemon of their own: systemctl start dsaiod@rados";
	return ctl->is_private || ctl->is_of_all
		       ? ""
		       : "; or add --private for a daemon of this command's own";
}

int ctl_connect(struct ctl *ctl, const char *const *paths, size_t n_paths,
		struct dsaio_client **ret_client)
{
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;
	bool is_rados = n_paths && uri_is_rados(paths[0]);
	int r = is_rados ? CTL_OK : start_private(ctl, paths, n_paths);
	const char *named;
	bool is_absent;

	if (r != CTL_OK)
		return r;
	r = debug_check(&named);
	if (r < 0)
		ctl_note(ctl, "DSAIO_DEBUG=%s: %s: nothing is logged there", named, strerror(-r));
	/* After -ENOMEM a daemon is started, which does no harm. */
	if (ctl->only_looks)
		(void)setenv("DSAIO_AUTOSTART", "0", 1);
	if (!ctl->message)
		stop_wait_begin(ctl->command);
	if (ctl->timeout_nsec)
		discover_wait_msec = (uint32_t)(ctl->timeout_nsec / 1000000);
	options.socket_path = is_rados && (ctl->is_private || !ctl->socket_path) ? rados_socket()
										 : ctl->socket_path;
	/* Else what it measures or shows is of one daemon. */
	if (!ctl->is_through_restarts || (ctl->is_private && !is_rados))
		options.flags = DSAIO_NO_RECONNECT;
	r = dsaio_connect(&options, ret_client);
	if (!ctl->message)
		stop_wait_end();
	named = getenv("DSAIO_SOCKET");
	is_absent = r == -ENOENT || r == -ECONNREFUSED;
	if (is_absent && ctl->only_looks && !ctl->socket_path && !(named && *named))
		(void)ctl_fail(ctl,
			       "no daemon listens, and this command starts none: start one with: "
			       "systemctl start dsaiod, or: dsaiod --user%s; one that is stopping "
			       "listens no more: its log says which calls it waits for",
			       absent_advice(ctl, is_rados));
	else if (r < 0)
		(void)ctl_fail(ctl, "%s%s", dsaio_error(),
			       is_absent ? absent_advice(ctl, is_rados) : "");
	if (r < 0)
		return is_absent || r == -ECHILD || r == -ETIMEDOUT ? CTL_NO_DAEMON : CTL_FAILED;
	stop_hangs_up(client_conn(*ret_client));
	return CTL_OK;
}

int ctl_flush(const struct ctl *ctl)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return CTL_OK;
	say(ctl, "standard output: cannot write all of it");
	return CTL_FAILED;
}

int ctl_print_line(const struct ctl *ctl, const char *format, ...)
{
	_cleanup_(freep) char *raw = NULL, *escaped = NULL;
	va_list args;

	va_start(args, format);
	raw = text_vnew(format, args);
	va_end(args);
	escaped = need_memory(escape_new(raw));
	(void)puts(escaped); /* ctl_flush() looks */
	return ctl_flush(ctl);
}

int ctl_print_json(const struct ctl *ctl, struct json_object *object)
{
	(void)puts(json_pretty(object)); /* ctl_flush() looks */
	(void)json_object_put(object);
	return ctl_flush(ctl);
}
