#!/bin/sh
# Builds the Debian package.
#
#	build.sh VERSION OUT     OUT/sextant_VERSION_ARCH.deb
#
# BUILD_FLAGS are those of go build; a package that is not given away may do without
# the default, -trimpath, which shares no cache with other builds.
set -eu
cd "$(dirname "$0")/../.."
[ $# -eq 2 ] || { echo "usage: build.sh VERSION OUT" >&2; exit 2; }
DEB_VERSION=$1 OUT=$2
ARCH=$(go env GOARCH)
STAGE=$(mktemp -d)
trap 'rm -rf "$STAGE"' EXIT
export DEB_VERSION ARCH STAGE
mkdir -p "$OUT" "$STAGE/man" "$STAGE/completion"
# shellcheck disable=SC2086 # a list of flags
CGO_ENABLED=0 go build ${BUILD_FLAGS--trimpath} -tags grpcnotrace -ldflags "-s -w -X github.com/sextant-node/sextant/pkg/service.Version=$DEB_VERSION" -o "$STAGE/sextant" ./cmd/sextant
echo "$DEB_VERSION" >"$STAGE/version"
go run ./cmd/sextant/mandocs "$STAGE/man"
gzip -9n "$STAGE"/man/*.1
"$STAGE/sextant" completion bash >"$STAGE/completion/sextant.bash"
"$STAGE/sextant" completion zsh >"$STAGE/completion/_sextant"
"$STAGE/sextant" completion fish >"$STAGE/completion/sextant.fish"
go tool -modfile=test/tools/nfpm/go.mod nfpm package --config deploy/package/nfpm.yaml --packager deb --target "$OUT/sextant_${DEB_VERSION}_$ARCH.deb"
