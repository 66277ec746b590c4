#!/bin/sh
# Fuzzes for SECONDS in all: fuzz.sh [SECONDS [REGEXP]]
#
# Every fuzz test of every module has its turn: as many as get 15 s each, another few
# each day; all of them, in equal shares, when there is time for all. REGEXP chooses by
# "FOLDER NAME". Their seeds and what was found earlier (testdata/fuzz) run with the unit
# tests. Inputs that reach new code are kept in the cache of test/env/install.sh, folder
# fuzz; an input that fails is written to testdata/fuzz beside the test: commit it.
set -eu
total=${1:-30} chosen=${2:-.}
cd "$(dirname "$0")/../.."
cache=${SEXTANT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sextant}/fuzz
share=15

fail() {
	printf '%s\n' "$out"
	exit 1
}

list=$(find . -name '*_test.go' -not -path './bin/*' | xargs grep -H '^func Fuzz.*\*testing\.F)' |
	sed 's|^\./\(.*\)/[^/]*_test.go:func \(Fuzz[A-Za-z0-9_]*\)(.*|\1 \2|' | sort | grep -E "$chosen") || true
count=$(printf '%s' "$list" | grep -c . || true)
[ "$count" -gt 0 ] || { echo "fuzz: no fuzz tests"; exit 1; }
turns=$((total / share))
[ "$turns" -ge 1 ] || turns=1
[ "$turns" -le "$count" ] || turns=$count
each=$((total / turns))
first=$((($(date +%s) / 86400 * turns) % count))
printf '%s\n%s\n' "$list" "$list" | tail -n +$((first + 1)) | head -n "$turns" | while read -r dir name; do
	mkdir -p "$cache/$dir"
	out=$(cd "$dir" && go test -run='^$' -fuzz="^$name\$" -fuzztime="${each}s" -fuzzminimizetime=1s . -args -test.fuzzcachedir="$cache/$dir" 2>&1) || case $out in
	*"Failing input written to"* | *panic:*) fail ;;
	# Before Go 1.27 the end of the time itself may be reported (go.dev/issue/75804).
	*"--- FAIL: $name "*"
    context deadline exceeded
FAIL"*) ;;
	*) fail ;;
	esac
	execs=$(printf '%s\n' "$out" | sed -n 's/.*execs: \([0-9]*\).*/\1/p' | tail -n 1)
	echo "fuzz: $dir $name: ${execs:-no new} executions, $(find "$cache/$dir/$name" -type f 2>/dev/null | grep -c . || true) inputs kept"
done
echo "fuzz: $turns of $count tests, $each s each"
