#!/bin/bash
# make check-report: benches of a private daemon, their report in headless Chromium: light, dark,
# narrow, and printed; no text may lie on another.  The pictures stay in $BUILD/report, to be
# looked at.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}") || exit 1
ctl=$build/dsaioctl
out=$build/report
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/dsaio-report-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
rm -rf "$out" && mkdir -p "$out" || exit 1
passed=0 failed=0

verdict() { # NAME STATUS [WHY]
	if [ "$2" = 0 ]; then
		passed=$((passed + 1)); echo "ok $1"
	else
		failed=$((failed + 1)); echo "not ok $1: ${3:-}"
	fi
}

# Chromium keeps what it likes in HOME.
browse() {
	HOME=$dir timeout 60 chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars \
		--virtual-time-budget=2000 "$@" 2>>"$dir/chromium.log"
}

# PAGE NAME: a copy with overlaps.js, looked at, and a picture of the page itself.
look() { # PAGE NAME WIDTH HEIGHT [CHROMIUM-OPTION]...
	local page=$1 name=$2 width=$3 height=$4 why
	shift 4
	sed "s|</body>|<script>$(sed 's|^[[:space:]]*//.*||; s|[&\\|]|\\&|g' tests/report/overlaps.js |
		tr '\n' ' ')</script></body>|" "$page" >"$dir/look.html"
	why=$(browse "$@" --window-size="$width,$height" --dump-dom "file://$dir/look.html" |
		sed -n 's/.*data-overlaps="\([^"]*\)".*/\1/p' | head -n 1)
	[[ $why = "none of "* ]]
	verdict "$name: no text lies on another ($why)" $? "$why"
	browse "$@" --window-size="$width,$height" --screenshot="$out/$name.png" "file://$page" &&
		[ -s "$out/$name.png" ]
	verdict "$name: a picture" $? "$(tail -n 1 "$dir/chromium.log")"
}

bench() {
	"$ctl" bench "$@" --private --nvme_dir "$dir" >"$dir/log" 2>&1
	verdict "bench $1" $? "$(tail -n 1 "$dir/log")"
}

echo '{"block_size": ["64K", "128K", "256K", "1M", "2M"], "queue_depth": [4, 8, 16, 32, 128],
	"sequential_requests": [true, false], "io_parallel": [1, 2, 4]}' >"$dir/many.json"
bench sweep --io_size 4M --sweep_config "$dir/many.json" --log_dir "$dir/many"
bench sweep --io_size 16M --loops 3 --log_dir "$dir/default"
bench tune --io_size 32M --log_dir "$dir/tune"
"$ctl" bench latency --private --nvme-path "$dir" --sizes 64K 1M 4M --iterations 100 \
	--log_dir "$dir/latency" >"$dir/log" 2>&1
verdict "bench latency" $? "$(tail -n 1 "$dir/log")"

for run in many default tune latency; do
	"$ctl" bench report "$dir/$run" -o "$out/$run.html" >/dev/null
	verdict "report of $run" $?
	look "$out/$run.html" "$run-light" 1400 2600
done
"$ctl" bench report "$dir/default" "$dir/tune" "$dir/latency" -o "$out/three.html" >/dev/null
verdict "report of three runs" $?
look "$out/three.html" three-light 1600 3600
look "$out/three.html" three-dark 1600 3600 --blink-settings=preferredColorScheme=0
# A window cannot be as narrow as a telephone, but a page can.
sed 's|<body>|<body style="max-width:340px">|' "$out/three.html" >"$dir/narrow.html"
look "$dir/narrow.html" narrow-light 500 4000
browse --no-pdf-header-footer --print-to-pdf="$out/print.pdf" "file://$out/three.html" &&
	pdftoppm -r 60 -png "$out/print.pdf" "$out/print" && [ -s "$(ls "$out"/print-*1.png | head -n 1)" ]
verdict "print" $? "$(tail -n 1 "$dir/chromium.log")"
pdftotext "$out/print.pdf" - 2>/dev/null | grep -q 'Best profiles'
verdict "print: its text is text" $?

echo "pictures: $out"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
