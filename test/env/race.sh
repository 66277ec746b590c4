#!/bin/sh
# The product's tests under the race detector. Those of packages that use
# testing/synctest have one processor: fake timers of a bubble share one race context,
# and where two threads come to use it at once the test binary ends with SIGSEGV in
# __tsan::SlotLock or a failed CHECK (golang/go#78156). The detector sees a race without
# two accesses at the same moment; all other packages have every processor.
set -eu
cd "$(dirname "$0")/../.."
bubbles=$(grep -rl --include='*_test.go' '"testing/synctest"' cmd pkg services | xargs -n1 dirname | sort -u | sed 's|^|./|')
others=$(go list -f '{{.Dir}}' ./cmd/... ./pkg/... ./services/... | sed "s|^$PWD|.|" | grep -vxF "$bubbles")

run() {
	packages=$1
	shift
	CGO_ENABLED=1 go tool -modfile="$PWD/test/tools/gotestsum/go.mod" gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg \
		--packages="$packages" -- -race -ldflags="-s -w" -timeout=30m -p="$(nproc)" "$@"
}

run "$(echo $bubbles)" -cpu=1 &
status=0
run "$(echo $others)" || status=$?
wait $! || status=$?
exit $status
