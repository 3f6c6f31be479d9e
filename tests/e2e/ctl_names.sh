#!/bin/bash
# What dsaioctl takes and prints: sizes as it prints them.
. "$(dirname "$0")/ctl_common.sh"

sizes_are_taken_as_they_are_printed() {
	expect 0 "$ctl" bench io --folder "$store" --io_size 64KiB --block_size 16kib --loops 1 &&
		expect 0 "$ctl" profile set t block_size=1MiB && says "$dir/out" "1 MiB" &&
		expect 0 "$ctl" profile reset t &&
		expect 2 "$ctl" bench io --folder "$store" --io_size 64KB && says "$dir/err" "--io_size 64KB" "1MiB"
}

start_daemon
for t in sizes_are_taken_as_they_are_printed; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
