#!/bin/bash
# Run by check.sh in new pid, mount, uts, ipc, net and cgroup namespaces: makes DIR the root, with
# the file systems that systemd wants, and becomes systemd.
#
#   init.sh DIR [OPTION OF SYSTEMD]...
set -e
root=$1
shift
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755,size=64m tmpfs "$root/run"
mount -t tmpfs -o mode=755,size=64k tmpfs "$root/dev"
for device in null zero full random urandom tty; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
cd "$root"
mkdir -p old
pivot_root . old
exec env -i container=dsaio-check PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
	chroot . sh -c 'umount -l /old; rmdir /old
		exec /lib/systemd/systemd --system --log-target=journal --show-status=no "$@"' sh "$@"
