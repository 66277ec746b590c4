#!/bin/sh
# Fails when the program has a function that it cannot reach: what only tests call is a
# second home of a rule, or waits for a use that never came. The linter's `unused` does
# not see it, for it is exported or a test calls it. What has to stay is in kept.txt, with
# its reason; a line there that is not needed any more is said.
set -eu
kept=test/tools/deadcode/kept.txt
found=$(mktemp)
listed=$(mktemp)
trap 'rm -f "$found" "$listed"' EXIT
go tool -modfile="$PWD/test/tools/deadcode/go.mod" deadcode \
	-f='{{range .Funcs}}{{println (printf "%s.%s" $.Path .Name)}}{{end}}' ./cmd/... >"$found"
grep . "$found" | sort >"$found.sorted" && mv "$found.sorted" "$found"
grep -v -e '^#' -e '^$' "$kept" | sort >"$listed"
dead=$(comm -23 "$found" "$listed")
stale=$(comm -13 "$found" "$listed")
[ -z "$dead" ] || printf 'no part of the program calls:\n%s\n' "$dead"
[ -z "$stale" ] || printf 'can go from %s, for the program calls it or does not have it:\n%s\n' "$kept" "$stale"
[ -z "$dead" ]
