#!/bin/sh
# Runs gotestsum with the arguments given. Up to three tests that fail are run once
# more; test/reruns writes them to the ledger bin/reruns.txt, which `make test` prints
# last, and fails when never.txt names one. Tests under the race detector do not come
# here: a race that was seen is there.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
events=$(mktemp)
trap 'rm -f "$events"' EXIT
status=0
go tool -modfile="$root/test/tools/gotestsum/go.mod" gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg \
	--rerun-fails=1 --rerun-fails-max-failures=3 --jsonfile="$events" "$@" || status=$?
(cd "$root" && go run ./test/reruns -events="$events" -ledger="${RERUNS:-bin/reruns.txt}") || status=1
exit $status
