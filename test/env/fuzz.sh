#!/bin/sh
# Runs every fuzz test of the main module for a moment: fuzz.sh SECONDS, which
# are shared out evenly, at least one each. What a fuzz test found earlier is in
# its testdata and runs with the unit tests as well.
set -eu

total=${1:-30}
list=$(go list -f '{{range .TestGoFiles}}{{$.Dir}}/{{.}} {{$.ImportPath}}
{{end}}{{range .XTestGoFiles}}{{$.Dir}}/{{.}} {{$.ImportPath}}
{{end}}' ./... | while read -r file package; do
	[ -n "$file" ] || continue
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*\*testing\.F).*/\1/p' "$file" | while read -r name; do
		echo "$package $name"
	done
done)
count=$(printf '%s' "$list" | grep -c . || true)
[ "$count" -gt 0 ] || { echo "fuzz: no fuzz tests"; exit 1; }
each=$((total / count))
[ "$each" -ge 1 ] || each=1

printf '%s\n' "$list" | while read -r package name; do
	out=$(go test -run='^$' -fuzz="^$name\$" -fuzztime="${each}s" "$package" 2>&1) || {
		printf '%s\n' "$out"
		exit 1
	}
	# Without a count the time went into running what is in testdata.
	execs=$(printf '%s\n' "$out" | sed -n 's/.*execs: \([0-9]*\).*/\1/p' | tail -n 1)
	echo "fuzz: ${package#*/*/*/} $name: ${execs:-no new} executions"
done
echo "fuzz: $count tests, $each s each"
