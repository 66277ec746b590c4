// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// resultsOld is how many commits of the product may lie between a file of results and
// HEAD, a few days' worth where each fault has its own. A file that is older says little of
// the program that ships: make it again (each names its make target), or take it out.
const resultsOld = 300

// resultsHead is what harness.Lab.Header writes. Files of before it say that the
// machine was not recorded.
var resultsHead = regexp.MustCompile(`(?m)^commit ([0-9a-f]{7,12})(-dirty)?, (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ), (machine not recorded|\d+ cores, .*load.*)$`)

// TestResults: a table under docs says which program it is of, when it was made and on
// what, and is not too old.
func TestResults(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(root, "docs/*.txt"))
	if err != nil || len(found) < 5 {
		t.Fatalf("tables %v, %v", found, err)
	}
	for _, path := range append(found, filepath.Join(root, "docs/bench/bench.txt"), filepath.Join(root, "docs/conformance.md")) {
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		text := read(t, name)
		head := resultsHead.FindStringSubmatchIndex(text)
		if head == nil || head[0] > 0 && filepath.Ext(name) == ".txt" {
			t.Errorf("%s does not begin with its commit, date and machine (harness.Lab.Header)", name)
			continue
		}
		commit, made := text[head[2]:head[3]], text[head[6]:head[7]]
		age, ok := productCommitsSince(commit)
		if !ok { // the history does not have it: the last commit before the file was made
			commit = strings.TrimSpace(git("rev-list", "-1", "--before="+made, "HEAD"))
			age, ok = productCommitsSince(commit)
		}
		if !ok {
			t.Logf("%s is of %s, where this copy of the repository does not reach back to", name, made)
		} else if age > resultsOld {
			t.Errorf("%s is of %s, %d commits of the product ago, at most %d: make it again", name, made, age, resultsOld)
		}
	}
}

// productCommitsSince counts the commits since one that changed what ends up in the
// program; false where the history does not reach back to it.
func productCommitsSince(commit string) (int, bool) {
	if commit == "" {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(git("rev-list", "--count", commit+"..HEAD", "--", "cmd", "pkg", "services", "proto", ":(exclude)*_test.go", ":(exclude)*/testdata/*")))
	return n, err == nil
}

// git is what it prints; nothing where it fails.
func git(args ...string) string {
	cmd := exec.Command("git", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return string(out)
}
