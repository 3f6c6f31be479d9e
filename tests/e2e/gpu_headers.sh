#!/bin/bash
# Our declarations of libcuda and libcufile are those of the vendor's headers: sizes, offsets,
# values and prototypes.  Each directory that has cuda.h, alone or with cufile.h, is compared: those of
# toolkits, of PyPI's wheels, and of $GPU_HEADERS (several with ":" between them).
#
#     tests/e2e/gpu_headers.sh [PART OF A NAME]
cd "$(dirname "$0")/../.." || exit 1
cc=${CC:-cc}
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/dsaio-test-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
wanted=$1
failed=0

# The wheels of the interpreter that is first on the path, and of the build's own environments.
wheels() {
	python3 -c 'import nvidia; print(*nvidia.__path__, sep="\n")' 2>/dev/null
	find "${BUILD:-build}" -maxdepth 6 -path '*/site-packages/nvidia' 2>/dev/null
}

folders() {
	local wheel
	echo "${GPU_HEADERS:-}" | tr : '\n'
	printf '%s\n' "${CUDA_HOME:-/usr/local/cuda}/include" /usr/local/cuda*/include /usr/include
	wheels | while read -r wheel; do
		printf '%s\n' "$wheel"/*/include
	done
}

# with HEADER: the folders that have it, each once.
with() {
	folders | while read -r folder; do
		[ ! -e "$folder/$1" ] || realpath "$folder"
	done | sort -u
}

# values NAME FLAG...: prints the numbers of the declarations; $dir/refused gets the compiler's reason.
values() {
	local name=$1
	shift
	"$cc" -std=gnu17 -D_GNU_SOURCE -I. "$@" -o "$dir/$name" tests/gpu/headers.c \
		2>"$dir/refused" && "$dir/$name"
}

# compare HEADER NUMBER FLAG...: one line.
compare() {
	local header=$1 vendor=$2 name="declarations: as in $1"
	shift 2
	case $name in *"$wanted"*) ;; *) return ;; esac
	if ! values vendor -DVENDOR="$vendor" "$@" >"$dir/vendor.out"; then
		echo "not ok $name: it does not compile beside it: $(grep -m 1 error "$dir/refused")"
		failed=1
	elif [ "$vendor" = 2 ] && ! diff "$dir/ours.out" "$dir/vendor.out" >"$dir/diff"; then
		echo "not ok $name: $(tr '\n' ' ' <"$dir/diff")"
		failed=1
	elif [ "$vendor" = 1 ] && grep -qvxFf "$dir/ours.out" "$dir/vendor.out"; then
		echo "not ok $name: $(grep -vxFf "$dir/ours.out" "$dir/vendor.out" | tr '\n' ' ')"
		failed=1
	else
		echo "ok $name"
	fi
}

values ours >"$dir/ours.out" || { echo "not ok declarations: $(cat "$dir/refused")"; exit 1; }
cuda=
while read -r folder; do
	cuda=$folder
	compare "$folder/cuda.h" 1 -isystem "$folder"
done < <(with cuda.h)
# cufile.h includes cuda.h, which lies beside it only if the package with that is installed there, too.
cufile=
while read -r folder; do
	cufile=$folder
	[ -z "$cuda" ] || compare "$folder/cufile.h" 2 -isystem "$folder" -isystem "$cuda"
done < <(with cufile.h)
[ -n "$cuda" ] || echo "skip declarations: as in cuda.h: no package with NVIDIA's header is installed"
[ -n "$cuda" ] && [ -n "$cufile" ] ||
	echo "skip declarations: as in cufile.h: no package with NVIDIA's header, and cuda.h for it, is installed"
exit $failed
