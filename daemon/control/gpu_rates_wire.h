/*
 * The message GpuRates: what a client has measured goes into the table of rates (gpu_rates.h), and what is kept
 * there of its user goes into the reply.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_GPU_RATES_WIRE_H
#define DSAIO_DAEMON_CONTROL_GPU_RATES_WIRE_H

#include "daemon/base/error.h"
#include "daemon/control/gpu_rates.h"
#include "proto/dsaio.pb-c.h"

struct session;

/*
 * GpuRates, which was checked: keeps what a client has measured, if it has.  *ret_row: all that is kept of
 * its user, until the next call; NULL: nothing.  Errors: those of the message.
 */
int session_gpu_rates(struct session *session, const Wire__GpuRates *wire,
		      const struct gpu_rates_row **ret_row, struct error *error);
/* Fills in a message's rates, whose number is 0 so far.  Returns 0 or -ENOMEM; the message's to free. */
int gpu_rates_to_wire(const struct gpu_rates_row *row, size_t *ret_n, Wire__GpuRate ***ret_rates);

#endif
