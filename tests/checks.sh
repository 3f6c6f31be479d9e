# Functions of tests/*/check.sh, which source this file: a line for each check, then N passed, N failed, N skipped.
#
# suite: set before; a word for each line.

passed=0 failed=0 skipped=0

# The whole suite cannot run here.
skip_all() {
	echo "skip check-$suite: $1"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}

# check NAME COMMAND...: passes if the command does.
check() {
	local what=$1 said
	shift
	if said=$("$@" 2>&1); then
		passed=$((passed + 1)); echo "ok $suite: $what"
	else
		failed=$((failed + 1)); echo "not ok $suite: $what: $(tail -c 2000 <<<"$said")"
	fi
}

skip() {
	skipped=$((skipped + 1)); echo "skip $suite: $1"
}

# says TEXT COMMAND...: the command, whatever its status, says that.
says() {
	local wanted=$1 said
	shift
	said=$("$@" 2>&1)
	[[ $said == *"$wanted"* ]] || { echo "wanted \"$wanted\", got: $said"; return 1; }
}

# The last line, and the status of the script.
sums() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ $failed = 0 ]
}
