#!/bin/sh
# Builds a release: everything that a user of a version downloads.
#
#	release.sh OUT
#
# OUT gets packages for Debian and RPM and an archive, for each architecture; for each, a
# list of what is in the program (CycloneDX 1.6, *.cdx.json); an image that installs the
# package on the machine it runs on, for all architectures, with a DaemonSet of it and a
# kustomization (deploy/installer); the notes of the version; how it was built
# (provenance.json, an in-toto statement with SLSA's predicate, version 1); and the SHA-256
# of all of it. The environment:
#
#	ARCHS            the architectures, by default "amd64 arm64"
#	RELEASE_KEY      an SSH private key that signs SHA256SUMS (ssh-keygen -Y, namespace "file")
#	RELEASE_BUILDER  who builds, a URI for provenance.json
#
# The version is that of the file VERSION if the tag of that name is HEAD, else it has the
# commit, too. The same commit gives the same bytes, but for the signature and the builder.
set -eu
umask 022
[ $# -eq 1 ] || { echo "usage: release.sh OUT" >&2; exit 2; }
[ -z "${RELEASE_KEY-}" ] || RELEASE_KEY=$(realpath "$RELEASE_KEY")
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
[ -z "$(git status --porcelain)" ] || { echo "release.sh: the tree has changes: commit them first" >&2; exit 1; }
[ -z "$(ls -A "$out")" ] || { echo "release.sh: $1 is not empty" >&2; exit 1; }
# From a clone: what git ignores here does not matter, nor modes and times of files.
clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
git clone -q . "$clone"
git -C "$clone" checkout -q "$(git rev-parse HEAD)"
cd "$clone"
version=$(deploy/build.sh version)
[ "$(git tag --points-at HEAD --list "v$(cat VERSION)")" = "" ] || version=$(cat VERSION)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
for arch in ${ARCHS:-amd64 arm64}; do
	ARCH=$arch FORMATS="deb rpm tar.gz" deploy/package/build.sh "$out" "$version" .
	tar -x -z -f "$out/sextant-$version-linux-$arch.tar.gz" -C "$out" --strip-components=1 "sextant-$version-linux-$arch/sextant"
	go tool -modfile=test/tools/cyclonedx/go.mod cyclonedx-gomod bin -json -std -noserial -notimestamp -version "v$version" \
		-output "$out/sextant-$version-linux-$arch.cdx.json" "$out/sextant" 2>/dev/null
	rm "$out/sextant"
done
# A tag has no "+".
tag=$(printf %s "$version" | tr + _)
go run ./deploy/package/image -name "sextant.local/sextant:$tag" -o "$out/sextant-$version-image.tar" "$out"/sextant_*.deb
mkdir "$clone/installer"
for f in daemonset.yaml kustomization.yaml; do
	sed "s/\(\/sextant:\|newTag: \)VERSION/\1$tag/" "deploy/installer/$f" >"$clone/installer/$f"
done
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" -C "$clone" -c installer |
	gzip -9n >"$out/sextant-$version-installer.tar.gz"
# The section of the version, without its title.
awk -v want="## $(cat VERSION)" '/^## / { on = ($0 == want) ; next } on' CHANGELOG.md | sed '/./,$!d' >"$out/NOTES.md"
[ -s "$out/NOTES.md" ] || { echo "release.sh: CHANGELOG.md has no section $(cat VERSION)" >&2; exit 1; }
subjects=$(cd "$out" && sha256sum -- sextant* | awk '{ printf "%s{\"name\": \"%s\", \"digest\": {\"sha256\": \"%s\"}}", sep, $2, $1; sep = ", " }')
cat >"$out/provenance.json" <<END
{"_type": "https://in-toto.io/Statement/v1",
 "subject": [$subjects],
 "predicateType": "https://slsa.dev/provenance/v1",
 "predicate": {
  "buildDefinition": {
   "buildType": "https://github.com/sextant-node/sextant/blob/main/deploy/release.sh",
   "externalParameters": {"archs": "${ARCHS:-amd64 arm64}"},
   "internalParameters": {"go": "$(go env GOVERSION)", "SOURCE_DATE_EPOCH": "$SOURCE_DATE_EPOCH"},
   "resolvedDependencies": [{"uri": "git+https://github.com/sextant-node/sextant", "digest": {"gitCommit": "$(git rev-parse HEAD)"}}]
  },
  "runDetails": {"builder": {"id": "${RELEASE_BUILDER:-https://github.com/sextant-node/sextant/blob/main/Makefile}"}}
 }}
END
(cd "$out" && sha256sum -- * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
if [ -n "${RELEASE_KEY-}" ]; then
	ssh-keygen -q -Y sign -f "$RELEASE_KEY" -n file "$out/SHA256SUMS"
fi
cat "$out/SHA256SUMS"
