#include "daemon/engine/engine.h"

static const struct engine_ops *const ops[N_ENGINE_KINDS] = {
	[ENGINE_LIBAIO] = &engine_libaio,
};

const struct engine_ops *engine_ops_get(enum engine_kind kind)
{
	return ops[kind];
}
