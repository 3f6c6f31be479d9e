/*
 * The table of functions that the daemon gets: engine/rados.h.
 */
#include "daemon/rados/names.h"
#include "daemon/rados/store.h"

extern const struct rados_plugin dsaiod_rados_plugin_1;
const struct rados_plugin dsaiod_rados_plugin_1 = {
	.engine = &engine_rados,
	.store_open = keeper_open,
	.store_close = keeper_close,
	.store_state = keeper_state,
	.open = names_open,
	.create = names_create,
	.open_token = names_open_token,
	.commit = names_commit,
	.abandon = names_abandon,
	.remove = names_remove,
	.stat = names_stat,
	.list = names_list,
	.hold = names_hold,
	.release = names_release,
};
