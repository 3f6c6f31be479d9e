#include "daemon/engine/engine.h"

#include "daemon/engine/fault.h"
#include "daemon/engine/libaio.h"
#include "daemon/engine/threads.h"

static const struct engine_ops *const all_ops[N_ENGINE_KINDS] = {
	[ENGINE_LIBAIO] = &engine_libaio,
	[ENGINE_THREADS] = &engine_threads,
};

const struct engine_ops *engine_ops_get(enum engine_kind kind)
{
	const struct engine_ops *with_faults = fault_ops(kind);

	return with_faults ? with_faults : all_ops[kind];
}

int engines_make_fail(const char *plan_path, bool is_user, struct error *error)
{
	return fault_start(all_ops, plan_path, is_user, error);
}
