/*
 * dsaioctl bench: the list of measurements.
 *
 * Each measurement has its own file, flags and help.  Their common part is in the folder bench/; start
 * with bench.h.
 */

#include "client/ctl/cmd/command.h"

#include <stddef.h>

static const struct command *const parts[] = { &command_bench_io,     &command_bench_sweep,
					       &command_bench_tune,   &command_bench_latency,
					       &command_bench_mix,    &command_bench_report,
					       &command_bench_replay, NULL };

static const char help[] =
	"dsaioctl bench - measure the way to a store\n"
	"\n"
	"    dsaioctl bench io --dir /nvme --io_size 400M --read\n"
	"                                 one measurement, as ds_io makes it\n"
	"    dsaioctl bench sweep --dir /nvme\n"
	"                                 every point of a space of profiles, as\n"
	"                                 aio_bench_perf_sweep does\n"
	"    dsaioctl bench tune --dir /nvme --apply\n"
	"                                 the best of them, in a fifth of the time, and set it\n"
	"    dsaioctl bench latency --dir /nvme\n"
	"                                 how long single transfers take, as DS-AIO-Benchmark\n"
	"    dsaioctl bench mix job.fio --dir /nvme\n"
	"                                 what clients of different kinds get, alone and together\n"
	"    dsaioctl bench replay job.ops --dir /nvme\n"
	"                                 the ops of a job again, which dsaioctl trace record\n"
	"                                 has recorded\n"
	"    dsaioctl bench report _aio_bench_logs\n"
	"                                 results as a page with pictures\n"
	"\n"
	"Each but mix is a guest: its transfers are of the class background, so that it is safe\n"
	"beside programs at work that use the daemon.  Points that others on the device disturbed are\n"
	"marked.\n"
	"dsaioctl bench NAME --help, and dsaioctl-bench(1), tell more.\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers\n";

const struct command command_bench = COMMAND(
	"bench", NULL, "measure the way to a store: one point or many", help, .parts = parts);
