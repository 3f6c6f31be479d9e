/*
 * The objects that a session's ops may name by id: its slabs and files.  The main thread adds and
 * removes them, and lanes look them up (id_table.h explains why that is safe).
 */
#ifndef DSAIO_DAEMON_OBJECT_OBJECTS_H
#define DSAIO_DAEMON_OBJECT_OBJECTS_H

#include "daemon/base/id_table.h"
#include "daemon/object/file.h"
#include "daemon/object/pool.h"

struct objects {
	struct id_table slabs; /* struct slab */
	struct id_table files; /* struct file */
};

#endif
