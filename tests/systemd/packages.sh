# The part of check.sh, which sources this file, about Debian packages: if `make deb` has built them from the sources
# of $BUILD, they are what is installed in the container.  Else `make install` is, and the checks below are skipped.
#
# prefix: set to /usr with packages.

packages=("$BUILD"/deb/{dsaiod,dsaiod-rados,dsaioctl,libdsaio-client0,libdsaio-client-dev,python3-dsaio}_*.deb)
package_names=(dsaiod dsaiod-rados dsaioctl libdsaio-client0 libdsaio-client-dev python3-dsaio)
packages_revision=0 # of those that are installed

packages_are_ours() {
	[ -e "${packages[0]}" ] && dpkg-deb --fsys-tarfile "$BUILD"/deb/dsaioctl_*.deb |
		tar -xO ./usr/bin/dsaioctl >"$work/dsaioctl" && chmod 755 "$work/dsaioctl" &&
		[ "$("$work/dsaioctl" --version)" = "$("$BUILD/dsaioctl" --version)" ]
}

# The next version: the same files, repacked.
packages_repack() {
	local package dir=$root/packages
	packages_revision=$((packages_revision + 1))
	rm -rf "$dir" && mkdir "$dir" || return 1
	for package in "${packages[@]}"; do
		dpkg-deb -R "$package" "$work/package" &&
			sed -i -E "/^Version:|=/s/([0-9]+\.[0-9]+\.[0-9]+)(\)|,|\$)/\1+$packages_revision\2/g" "$work/package/DEBIAN/control" &&
			dpkg-deb -Znone -b "$work/package" "$dir" && rm -rf "$work/package" || return 1
	done
}

# In the booted system, or before that.
packages_install() {
	local enter=(chroot "$root")
	[ -z "$init" ] || enter=(inside)
	# Images of containers have the first, which prevents services from starting.  The other takes seconds.
	rm -f "$root/usr/sbin/policy-rc.d" "$root/var/lib/man-db/auto-update"
	packages_repack && "${enter[@]}" env DEBIAN_FRONTEND=noninteractive sh -c 'dpkg -i /packages/*.deb'
}

# As after make install with prefix=/usr, too.
packages_have_version() {
	says "+$packages_revision" inside dpkg-query -W -f '${Version}' dsaiod
}

packages_upgrade() {
	local config=$work/config-before socket
	socket=$(ctl show -P ActiveEnterTimestampMonotonic dsaiod.socket)
	cp "$root/etc/dsaiod/dsaiod.conf" "$config" && packages_install && packages_have_version &&
		cmp "$config" "$root/etc/dsaiod/dsaiod.conf" &&
		says "$socket" ctl show -P ActiveEnterTimestampMonotonic dsaiod.socket
}

packages_install_and_listen() {
	packages_install && ctl is-enabled dsaiod.socket && ctl is-active dsaiod.socket &&
		says disabled ctl is-enabled dsaiod.service && says inactive ctl is-active dsaiod.service
}

packages_build_the_example() {
	sed -n '/^```c$/,/^```$/{/^```/d;p}' README.md | sed 's|/var/tmp/model.bin|/srv/store/model.bin|' >"$root/root/example.c"
	head -c 16M /dev/zero >"$work/store/model.bin" && inside sh -ec 'cd /root
		cc example.c $(pkg-config --cflags --libs libdsaio-client) && exec ./a.out'
}

packages_import() {
	as_nobody python3 -c '
import dsaio, os
data = os.urandom(1000001)
with dsaio.Handle() as handle:
    handle.submit_write(data, "/srv/store/python").wait()
assert dsaio.__file__.startswith("/usr/lib/python3/") and open("/srv/store/python", "rb").read() == data'
}

# ended COMMAND...: after it no daemon runs, nothing listens, and nothing is left that has failed.
ended() {
	local pid
	pid=$(main_pid)
	"$@" && ! inside test -e "/proc/${pid:-0}/exe" && ! inside test -e /run/dsaiod/dsaiod.sock && ctl daemon-reload &&
		fails ctl cat dsaiod.service && ! ctl list-units --all --plain --no-legend 'dsaiod*' | grep -v not-found
}

# The program's last line, after its error.
load_ended() {
	read -r -t 120 line <&9 && echo "$line"
}

removed() {
	client_works /srv/store/removed && ctl start dsaiod-metrics.service && ended inside dpkg -r "${package_names[@]}" &&
		inside test -e /etc/dsaiod/dsaiod.conf -a -d /var/lib/dsaiod
}

# The user stays: files may be its own.
purged() {
	ended inside dpkg -P "${package_names[@]}" && says dsaiod inside getent passwd dsaiod &&
		! inside sh -c 'ls -d /etc/dsaiod /var/lib/dsaiod /run/dsaiod /etc/systemd/system/*/dsaiod* \
			/var/lib/systemd/deb-systemd-helper-enabled/*dsaiod* 2>/dev/null | grep .'
}

packages_check() {
	check "packages: remove stops it, and leaves configuration and state" removed
	check "packages: purge removes them" purged
	check "packages: installed on a running system, the socket listens" packages_install_and_listen
	check "packages: a client as another user" client_works /srv/store/packages
	check "packages: a program in C is built and runs" packages_build_the_example
	check "packages: a program in Python runs" packages_import
	rm -f "$work"/load-*
	DSAIO_RECONNECT=1 load_start
	check "packages: a program works" load_says
	check "packages: purge while it works" purged
	check "packages: then it says that the daemon is gone" says "nobody listens on /run/dsaiod/dsaiod.sock" load_ended
	exec 8>&-
	wait "$load"
	check "packages: and ends with an error" test $? = 1
	exec 9<&-
}
