/*
 * The engine `libaio`: asynchronous direct I/O by the kernel's contexts.  Only the table of engines and
 * its unit test name it.
 */
#ifndef DSAIO_DAEMON_ENGINE_LIBAIO_H
#define DSAIO_DAEMON_ENGINE_LIBAIO_H

#include "daemon/engine/engine.h"

extern const struct engine_ops engine_libaio;

#endif
