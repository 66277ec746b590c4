#!/bin/sh
# Builds the release of HEAD twice, in two folders, with other settings of the user, and
# fails if one byte differs. It also checks a signature.
#
#	reproducible.sh     of ARCHS, by default "amd64"
set -eu
cd "$(dirname "$0")/../.."
: "${ARCHS:=amd64}"
export ARCHS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ssh-keygen -q -t ed25519 -N '' -C '' -f "$work/key"
git clone -q . "$work/elsewhere"
deploy/release.sh "$work/one" >/dev/null
(umask 077 && cd "$work/elsewhere" && TZ=Asia/Tokyo LC_ALL=C RELEASE_KEY=../key deploy/release.sh ../two >/dev/null)
echo "release $(cat "$work/key.pub")" >"$work/signers"
ssh-keygen -q -Y verify -f "$work/signers" -I release -n file -s "$work/two/SHA256SUMS.sig" <"$work/two/SHA256SUMS" >/dev/null
rm "$work/two/SHA256SUMS.sig"
diff -r "$work/one" "$work/two"
(cd "$work/one" && sha256sum --quiet -c SHA256SUMS && ls -s)
echo "twice the same"
