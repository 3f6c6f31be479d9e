/*
 * For tests of GPU memory in the control folder: a session, and a probe of GPUs on a stand-in for the driver.
 */
#ifndef DSAIO_TESTS_UNIT_CONTROL_PROBE_H
#define DSAIO_TESTS_UNIT_CONTROL_PROBE_H

#include "daemon/control/gpu_requests.h"
#include "daemon/engine/gpu_probe.h"
#include "tests/unit/control_session.h"

#include <limits.h>

static inline void probe_teardown(void)
{
	session_teardown();
	gpu_probe_free(c.service.gpu_probe);
}

/* A probe of a driver that behaves as standin says (tests/gpu/standin.h). */
static inline void probe_start(const char *standin)
{
	const char *build = getenv("BUILD");
	char cuda[PATH_MAX];
	const struct gpu_probe_options options = { cuda, NULL, true, UINT32_MAX, false };

	(void)snprintf(cuda, sizeof(cuda), "%s/tests/gpu/libcuda.so", build ? build : "build");
	ck_assert_int_eq(setenv("STANDIN", standin, 1), 0);
	c.service.gpu_probe = gpu_probe_new(&options, c.base);
	ck_assert_ptr_nonnull(c.service.gpu_probe);
	gpu_probe_on_end(c.service.gpu_probe, gpu_requests_on_probe_end, &c.service);
}

#endif
