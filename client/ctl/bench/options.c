#include "client/ctl/bench/options.h"

#include <stddef.h>

int bench_options_check(const struct ctl *ctl, const struct bench_options *options,
			struct bench_space *ret_space)
{
	char text[BENCH_TEXT_BYTES];

	if (bench_gpu_check_args(ctl, &options->gpu) != CTL_OK)
		return CTL_USAGE;
	if (options->nvme_dir.n_items == 0)
		return ctl_usage(ctl, "where to? give --dir DIR, or several");
	if (options->nvme_dir.n_items > BENCH_FOLDERS_MAX)
		return ctl_usage(ctl, "--dir: %zu folders: at most %u are possible",
				 options->nvme_dir.n_items, BENCH_FOLDERS_MAX);
	if (options->no_read && options->no_write)
		return ctl_usage(ctl, "--no_read and --no_write: nothing is left to measure");
	bench_space_default(ret_space);
	if (options->sweep_config &&
	    bench_space_read(options->sweep_config, ret_space, text, sizeof(text)) < 0)
		return ctl_usage(ctl, "--sweep_config %s: %s", options->sweep_config, text);
	if (options->parallel)
		bench_space_set_parallel(ret_space, options->parallel);
	return bench_gpu_check(ctl, &options->gpu, "gds");
}
