/*
 * A status as OpenMetrics text, for Prometheus.
 *
 * The number of series is bounded: those of the daemon, of stores, their classes, and of at most 65 users; none has a
 * client in its labels.  Counters are since the daemon's start, except those of wear.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_OPENMETRICS_H
#define DSAIO_CLIENT_CTL_CMD_OPENMETRICS_H

#include "proto/dsaio.pb-c.h"

#include <stdio.h>

/* status: of ask_status(), with histograms; n_all_clients of all users.  Errors are those of the stream. */
void openmetrics_print(const Wire__StatusReply *status, FILE *out);

#endif
