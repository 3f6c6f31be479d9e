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
	mkdir -p "$tree/client/lib" "$tree/client/python"
	printf 'struct place {\n\tint gpu_way; /* the way there */\n};\n' >"$tree/daemon/base/log.c"
	printf '/* struct\n   place { */\nstruct place {\n};\nvoid slot_give(void);\n' >"$tree/client/lib/slot.h"
	printf '"""A way."""\nops_ways = "way"\ndef way(self):\n' >"$tree/client/python/op.py"
	check "identifiers of another term and tags of two structs are reported" words \
		'daemon/base/log.c:2: "gpu_way": path' 'client/lib/slot.h:5: "slot_give": release' \
		'client/lib/slot.h:3: struct place: another one is in daemon/base/log.c:1: rename one' \
		'client/python/op.py:2: "ops_ways": path' "4 of 7"
	printf '%s\n' '[no memory]' 'daemon/base/log.c: f: return -2;' 'daemon/base/log.c: f: gone();' >"$tree/.ci/uncovered"
	printf 'int f(int r)\n{\n\tif (r)\n\t\treturn -1;\n\tif (r)\n\t\treturn -2;\n\treturn r;\n}\n' >"$tree/daemon/base/log.c"
	mkdir -p "$tree/build"
	cat >"$tree/build/coverage.json" <<-'END'
		{"files": [{"file": "daemon/base/log.c", "functions": [{"name": "f", "lineno": 1}], "lines": [
			{"line_number": 1, "count": 1, "gcovr/noncode": false}, {"line_number": 3, "count": 1, "gcovr/noncode": false},
			{"line_number": 4, "count": 0, "gcovr/noncode": false}, {"line_number": 5, "count": 1, "gcovr/noncode": false},
			{"line_number": 6, "count": 0, "gcovr/noncode": false}, {"line_number": 7, "count": 1, "gcovr/noncode": false}]}]}
	END
	BUILD=build check "lines that no test ran are compared with the list" coverage \
		"66.67 % of     6 lines  daemon/base" "not covered, not listed: daemon/base/log.c:4: daemon/base/log.c: f: return -1;" \
		"listed, but no longer in the source: daemon/base/log.c: f: gone();" "Fewer than 90 %"
	mkdir -p "$tree/proto" "$tree/client/"{lib,ctl} "$tree/client/python/dsaio"
	calls=(proto/a "void b(void), a(void); void a(void) { b(); }" proto/b "void a(void), b(void); void b(void) { a(); }"
		daemon/c "int c;" client/lib/d "int d;" client/ctl/e "int e;")
	for ((i = 0; i < ${#calls[@]}; i += 2)); do
		echo "${calls[i + 1]}" >"$tree/${calls[i]}.c"
		mkdir -p "$tree/build/$(dirname "${calls[i]}")"
		${CC:-gcc} -c -o "$tree/build/${calls[i]}.o" "$tree/${calls[i]}.c"
	done
	echo "from . import _b" >"$tree/client/python/dsaio/_a.py"
	echo "def f(): from ._a import x" >"$tree/client/python/dsaio/_b.py"
	cd "$tree" || exit 1
	BUILD=build check "circles of calls and of imports are reported" calls \
		"these call each other in a circle: proto/a.c, proto/b.c" "proto/a.c uses proto/b.c" \
		"in a circle: client/python/dsaio/_a.py, client/python/dsaio/_b.py" "3 of 7"
else
	echo "skip ci: .ci/words, .ci/calls: need python3"
fi
exit $failed
