/*
 * What a session's ops may name: its slabs and files, by id.  The main thread owns it; lanes
 * look up (id_table.h says how that is safe).
 */
#ifndef DSAIO_DAEMON_OBJECT_OBJECTS_H
#define DSAIO_DAEMON_OBJECT_OBJECTS_H

#include "daemon/object/file.h"
#include "daemon/base/id_table.h"
#include "daemon/object/pool.h"

struct objects {
	struct id_table slabs; /* struct slab */
	struct id_table files; /* struct file */
};

#endif
