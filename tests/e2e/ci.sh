#!/bin/bash
# The checks of .ci on small trees: a fault is reported with its place and its cause.
tree=$(mktemp -d "${TMPDIR:-/var/tmp}/dsaio-ci-XXXXXX") || exit 1
trap 'rm -rf "$tree"' EXIT
failed=0

# check NAME COMMAND TEXT...: the command of the tree fails, and its output has each text.
check() {
	local name=$1 command=$2 out text
	shift 2
	if out=$("$tree/.ci/$command" 2>&1); then
		echo "not ok ci: $name: $command succeeds"
		failed=1
		return
	fi
	for text in "$@"; do
		if ! grep -qF -e "$text" <<<"$out"; then
			echo "not ok ci: $name: \"$text\" is not in: $out"
			failed=1
			return
		fi
	done
	echo "ok ci: $name"
}

cp -r .ci "$tree/.ci"
mkdir -p "$tree"/{proto,daemon/base,client,man,systemd,tests}
touch "$tree"/{Makefile,README.md,HACKING.md}
: >"$tree/.ci/words.exceptions"
printf '/* Upward. */\n#include "daemon/lane/lane.h"\n' >"$tree/daemon/base/error.c"
check "an include upward is reported with its line and the rule" includes \
	"daemon/base/error.c:2: includes daemon/lane/lane.h: a file may include only its own folder" "0 of 1"
if command -v python3 >/dev/null; then
	printf '/* Gr\xfc\xdfe. */\n' >"$tree/daemon/base/log.c"
	check "a file that is not UTF-8 is reported" words "daemon/base/log.c: byte 5 is not UTF-8" "4 of 5"
else
	echo "skip ci: a file that is not UTF-8 is reported: needs python3"
fi
exit $failed
