/*
 * The common part of all commands: their common options, the form of errors, and the connection to a
 * daemon.
 *
 * An error is printed once, where it happens, by ctl_fail() or ctl_usage(), whose value is the
 * command's exit status; callers only pass it on.  The shape is
 *     dsaioctl: COMMAND: OBJECT: what failed: errno text: what to do
 * With --json the message goes to standard output, too, as {"error": "..."}.
 */
#ifndef DSAIO_CLIENT_CTL_UI_CTL_H
#define DSAIO_CLIENT_CTL_UI_CTL_H

#include "client/ctl/ui/private.h"
#include "client/ctl/ui/stop.h"
#include "client/lib/dsaio.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct command;
struct flag_table;
struct json_object;

enum { CTL_OK = 0, CTL_FAILED = 1, CTL_USAGE = 2, CTL_NO_DAEMON = 3 };

#define CTL_MESSAGE_BYTES 1024u

struct ctl {
	const char *command;		       /* its name, for messages; NULL: none yet */
	const char *socket_path;	       /* NULL: the library's default */
	const char *build;		       /* the program's build id */
	const struct command *const *commands; /* all, up to NULL */
	const struct flag_table *flags;	       /* of all commands */
	bool is_json, is_private;
	bool only_looks;	  /* does not let the library start a daemon */
	bool is_through_restarts; /* goes on with the next daemon */
	bool wants_histograms;	  /* in the status */
	bool is_of_all;		  /* about other clients: --private would be of no use */
	char *message; /* borrowed, of CTL_MESSAGE_BYTES: the last message goes only there; NULL: is printed */
	uint64_t
		timeout_nsec; /* for a connection, and for the answer to a request: whole seconds; 0: the library's */
	char **args; /* after the command's name, without options */
	int n_args;
	struct dsaio_client *client; /* of ask.h; NULL: not connected */
	struct private_daemon private_daemon;
};

/* Each prints the message and returns CTL_FAILED, CTL_USAGE. */
int ctl_fail(const struct ctl *ctl, const char *format, ...) __attribute__((format(printf, 2, 3)));
int ctl_usage(const struct ctl *ctl, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a message that is no error on standard error. */
void ctl_note(const struct ctl *ctl, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a line on standard output, names in it escaped.  Returns CTL_OK or CTL_FAILED. */
int ctl_print_line(const struct ctl *ctl, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * With --private: starts the private daemon, with stores for these files and directories (once).  Then
 * connects to it, or to the chosen one; for a name of a RADOS store to the daemon that has such stores, also with
 * --private.  Returns CTL_OK, CTL_FAILED, or CTL_NO_DAEMON if none answers, or there is no program to start (printed).
 */
int ctl_connect(struct ctl *ctl, const char *const *paths, size_t n_paths,
		struct dsaio_client **ret_client);

/* The advice behind "use cat(1)" where a file could not go through the daemon because of error. */
static inline const char *ctl_or_private(const struct ctl *ctl, int error)
{
	return error == -ENXIO && !ctl->is_private ? ", or --private" : "";
}

/* Prints the object and frees it.  Returns CTL_OK or CTL_FAILED. */
int ctl_print_json(const struct ctl *ctl, struct json_object *object);

/* Standard output may be a full disk.  Returns CTL_OK or CTL_FAILED. */
int ctl_flush(const struct ctl *ctl);

static inline void client_disconnectp(struct dsaio_client **client)
{
	stop_hangs_up(NULL);
	/* Commands await their ops themselves, and take their errors. */
	(void)dsaio_disconnect(*client);
}

/* Disconnects ctl->client. */
static inline void ctl_disconnect(struct ctl *ctl)
{
	client_disconnectp(&ctl->client);
	ctl->client = NULL;
}

static inline void handle_closep(struct dsaio_handle **handle)
{
	if (!*handle)
		return;
	/* Ops are open only where the command fails or was stopped. */
	(void)dsaio_handle_cancel(*handle);
	(void)dsaio_handle_close(*handle, -1);
}

static inline void file_closep(struct dsaio_file **file)
{
	dsaio_file_close(*file);
}

#endif
