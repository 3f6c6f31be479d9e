/*
 * What a session's ops may name: its slabs and files, by id.  The main thread owns it; lanes
 * look up (idtable.h says how that is safe).
 */
#ifndef DSAIO_DAEMON_OBJECTS_H
#define DSAIO_DAEMON_OBJECTS_H

#include "daemon/file.h"
#include "daemon/idtable.h"
#include "daemon/pool.h"

struct objects {
	struct idtable slabs; /* struct slab */
	struct idtable files; /* struct file */
};

#endif
