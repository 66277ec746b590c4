#!/bin/sh
# Unpacks the source of an earlier version, and prints that version.
#
#	previous.sh DIR [REVISION]     DIR is an empty folder
#
# REVISION is a commit, a tag or a version of releases.txt. Without one it is the last
# commit whose product is not this tree's: HEAD while the tree has changes of the
# product, else the parent of the last commit that changed it. Status 3: this copy of
# the repository has no such commit.
set -eu
dir=$(cd "$1" && pwd) revision=${2-}
cd "$(dirname "$0")/../.."

# changed COMMAND...: git's COMMAND on the paths that end up in the program.
changed() { git "$@" -- cmd pkg services proto go.mod go.sum ':(exclude)*_test.go' ':(exclude)*/testdata/*'; }

[ -e .git ] || { echo "previous.sh: no repository here" >&2; exit 3; }
if [ -z "$revision" ]; then
	revision=HEAD
	if changed diff --quiet HEAD; then
		revision="$(changed log -1 --format=%H)^"
	fi
	git rev-parse --verify --quiet "$revision^{commit}" >/dev/null || { echo "previous.sh: no commit with another product" >&2; exit 3; }
else
	revision=$(awk -v v="$revision" '$1 == v { v = $2 } END { print v }' test/env/releases.txt)
fi
commit=$(git rev-parse --verify "$revision^{commit}")
git archive --format=tar -o "$dir/source.tar" "$commit"
tar -x -f "$dir/source.tar" -C "$dir"
rm "$dir/source.tar"
base=$(cat "$dir/VERSION" 2>/dev/null || echo 0.0.0)
echo "$base+$(git rev-list --count "$commit").g$(git rev-parse --short=12 "$commit")"
