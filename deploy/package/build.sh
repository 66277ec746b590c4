#!/bin/sh
# Builds packages of the program.
#
#	build.sh OUT [VERSION SOURCE]     OUT/sextant_VERSION_ARCH.deb, by default of this tree
#
# The environment: ARCH, amd64 or arm64, by default this machine's; FORMATS, some of "deb
# rpm tar.gz", by default deb; SOURCE_DATE_EPOCH, the time of all files in them, by default
# that of the commit. The same source gives the same bytes, in whatever folder it is.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -eq 1 ] || [ $# -eq 3 ] || { echo "usage: build.sh OUT [VERSION SOURCE]" >&2; exit 2; }
mkdir -p "$1"
OUT=$(cd "$1" && pwd) VERSION=${2-$("$here/deploy/build.sh" version)}
# 0.2.0-dev comes before 0.2.0: dpkg and rpm write that with a tilde (deb-version(7)).
PACKAGE_VERSION=$(printf %s "$VERSION" | sed "s/-/~/")
cd "${3-$here}"
: "${ARCH:=$(go env GOARCH)}" "${FORMATS:=deb}" "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
STAGE=$(mktemp -d)
trap 'rm -rf "$STAGE"' EXIT
DEB_VERSION=$PACKAGE_VERSION # its name in the source of 0.1.0
export PACKAGE_VERSION DEB_VERSION ARCH STAGE SOURCE_DATE_EPOCH
umask 022
mkdir -p "$STAGE/man" "$STAGE/completion"
GOARCH=$ARCH "$here/deploy/build.sh" "$STAGE/sextant" "$VERSION" .
echo "$VERSION" >"$STAGE/version"
go run ./cmd/sextant/mandocs "$STAGE/man"
gzip -9n "$STAGE"/man/*.1
# The program writes its completions; one of this machine, if that is of another kind.
self=$STAGE/sextant
if [ "$ARCH" != "$(go env GOHOSTARCH)" ]; then
	self=$STAGE/here
	GOARCH=$(go env GOHOSTARCH) "$here/deploy/build.sh" "$self" "$VERSION" .
fi
"$self" completion bash >"$STAGE/completion/sextant.bash"
"$self" completion zsh >"$STAGE/completion/_sextant"
"$self" completion fish >"$STAGE/completion/sextant.fish"
find "$STAGE" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +

nfpm() {
	go tool -modfile="$here/test/tools/nfpm/go.mod" nfpm package --config deploy/package/nfpm.yaml --packager "$1" --target "$OUT/$2"
}
for format in $FORMATS; do
	case $format in
	deb)
		nfpm deb "sextant_${PACKAGE_VERSION}_$ARCH.deb"
		# nfpm makes up a version where the configuration has none.
		if command -v dpkg-deb >/dev/null && ! dpkg-deb -f "$OUT/sextant_${PACKAGE_VERSION}_$ARCH.deb" Version | grep -qxF "$PACKAGE_VERSION"; then
			echo "build.sh: the package is not of version $PACKAGE_VERSION" >&2
			exit 1
		fi
		;;
	rpm)
		case $ARCH in amd64) rpm=x86_64 ;; arm64) rpm=aarch64 ;; *) rpm=$ARCH ;; esac
		nfpm rpm "sextant-$PACKAGE_VERSION-1.$rpm.rpm"
		;;
	tar.gz)
		name=sextant-$VERSION-linux-$ARCH
		mkdir "$STAGE/$name"
		cp -r "$STAGE/sextant" "$STAGE/man" "$STAGE/completion" LICENSE README.md CHANGELOG.md docs/operations.md deploy/systemd deploy/examples "$STAGE/$name"
		tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" -C "$STAGE" -c "$name" | gzip -9n >"$OUT/$name.tar.gz"
		;;
	*) echo "build.sh: FORMATS: $format is none of deb, rpm, tar.gz" >&2; exit 2 ;;
	esac
done
