/*
 * For tests of requests for GPU memory: a session, and a probe of GPUs on a stand-in for the driver.
 */
#ifndef DSAIO_TESTS_UNIT_CONTROL_PROBE_H
#define DSAIO_TESTS_UNIT_CONTROL_PROBE_H

#include "tests/gpu/load.h"
#include "tests/unit/control_session.h"

#include <limits.h>

static inline void probe_teardown(void)
{
	session_teardown();
	gpu_probe_free(c.service.gpu.probe);
}

static inline void probe_begin(const char *cuda, const char *cufile, uint32_t limit_msec)
{
	const struct gpu_probe_options options = { cuda, cufile, true, limit_msec, false };

	c.service.gpu.probe = gpu_probe_new(&options, c.base);
	ck_assert_ptr_nonnull(c.service.gpu.probe);
	gpu_probe_on_end(c.service.gpu.probe, gpu_requests_on_probe_end, &c.service.gpu);
}

/* A probe of a driver that behaves as standin says (tests/gpu/standin.h). */
static inline void probe_start(const char *standin)
{
	char cuda[PATH_MAX];

	ck_assert_int_eq(setenv("STANDIN", standin, 1), 0);
	probe_begin(standins_path("libcuda", cuda), NULL, UINT32_MAX);
}

static inline int probe_import(unsigned seq, const struct gds_handle *handle, bool must_import)
{
	struct call *call = control_call(session, seq, 's');
	int r = session_slab_import_gpu(session, handle, must_import, call, &c.error);

	if (r < 0)
		call_free(call);
	return r;
}

#endif
