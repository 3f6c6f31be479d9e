/*
 * Files by name, of stores on RADOS: rados://POOL/NAMESPACE/FILE.
 *
 * The plug-in's calls wait for the cluster, so each runs as a job of the user's.  A file that is being written is held
 * from its opening until it is committed, abandoned or closed: meanwhile the plug-in keeps the sweepers of all hosts
 * from it.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_NAMES_H
#define DSAIO_DAEMON_CONTROL_NAMES_H

#include "daemon/base/error.h"
#include "proto/dsaio.pb-c.h"

#include <stdint.h>

struct call;
struct session;

/* A checked FileOpen.  on_done with call->file. */
int session_file_open(struct session *session, const Wire__FileOpen *open, struct call *call,
		      struct error *error);
/* By call->what FileCommit, or FileAbandon.  After it no new op writes to the file. */
int session_file_finish(struct session *session, uint32_t id, uint64_t size, struct call *call,
			struct error *error);
/* By call->what NameRemove, NameStat or NameList, the last two with call->message. */
int session_name_ask(struct session *session, const char *name, const char *next, struct call *call,
		     struct error *error);

#endif
