#!/bin/sh
# Builds the program. Packages, tests, benchmarks and `make build` all run what this
# builds, so that what is measured is what ships; test/rules finds any other build.
#
#	build.sh OUT [VERSION [SOURCE]]   OUT is the program of the tree SOURCE (default: this one)
#	build.sh version                  prints the version that this tree builds by default
#
# A version is the text of the file VERSION with the number of commits, the commit and
# ".dirty" as build metadata, as in 0.2.0-dev+350.g6eca5ee: it rises from commit to
# commit for semver.org's readers and for dpkg. Without git it is that of the file
# alone.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)

in_git() { [ -e .git ] && git rev-parse --verify --quiet HEAD >/dev/null 2>&1; }

version() {
	printf '%s' "$(cat VERSION)"
	in_git || return 0
	printf '+%s.g%s' "$(git rev-list --count HEAD)" "$(git describe --always --exclude='*' --abbrev=12 --dirty=.dirty)"
}

case $#,${1-} in
1,version) cd "$here" && version && echo && exit ;;
[123],*) ;;
*) echo "usage: build.sh OUT [VERSION [SOURCE]]" >&2; exit 2 ;;
esac
case $1 in
/*) out=$1 ;;
*) out=$PWD/$1 ;;
esac
cd "${3-$here}"
vcs=false
! in_git || vcs=true
# Without grpcnotrace gRPC imports templates, which keep the linker from dropping
# methods without callers: a fourth of the program (docs/measurements.md).
CGO_ENABLED=0 GOWORK=off GOFLAGS= exec go build -trimpath -buildvcs=$vcs -tags=grpcnotrace \
	-ldflags="-s -w -X github.com/sextant-node/sextant/pkg/service.Version=${2-$(version)}" \
	-o "$out" ./cmd/sextant
